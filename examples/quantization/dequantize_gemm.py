"""A @ B^T with weights of 4 bits, integers or MXFP4, made float again on the way: check it.

C is computed as its transpose: weights are unpacked into registers that are the first operand of
the matrix instruction, so that they do not go through shared memory as floats, and a short A takes
few columns of an instruction.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import itertools
from typing import NamedTuple

import torch

import tilelang
import tilelang.language as T
from tilelang.layout import Fragment, make_swizzled_layout
from tilelang.macros import add_shares, copy_rows

ROWS = T.GemmWarpPolicy.FullRow


PACKED = 128  # elements of a row that are packed together


def place_in_pack(j, size=PACKED):
    """Where element j of a row of weights lies in the row's bytes, as `pack` has them.

    A thread has of each 16 elements of a row 2 q, 2 q + 1, 2 q + 8 and 2 q + 9, with q its number
    in the row (PTX ISA, wgmma.mma_async, "Register Fragments"): of `PACKED` elements all of q = 0
    come first. Of eight that are a word, neighbours lie four elements apart, so that one mask
    leaves both of them. Of a part of `size` of them the places are alike.
    """
    size = min(size, PACKED)
    q, word, pair = j % 8 // 2, j % size // 32, j % 32 // 8
    return j // size * size + q * (size // 4) + word * 8 + j % 2 * 4 + pair


def part_of_pack(first, size, j):
    """Where the j-th of `size` elements of a part lies in the row's bytes; the part begins at
    element `first`, and what a thread has of it lies together."""
    each, whole = min(size, PACKED) // 4, PACKED // 4
    return first // PACKED * PACKED + j // each * whole + first % PACKED // 4 + j % each


E2M1_BITS = ((6, 7, 8, 15), (3, 4, 5, 12), (0, 1, 2, 9), (14, 10, 11, 13))
"""Where the bits of each of four elements are in a half of a word, the mantissa's first. Those of
the first element are where a bfloat16 has the first bit of its mantissa, the last ones of its
exponent, and its sign; those of the next two are 3 and 6 bits below; the last one's fill gaps."""
OFFSET = 64
"""Packed MXFP4 is multiplied by 2 ** -OFFSET, and C by 2 ** OFFSET: so one factor, which bfloat16
has, makes up for the scale and for the difference of the exponents' biases."""
PACKED_SCALES = (66, 192)
"""The least and the largest byte of a scale that is left room for, 2 ** -61 and 2 ** 65."""


def bit_order(form):
    """Which bit of `PACKED` elements of a row each of their bits is when they are packed."""
    places = [0] * (4 * PACKED)
    for j, bit in itertools.product(range(PACKED), range(4)):
        place = place_in_pack(j)
        within = E2M1_BITS[place % 4][bit] if form == "mxfp4" else place % 4 * 4 + bit
        places[place // 4 * 16 + within] = 4 * j + bit
    return torch.tensor(places)


def reordered(pairs, order):
    """Pairs of weights (N, K / 2) with the bits of each `PACKED` of a row in another order. K is
    filled up to a multiple of that."""
    filled = torch.nn.functional.pad(pairs, (0, -pairs.shape[1] % (PACKED // 2)))
    shifts = torch.arange(8, dtype=torch.uint8, device=pairs.device)
    bits = (filled[..., None] >> shifts & 1).view(len(pairs), -1, 4 * PACKED)
    bits = bits[:, :, order.to(pairs.device)].view(*filled.shape, 8) << shifts
    return bits.sum(-1, dtype=torch.uint8)


def pack(form, pairs, scale):
    """Pairs of weights with the elements in the order of `place_in_pack`, so that a thread loads
    what it has of a row at once, and the bits of MXFP4 in that of `E2M1_BITS`. Of MXFP4, a `scale`
    that has no room in `PACKED_SCALES` is refused, but where all its weights are zero."""
    if form == "mxfp4":
        groups = torch.nn.functional.pad(pairs & 0x77, (0, -pairs.shape[1] % 16))
        used = scale.T[groups.view(len(pairs), -1, 16).any(-1).bool()]
        least, most = PACKED_SCALES
        if ((used < least) | (used > most)).any():
            raise ValueError(
                f"found scales {int(used.min())} to {int(used.max())}, wanted {least} to {most}, "
                "which are 2 ** -61 to 2 ** 65; weights that are not packed take all"
            )
    return reordered(pairs, bit_order(form))


def unpack_order(form, packed):
    """What `pack` was given, filled up."""
    return reordered(packed, bit_order(form).argsort())


def e2m1_pair(word, i):
    """The i-th elements of both halves of a packed word of MXFP4, as bfloat16 of 2 ** -126 of
    them."""
    # The last ones' bits are put in their places by a product: copies 5 and 10 bits above.
    gaps = (word >> 8 & T.uint32(0x006C006C)) * T.uint32(0x421)
    return T.if_then_else(i == 3, gaps, word << 3 * i) & T.uint32(0x81C081C0)


def words_of_threads(rows, width):
    """Which thread has which words of a packed part of a tile: those of the first operand of wgmma
    that it unpacks them to."""
    each = min(width, PACKED) // 32  # of a pack, or of a part of one

    def place(n, w):
        lane, word = w % (4 * each) // each, w // (4 * each) * each + w % each
        return n // 16 * 32 + n % 8 * 4 + lane, n % 16 // 8 * (width // 32) + word

    return Fragment((rows, width // 8), forward_fn=place)


def rows_of_threads(rows, width):
    """The four threads that have parts of a row of wgmma's first operand have all of it, as it
    is in memory: they load words of it, not bytes."""

    def place(n, j, q):
        return n // 16 * 32 + n % 8 * 4 + q, n % 16 // 8 * width + j

    return Fragment((rows, width), forward_fn=place, replicate=4)


def operand_of_threads(rows, width):
    """The first operand of wgmma (PTX ISA, wgmma.mma_async, "Register Fragments")."""

    def place(n, j):
        register = j // 16 * 8 + j % 16 // 8 * 4 + n % 16 // 8 * 2 + j % 2
        return n // 16 * 32 + n % 8 * 4 + j % 8 // 2, register

    return Fragment((rows, width), forward_fn=place)


@T.macro
def add_up(local, partial, arrivals, tile, split):
    """Pass a share of a tile on; whether all others are there, and then `local` is their sum."""
    arrived = T.alloc_shared((1,), T.int32)
    T.copy(local, partial[T.get_block_binding(2), tile, :, :])
    T.sync_threads()
    if T.get_thread_binding() == 0:
        arrived[0] = T.atomic_add(arrivals[tile], 1, memory_order="acq_rel", return_prev=True)
    is_last = T.alloc_var(T.bool)
    is_last = arrived[0] == split - 1
    if is_last:
        if split == 2:  # the sum of two does not depend on their order
            for n, m in T.Parallel(*local.shape):
                local[n, m] += partial[1 - T.get_block_binding(2), tile, n, m]
        else:
            T.clear(local)
            for share in T.serial(split):
                for n, m in T.Parallel(*local.shape):
                    local[n, m] += partial[share, tile, n, m]
        if T.get_thread_binding() == 0:
            arrivals[tile] = 0
    return is_last


@T.macro
def leave(local, partial, share, row, column, factor):
    """A share of a tile, turned, times `factor`, for `add_shares`."""
    for n, m in T.Parallel(*local.shape):
        partial[share, row + m, column + n] = local[n, m] * factor if factor > 1 else local[n, m]


@T.macro
def store(local, C, C_shared, row, column, factor):
    """The transpose of a tile, times `factor`, to C, by matrices that are transposed on the way
    (stmatrix)."""
    turned = T.alloc_fragment(C_shared.shape, C_shared.dtype)
    for n, m in T.Parallel(*local.shape):
        turned[m, n] = local[n, m] * factor if factor > 1 else local[n, m]
    T.copy(turned, C_shared)
    T.copy(C_shared, C[row, column])


class Form(NamedTuple):
    """Weights of 4 bits: types of theirs, of A and of a scale, and for how many elements along K
    one is."""

    weight: T.dtype
    dtype: T.dtype
    scale: T.dtype
    group: int


FORMS = {
    "int4": Form(T.int4, T.float16, T.float16, 128),
    # OCP Microscaling Formats specification 1.0, 5.3: E2M1 elements; a scale is a power of two as
    # biased exponent.
    "mxfp4": Form(T.float4_e2m1fn, T.bfloat16, T.uint8, 32),
}


class Step(NamedTuple):
    """What a block multiplies in a step: tiles of `block_K` along K, unpacked in `parts`."""

    form: Form
    group: int
    block_M: int
    block_N: int
    block_K: int
    parts: int
    packed: bool
    scale_sums: bool
    whole_rows: bool
    scale_rows: int
    """Elements of a row of scales in memory, N."""

    @property
    def width(self):
        """Of a part."""
        return self.block_K // self.parts

    @property
    def scaled(self):
        """Elements of a step along K that have a scale in common."""
        return min(self.group, self.block_K)

    @property
    def chunk(self):
        """Scales in 16 bytes, at multiples of which TMA begins."""
        return 128 // self.form.scale.bits

    @property
    def is_shifted(self):
        """Whether rows of scales begin anywhere in a chunk. Then TMA loads them as pieces of one
        row, each from the chunk on in which a tile's scales begin."""
        return self.scale_rows % self.chunk != 0

    @property
    def scale_tile(self):
        """Shape of the scales of a step; shifted rows are whole multiples of 128 bytes, as TMA
        has its boxes in shared memory."""
        held, whole = self.block_N, 8 * self.chunk
        if self.is_shifted:
            held = -(-(held + self.chunk - 1) // whole) * whole
        return self.block_K // self.scaled, held

    @property
    def by_words(self):
        """Whether weights are unpacked by words, as packed MXFP4 is, not by a cast."""
        return self.packed and self.form.scale == T.uint8

    @property
    def factor(self):
        """By which the product has to be multiplied."""
        return 2.0**OFFSET if self.by_words else 1.0

    def checked(self, threads):
        """Itself, if parts divide a step and packs, and groups of scales do."""
        if self.parts < 1 or self.block_K % self.parts:
            raise ValueError(
                f"found {self.parts} parts, wanted a divisor of block_K {self.block_K}"
            )
        whole = self.width % PACKED == 0 or (PACKED % self.width == 0 and self.width >= 32)
        if self.packed and (self.block_K % PACKED or not whole):
            raise ValueError(
                f"found block_K {self.block_K} in parts of {self.width}, wanted a multiple of "
                f"{PACKED} for packed weights, and parts of 32, 64 or such a multiple"
            )
        if (self.by_words or self.whole_rows) and threads != 2 * self.block_N:
            reason = "packed mxfp4" if self.by_words else "whole_rows"
            wanted = f"twice block_N, {2 * self.block_N}, for {reason}"
            raise ValueError(f"found {threads} threads, wanted {wanted}")
        if self.whole_rows and (self.packed or self.form.scale == T.uint8):
            raise ValueError("found whole_rows, wanted it for int4 that is not packed")
        if self.block_K % self.group and self.group % self.block_K:
            raise ValueError(
                f"found groups of {self.group}, wanted a divisor or a multiple of block_K, "
                f"{self.block_K}"
            )
        if self.scale_sums and self.form.scale == T.uint8:
            raise ValueError("found scale_sums for mxfp4, wanted it for int4")
        if self.scale_sums and self.scaled % self.width:
            found, group = f"found parts of {self.width}", f"groups of {self.group}"
            raise ValueError(f"{found}, wanted {group} to be whole")
        return self


@T.macro
def load_part(B_shared, B_local, first, step):
    """The weights of a part, from element `first` of a step on, as they are."""
    if step.by_words or (step.packed and step.width < PACKED):
        rows, held = B_local.shape
        elements = step.width // held  # of a word, or one
        for n, j in T.Parallel(rows, held):
            place = part_of_pack(first, step.width, elements * j) // elements
            B_local[n, j] = B_shared[n, place]
    else:
        T.copy(B_shared[:, first : first + step.width], B_local)


@T.macro
def load_scales(scale, scale_shared, at, column, step):
    """The scales of a step, whose first row is row `at`, from a tile's first `column` on."""
    rows, held = scale_shared.shape
    if step.is_shifted:
        # Behind the scales of this tile come others, of no use.
        row = T.view(scale, (scale.shape[0] * step.scale_rows,), scale.dtype)
        for g in T.unroll(rows):
            first = ((at + g) * step.scale_rows + column) // step.chunk * step.chunk
            T.copy(row[first : first + held], scale_shared[g, :])
    else:
        T.copy(scale[at, column], scale_shared)


class Scales(NamedTuple):
    """Those of a step, in shared memory: of which row and column of all the first one is."""

    tile: object
    row: object
    column: object

    def of(self, j, n, step):
        """The scale of the step's element j of the tile's row n."""
        g = j // step.scaled
        if step.is_shifted:
            # Chunks are powers of two.
            n += (self.row + g) * step.scale_rows + self.column & (step.chunk - 1)
        return self.tile[g, n]


@T.macro
def scaled_weights(B_local, weight, scales, first, step):
    """The weights of a part, and their scales."""
    for n, j in T.Parallel(*weight.shape):
        place = place_in_pack(j, step.width) if step.packed else j
        integer = T.cast(B_local[n, place], weight.dtype)
        if step.scale_sums:
            weight[n, j] = integer
        else:
            weight[n, j] = integer * scales.of(first + j, n, step)


@T.macro
def scaled_floats(B_local, weight, scales, first, step):
    """The same of MXFP4. A scale's bits are those of the exponent of the bfloat16 2 ** (scale -
    127)."""
    rows, width = weight.shape
    if step.packed:
        pairs = T.view(weight, (rows, width // 2), T.uint32)
        for n, j in T.Parallel(rows, width // 2):
            word = B_local[n, place_in_pack(2 * j, width) // 8]
            pairs[n, j] = e2m1_pair(word, j % 16 // 4)
    for n, j in T.Parallel(rows, width):
        exponent = T.cast(scales.of(first + j, n, step), T.uint16)
        if step.packed:
            exponent = exponent + T.uint16(126 - OFFSET)
        power = T.reinterpret(exponent << 7, T.bfloat16)
        if step.packed:
            weight[n, j] = weight[n, j] * power
        else:
            weight[n, j] = T.cast(B_local[n, j], weight.dtype) * power


@T.macro
def multiply(operands, tiles, local, place, steps, num_stages, step):
    """`local` becomes the part of the product's tile at `place` by `steps` of K, those of a
    share."""
    A, B, scale = operands
    A_shared, B_bytes, scale_shared = tiles
    row, column, share = place
    rows, width, parts = step.block_N, step.width, step.parts
    kind, elements = (T.uint32, 8) if step.by_words else (step.form.weight, 1)
    B_shared = T.view(B_bytes, (rows, step.block_K // elements), kind)
    B_local = [T.alloc_fragment((rows, width // elements), kind) for _ in range(parts)]
    if step.by_words:
        T.annotate_layout({words: words_of_threads(rows, width) for words in B_local})
    weight = [T.alloc_fragment((rows, width), step.form.dtype) for _ in range(parts)]
    if step.whole_rows:
        T.annotate_layout({row: rows_of_threads(rows, width) for row in B_local})
        T.annotate_layout({part: operand_of_threads(rows, width) for part in weight})
    if step.scale_sums:
        sums = [T.alloc_fragment(local.shape, T.float32) for _ in range(parts)]
    T.clear(local)
    for i in T.Pipelined(steps, num_stages=num_stages):
        k = share * steps + i
        T.copy(A[row * step.block_M, k * step.block_K], A_shared)
        T.copy(B[column * rows, k * (step.block_K // 2)], B_bytes)
        scales = Scales(scale_shared, k * step.block_K // step.group, column * rows)
        load_scales(scale, scale_shared, scales.row, scales.column, step)
        for p in T.unroll(parts, explicit=True):
            first = p * width
            load_part(B_shared, B_local[p], first, step)
            if step.form.scale == T.uint8:
                scaled_floats(B_local[p], weight[p], scales, first, step)
            else:
                scaled_weights(B_local[p], weight[p], scales, first, step)
            A_part, of_part = A_shared[:, first : first + width], local
            if step.scale_sums:
                of_part = sums[p]
                T.clear(of_part)
            T.gemm(weight[p], A_part, of_part, transpose_B=True, policy=ROWS)
        # Behind all products: they run while others are unpacked.
        for p in T.unroll(parts if step.scale_sums else 0, explicit=True):
            for n, m in T.Parallel(*local.shape):
                local[n, m] += sums[p][n, m] * scales.of(p * width, n, step)


class Shares(NamedTuple):
    """How blocks share the product: a grid of tiles of the result, columns of tiles first, and
    shares of K with so many steps, added up by the last block of a tile or `apart`; or `blocks`
    that take the tiles in turn."""

    grid: tuple[int, int, int]
    steps: int
    apart: bool
    blocks: int | None

    @staticmethod
    def of(M, N, K, step, split, apart, blocks):
        columns, rows = -(-N // step.block_N), -(-M // step.block_M)
        apart = apart and split > 1
        if split < 1:
            raise ValueError(f"found {split} shares of K, wanted 1 or more")
        if split > 1 and (blocks or (not apart and columns * rows > N)):
            raise ValueError(
                f"found {split} shares of K, {columns * rows} tiles and blocks={blocks}, wanted at "
                f"most {N} tiles, as `arrivals` has counters, and no `blocks`; larger tiles have "
                "fewer"
            )
        return Shares((columns, rows, split), -(-K // (step.block_K * split)), apart, blocks)

    def partial(self, step):
        """The shape of what the shares of K leave."""
        columns, rows, split = self.grid
        if self.apart:  # whole tiles, of this kernel's and of `add_shares`'s
            return split, rows * step.block_M, -(-columns * step.block_N // 128) * 128
        return split, rows * columns, step.block_N, step.block_M


@T.macro
def product(operands, C, partial, arrivals, shares, num_stages, step, leaves_room):
    """What a block does. If it `leaves_room`, blocks of the second kernel may begin beside its
    end."""
    bx, by, bz = (T.get_block_binding(d) for d in range(3))
    m, n, k = step.block_M, step.block_N, step.block_K
    A_shared = T.alloc_shared((m, k), step.form.dtype)
    B_bytes = T.alloc_shared((n, k // 2), T.uint8)
    scale_shared = T.alloc_shared(step.scale_tile, step.form.scale)
    local = T.alloc_fragment((n, m), T.float32)
    C_shared = T.alloc_shared((m, n), step.form.dtype)
    T.annotate_layout({B_bytes: make_swizzled_layout(B_bytes)})
    tiles, steps = (A_shared, B_bytes, scale_shared), shares.steps
    columns, rows, split = shares.grid
    if shares.blocks:
        for row, column in T.Persistent([rows, columns], shares.blocks, bx):
            multiply(operands, tiles, local, (row, column, 0), steps, num_stages, step)
            store(local, C, C_shared, row * m, column * n, step.factor)
    else:
        multiply(operands, tiles, local, (by, bx, bz), steps, num_stages, step)
        row, column = by * m, bx * n
        if shares.apart:
            if leaves_room:
                T.pdl_trigger()
            leave(local, partial, bz, row, column, step.factor)
        elif split == 1 or add_up(local, partial, arrivals, by * columns + bx, split):
            store(local, C, C_shared, row, column, step.factor)


@tilelang.jit(out_idx=[-1])
def matmul(
    form,
    M,
    N,
    K,
    group=None,
    split=1,
    block_M=128,
    block_N=128,
    block_K=128,
    num_stages=3,
    threads=256,
    packed=False,
    min_blocks=None,
    parts=1,
    blocks=None,
    padded=False,
    scale_sums=False,
    apart=False,
    whole_rows=False,
):
    """C (M, N) of A (M, K) and B (N, K) in `form`, two elements in a byte, which has for `group` of
    them along K a scale, (K / group, N) of them. `split` blocks share K, and count in `arrivals`, N
    zeros, which are 0 again behind the kernel; the last one adds up, or with `apart` a second
    kernel. `blocks`, where K is not shared, take the tiles in turn. `packed` weights come from
    `pack`; block_K is then a multiple of `PACKED`, and each of `parts` of a step has 32 or 64 of it
    or a multiple of `PACKED`: a part is multiplied while the next one is unpacked. With packed
    MXFP4, `threads` are twice block_N. With `padded`, rows of A are copied to longer ones first,
    which TMA takes. `min_blocks` are to share a multiprocessor. With `scale_sums` the sums of a
    part take the scale of their group, not its weights: fewer instructions where A has few rows.
    With `whole_rows`, `threads` are twice block_N, and the four threads that have parts of a row of
    weights that are not packed each load all of it: words, not bytes."""
    _, dtype, scale_type, usual = kind = FORMS[form]
    tile = block_M, block_N, block_K
    step = Step(kind, group or usual, *tile, parts, packed, scale_sums, whole_rows, N)
    step = step.checked(threads)
    shares = Shares.of(M, N, K, step, split, apart, blocks)
    columns = -(-K // PACKED) * PACKED if packed else K

    @T.prim_func
    def main(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, columns // 2), T.uint8),
        scale: T.Tensor((T.ceildiv(K, step.group), N), scale_type),
        arrivals: T.Tensor((N,), T.int32),
        C: T.Tensor((M, N), dtype),
    ):
        partial = T.alloc_global(shares.partial(step), T.float32) if split > 1 else None
        if padded:
            A_wide = T.alloc_global((M, -(-K // 8) * 8), dtype)
            copy_rows((A, A_wide))
        with T.Kernel(*((blocks,) if blocks else shares.grid), threads=threads):
            if padded:
                T.pdl_sync()  # launched beside the end of the copy
            if min_blocks:
                T.annotate_min_blocks_per_sm(min_blocks)
            operands = (A_wide if padded else A, B, scale)
            # A kernel that waits for another one leaves registers to that one, and to the next.
            product(operands, C, partial, arrivals, shares, num_stages, step, padded)
        if shares.apart:
            add_shares(partial, C)

    return main


E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def unpack(pairs, values):
    """The elements of bytes that have two each, the first in the low half."""
    table = torch.tensor(values, dtype=torch.float64, device=pairs.device)
    halves = torch.stack([pairs & 15, pairs >> 4], -1).view(pairs.shape[0], -1)
    return table[halves.int()]


def inputs(form, M, N, K, group=128, device="cpu"):
    """A, pairs of weights, their scales and counters, for weights in `form`, int4 or mxfp4."""
    torch.manual_seed(0)
    pairs = torch.randint(0, 256, (N, K // 2), dtype=torch.uint8, device=device)
    arrivals = torch.zeros(N, dtype=torch.int32, device=device)
    if form == "int4":
        a = torch.randn(M, K, device=device, dtype=torch.float16)
        return [a, pairs, torch.rand(-(-K // group), N, device=device).half(), arrivals]
    a = torch.randn(M, K, device=device, dtype=torch.bfloat16)
    scale = torch.randint(120, 134, (-(-K // 32), N), dtype=torch.uint8, device=device)
    return [a, pairs, scale, arrivals]


def reference(form, a, pairs, scale, group=128):
    """The product in float64."""
    K = a.shape[1]
    if form == "int4":
        weight = unpack(pairs, [*range(8), *range(-8, 0)])
        weight *= scale.double().T.repeat_interleave(group, 1)[:, :K]
    else:
        weight = unpack(pairs, [*E2M1, *(-x for x in E2M1)])
        weight *= torch.exp2(scale.double().T - 127).repeat_interleave(32, 1)[:, :K]
    return a.double() @ weight.T


def relative_error(form, M, N, K, device="cpu", **tile):
    """||ours - float64|| / ||float64|| for weights in `form`."""
    group = {"group": tile["group"]} if "group" in tile else {}
    a, pairs, scale, arrivals = inputs(form, M, N, K, device=device, **group)
    weights = pack(form, pairs, scale) if tile.get("packed") else pairs
    found = matmul(form, M, N, K, **tile)(a, weights, scale, arrivals)
    wanted = reference(form, a, pairs, scale, **group)
    assert not arrivals.any(), "the counters of a kernel with split K are not 0 again"
    return float((found.double() - wanted).norm() / wanted.norm())


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=3, default=[4096 if gpu else 256] * 3)
    M, N, K = parser.parse_args().size
    for form, bound in (("int4", 1e-3), ("mxfp4", 8e-3)):
        for packed in (False, True):
            error = relative_error(form, M, N, K, "cuda" if gpu else "cpu", packed=packed)
            assert error < bound, f"{form}: relative error {error:.1e}, wanted under {bound:.0e}"
            how = f"{form}, packed" if packed else form
            print(f"{M} x {N} x {K} {how}: relative error {error:.1e}")
