"""AMD's GPUs: wavefronts of 64 lanes, matrix products, copies to shared memory that waits count,
buffers whose range is checked."""

import functools
from typing import Any

import numpy as np

import tilelang
import tilelang.language as T

from . import compiled
from .kit import Base, Defect, Launch


def wave_sums() -> Launch:
    a, b = np.arange(128, dtype=np.int32) % 50, np.zeros(256, np.int32)
    largest = np.tile(a.reshape(2, 2, 32).max(1), 2)
    wanted = np.concatenate([np.full(128, a.sum() + 2), largest[:, ::-1].ravel()])
    return Launch([a, b], [(b, wanted)])


def lds_gemm() -> Launch:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, 64)).astype(np.float16) for n in (32, 12))
    c = np.full((30, 16), 7, np.float32)
    wanted = np.zeros((30, 16), np.float32)
    wanted[:, :12] = a[:30].astype(np.float32) @ b.astype(np.float32).T
    return Launch([a, b, c], [(c, wanted)])


def ragged_rows() -> Launch:
    x = np.random.default_rng(0).standard_normal((20, 24)).astype(np.float16)
    y = np.zeros(40, np.float32)
    wanted = np.concatenate([x.astype(np.float32).sum(1), x[:, 0].astype(np.float32)])
    return Launch([x, y], [(y, wanted)])


def loads_program() -> Any:
    """A product through a pipeline of three stages, which gfx950 loads to LDS."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 104), "float16"),
        B: T.Tensor((64, 104), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((64, 32), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[0, k * 32], A_shared)
                T.copy(B[0, k * 32], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=True)
            T.copy(C_local, C)

    return main


def loads() -> Launch:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 104)).astype(np.float16) for _ in range(2))
    c = np.zeros((64, 64), np.float32)
    return Launch([a, b, c], [(c, a.astype(np.float32) @ b.astype(np.float32).T)])


@functools.cache
def loads_text() -> str:
    return tilelang.lower(loads_program(), target="hip -mcpu=gfx950").kernel_source


def transposed() -> Launch:
    """The same with a B that has rows of K, whose tile is read by ds_read_tr."""
    return compiled.gemm(104)


@functools.cache
def transposed_text() -> str:
    return tilelang.lower(compiled.gemm_program(104), target="hip -mcpu=gfx950").kernel_source


BASES = {
    "compiled loads to LDS": Base(loads_text, loads, block=128, shared=24576),
    "compiled transposing reads": Base(transposed_text, transposed, block=128, shared=24576),
    "wave sums": Base.of_file("wave_sums", wave_sums, block=128),
    "lds gemm": Base.of_file("lds_gemm", lds_gemm, block=128, shared=3072),
    "ragged rows": Base.of_file("ragged_rows", ragged_rows, block=64, shared=256),
}

ALL = "0xffffffffffffffffull"

LANES = {
    "sum of 32 lanes of a wavefront": Defect(
        "wave sums",
        f"sum += tl::shfl_xor_sync({ALL}, sum, step, 64);  // sum",
        "if (lane < 32) sum += tl::shfl_xor_sync(0xffffffffull, sum, step, 64);  // sum",
        "failure",
        ("// sum",),
        "which the lanes 00000000ffffffff that take part do not contain",
    ),
    "vote of 32 lanes of a wavefront": Defect(
        "wave sums",
        f"tl::ballot_sync({ALL}, lane == 40)",
        "tl::ballot_sync(0xffffffffull, lane == 40)",
        "failure",
        ("// vote",),
        "waits for the lanes 00000000ffffffff of its warp, which it is not one of",
    ),
    "reduction in half of a wavefront": Defect(
        "wave sums",
        "row[tx] = tl::AllReduce",
        "if (lane < 32) row[tx] = tl::AllReduce",
        "failure",
        ("// fill",),
        "AllReduce",
    ),
    "half of a wavefront at another barrier": Defect(
        "wave sums",
        "__syncthreads();  // the sums are there",
        "if (lane < 32) {\n  __syncthreads();  // lower half\n  } else {\n"
        "  __syncthreads();  // upper half\n  }",
        "failure",
        ("// lower half", "// upper half"),
        "the lanes of a warp diverge",
    ),
    "no barrier between the lanes of a wavefront": Defect(
        "wave sums",
        f"  tl::sync_warp({ALL});  // the row is there\n",
        "",
        "race",
        ("// fill", "// neighbour"),
        "row + ",
        "a barrier",
    ),
    "no barrier between wavefronts": Defect(
        "wave sums",
        "__syncthreads();  // the sums are there",
        f"tl::sync_warp({ALL});",
        "race",
        ("// keep", "// use"),
        "sums + ",
        "a barrier",
    ),
    "barrier of a wavefront for both of them": Defect(
        "wave sums",
        "row[tx ^ 63]",
        "row[tx ^ 127]",
        "race",
        ("// fill", "// neighbour"),
        "row + ",
        "a barrier for both threads",
    ),
}

PRODUCTS = {
    "product in 48 lanes of a wavefront": Defect(
        "lds gemm",
        "    tl::mfma<",
        "    if (lane < 48) tl::mfma<",
        "failure",
        ("tl::mfma<",),
        "mfma",
    ),
    "product with accumulators that nobody set": Defect(
        "lds gemm",
        "for (int i = 0; i < 4; ++i) {\n    c[i] = 0.0f;",
        "for (int i = 0; i < 3; ++i) {\n    c[i] = 0.0f;",
        "uninitialized",
        ("tl::mfma<",),
        "c + 3",
    ),
    "product with an operand that nobody set": Defect(
        "lds gemm",
        "tl::store(b + 0, tl::load<half_t, 4>(B_shared + k % 2 * 256 + lane % 16 * 16",
        "tl::store(b + 0, tl::load<half_t, 2>(B_shared + k % 2 * 256 + lane % 16 * 16",
        "uninitialized",
        ("tl::mfma<",),
        "b + 2",
    ),
}

COMPILED = {
    "compiled loads to LDS that a wait leaves a load too many of": Defect(
        "compiled loads to LDS",
        "wait_vmcnt<4>",
        "wait_vmcnt<5>",
        "race",
        ("tl::buffer_load_lds", "tl::load<half_t, 8>"),
        "_shared + ",
        "a wait for the copy",
    ),
    "compiled loads to LDS without their wait": Defect(
        "compiled loads to LDS",
        "tl::wait_vmcnt<4>();",
        "",
        "race",
        ("tl::buffer_load_lds", "tl::load<half_t, 8>"),
        "_shared + ",
        "a wait for the copy",
    ),
    "compiled loads to LDS without their barrier": Defect(
        "compiled loads to LDS",
        "__syncthreads();",
        "",
        "race",
        ("tl::buffer_load_lds", "tl::load<half_t, 8>"),
        "_shared + ",
        "and a barrier behind it",
    ),
    "compiled loads to LDS into the stage in use": Defect(
        "compiled loads to LDS",
        "(k + 2) % 3",
        "k % 3",
        "race",
        ("tl::buffer_load_lds", "tl::load<half_t, 8>"),
        "_shared + ",
        nth=0,
    ),
    "compiled loads to LDS whose lanes are out of order": Defect(
        "compiled loads to LDS",
        ", tx * 8, A, ",
        ", (tx ^ 1) * 8, A, ",
        "failure",
        ("tl::buffer_load_lds",),
        "gives another address than the first lane",
        nth=0,
    ),
    "compiled loads to LDS behind their tensor": Defect(
        "compiled loads to LDS",
        " < 5);",
        " < 6);",
        "failure",
        ("tl::buffer_load_lds",),
        "of a tensor of 6656 elements",
        nth=0,
    ),
}

TRANSPOSING = {
    "transposing reads that a wait leaves a load to LDS too many of": Defect(
        "compiled transposing reads",
        "wait_vmcnt<4>",
        "wait_vmcnt<5>",
        "race",
        ("tl::buffer_load_lds", "tl::ds_read_tr16"),
        "B_shared + ",
        "a wait for the copy",
    ),
    "transposing reads of the stage that is filled": Defect(
        "compiled transposing reads",
        "tl::ds_read_tr16(B_shared + k % 3",
        "tl::ds_read_tr16(B_shared + (k + 2) % 3",
        "race",
        ("tl::buffer_load_lds", "tl::ds_read_tr16"),
        "B_shared + ",
    ),
    "transposing reads at multiples of 4 bytes": Defect(
        "compiled transposing reads",
        "tl::ds_read_tr16(B_shared + ",
        "tl::ds_read_tr16(B_shared + 2 + ",
        "failure",
        ("tl::ds_read_tr16",),
        "misaligned address of a ds_read_tr",
    ),
    "an operand of which one transposing read is missing": Defect(
        "compiled transposing reads",
        "r < 2; ++r) {\n          tl::ds_read_tr16",
        "r < 1; ++r) {\n          tl::ds_read_tr16",
        "uninitialized",
        ("tl::mfma<",),
        "B_shared_frag + ",
    ),
}

RANGES = {
    "buffer load whose predicate is too wide": Defect(
        "ragged rows",
        "tx < 60",
        "tx < 61",
        "failure",
        ("// load",),
        "a buffer load of element 480 + 0 of a tensor of 480 elements, which reads zeros",
    ),
    "buffer load behind its tensor": Defect(
        "ragged rows",
        "tx * 24, 0);  // first",
        "tx * 24, 48);  // first",
        "failure",
        ("// first",),
        "of a tensor of 480 elements",
    ),
    "buffer load of a negative offset": Defect(
        "ragged rows",
        "tx * 24, 0);  // first",
        "tx * 24 - 24, 24);  // first",
        "failure",
        ("// first",),
        "element -24 + 24",
    ),
}

COPIES = {
    "wait that leaves one copy too many": Defect(
        "lds gemm",
        "wait_vmcnt<3>",
        "wait_vmcnt<4>",
        "race",
        ("// columns", "// use B"),
        "B_shared + ",
        "wait_vmcnt",
    ),
    "wait that counts tiles instead of copies": Defect(
        "lds gemm",
        "wait_vmcnt<3>",
        "wait_vmcnt<5>",
        "race",
        ("// lower rows", "// use A"),
        "A_shared + ",
        "wait_vmcnt",
        also=("race",),
    ),
    "no wait for the last tile": Defect(
        "lds gemm",
        "tl::wait_vmcnt<0>();",
        "",
        "race",
        ("// columns", "// use B"),
        "B_shared + ",
        "a wait for the copy",
    ),
    "no barrier behind the wait": Defect(
        "lds gemm",
        "__syncthreads();  // the tile is there",
        "",
        "race",
        ("// columns", "// use B"),
        "B_shared + ",
        "and a barrier behind it",
    ),
    "tile that is overwritten in use": Defect(
        "lds gemm",
        "__syncthreads();  // the tile is used",
        "",
        "race",
        ("// columns", "// use B"),
        "B_shared + ",
    ),
    "copies of one tile less": Defect(
        "lds gemm",
        "stage = next % 2;",
        "stage = 0;",
        "uninitialized",
        ("// use A",),
        "A_shared + ",
        also=("race",),
    ),
    "address of each lane instead of the wavefront's": Defect(
        "lds gemm",
        "B_shared + stage * 256 + wave * 128, columns",
        "B_shared + stage * 256 + at, columns",
        "failure",
        ("// columns",),
        "gives another address than the first lane",
    ),
    "copy in half of a wavefront": Defect(
        "lds gemm",
        "      tl::buffer_load_lds<4>",
        "      if (lane < 32) tl::buffer_load_lds<4>",
        "failure",
        ("// columns",),
        "a copy to shared memory",
        also=("race", "uninitialized"),
    ),
    "copy behind the end of its buffer": Defect(
        "lds gemm",
        "B_shared + stage * 256 + wave * 128, columns",
        "B_shared + stage * 384 + wave * 128, columns",
        "out-of-bounds",
        ("// columns",),
        "B_shared + 512",
        also=("race", "uninitialized"),
    ),
}

BUFFERS = {
    "buffer that is larger than its tensor": Defect(
        "lds gemm",
        "make_buffer_resource(B, 12 * 64 * 2)",
        "make_buffer_resource(B, 16 * 64 * 2)",
        "out-of-bounds",
        ("// columns",),
        "argument 1[1",
    ),
    "buffer with rows that the tensor lacks": Defect(
        "lds gemm",
        "make_buffer_resource(C, 30 * 16 * 4)",
        "make_buffer_resource(C, 32 * 16 * 4)",
        "out-of-bounds",
        ("// result",),
        "argument 2[3",
    ),
    "offset of elements instead of bytes": Defect(
        "lds gemm",
        "* 16 + lane % 16) * 4, tl::vec",
        "* 16 + lane % 16) * 2, tl::vec",
        "failure",
        ("// result",),
        "misaligned address of a buffer store",
    ),
}

DEFECTS = LANES | PRODUCTS | COPIES | COMPILED | TRANSPOSING | BUFFERS | RANGES
