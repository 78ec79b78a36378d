"""Structured sparsity: matrices half of whose elements are zeros, as ``T.gemm_sp`` takes them."""

from __future__ import annotations

import torch

_METADATA = {8: torch.uint8, 16: torch.int16, 32: torch.int32}


def compress(
    matrix: torch.Tensor, metadata_dtype: torch.dtype = torch.int16
) -> tuple[torch.Tensor, torch.Tensor]:
    """Leaves out the zeros of a 2:4 sparse matrix (float32: 1:2).

    Parameters
    ----------
    matrix
        (M, K); of every four elements of a row, starting at multiples of four, at most two are
        not zero (float32: of every two one).
    metadata_dtype
        torch.uint8, int16 or int32.

    Returns
    -------
    The elements that are kept, (M, K / 2), and which they are, (M, K / bits of the metadata's
    dtype) (float32: twice as many), both as ``T.gemm_sp`` reads them (PTX ISA, Sparse matrix
    storage).

    Raises
    ------
    ValueError
        If the matrix has too many elements that are not zero, or K is no multiple of the
        elements that one element of the metadata describes.

    Example
    -------
    ``values, metadata = compress(a, torch.int16)``
    """
    bits = torch.iinfo(metadata_dtype).bits
    if _METADATA.get(bits) is not metadata_dtype:
        raise ValueError(f"found metadata of {metadata_dtype}, wanted uint8, int16 or int32")
    group = 2 if matrix.dtype == torch.float32 else 4
    if matrix.dim() != 2 or matrix.shape[1] % (bits * group // 4):
        raise ValueError(
            f"found a matrix of shape {tuple(matrix.shape)}, wanted (M, K), K a multiple of "
            f"{bits * group // 4}"
        )
    m, k = matrix.shape
    groups = matrix.view(m, k // group, group)
    used = groups.to(torch.float32) != 0
    if int(used.sum(-1).max()) > group // 2:
        raise ValueError(
            f"found a group of {group} elements with more than {group // 2} that are not zero; "
            "set the others to zero first"
        )
    # Those in use first, in their order; zeros of the lowest numbers fill up what is free.
    kept = used.to(torch.int8).argsort(dim=-1, descending=True, stable=True)[..., : group // 2]
    kept = kept.sort(dim=-1).values
    codes = kept[..., 0] * 10 + 4 if group == 2 else kept[..., 0] | kept[..., 1] << 2
    shifts = torch.arange(0, bits, 4, device=matrix.device)
    words = (codes.view(m, -1, bits // 4) << shifts).sum(-1)
    bytes_of = torch.uint8 if matrix.element_size() == 1 else matrix.dtype
    values = groups.view(bytes_of).gather(-1, kept).view(matrix.dtype).view(m, k // 2)
    return values, words.to(metadata_dtype)
