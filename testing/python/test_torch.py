"""Kernels as torch's operators: what opcheck asks, no graph breaks, gradients, threads."""

import threading

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.engine.launch_plan import (
    KernelLaunch,
    LaunchPlan,
    PointerParam,
    ScalarParam,
    TensorParam,
)
from tilelang.torch import fake_outputs, register, schema_of

M = ("var", "m")


def compiled(program, out_idx):
    return tilelang.compile(program, out_idx=out_idx, execution_backend="emulate", checks=False)


@pytest.fixture(scope="module")
def scaled_sum():
    """C = (A + B) * factor over rows of 64, C returned."""
    m = T.dynamic("m")

    @T.prim_func
    def scaled_sum(
        A: T.Tensor((m, 64), "float32"),
        B: T.Tensor((m, 64), "float32"),
        factor: T.float32,
        C: T.Tensor((m, 64), "float32"),
    ):
        with T.Kernel(m, threads=64) as row:
            for j in T.Parallel(64):
                C[row, j] = (A[row, j] + B[row, j]) * factor

    return compiled(scaled_sum, -1)


@pytest.fixture(scope="module")
def gradient():
    """Its gradients."""
    m = T.dynamic("m")

    @T.prim_func
    def gradient(
        grad_C: T.Tensor((m, 64), "float32"),
        factor: T.float32,
        grad_A: T.Tensor((m, 64), "float32"),
        grad_B: T.Tensor((m, 64), "float32"),
    ):
        with T.Kernel(m, threads=64) as row:
            for j in T.Parallel(64):
                grad_A[row, j] = grad_C[row, j] * factor
                grad_B[row, j] = grad_C[row, j] * factor

    return compiled(gradient, [2, 3])


@pytest.fixture(scope="module")
def accumulate():
    """A += B in place, and the count of rows as a second way to give a size."""
    m = T.dynamic("m")

    @T.prim_func
    def accumulate(A: T.Tensor((m, 64), "float32"), B: T.Tensor((m, 64), "float32")):
        with T.Kernel(m, threads=64) as row:
            for j in T.Parallel(64):
                A[row, j] = A[row, j] + B[row, j]

    return compiled(accumulate, None)


@pytest.fixture(scope="module")
def operator(scaled_sum, gradient):
    return register(scaled_sum, "tilelang_tests::scaled_sum", backward=gradient)


@pytest.fixture(scope="module")
def in_place(accumulate):
    return register(accumulate, "tilelang_tests::accumulate")


def pair(rows, **options):
    return [torch.randn(rows, 64, **options) for _ in range(2)]


def test_the_schema_is_that_of_the_plan(operator, in_place):
    schemas = [str(op._opoverload._schema) for op in (operator, in_place)]
    assert schemas == [
        "tilelang_tests::scaled_sum(Tensor A, Tensor B, float factor) -> Tensor",
        "tilelang_tests::accumulate(Tensor(a0!) A, Tensor B) -> ()",
    ]


@pytest.mark.parametrize("grad", [False, True])
def test_opcheck(operator, in_place, grad):
    torch.library.opcheck(operator, (*pair(3, requires_grad=grad), 2.0))
    torch.library.opcheck(operator, (*pair(0), 2.0))
    torch.library.opcheck(in_place, pair(3))


def test_a_call_is_one_of_the_kernel(operator, in_place, scaled_sum):
    a, b = pair(5)
    assert torch.equal(operator(a, b, 3.0), scaled_sum(a, b, 3.0))
    assert torch.equal(torch.ops.tilelang_tests.scaled_sum(a, b, 3.0), (a + b) * 3)
    before, version = a.clone(), a._version
    assert in_place(a, b) is None
    assert torch.equal(a, before + b)
    assert a._version == version + 1
    with pytest.raises(ValueError, match=r"Kernel `scaled_sum`.*shape mismatch"):
        operator(a, b[:4], 3.0)


def test_one_graph_for_every_size(operator, in_place):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def function(a, b):
        c = operator(a * 2, b, 0.5) + 1
        in_place(c, b)
        return c.sum(0)

    for rows in (3, 7, 12):
        a, b = pair(rows)
        torch.testing.assert_close(function(a, b), ((a * 2 + b) * 0.5 + 1 + b).sum(0))
    assert len(graphs) == 1


def test_under_the_default_backend_with_gradients(operator):
    """AOTAutograd traces forward and backward with fake tensors."""

    @torch.compile(fullgraph=True, dynamic=True, backend="aot_eager")
    def function(a, b):
        return operator(a.sin(), b, 3.0).square().sum()

    for rows in (2, 5):
        a, b = pair(rows, requires_grad=True)
        function(a, b).backward()
        wanted = [t.detach().clone().requires_grad_() for t in (a, b)]
        ((wanted[0].sin() + wanted[1]) * 3).square().sum().backward()
        for found, expected in zip((a, b), wanted, strict=True):
            torch.testing.assert_close(found.grad, expected.grad)


def test_gradients_of_a_kernel_and_of_a_function(operator, scaled_sum):
    a, b = pair(3, requires_grad=True)
    operator(a, b, 2.0).sum().backward()  # a gradient with strides of 0
    assert torch.equal(a.grad, torch.full((3, 64), 2.0))
    seen = {}

    def backward(**known):
        seen.update(known)
        return {"B": known["grad_C"] * known["factor"]}

    other = register(scaled_sum, "tilelang_tests::by_function", backward=backward)
    b.grad = None
    c = other(a, b, 4.0)
    (c * c).sum().backward()
    assert {*seen} == {"A", "B", "factor", "C", "grad_C"}
    assert torch.equal(seen["C"], c)
    torch.testing.assert_close(b.grad, 2 * c * 4)


def test_without_a_backward_a_gradient_is_an_error(scaled_sum):
    plain = register(scaled_sum, "tilelang_tests::plain")
    a, b = pair(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        plain(a, b, 1.0).sum().backward()


def test_export_with_a_symbolic_size(operator):
    class Module(torch.nn.Module):
        def forward(self, a, b):
            return operator(a, b, 2.0) + 1

    rows = torch.export.Dim("rows", min=2)
    a, b = pair(4)
    program = torch.export.export(Module(), (a, b), dynamic_shapes=({0: rows}, {0: rows}))
    assert "tilelang_tests.scaled_sum" in str(program.graph)
    a, b = pair(9)
    torch.testing.assert_close(program.module()(a, b), (a + b) * 2 + 1)


def test_under_autocast_and_in_inference_mode(operator):
    a, b = pair(2)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        assert torch.equal(operator(a, b, 2.0), (a + b) * 2)


def test_in_threads(operator):
    wrong = []

    def work(seed):
        a, b = torch.full((4, 64), float(seed)), torch.ones(4, 64)
        for _ in range(20):
            if not torch.equal(operator(a, b, 2.0), (a + b) * 2):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_kernel_of_a_file_is_an_operator(scaled_sum, tmp_path):
    scaled_sum.export(tmp_path / "sum.tlk")
    kernel = tilelang.runtime.load(tmp_path / "sum.tlk", "emulate")
    loaded = register(kernel, "tilelang_tests::of_a_file")
    torch.library.opcheck(loaded, (*pair(3), 2.0))


def plan_of(*params, outputs=(), writes=()):
    args = tuple(("param", param.name) for param in params)
    kernel = KernelLaunch("k", (1, 1, 1), (1, 1, 1), 0, args, writes=writes)
    return LaunchPlan("f", params, (kernel,), outputs)


def test_schemas_of_other_parameters():
    a = TensorParam("A", "float32", (("*", M, 2),))
    n, x, flag = (ScalarParam(*p) for p in [("n", "int64"), ("x", "bfloat16"), ("flag", "bool")])
    c, d = TensorParam("C", "int32", (M,)), TensorParam("D", "int32", (("var", "n"),))
    plan = plan_of(a, n, x, flag, c, d, outputs=(4, 5), writes=("C", "D"))
    wanted = "(Tensor A, SymInt n, float x, bool flag) -> (Tensor, Tensor)"
    assert schema_of(plan) == wanted
    # What a text of the user's own writes to is not known.
    assert schema_of(plan_of(a, n, writes=None)) == "(Tensor(a0!) A, SymInt n) -> ()"
    assert plan.written == {"C", "D"}
    assert plan_of(a, n, writes=None).written == {"A"}
    found = fake_outputs(plan, (torch.empty(6), 5, 0.5, True), "cpu")
    assert [(t.shape, t.dtype) for t in found] == [((3,), torch.int32), ((5,), torch.int32)]


@pytest.mark.parametrize(
    ("expr", "size"),
    [
        (("ceildiv", M, 4), 3),
        (("max", ("min", M, 8), ("%", M, 6)), 8),
        (("-", ("//", M, 2), 1), 4),
        (("+", M, M), 20),
    ],
)
def test_the_extents_of_fake_outputs(expr, size):
    plan = plan_of(
        TensorParam("A", "float32", (M,)), TensorParam("C", "float32", (expr,)), outputs=(1,)
    )
    assert fake_outputs(plan, (torch.empty(10),), "cpu").shape == (size,)


def test_fake_outputs_with_strides_and_of_sub_byte():
    a = TensorParam("A", "float4_e2m1fn", (M, 8))
    c = TensorParam("C", "uint4", (M, 8), (16, 1))
    plan = plan_of(a, c, outputs=(1,))
    found = fake_outputs(plan, (torch.empty(3, 4, dtype=torch.uint8),), "cpu")
    assert (found.shape, found.stride(), found.dtype) == ((3, 4), (8, 1), torch.uint8)


def test_fake_arguments_are_checked():
    plan = plan_of(TensorParam("A", "float16", (M,)))
    with pytest.raises(ValueError, match="parameter `A`: rank mismatch: expected 1 dimensions"):
        fake_outputs(plan, (torch.empty(2, 2).half(),), "cpu")
    with pytest.raises(ValueError, match="dtype mismatch: expected float16, got float32"):
        fake_outputs(plan, (torch.empty(2),), "cpu")


def test_mistakes(scaled_sum, accumulate, gradient):
    with pytest.raises(ValueError, match="'sum': expected library::operator"):
        register(scaled_sum, "sum")
    with pytest.raises(ValueError, match=r"inputs that the kernel writes to \(A\), wanted none"):
        register(accumulate, "tilelang_tests::bad", backward=gradient)
    with pytest.raises(ValueError, match="found C among the parameters of a backward"):
        register(scaled_sum, "tilelang_tests::bad", backward=scaled_sum)
    with pytest.raises(ValueError, match="found the pointer parameter `P`"):
        schema_of(plan_of(PointerParam("P", None)))


@pytest.fixture(scope="module")
def of_a_function():
    @tilelang.jit(execution_backend="emulate")
    def shifted(A, B, shift: T.float32, block: int = 32):
        M = T.dynamic("M")
        N = T.const("N")
        A: T.Tensor[[M, N], T.float32]
        B: T.Tensor[[N], T.float32]
        C = T.empty((M, N), T.float32)
        with T.Kernel(M, threads=block) as row:
            for j in T.Parallel(N):
                C[row, j] = A[row, j] * B[j] + shift
        return C

    example = (torch.empty(2, 32), torch.empty(32), 1.0)
    return register(shifted, "tilelang_tests::shifted", example=example)


def test_a_function_in_eager_style_is_an_operator(of_a_function):
    schema = str(of_a_function._opoverload._schema)
    assert schema == "tilelang_tests::shifted(Tensor A, Tensor B, float shift) -> Tensor"
    torch.library.opcheck(of_a_function, (torch.randn(3, 32), torch.randn(32), 2.0))


def test_a_function_has_a_graph_for_each_constant_size(of_a_function):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def function(a, b):
        return of_a_function(a, b, 2.0) + 1

    for rows, columns in [(3, 32), (5, 32), (4, 64), (9, 64)]:
        a, b = torch.randn(rows, columns), torch.randn(columns)
        torch.testing.assert_close(function(a, b), a * b + 3)
    assert len(graphs) == 2


def test_a_function_without_an_example():
    @tilelang.jit
    def doubled(A):
        A: T.Tensor[[8], T.float32]
        with T.Kernel(1, threads=8):
            A[0] = A[0] * 2

    with pytest.raises(ValueError, match="'doubled' is no kernel: found no `example`"):
        register(doubled, "tilelang_tests::doubled")
