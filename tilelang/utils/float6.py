"""Tensors of 6-bit floats as bytes: torch has no dtype for them.

A row of n elements of ``float6_e2m3fn`` or ``float6_e3m2fn`` (OCP Microscaling Formats v1.0, FP6)
is 3 n / 4 bytes: element e is bits 6 e to 6 e + 5 of the row, the lowest bits of a byte first, as
the MFMA of gfx950 takes them from registers. A code is a sign, an exponent and a mantissa, from the
highest bit on; there are no infinities and no NaN.
"""

from __future__ import annotations

import torch

_EXPONENT_BITS = {"float6_e2m3fn": 2, "float6_e3m2fn": 3}


def values(dtype: str) -> torch.Tensor:
    """The 64 values of a dtype, of the codes 0 to 63, in float32.

    Raises `ValueError` for a dtype that has not 6 bits.

    Example: ``float(values("float6_e2m3fn").max()) == 7.5``
    """
    exponent_bits = _EXPONENT_BITS.get(str(dtype))
    if exponent_bits is None:
        raise ValueError(f"found dtype {dtype}, wanted {' or '.join(_EXPONENT_BITS)}")
    mantissa_bits = 5 - exponent_bits
    codes = torch.arange(64)
    exponent = codes >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = codes & (1 << mantissa_bits) - 1
    fraction = mantissa / 2**mantissa_bits + (exponent > 0)
    power = exponent.clamp(min=1) - ((1 << exponent_bits - 1) - 1)
    return torch.where(codes < 32, 1.0, -1.0) * fraction * power.float().exp2()


def pack(x: torch.Tensor, dtype: str) -> torch.Tensor:
    """The nearest elements of `dtype` to `x`, ties to the even code, as bytes.

    Values beyond the largest one become it. `x` has shape (.., n), n a multiple of 4; the result is
    of uint8 and shape (.., 3 n / 4).

    Raises `ValueError` for another n, for NaN, and for a dtype that has not 6 bits.

    Example: ``pack(torch.tensor([0.0, 1.0, 2.0, -1.0]), "float6_e3m2fn").shape == (3,)``
    """
    if x.isnan().any():
        raise ValueError(f"found NaN, which {dtype} has not; replace it")
    positive = values(dtype)[:32].to(x.device, torch.float64)
    # Of the values between which x is, the nearer one; in the middle the one with the even code.
    middles = (positive[1:] + positive[:-1]) / 2
    magnitude = x.to(torch.float64).abs()
    low, high = (torch.bucketize(magnitude, middles, right=right) for right in (False, True))
    codes = torch.where(low % 2 == 0, low, high) | x.signbit().long() << 5
    return pack_codes(codes)


def pack_codes(codes: torch.Tensor) -> torch.Tensor:
    """Codes from 0 to 63, of shape (.., n), as bytes (.., 3 n / 4).

    Raises `ValueError` if n is no multiple of 4.

    Example: ``pack_codes(torch.tensor([1, 0, 0, 0])).tolist() == [1, 0, 0]``
    """
    if codes.ndim == 0 or codes.shape[-1] % 4:
        raise ValueError(f"found shape {tuple(codes.shape)}, wanted rows of a multiple of 4")
    fours = codes.to(torch.int64).unflatten(-1, (-1, 4))
    word = (fours << torch.arange(0, 24, 6, device=codes.device)).sum(-1, keepdim=True)
    parts = word >> torch.arange(0, 24, 8, device=codes.device) & 255
    return parts.to(torch.uint8).flatten(-2)


def unpack_codes(packed: torch.Tensor) -> torch.Tensor:
    """The codes, from 0 to 63, that bytes (.., 3 n / 4) of uint8 hold: (.., n) of uint8.

    Raises `ValueError` for rows that are no multiple of 3 bytes.

    Example: ``unpack_codes(pack_codes(codes))`` is ``codes``
    """
    if packed.dtype != torch.uint8 or packed.ndim == 0 or packed.shape[-1] % 3:
        raise ValueError(
            f"found {tuple(packed.shape)} of {packed.dtype}, wanted rows of a multiple of 3 uint8"
        )
    threes = packed.to(torch.int64).unflatten(-1, (-1, 3))
    word = (threes << torch.arange(0, 24, 8, device=packed.device)).sum(-1, keepdim=True)
    codes = word >> torch.arange(0, 24, 6, device=packed.device) & 63
    return codes.to(torch.uint8).flatten(-2)


def unpack(packed: torch.Tensor, dtype: str) -> torch.Tensor:
    """The values that bytes (.., 3 n / 4) of uint8 hold, in float32: (.., n).

    Raises `ValueError` as `unpack_codes`, and for a dtype that has not 6 bits.

    Example: ``unpack(pack(x, "float6_e2m3fn"), "float6_e2m3fn")`` is `x`, rounded
    """
    return values(dtype).to(packed.device)[unpack_codes(packed).long()]
