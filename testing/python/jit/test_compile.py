import pytest

import tilelang


def test_a_prim_func_becomes_a_kernel(double, monkeypatch):
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_89")
    monkeypatch.setenv("TILELANG_VERBOSE", "1")
    kernel = tilelang.compile(double(), out_idx=-1)
    assert kernel.execution_backend == "emulate"
    assert kernel.target.arch == "sm_89"
    assert kernel.verbose is True
    assert kernel.out_idx == [1]


def test_arguments_go_before_the_environment(double, monkeypatch):
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "nonsense")
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "nonsense")
    target = {"kind": "cuda", "arch": "sm_86"}
    kernel = tilelang.compile(double(), execution_backend="emulate", target=target, verbose=False)
    assert kernel.target.arch == "sm_86"


def test_attributes_of_the_function_count_under_the_arguments(double):
    func = double().with_attr("tilelang_compile_flags", ["-DA"])
    func = func.with_attr("tilelang_pass_configs", {"tl.enable_fast_math": True})
    kernel = tilelang.compile(
        func,
        execution_backend="emulate",
        compile_flags="-DB",
        pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: False},
    )
    assert kernel.compile_flags == ["-DA", "-DB"]
    assert kernel.pass_configs == {"tl.enable_fast_math": False}


def test_declared_outputs(double):
    func = double().with_attr("tilelang_out_idx", [1])
    assert tilelang.compile(func, execution_backend="emulate").out_idx == [1]
    with pytest.raises(ValueError, match="Out index conflict"):
        tilelang.compile(func, out_idx=1)


def test_what_is_no_prim_func_is_refused():
    with pytest.raises(AssertionError, match="expected a PrimFunc, got function"):
        tilelang.compile(lambda: None)


def test_several_functions_keep_their_order(double):
    sizes = [64, 128, 192]
    kernels = tilelang.par_compile([double(n) for n in sizes], -1, execution_backend="emulate")
    assert [kernel.params[0].shape for kernel in kernels] == [(n,) for n in sizes]
    assert tilelang.par_compile([]) == []


def test_a_failure_is_raised_or_takes_the_place(double):
    funcs = [double(), None, double()]
    with pytest.raises(AssertionError, match="got NoneType"):
        tilelang.par_compile(funcs, execution_backend="emulate")
    first, failed, last = tilelang.par_compile(
        funcs, execution_backend="emulate", ignore_error=True
    )
    assert isinstance(failed, AssertionError)
    assert first.out_idx == last.out_idx == []
