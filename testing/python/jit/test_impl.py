from pathlib import Path

import numpy as np
import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang.jit import JITImpl, JITKernel, impl


def scale(n, factor=2, dtype="float32"):
    """B = factor * A."""

    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = A[bx * 64 + i] * factor

    return main


@pytest.fixture
def jitted():
    return tilelang.jit(out_idx=-1, execution_backend="emulate")(scale)


def test_a_call_gives_a_kernel_that_runs(jitted):
    assert jitted(64)(torch.ones(64)).tolist() == [2] * 64


def test_a_kernel_is_compiled_once_for_its_arguments(jitted):
    kernel = jitted(64)
    assert jitted(n=64) is kernel
    assert jitted(64, 2, dtype="float32") is kernel
    assert jitted.compile(64, __tune_params={"factor": 2}) is kernel
    assert jitted(128) is not kernel


def test_arguments_that_are_equal_but_differ_have_their_own_kernel(jitted):
    ones, twos = np.ones(5000), np.ones(5000)
    twos[2500] = 2  # which repr does not show
    factors = [1, 1.0, True, 0.0, -0.0, (1,), (True,), [1], {1}, {1: 2}, {1: True}, ones, twos]
    keys = [jitted.parse_cache_key(64, factor) for factor in factors]
    assert len(set(keys)) == len(keys)
    nan = float("nan")
    assert jitted.parse_cache_key(64, nan) == jitted.parse_cache_key(64, float("nan"))


def arch_of(found):
    return found.target.arch


def test_a_kernel_is_that_of_the_target_of_now(monkeypatch):
    lazy = tilelang.jit(execution_backend="emulate")(scale)
    older, newer = ({"kind": "cuda", "arch": arch} for arch in ("sm_80", "sm_90a"))
    with tvm.target.Target(older):
        first = lazy(64)
    with tvm.target.Target(newer):
        assert arch_of(lazy(64)) == "sm_90a"
        assert lazy.parse_cache_key(64) == lazy.parse_cache_key(n=64)
    with tvm.target.Target(older):
        assert lazy(64) is first
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    assert arch_of(lazy(64)) == "sm_90a"
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_80")
    assert arch_of(lazy(64)) == "sm_80"
    with tvm.target.Target(newer):
        assert arch_of(lazy(64)) == "sm_80"  # a target by name goes before the scope
        fixed = tilelang.jit(target=older, execution_backend="emulate")(scale)
        assert arch_of(fixed(64)) == "sm_80"


def test_a_body_is_compiled_for_the_target_of_now():
    @tilelang.jit(execution_backend="emulate")
    def clear(A, block: int = 64):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        with T.Kernel(1, threads=64):
            for i in T.Parallel(block):
                A[i] = 0

    kernels = []
    for arch in ("sm_80", "sm_90a", "sm_80"):
        with tvm.target.Target({"kind": "cuda", "arch": arch}):
            kernels.append(clear.compile(N=64))
    assert [arch_of(kernel) for kernel in kernels] == ["sm_80", "sm_90a", "sm_80"]
    assert kernels[2] is kernels[0]


@pytest.mark.parametrize(
    ("name", "value"), [("TILELANG_EMULATE_CHECKS", "0"), ("TILELANG_ENABLE_DATA_RACE_CHECK", "0")]
)
def test_a_kernel_is_that_of_the_environment_of_now(jitted, monkeypatch, name, value):
    kernel = jitted(64)
    with monkeypatch.context() as changed:
        changed.setenv(name, value)
        assert jitted(64) is not kernel
    assert jitted(64) is kernel


def test_options_that_change_count_for_the_next_call(jitted):
    kernel = jitted(64)
    jitted.pass_configs = {"tl.disable_vectorize_256": True}
    other = jitted(64)
    assert (other is kernel, other.pass_configs) == (False, {"tl.disable_vectorize_256": True})
    jitted.pass_configs["tl.disable_vectorize_256"] = False
    assert jitted(64).pass_configs == {"tl.disable_vectorize_256": False}
    jitted.pass_configs = None
    assert jitted(64) is kernel


def test_a_hook_on_the_source_counts_for_the_next_call(jitted):
    kernel = jitted(64)
    tilelang.register_cuda_postproc(lambda code, target: code + "// seen\n")
    try:
        assert jitted(64).get_kernel_source().endswith("// seen\n")
    finally:
        tilelang.register_cuda_postproc(None)
    assert jitted(64) is kernel


def test_arguments_that_do_not_fit_are_a_type_error(jitted):
    with pytest.raises(
        TypeError, match=r"test_impl\.py:\d+\): missing a required argument: 'n'; it"
    ):
        jitted()
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'm'; it takes \(n"):
        jitted(64, m=3)


def test_a_program_is_no_function_of_jit(jitted):
    """It was asked for its `__name__`."""
    with pytest.raises(TypeError, match=r"found the program \w+, .* call tilelang\.compile"):
        tilelang.jit(jitted(64).prim_func)


def test_tracing_alone_compiles_nothing(jitted, monkeypatch):
    monkeypatch.setattr(impl, "compile", None)
    assert isinstance(jitted.get_tir(64), tvm.tirx.PrimFunc)


def test_the_mode_is_found_out_by_a_call(jitted):
    assert (jitted.mode, jitted.is_lazy_mode()) == ("auto", False)
    assert jitted.initialize_jit_mode(64) == "lazy"
    assert (jitted.mode, jitted.is_lazy_mode()) == ("lazy", True)


def test_a_function_that_calls_another_for_its_program_is_lazy():
    def empty(n):
        return scale(n)

    @tilelang.jit(out_idx=-1, execution_backend="emulate")
    def factory(n):
        shape = torch.empty(n).shape
        return empty(*shape)

    assert factory.compile(64).params[0].shape == (64,)
    assert factory.mode == "lazy"


def test_a_macro_that_holds_the_kernel_is_found_out_by_a_call():
    @T.macro
    def fill(A, n):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                A[i] = n

    @tilelang.jit(execution_backend="emulate")
    def filled(p, n):
        fill(p, n)

    assert filled.initialize_jit_mode(None, 8) == "eager"


def test_it_keeps_what_it_was_made_of(jitted):
    assert jitted.func is scale
    assert (jitted.__name__, jitted.__doc__) == ("scale", "B = factor * A.")
    assert list(jitted.signature.parameters) == ["n", "factor", "dtype"]
    assert jitted.func_source.startswith("def scale(n")
    assert isinstance(tilelang.jit(scale), JITImpl)


def test_several_arguments_are_compiled_in_order(jitted):
    kernels = jitted.par_compile([{"n": 64}, (128, 3), {"n": 192, "factor": 1}])
    assert [kernel.params[0].shape[0] for kernel in kernels] == [64, 128, 192]
    assert kernels[1] is jitted(128, 3)
    (failed,) = jitted.par_compile([{"m": 1}], ignore_error=True)
    assert isinstance(failed, TypeError)
    with pytest.raises(TypeError, match="missing a required argument: 'n'"):
        jitted.par_compile([{"m": 1}])


def test_the_target_scope_holds_in_the_threads_that_compile(jitted, monkeypatch):
    monkeypatch.setattr(JITKernel, "build", lambda kernel: None)
    with tvm.target.Target({"kind": "cuda", "arch": "sm_89"}):
        (lazy,) = jitted.par_compile([{"n": 64}])
        (plain,) = tilelang.par_compile([scale(64)], execution_backend="emulate")
    assert (lazy.target.arch, plain.target.arch) == ("sm_89", "sm_89")


def test_source_for_arguments(jitted):
    assert "__global__" in jitted.get_kernel_source(64)


def test_sources_are_written_for_debugging(tmp_path):
    folder = tmp_path / "debug"
    options = {"execution_backend": "emulate", "debug_root_path": folder}
    kernel = tilelang.jit(**options)(scale)(64)
    assert (folder / "tilelang_jit_kernel_scale.c").read_text() == kernel.get_kernel_source()
    assert "def main(" in (folder / "tilelang_jit_program_scale.py").read_text()


def test_a_relative_debug_path_starts_beside_the_package():
    root = tilelang.jit(debug_root_path="debug")(scale).debug_root_path
    assert root == Path(tilelang.__file__).parents[1] / "debug"


def test_a_prim_func_that_is_not_returned_is_a_type_error():
    @tilelang.jit
    def forgetful():
        @T.prim_func
        def main(A: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=64):
                A[0] = 1

    with pytest.raises(TypeError, match=r"`forgetful` .*got NoneType.*return <name"):
        forgetful()
