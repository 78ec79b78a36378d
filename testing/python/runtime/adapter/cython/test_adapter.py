import math
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

from tilelang.emulator.machine import MULTIPROCESSORS
from tilelang.engine.launch_plan import (
    Descriptor,
    KernelLaunch,
    LaunchPlan,
    PointerParam,
    Requirement,
    ScalarParam,
    TensorParam,
)
from tilelang.runtime.adapter import emulated_adapter
from tilelang.runtime.adapter.cython import _adapter

M, S = ("var", "m"), ("var", "s")
N = ("var", "n")


@pytest.fixture
def add(kernels):
    """C = A + 1 over a symbolic size, C returned."""
    params = (TensorParam("A", "float32", (M,)), TensorParam("C", "float32", (M,)))
    args = (("param", "A"), ("param", "C"), ("value", M, "int32"))
    return kernels.launcher(params, [("add", (("ceildiv", M, 128), 1, 1), args)], (1,))


def record(kernels, value, m=(), grid=(1, 1, 1), param="int64", shapes=(7, 13)):
    """Launches `record`, and returns the eight numbers that it wrote."""
    scalars = (ScalarParam("s", param),)
    params = (TensorParam("out", "int64", (8,)), *scalars, *m)
    launcher = kernels.launcher(params, [("record", grid, (("param", "out"), ("param", "s")))])
    out = torch.zeros(8, dtype=torch.int64)
    assert launcher(out, value, *(torch.zeros(s) for s in shapes[: len(m)])) is None
    return out.tolist()


@pytest.mark.parametrize("size", [1, 127, 4096])
def test_an_output_is_allocated_and_returned(add, size):
    a = torch.randn(size)
    assert torch.equal(add(a), a + 1)


def test_no_kernel_runs_on_an_empty_grid(add, kernels):
    before = kernels.calls()
    assert add(torch.empty(0)).shape == (0,)
    assert kernels.calls() == before


def test_a_persistent_kernel_has_a_block_for_each_multiprocessor(kernels):
    m = ("var", "m")
    params = (TensorParam("A", "float32", (m,)), TensorParam("out", "int64", (8,)))
    args = (("param", "out"), ("value", m, "int64"))
    for persistent in (False, True):
        launch = KernelLaunch("record", (m, 1, 1), (1, 1, 1), 0, args, persistent=persistent)
        call = emulated_adapter(LaunchPlan("main", params, (launch,)), kernels.address)
        out = torch.zeros(8, dtype=torch.int64)
        for size in (MULTIPROCESSORS - 1, MULTIPROCESSORS + 1):
            call(torch.zeros(size), out)
            assert out[0] == (min(size, MULTIPROCESSORS) if persistent else size)


def test_a_kernel_that_returns_nothing_writes_its_argument(kernels):
    params = (TensorParam("A", "float32", (4,)), TensorParam("C", "float32", (4,)))
    args = (("param", "A"), ("param", "C"), ("value", 4, "int32"))
    c = torch.empty(4)
    assert kernels.launcher(params, [("add", (1, 1, 1), args)])(torch.ones(4), c) is None
    assert c.tolist() == [2, 2, 2, 2]


def test_several_outputs_come_as_a_list_in_the_given_order(kernels):
    params = tuple(
        TensorParam(name, "float32", (size,)) for name, size in [("A", 2), ("B", 2), ("C", 3)]
    )
    kernel = [("add", (1, 1, 1), (("param", "A"), ("param", "B"), ("value", 2, "int32")))]
    c, b = kernels.launcher(params, kernel, (2, 1))(torch.zeros(2))
    assert (c.shape, b.tolist()) == ((3,), [1, 1])


@pytest.mark.parametrize(
    ("expr", "value"),
    [
        (("+", M, N), 20),
        (("-", N, M), 6),
        (("*", M, ("+", N, 1)), 98),
        (("//", ("-", 0, M), 2), None),
        (("-", 9, ("//", ("-", 0, M), 2)), 13),
        (("%", ("-", 0, M), 4), 1),
        (("min", M, N), 7),
        (("max", M, N), 13),
        (("ceildiv", N, 4), 4),
    ],
)
def test_expressions_are_evaluated(kernels, expr, value):
    sizes = (TensorParam("X", "float32", (M,)), TensorParam("Y", "float32", (N,)))
    if value is None:
        with pytest.raises(
            ValueError, match=r"grid x of kernel `record`: expected 0 to .*, got -4"
        ):
            record(kernels, 0, sizes, (expr, 1, 1))
    else:
        assert record(kernels, 0, sizes, (expr, 2, 3))[:7] == [value, 2, 3, 128, 1, 1, 64]


@pytest.mark.parametrize(
    ("dtype", "value", "code"),
    [("int64", -5, "q"), ("uint64", 2**64 - 1, "Q"), ("handle", 2**63, "Q"), ("float64", 0.1, "d")],
)
def test_scalars_of_eight_bytes(kernels, dtype, value, code):
    found = record(kernels, value, param=dtype)[7]
    assert struct.unpack(code, struct.pack("q", found))[0] == value


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        ("int8", -1, 0xFF),
        ("bool", True, 1),
        ("bool", np.float64(2.0) > 1, 1),
        ("float16", 1.0, 0x3C00),
        ("bfloat16", 1.0, 0x3F80),
        ("float32", 1, 0x3F800000),
    ],
)
def test_narrow_scalars(kernels, dtype, value, bits):
    width = {"int8": 8, "bool": 8, "float16": 16, "bfloat16": 16, "float32": 32}[dtype]
    assert record(kernels, value, param=dtype)[7] % 2**width == bits


@pytest.mark.parametrize(
    ("dtype", "value", "error", "text"),
    [
        (
            "int32",
            2**31,
            ValueError,
            "expected int32 from -2147483648 to 2147483647, got 2147483648",
        ),
        ("uint8", -1, ValueError, "expected uint8 from 0 to 255, got -1"),
        ("int32", 1.5, TypeError, "expected a Python number for int32, got float"),
        ("float32", "1", TypeError, "expected a Python number for float32, got str"),
    ],
)
def test_bad_scalars(kernels, dtype, value, error, text):
    before = kernels.calls()
    with pytest.raises(error, match=rf"Kernel `main` \(gemm.py:7\): parameter `s`: {text}"):
        record(kernels, value, param=dtype)
    assert kernels.calls() == before


@pytest.mark.parametrize("extent", [1, 4])
@pytest.mark.parametrize("written", [False, True])
def test_tensors_that_are_negated_lazily(kernels, extent, written):
    """Their memory has other values; torch.conj makes them of a complex tensor's parts."""
    params = (TensorParam("A", "float32", (M,), (S,)), TensorParam("C", "float32", (M,), (S,)))
    args = (("param", "A"), ("param", "C"), ("value", M, "int32"))
    add = kernels.launcher(params, [("add", (1, 1, 1), args)])
    parts = torch.conj(torch.ones(extent, dtype=torch.complex64)).imag
    plain = torch.ones(extent, dtype=torch.complex64).real
    name, before = "C" if written else "A", kernels.calls()
    with pytest.raises(ValueError, match=rf"`{name}`: found .* negatives .*{name}.resolve_neg"):
        add(*((plain, parts) if written else (parts, plain)))
    assert kernels.calls() == before
    add(plain, plain)
    assert kernels.calls() == before + 1


def test_a_pointer_is_an_address_or_a_tensor(kernels):
    params = (PointerParam("A", "float32"), PointerParam("C", None), ScalarParam("m", "int32"))
    args = (("param", "A"), ("param", "C"), ("param", "m"))
    add = kernels.launcher(params, [("add", (1, 1, 1), args)])
    a, c = torch.randn(4), torch.zeros(2, 2)
    add(a.data_ptr(), c, 4)
    assert torch.equal(c.reshape(4), a + 1)
    c.zero_()
    add(a, c.data_ptr(), 3)
    assert torch.equal(c.reshape(4), torch.cat([a[:3] + 1, torch.zeros(1)]))
    before = kernels.calls()
    for bad, error, text in [
        (None, TypeError, "`A`: expected a torch.Tensor or an address as an int, got NoneType"),
        (-16, ValueError, "`A`: expected handle from 0 to"),
        (2**64, ValueError, "`A`: expected handle from 0 to"),
        (a.data_ptr() + 4, ValueError, "`A`: expected data aligned to 16 bytes"),
        (a[1:], ValueError, "`A`: expected data aligned to 16 bytes"),
        (a.int(), ValueError, "`A`: dtype mismatch: expected float32, got int32"),
        (a.to_sparse(), ValueError, "`A`: expected a dense tensor"),
    ]:
        with pytest.raises(error, match=text):
            add(bad, c, 4)
    assert kernels.calls() == before


def test_a_scalar_defines_its_dimension(kernels):
    launcher = kernels.launcher((TensorParam("A", "float32", (M,)), ScalarParam("m", "int32")))
    assert launcher(torch.zeros(5), 5) is None
    with pytest.raises(ValueError, match=r"expected 6 \(m\) at index 0 of \(m,\), got 5"):
        launcher(torch.zeros(5), 6)


def fake_tensor():
    """Made by the test, not when tests are collected: torch imports its compiler for it, 3 s."""
    return FakeTensorMode().from_tensor(torch.zeros(4))


BAD_TENSORS = [
    ((), ValueError, r"Expected 1 inputs, got 0. Pass \(A\); C is allocated and returned"),
    ((torch.zeros(4), torch.zeros(4)), ValueError, "Expected 1 inputs, got 2"),
    (([1.0],), TypeError, "parameter `A`: expected a torch.Tensor, got list"),
    ((None,), TypeError, "parameter `A`: expected a torch.Tensor, got NoneType"),
    (
        (torch.zeros(4, 1),),
        ValueError,
        r"`A`: rank mismatch: expected 1 .*, got 2 \(4, 1\)",
    ),
    ((torch.zeros(4).half(),), ValueError, "`A`: dtype mismatch: expected float32, got float16"),
    (
        (torch.zeros(8)[::2],),
        ValueError,
        r"`A` is non-contiguous: expected stride 1 .*`A.contiguous\(\)`; where the kernel writes "
        r"A, .*`copy = A.contiguous\(\)`, pass copy, `A.copy_\(copy\)`",
    ),
    (
        (torch.zeros(8)[1:],),
        ValueError,
        r"expected data aligned to 16 bytes, got address 0x.* `copy = A.clone\(\)`, pass copy, "
        r"`A.copy_\(copy\)`",
    ),
    (
        (fake_tensor,),
        ValueError,
        "expected a dense tensor with data, got a FakeTensor of .* torch.library.custom_op",
    ),
    ((torch.empty(4, device="meta"),), ValueError, "expected a dense tensor with data"),
    (
        (torch.zeros(4).to_sparse(),),
        ValueError,
        r"expected a dense tensor with data, got a Tensor of layout torch.sparse",
    ),
]


@pytest.mark.parametrize(("args", "error", "text"), BAD_TENSORS)
def test_nothing_runs_after_a_bad_argument(add, kernels, args, error, text):
    before = kernels.calls()
    with pytest.raises(error, match=r"Kernel `main` \(gemm.py:7\): .*" + text):
        add(*(arg() if arg is fake_tensor else arg for arg in args))
    assert kernels.calls() == before


def test_static_and_shared_dimensions_are_checked(kernels):
    params = (TensorParam("A", "float32", (M, 4)), TensorParam("B", "float32", (("*", 2, M),)))
    launcher = kernels.launcher(params)
    assert launcher(torch.zeros(3, 4), torch.zeros(6)) is None
    with pytest.raises(
        ValueError,
        match=r"`A`: shape mismatch: expected 4 at index 1 of \(m, 4\), got 5 in \(3, 5\)",
    ):
        launcher(torch.zeros(3, 5), torch.zeros(6))
    with pytest.raises(
        ValueError, match=r"`B`: shape mismatch: expected 6 \(\(2 \* m\)\) at index 0 .* got 7"
    ):
        launcher(torch.zeros(3, 4), torch.zeros(7))


def test_strides_do_not_matter_where_they_are_not_used(kernels):
    launcher = kernels.launcher((TensorParam("A", "float32", (M, 4)),))
    assert launcher(torch.zeros(4).as_strided((1, 4), (77, 1))) is None
    assert launcher(torch.zeros(0, 8)[:, ::2]) is None
    with pytest.raises(ValueError, match="non-contiguous: expected stride 4 at index 0"):
        launcher(torch.zeros(4, 8)[:, :4])


def test_declared_strides(kernels):
    launcher = kernels.launcher(
        (TensorParam("A", "float32", (M, 4), (N, 1)), ScalarParam("n", "int32"))
    )
    assert launcher(torch.zeros(4, 8)[:, :4], 8) is None
    with pytest.raises(
        ValueError, match=r"stride mismatch: expected 8 at index 0, got 4 in \(4, 1"
    ):
        launcher(torch.zeros(4, 4), 8)


@pytest.mark.parametrize(
    ("declared", "passed"),
    [
        ("bool", torch.bool),
        ("bool", torch.uint8),
        ("int8", torch.bool),
        ("tfloat32", torch.float32),
        ("float8_e4m3", torch.float8_e4m3fn),
        ("bfloat16", torch.bfloat16),
    ],
)
def test_dtypes_that_fit(kernels, declared, passed):
    assert kernels.launcher((TensorParam("A", declared, (4,)),))(torch.zeros(4).to(passed)) is None


def test_a_dtype_that_no_tensor_has_is_refused_at_once(kernels):
    with pytest.raises(ValueError, match="`A`: dtype float6_e2m3fn cannot be passed"):
        kernels.launcher((TensorParam("A", "float6_e2m3fn", (4,)),))


def test_sizes_that_overflow_are_refused(kernels):
    kernel = [
        ("add", (("*", M, 2**62), 1, 1), (("param", "A"), ("param", "A"), ("value", 0, "int32")))
    ]
    launcher = kernels.launcher((TensorParam("A", "float32", (M,)),), kernel)
    with pytest.raises(ValueError, match="a number that does not fit 64 bits"):
        launcher(torch.zeros(4))


def test_a_division_by_zero_is_refused(kernels):
    kernel = [
        ("add", (("//", 4, M), 1, 1), (("param", "A"), ("param", "A"), ("value", 0, "int32")))
    ]
    launcher = kernels.launcher((TensorParam("A", "float32", (M,)),), kernel)
    with pytest.raises(ValueError, match="a division by 0"):
        launcher(torch.zeros(0))


def test_a_bad_second_kernel_stops_the_first(kernels):
    args = (("param", "A"), ("param", "A"), ("value", 0, "int32"))
    both = [("add", (1, 1, 1), args), ("add", (1, 65536, 1), args)]
    before = kernels.calls()
    with pytest.raises(ValueError, match="grid y of kernel `add`: expected 0 to 65535, got 65536"):
        kernels.launcher((TensorParam("A", "float32", (4,)),), both)(torch.zeros(4))
    assert kernels.calls() == before


def test_a_value_too_large_for_its_argument_is_refused(kernels):
    args = (("param", "A"), ("param", "A"), ("value", ("*", M, 2**30), "int32"))
    launcher = kernels.launcher((TensorParam("A", "float32", (M,)),), [("add", (1, 1, 1), args)])
    with pytest.raises(ValueError, match="4294967296 for a kernel argument of fewer bits"):
        launcher(torch.zeros(4))


def test_an_emulated_failure_is_a_runtime_error_and_not_the_end(add, kernels):
    launcher = kernels.launcher((TensorParam("A", "float32", (4,)),), [("fail", (1, 1, 1), ())])
    with pytest.raises(
        RuntimeError, match=r"(?s)main` \(gemm.py:7\).*`fail` failed.*thread 3 waits"
    ):
        launcher(torch.zeros(4))
    assert math.isclose(add(torch.zeros(4))[3].item(), 1)


def test_threads_call_one_launcher(add):
    wrong = []

    def work(value):
        a = torch.full((1000,), float(value))
        wrong.extend(value for _ in range(200) if not torch.equal(add(a), a + 1))

    threads = [threading.Thread(target=work, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_torch_without_the_exchange_is_refused_at_import():
    code = f"""
import importlib.util, sys, unittest.mock
torch = sys.modules["torch"] = unittest.mock.MagicMock(__version__="2.5")
torch.Tensor = object
for name in ["", ".emulator", ".emulator.buffers", ".emulator.machine", ".engine",
             ".engine.launch_plan", ".engine.symbols", ".runtime", ".runtime.adapter", ".utils"]:
    sys.modules["tilelang" + name] = unittest.mock.MagicMock()
spec = importlib.util.spec_from_file_location("_adapter", {_adapter.__file__!r})
spec.loader.exec_module(importlib.util.module_from_spec(spec))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: tilelang reads tensors through DLPack's C exchange API" in done.stderr
    assert "torch 2.5 lacks. Install torch 2.11" in done.stderr


def unused(kernels, *shapes):
    """A launcher of `record` with tensors of these shapes, the first of which the kernel takes."""
    tensors = [TensorParam(f"t{i}", "float32", shape) for i, shape in enumerate(shapes)]
    args = (("param", "out"), ("param", "t0"))
    return kernels.launcher(
        (*tensors, TensorParam("out", "int64", (8,))), [("record", (1, 1, 1), args)]
    )


def test_a_tensor_that_no_kernel_takes_may_be_none(kernels):
    launcher = unused(kernels, (M,), (M, 4), (N, N))
    a, out = torch.zeros(3), torch.zeros(8, dtype=torch.int64)
    launcher(a, None, None, out)
    assert out[0] == 1
    # One that is passed is checked all the same.
    with pytest.raises(ValueError, match=r"`t1`: shape mismatch.*expected 3"):
        launcher(a, torch.zeros(4, 4), None, out)
    launcher(None, None, None, out)  # nor does one that the kernel takes have to be there
    assert out[7] == 0


def test_sizes_come_from_tensors_that_a_kernel_takes_if_they_can(kernels):
    params = (TensorParam("t0", "float32", (M,)), TensorParam("out", "int64", (M,)))
    grid = (("+", M, 1), 1, 1)
    launcher = kernels.launcher(
        params, [("record", grid, (("param", "out"), ("value", M, "int64")))]
    )
    out = torch.zeros(8, dtype=torch.int64)
    launcher(None, out)
    assert (out[0], out[7]) == (9, 8)


def test_a_tensor_that_a_size_comes_from_is_not_none(kernels):
    params = [TensorParam(f"t{i}", "float32", s) for i, s in enumerate([(4,), (N,), (N, 2)])]
    launcher = kernels.launcher(
        (*params, TensorParam("out", "int64", (8,))),
        [("record", (N, 1, 1), (("param", "out"), ("param", "t0")))],
    )
    out = torch.zeros(8, dtype=torch.int64)
    launcher(torch.zeros(4), None, torch.zeros(3, 2), out)
    launcher(torch.zeros(4), torch.zeros(3), None, out)
    assert out[0] == 3
    with pytest.raises(TypeError, match=r"`t1`.*got NoneType.*one that gives no size"):
        launcher(torch.zeros(4), None, None, out)


def test_sizes_are_solved_for(kernels):
    sizes = (TensorParam("X", "float32", (("+", ("*", M, 2), 1), ("//", N, 4))),)
    assert record(kernels, 0, sizes, (M, N, 1), shapes=[(7, 5)])[:2] == [3, 20]
    with pytest.raises(ValueError, match=r"a whole number m gives for \(\(m \* 2\) \+ 1\), at"):
        record(kernels, 0, sizes, (M, N, 1), shapes=[(8, 5)])
    with pytest.raises(ValueError, match=r"make `m` -1, by .*; expected 0 or more"):
        record(kernels, 0, sizes, (M, N, 1), shapes=[(0, 5)])


def test_what_is_solved_for_comes_from_another_tensor_where_one_is_none(kernels):
    params = (
        TensorParam("X", "float32", (("*", M, 2),)),
        TensorParam("Y", "float32", (("*", M, 3),)),
        TensorParam("out", "int64", (8,)),
    )
    args = (("param", "out"), ("param", "X"))
    launcher = kernels.launcher(params, [("record", (M, 1, 1), args)])
    out = torch.zeros(8, dtype=torch.int64)
    launcher(None, torch.zeros(15), out)
    assert (out[0], out[7]) == (5, 0)
    with pytest.raises(ValueError, match=r"`Y`: shape mismatch: expected 12"):
        launcher(torch.zeros(8), torch.zeros(15), out)


@pytest.mark.parametrize(
    ("comparison", "holds"), [("==", False), ("!=", True), ("<", True), ("<=", True)]
)
def test_requirements_are_checked_before_anything_runs(kernels, comparison, holds):
    params = (TensorParam("X", "float32", (M, N)), TensorParam("out", "int64", (8,)))
    requirement = Requirement(M, comparison, ("-", N, 1), "sizes of X", "gemm.py:9")
    args = (("param", "out"), ("param", "X"))
    plan = LaunchPlan(
        "main",
        params,
        (KernelLaunch("record", (1, 1, 1), (1, 1, 1), 0, args),),
        requirements=(requirement,),
    )
    call, before = emulated_adapter(plan, kernels.address), kernels.calls()
    out = torch.zeros(8, dtype=torch.int64)
    if holds:
        call(torch.zeros(3, 5), out)
    else:
        with pytest.raises(AssertionError) as raised:
            call(torch.zeros(3, 5), out)
        assert str(raised.value) == (
            "Kernel `main` (gemm.py:9): sizes of X: expected m == (n - 1), got 3 and 4. Pass "
            "tensors for which it holds."
        )
    assert kernels.calls() == before + holds


def test_tensor_maps_are_made_once_for_an_address_and_a_shape(kernels):
    m, made = ("var", "m"), []
    descriptor = Descriptor("A_desc", "A", "float32", (64, m), (256,), (32, 8), (1, 1), 128)
    plan = LaunchPlan(
        "main",
        (TensorParam("A", "float32", (m, 64)), TensorParam("out", "int64", (8,))),
        (
            KernelLaunch(
                "record", (1, 1, 1), (1, 1, 1), 0, (("param", "out"), ("descriptor", "A_desc"))
            ),
        ),
        descriptors=(descriptor,),
    )

    def encode(found, address, shape, strides):
        made.append((found, address, shape, strides))
        return len(made).to_bytes(8, "little") * 16

    launcher = _adapter.Launcher(
        plan, lambda device: (0, [kernels.address("record")]), encode=encode
    )
    a, b, out = torch.zeros(8, 64), torch.zeros(16, 64), torch.zeros(8, dtype=torch.int64)
    seen = []
    for tensor in (a, a, b, a, b, a[:4]):
        launcher(tensor, out)
        seen.append(int(out[7]))
    assert seen == [1, 1, 2, 1, 2, 3]
    assert made == [
        (descriptor, a.data_ptr(), (64, 8), (256,)),
        (descriptor, b.data_ptr(), (64, 16), (256,)),
        (descriptor, a.data_ptr(), (64, 4), (256,)),
    ]


def test_nothing_is_launched_where_a_tensor_has_no_map(kernels):
    n = ("var", "n")
    plan = LaunchPlan(
        "main",
        (TensorParam("A", "float32", (8, n)), TensorParam("out", "int64", (8,))),
        (
            KernelLaunch(
                "record", (1, 1, 1), (1, 1, 1), 0, (("param", "out"), ("descriptor", "A_desc"))
            ),
        ),
        location="gemm.py:7",
        descriptors=(Descriptor("A_desc", "A", "float32", (n, 8), (("*", n, 4),), (4, 8), (1, 1)),),
    )
    launcher = emulated_adapter(plan, kernels.address)
    before, out = kernels.calls(), torch.zeros(8, dtype=torch.int64)
    launcher(torch.zeros(8, 0), out)
    launcher(torch.zeros(8, 12), out)
    assert kernels.calls() == before + 2
    with pytest.raises(ValueError, match=r"`main` \(gemm.py:7\): tensor map of `A`: .* 20 bytes"):
        launcher(torch.zeros(8, 5), out)
    assert kernels.calls() == before + 2
