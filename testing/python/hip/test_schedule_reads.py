"""Reads of A and B stand between the MFMA of a loop's only product, by an order for LLVM's
scheduler: where there is one, and what becomes of it."""

import re

import pytest

import tilelang
import tilelang.language as T
from tilelang.hip.compile import compile_code_object


def product(dtype="float16", block=(128, 256, 64), transpose_B=True, twice=False, stages=2):
    """A tile of A @ B^T, or the sum of two of them, by 256 threads."""
    m, n, k = block
    accum = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def main(
        A: T.Tensor((m, 4096), dtype),
        B: T.Tensor((n, 4096) if transpose_B else (4096, n), dtype),
        C: T.Tensor((m, n), accum),
    ):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((n, k) if transpose_B else (k, n), dtype)
            c = T.alloc_fragment((m, n), accum)
            T.clear(c)
            for ko in T.Pipelined(4096 // k, num_stages=stages):
                T.copy(A[0, ko * k], a)
                if transpose_B:
                    T.copy(B[0, ko * k], b)
                else:
                    T.copy(B[ko * k, 0], b)
                T.gemm(a, b, c, transpose_B=transpose_B)
                if twice:
                    T.gemm(a, b, c, transpose_B=transpose_B)
            T.copy(c, C)

    return main


def scheduled(program, arch):
    """What the source asks for, and the source."""
    source = tilelang.lower(program, target=f"hip -mcpu={arch}").kernel_source
    calls = re.findall(r"tl::schedule_reads<(\d+), (\d+), (\d+)>\(\);", source)
    return [tuple(map(int, call)) for call in calls], source


def longest_run(source, arch):
    """Most reads of LDS that follow each other behind the first MFMA of the loop."""
    code = compile_code_object(source, arch, ["main_kernel"])
    (usage,) = code.resource_usage.values()
    assert (usage.spill_stores, usage.stack) == (0, 0)
    label, rest = re.search(r"(\.LBB\w+):.*Loop Header([\s\S]*)", code.assembly).groups()
    loop = rest[: rest.rindex(f" {label}\n")]
    kinds = re.findall(r"^\s(ds_read|v_mfma)", loop, re.MULTILINE)
    runs = re.split("M", "".join("rM"[kind == "v_mfma"] for kind in kinds))
    return max(map(len, runs[1:]))


@pytest.mark.parametrize(
    ("program", "arch", "wanted"),
    [
        # A wavefront has 2 x 4 tiles of 32 x 32, and four steps of 16 along K: 24 reads. A's, and
        # those of four tiles of B, are ahead of the first MFMA.
        (product(), "gfx950", (5, 1, 19)),
        (product(block=(128, 256, 32)), "gfx942", (5, 1, 7)),
        # Two steps of 64, of which an operand has 32 bytes of a lane, two reads.
        (product("float8_e4m3fn", (128, 256, 128)), "gfx950", (10, 2, 7)),
        # B is read by ds_read_b64_tr_b16, two for what one ds_read_b128 has.
        (product(transpose_B=False), "gfx950", (9, 2, 16)),
    ],
)
def test_reads_stand_between_mfma(program, arch, wanted):
    calls, source = scheduled(program, arch)
    assert set(calls) == {wanted}
    assert longest_run(source, arch) <= wanted[1]
    without = re.sub(r"tl::schedule_reads<.*", "", source)
    assert longest_run(without, arch) >= 5


@pytest.mark.parametrize(
    ("program", "arch"),
    [
        # Another product stands in the loop.
        (product(twice=True), "gfx950"),
        # B is read by element.
        (product(block=(128, 256, 32), transpose_B=False), "gfx942"),
        # Operands of 4 bytes of a lane, several of which LLVM reads at once.
        (product("int8", (256, 256, 24)), "gfx90a"),
        # One tile of a wavefront: the first four products want all.
        (product(block=(64, 64, 64)), "gfx950"),
        # WMMA.
        (product(block=(64, 64, 32)), "gfx1100"),
    ],
)
def test_others_have_no_order(program, arch):
    assert scheduled(program, arch)[0] == []


def test_it_is_explained_and_the_emulator_takes_it():
    program = product(block=(128, 128, 64))
    kernel = tilelang.compile(program, target="hip -mcpu=gfx950", execution_backend="emulate")
    text = (
        "reads of shared memory between matrix instructions: 4 in front, then 1 behind each of 12"
    )
    assert text in kernel.explain()
