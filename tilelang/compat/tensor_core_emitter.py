"""Products of a warp's matrices by hand: what `tilelang.intrinsics` names."""

from __future__ import annotations

from typing import Any

from tvm import ir

from tilelang.compat.mma_layouts import (
    MICRO_ROWS,
    WARP_SIZE,
    get_mma_micro_size,
    mma_store_index_map,
)
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.launch import get_thread_binding
from tilelang.language.mma import mma_row, ptx_ldmatrix, ptx_mma, ptx_stmatrix, type_of
from tilelang.language.regions import store, subscript

_NAME = "TensorCoreIntrinEmitter"


class TensorCoreIntrinEmitter:
    """Emits loads, products and stores of the tile that each warp of a block works on, in squares
    of 16 by 16: ``ldmatrix``, two ``mma`` of 16 rows and 8 columns each, stores.

    A lane has ``warp_rows * local_size_a`` elements of A, ``warp_cols * local_size_b`` of B and
    ``warp_rows * warp_cols * local_size_out`` of C, in arrays of the thread (``T.alloc_local``).

    Parameters
    ----------
    a_dtype, b_dtype, accum_dtype
        Data types for which there is an ``mma`` of 16 rows and 8 columns.
    a_transposed, b_transposed
        Whether A is stored as (K, M), which 16-bit types only may be, and B as (N, K), which all
        others have to be.
    block_row_warps, block_col_warps
        Warps of the block along M and along N.
    warp_row_tiles, warp_col_tiles
        Rows and columns of a warp's tile, multiples of 16.
    chunk
        Extent of the tiles in shared memory along K, a multiple of ``micro_size_k``.
    reduce_k
        How many parts of K of ``chunk`` each lie side by side.
    num_elems_per_byte
        Elements of B in a byte, which the program unpacks itself: no effect.
    is_m_first
        Whether the warps of a block follow each other along M.

    Raises
    ------
    ValueError
        If there is no such instruction; if a size is no multiple as above; for other types stored
        the other way.

    Example
    -------
    ``TensorCoreIntrinEmitter("float16", "float16", "float32", b_transposed=True, chunk=32)``
    """

    WARP_SIZE = WARP_SIZE

    def __init__(
        self,
        a_dtype: Any = "float16",
        b_dtype: Any = "float16",
        accum_dtype: Any = "float16",
        a_transposed: bool = False,
        b_transposed: bool = False,
        block_row_warps: int = 2,
        block_col_warps: int = 2,
        warp_row_tiles: int = 8,
        warp_col_tiles: int = 8,
        chunk: int = 16,
        reduce_k: int = 1,
        num_elems_per_byte: int = 1,
        is_m_first: bool = False,
    ):
        self.a_dtype, self.b_dtype, self.accum_dtype = (
            type_of(_NAME, t) for t in (a_dtype, b_dtype, accum_dtype)
        )
        self.a_transposed, self.b_transposed = a_transposed, b_transposed
        self.block_row_warps, self.block_col_warps = block_row_warps, block_col_warps
        self.warp_row_tiles, self.warp_col_tiles = warp_row_tiles, warp_col_tiles
        self.chunk, self.reduce_k = chunk, reduce_k
        self.num_elems_per_byte, self.is_m_first = num_elems_per_byte, is_m_first
        sizes = get_mma_micro_size(self.a_dtype)
        self.micro_size_x, self.micro_size_y, self.micro_size_k = sizes
        self.shape = f"m16n8k{self.micro_size_k}"
        types = (self.a_dtype, self.b_dtype, self.accum_dtype)
        row = mma_row(_NAME, self.shape, types)
        self.local_size_a, self.local_size_b, self.local_size_out = row.a, 2 * row.b, 2 * row.c
        self._check()
        self.warp_rows = warp_row_tiles // self.micro_size_x
        self.warp_cols = warp_col_tiles // self.micro_size_y
        self.threads = WARP_SIZE * block_row_warps * block_col_warps * reduce_k
        # Elements of 16 bytes, a row of a matrix that ldmatrix loads.
        self._piece = self.micro_size_k // 2

    def _check(self) -> None:
        multiples = (
            ("warp_row_tiles", self.warp_row_tiles, self.micro_size_x),
            ("warp_col_tiles", self.warp_col_tiles, self.micro_size_y),
            ("chunk", self.chunk, self.micro_size_k),
        )
        for name, found, wanted in multiples:
            if found < 1 or found % wanted:
                raise ValueError(
                    f"{name} of {_NAME} is {found}, wanted a multiple of {wanted} for "
                    f"{self.a_dtype}"
                )
        if data_type(self.a_dtype).bits == 16:
            return
        if self.a_transposed or not self.b_transposed:
            raise ValueError(
                f"{_NAME} found operands of {self.a_dtype} with a_transposed={self.a_transposed} "
                f"and b_transposed={self.b_transposed}, wanted False and True: ldmatrix transposes "
                "16-bit elements only; store A as (M, K) and B as (N, K)"
            )

    def extract_thread_binding(
        self, thread_id: Any, is_m_first: bool | None = None
    ) -> tuple[Any, Any, Any]:
        """Return a thread's lane, and its warp's place along N and along M."""
        m_first = self.is_m_first if is_m_first is None else is_m_first
        warp = thread_id // WARP_SIZE
        rows, columns = self.block_row_warps, self.block_col_warps
        if m_first:
            return thread_id % WARP_SIZE, warp // rows % columns, warp % rows
        return thread_id % WARP_SIZE, warp % columns, warp // columns % rows

    def get_thread_binding(self) -> Any:
        """Return the number of the thread in its block."""
        return get_thread_binding(0)

    def ldmatrix_a(self, A_local_buf: Any, A_shared_buf: Any, ki: Any, rk: Any = 0) -> None:
        """Load step ``ki`` along K of the warp's rows of A, from the tile in shared memory."""
        lane, _, warp_m = self.extract_thread_binding(self.get_thread_binding())
        matrix, row = lane // 8, lane % 8
        for i in range(self.warp_rows):
            m = warp_m * self.warp_row_tiles + i * MICRO_ROWS
            k = rk * self.chunk + ki * self.micro_size_k
            if self.a_transposed:
                place = [k + matrix // 2 * 8 + row, m + matrix % 2 * 8]
            else:
                place = [m + matrix % 2 * 8 + row, k + matrix // 2 * self._piece]
            self._load(self.a_transposed, A_shared_buf, place, A_local_buf, i * self.local_size_a)

    def ldmatrix_b(self, B_local_buf: Any, B_shared_buf: Any, ki: Any, rk: Any = 0) -> None:
        """Load step ``ki`` along K of the warp's columns of B, from the tile in shared memory."""
        lane, warp_n, _ = self.extract_thread_binding(self.get_thread_binding())
        matrix, row = lane // 8, lane % 8
        for j in range(self.warp_cols):
            n = warp_n * self.warp_col_tiles + j * MICRO_ROWS
            k = rk * self.chunk + ki * self.micro_size_k
            if self.b_transposed:
                place = [n + matrix // 2 * 8 + row, k + matrix % 2 * self._piece]
            else:
                place = [k + matrix % 2 * 8 + row, n + matrix // 2 * 8]
            trans = not self.b_transposed
            self._load(trans, B_shared_buf, place, B_local_buf, j * self.local_size_b)

    @staticmethod
    def _load(trans: bool, tile: Any, place: list[Any], registers: Any, first: int) -> None:
        source = subscript(tile, tuple(place))
        ptx_ldmatrix(trans, 4, source, subscript(registers, first))

    def mma(self, A_local_buf: Any, B_local_buf: Any, C_local_buf: Any, k_inner: int = 0) -> None:
        """Add the products of what was loaded; ``k_inner`` is the number of the step whose
        registers A and B are, where the arrays have several."""
        of_a = k_inner * self.warp_rows * self.local_size_a
        of_b = k_inner * self.warp_cols * self.local_size_b
        types = (self.a_dtype, self.b_dtype, self.accum_dtype)
        for i in range(self.warp_rows):
            for j in range(self.warp_cols):
                a = of_a + i * self.local_size_a
                c = (i * self.warp_cols + j) * self.local_size_out
                for half in range(2):
                    b = of_b + j * self.local_size_b + half * self.local_size_b // 2
                    at_c = c + half * self.local_size_out // 2
                    operands = (A_local_buf, a, B_local_buf, b, C_local_buf, at_c, False)
                    ptx_mma(self.accum_dtype, self.shape, "row", "col", *types, *operands)

    def stmatrix(self, C_local_buf: Any, C_buf: Any, pid_m: Any = None, pid_n: Any = None) -> None:
        """Store the warp's tile of C: to squares of 16 by 16 in a buffer of four dimensions, to a
        buffer of rows and columns, or with ``pid_m`` and ``pid_n``, the block's place, to a tensor,
        which has all of the rows and columns that the block has."""
        lane, warp_n, warp_m = self.extract_thread_binding(self.get_thread_binding())
        if pid_m is not None:
            warp_m = pid_m * self.block_row_warps + warp_m
            warp_n = pid_n * self.block_col_warps + warp_n
        in_squares = len(C_buf.shape) == 4
        for i in range(self.warp_rows):
            for j in range(self.warp_cols):
                m, n = warp_m * self.warp_rows + i, warp_n * self.warp_cols + j
                first = (i * self.warp_cols + j) * self.local_size_out
                for r in range(self.local_size_out):
                    row, column = mma_store_index_map(lane, r)
                    place = [m * MICRO_ROWS + row, n * MICRO_ROWS + column]
                    if in_squares:
                        place = [m, n, row, column]
                    value = subscript(C_local_buf, first + r)
                    assert isinstance(value, ir.TensorLoad)
                    store(C_buf, tuple(place), value)


__all__ = ["TensorCoreIntrinEmitter", "ptx_ldmatrix", "ptx_mma", "ptx_stmatrix"]
