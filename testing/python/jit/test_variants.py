"""Variants of a kernel: which one a call takes, what is compiled for that, that each is right."""

import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang.autotuner import candidate
from tilelang.engine.launch_plan import LaunchPlan

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HOPPER = "cuda -arch=sm_90a"


def product():
    """C = A @ B in tiles of 64 x 64 x 32."""
    m, n, k = T.dynamic("m, n, k")

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_shared = T.alloc_shared((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            T.clear(acc)
            for step in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 64, step * 32], A_shared)
                T.copy(B[step * 32, bx * 64], B_shared)
                T.gemm(A_shared, B_shared, acc)
            T.copy(acc, C_shared)
            T.copy(C_shared, C[by * 64, bx * 64])

    return main


def doubled(sizes=None):
    """C = 2 A."""
    m, n = sizes or T.dynamic("m, n")

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 64), T.ceildiv(m, 4), threads=64) as (bx, by):
            for i, j in T.Parallel(4, 64):
                C[by * 4 + i, bx * 64 + j] = A[by * 4 + i, bx * 64 + j] * 2

    return main


def compiled(program, **options):
    return tilelang.compile(program, target=HOPPER, execution_backend="auto", **options)


def behind(tensor, offset):
    """A copy of a tensor that begins `offset` elements behind aligned memory."""
    memory = torch.zeros(tensor.numel() + offset, dtype=tensor.dtype, device=DEVICE)
    return memory[offset:].view(tensor.shape).copy_(tensor)


def numbers(kernel):
    """The places of the compiled variants among all."""
    last = len(kernel.launch_plan.others)
    return [last - len(variant.launch_plan.others) for variant in kernel.compiled_variants]


def check_doubled(kernel, rows, columns, offset=0):
    a = behind(torch.randn(rows, columns), offset)
    c = torch.zeros_like(a) if offset == 0 else behind(torch.zeros(rows, columns), offset)
    kernel(a, c)
    assert torch.equal(c, 2 * a)


@pytest.mark.parametrize(
    ("rows", "columns", "offset", "taken"),
    [
        (8, 64, 0, 0),
        (4, 128, 4, 0),
        (7, 64, 0, 1),
        (8, 60, 0, 1),
        (0, 64, 0, 1),
        (8, 0, 0, 1),
        (8, 62, 4, 2),
        (8, 63, 0, 3),
        (8, 64, 1, 4),
        (5, 7, 3, 4),
    ],
)
def test_a_call_compiles_the_first_variant_that_takes_it(rows, columns, offset, taken):
    kernel = compiled(doubled())
    assert numbers(kernel) == [0]
    check_doubled(kernel, rows, columns, offset)
    assert numbers(kernel) == sorted({0, taken})
    check_doubled(kernel, rows, columns, offset)
    assert numbers(kernel) == sorted({0, taken})


@pytest.fixture(scope="module")
def gemm():
    return compiled(product())


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize(
    ("m", "n", "k"),
    [
        (64, 64, 32),
        (128, 64, 96),
        (63, 64, 32),
        (65, 72, 40),
        (64, 68, 32),
        (65, 68, 36),
        (65, 70, 34),
        (65, 71, 33),
        (64, 64, 0),
        (0, 64, 32),
        (1, 1, 1),
    ],
)
def test_every_size_is_right(gemm, m, n, k, offset):
    a, b = (behind(torch.randn(shape).half(), offset) for shape in ((m, k), (k, n)))
    c = behind(torch.full((m, n), torch.nan).half(), offset)
    gemm(a, b, c)
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=2e-3, atol=2e-2)


def test_a_program_of_known_sizes_has_one_more_variant_for_other_addresses():
    kernel = compiled(doubled((8, 64)), out_idx=-1)
    assert kernel.launch_plan.guards == ()
    a = behind(torch.randn(8, 64), 3)
    assert torch.equal(kernel(a), 2 * a)
    assert numbers(kernel) == [0, 1]
    assert "float, 4>" in kernel.kernel_source
    assert "float, 4>" not in kernel.variants[1].kernel_source


@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_views_of_tensors_at_any_address(offset):
    """Elements of a view that are wider than the tensor's, floats among them, are loaded and stored
    as its elements; narrower ones begin with it."""

    @T.prim_func
    def main(
        A: T.Tensor((8, 64), "float32"),
        C: T.Tensor((8, 64), "float32"),
        D: T.Tensor((8, 256), "uint8"),
    ):
        with T.Kernel(8, threads=64) as row:
            pairs, numbers = T.view(A, dtype="uint64"), T.view(C, (8, 32), "float64")
            signs = T.view(A, (8, 32, 8), "uint8")
            for j in T.Parallel(32):
                numbers[row, j] = T.reinterpret(pairs[row, 31 - j], "float64")
            for i, j in T.Parallel(32, 8):
                D[row, i * 8 + j] = signs[row, i, j]

    kernel = compiled(main)
    a = behind(torch.randn(8, 64), offset)
    c = behind(torch.zeros(8, 64), offset)
    d = behind(torch.zeros(8, 256, dtype=torch.uint8), offset)
    kernel(a, c, d)
    assert torch.equal(c.view(8, 32, 2), a.view(8, 32, 2).flip(1))
    assert torch.equal(d.cpu(), a.cpu().view(torch.uint8))
    assert numbers(kernel) == ([0, 1] if offset else [0])


def test_an_address_that_no_variant_takes_is_refused():
    @T.prim_func
    def demanding(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float32")
            bar = T.alloc_barrier(1)
            if T.shuffle_elect(128):
                T.tma_copy(A, S, barrier=bar)
                T.barrier_arrive(bar)
            T.barrier_wait(bar, 0)
            T.copy(S, C)

    kernel = compiled(demanding)
    a, c = behind(torch.randn(64, 64), 1), torch.zeros(64, 64, device=DEVICE)
    with pytest.raises(ValueError, match="`A`: expected data aligned to 16 bytes") as raised:
        kernel(a, c)
    assert "begins inside of its memory" in str(raised.value.__cause__)
    assert not c.any()


def test_assumptions_of_the_program_narrow_by_hand():
    m, n = T.dynamic("m, n")

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(m, threads=32) as row:
            T.assume(n % 4 == 0)
            for j in T.Parallel(64):
                if j < n:
                    C[row, j] = A[row, j] * 2

    kernel = compiled(main)
    conditions = [c.script() for c in kernel.launch_plan.others]
    assert conditions == ["any sizes", "any sizes, any address"]
    check_doubled(kernel, 3, 52)


def test_the_background_compiles_what_calls_then_find():
    kernel = compiled(doubled())
    thread = kernel.build_variants(background=True)
    check_doubled(kernel, 5, 7)
    thread.join()
    assert numbers(kernel) == [0, 1, 2, 3, 4]
    assert kernel.build_variants() is None


def test_one_text_is_one_binary():
    """Of guards that the compiler makes no use of."""
    m = T.dynamic("m")

    @T.prim_func
    def main(A: T.Tensor((m,), "float32")):
        with T.Kernel(m, threads=32) as row:
            if T.get_thread_binding() == 0:
                A[row] = 1

    first, last, _ = compiled(main).variants
    assert first.launch_plan.guards
    assert not last.launch_plan.guards
    assert first.kernel_source == last.kernel_source
    assert last._compiled is first._compiled


def test_reports_name_elements_of_tensors_at_any_address():
    @T.prim_func
    def race(A: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            thread = T.get_thread_binding()
            A[thread // 2] = thread

    kernel = tilelang.compile(race, execution_backend="emulate", checks=True)
    texts = []
    for offset in (0, 3):
        with pytest.raises(RuntimeError, match=r"A\[\d+\]") as raised:
            kernel(torch.zeros(64 + offset, dtype=torch.int32)[offset:])
        texts.append(str(raised.value))
    assert texts[0] == texts[1]


def test_bad_calls_compile_no_variant():
    kernel = compiled(doubled())
    with pytest.raises(ValueError, match="shape mismatch"):
        kernel(torch.zeros(5, 7, device=DEVICE), torch.zeros(5, 8, device=DEVICE))
    assert numbers(kernel) == [0]


def test_a_file_has_the_variant_for_any_sizes(tmp_path):
    path = tmp_path / "doubled.tlk"
    compiled(doubled()).export(path, archs=["sm_90a", "emulate"])
    kernel = tilelang.runtime.load(path, "emulate")
    assert kernel.launch_plan.guards == kernel.launch_plan.others == ()
    a, c = torch.randn(5, 7), torch.zeros(5, 7)
    kernel(a, c)
    assert torch.equal(c, 2 * a)
    with pytest.raises(ValueError, match="aligned to 16 bytes"):
        kernel(torch.randn(36)[1:].view(5, 7), c)


def test_tuning_times_the_variant_for_any_sizes():
    """The process that times has one variant, and inputs may have any sizes."""
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    lowered = candidate.lower(doubled(), target, None, {}, None, emulated=True)
    plan = LaunchPlan.from_json(lowered.plan)
    assert plan.guards == plan.others == ()
