"""Tiles in shared memory whose extents the launch decides: results, bytes, limits and refusals."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator.reports import EmulationError

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
m, n = T.dynamic("m n")


def compiled(program, **options):
    return tilelang.compile(program, target="cuda -arch=sm_90a", **options)


@pytest.fixture(scope="module")
def reversed_rows():
    """Each row backwards, and w bytes of 3 from a second tile; reads `off` elements too far."""

    @T.prim_func
    def main(
        A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32"), w: T.int32, off: T.int32
    ):
        with T.Kernel(m, threads=64) as bx:
            ones = T.alloc_shared((32,), "float32")
            row = T.alloc_shared((n,), "float32")
            threes = T.alloc_shared((2, w), "int8")
            T.copy(A[bx, 0:n], row)
            T.fill(threes, 3)
            T.fill(ones, 1)
            for i in T.Parallel(n):
                B[bx, i] = row[n - 1 - i + off] + T.cast(threes[1, i % w], "float32") + ones[i % 32]

    return compiled(main)


@pytest.mark.parametrize(("rows", "columns", "w"), [(3, 77, 5), (1, 1, 1), (2, 0, 3), (2, 256, 64)])
def test_tiles_have_what_the_call_passes(reversed_rows, rows, columns, w):
    a = torch.randint(-9, 9, (rows, columns), device=DEVICE).float()
    b = torch.empty_like(a)
    reversed_rows(a, b, w, 0)
    assert torch.equal(b, a.flip(1) + 4)


def test_they_come_last_and_the_plan_computes_their_bytes(reversed_rows):
    source, plan = reversed_rows.get_kernel_source(), reversed_rows.get_host_source()
    assert "auto ones = tl::shared<float, 32>(buf_dyn_shmem + 0);" in source
    assert "auto row = tl::shared<float>(buf_dyn_shmem + 128, n);" in source
    assert "(max(w, 0) * 2)) of 232448" in plan
    assert "bytes, as the launch computes" in reversed_rows.explain()


def test_the_launch_refuses_what_no_block_has(reversed_rows):
    a = torch.zeros(2, 40, device=DEVICE)
    with pytest.raises(ValueError, match=r"shared bytes .* expected 0 to 232448, got 2000384"):
        reversed_rows(a, torch.empty_like(a), 10**6, 0)


@pytest.mark.skipif(DEVICE == "cuda", reason="the emulator's checks")
@pytest.mark.parametrize(("w", "off", "place"), [(5, 1, r"row \+ 77"), (-3, 0, r"threes - \d")])
def test_the_emulator_knows_the_extents(reversed_rows, monkeypatch, w, off, place):
    monkeypatch.setenv("TILELANG_EMULATE_CHECKS", "1")
    kernel = compiled(reversed_rows.prim_func)
    a = torch.zeros(1, 77)
    with pytest.raises(EmulationError, match=f"out-of-bounds: . bytes at {place} "):
        kernel(a, torch.empty_like(a), w, off)


@pytest.mark.parametrize("stages", [0, 2])
def test_a_pipeline_loads_them_ahead_by_threads(stages):
    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=128):
            row = T.alloc_shared((n,), "float32")
            total = T.alloc_shared((n,), "float32")
            T.clear(total)
            for k in T.Pipelined(m, num_stages=stages):
                T.copy(A[k, 0:n], row)
                for i in T.Parallel(n):
                    total[i] += row[i]
            T.copy(total, B)

    kernel = compiled(main)
    assert ("versions of buffers: row 2" in kernel.explain()) == (stages == 2)
    a = torch.randint(-9, 9, (5, 131), device=DEVICE).float()
    b = torch.empty(131, device=DEVICE)
    kernel(a, b)
    assert torch.equal(b, a.sum(0))


def test_a_producer_fills_versions_of_them():
    """Beside tiles by TMA, which cannot be of such extents."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        Bias: T.Tensor((4, n), "float32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            left = T.alloc_shared((64, 64), "float16")
            right = T.alloc_shared((64, 64), "float16")
            bias = T.alloc_shared((n,), "float32")
            total = T.alloc_fragment((64, 64), "float32")
            T.clear(total)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], left)
                T.copy(B[k * 64, 0], right)
                T.copy(Bias[k, 0:n], bias)
                T.gemm(left, right, total)
                for i, j in T.Parallel(64, 64):
                    total[i, j] += bias[j]
            T.copy(total, C)

    kernel = compiled(main)
    assert "channel 1: bias, 2 versions" in kernel.explain()
    a, b = (torch.randint(-4, 4, s, device=DEVICE).half() for s in ((64, 256), (256, 64)))
    bias = torch.randint(-4, 4, (4, 83), device=DEVICE).float()
    c = torch.empty(64, 64, device=DEVICE)
    kernel(a, b, bias, c)
    assert torch.equal(c, a.float() @ b.float() + bias.sum(0)[:64])


def test_a_product_takes_parts_of_them_by_constant_tiles():
    @T.prim_func
    def main(
        A: T.Tensor((m, 32), "float16"), B: T.Tensor((32, 32), "float16"), C: T.Tensor((m, 32))
    ):
        with T.Kernel(1, threads=128):
            all_rows = T.alloc_shared((m, 32), "float16")
            rows = T.alloc_shared((64, 32), "float16")
            right = T.alloc_shared((32, 32), "float16")
            product = T.alloc_fragment((64, 32), "float32")
            held = T.alloc_fragment((64, 32), "float16")
            T.copy(A, all_rows)
            T.copy(B, right)
            for i in T.serial(T.ceildiv(m, 64)):
                for r, c in T.Parallel(64, 32):
                    held[r, c] = T.if_then_else(
                        i * 64 + r < m, all_rows[T.min(i * 64 + r, m - 1), c], 0
                    )
                T.copy(held, rows)
                T.gemm(rows, right, product, clear_accum=True)
                T.copy(product, C[i * 64, 0])

    a, b = (torch.randint(-4, 4, (s, 32), device=DEVICE).half() for s in (100, 32))
    c = torch.empty(100, 32, device=DEVICE)
    compiled(main)(a, b, c)
    assert torch.equal(c, a.float() @ b.float())


def program(statement):
    """A program with a tile of m rows, and what does not take it."""

    @T.macro
    def use(A, tile, out):
        statement(A, tile, out)

    @T.prim_func
    def main(A: T.Tensor((m, 64), "float16"), B: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((m, 64), "float16")
            out = T.alloc_fragment((64, 64), "float32")
            use(A, tile, out)
            T.copy(out, B)

    return main


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        (lambda A, t, out: T.gemm(t[0:64, :], t[0:64, :], out), "an operand of T.gemm;"),
        (lambda A, t, out: T.copy(A, t, prefer_instruction="tma"), "an operand of T.copy by TMA"),
        (lambda A, t, out: T.reduce_sum(t, out[0, :], dim=0), "wanted constants"),
        (lambda A, t, out: T.annotate_layout({t: lambda i, j: (j, i)}), "wanted constants"),
        (lambda A, t, out: T.alloc_shared((T.get_thread_binding(),), "int8"), "in front of T.Ker"),
        (lambda A, t, out: T.alloc_shared((m,), "int8", scope="shared"), "positive constants"),
        (lambda A, t, out: T.alloc_fragment((m,), "int8"), "positive constants"),
    ],
)
def test_what_needs_constants_refuses_them(statement, what):
    with pytest.raises(ValueError, match=what):
        tilelang.lower(program(statement), target="cuda -arch=sm_90a")
