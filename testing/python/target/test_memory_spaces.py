"""Memory spaces are rows of one table: programs, targets and the checks of forms ask it."""

import pytest
import tvm

import tilelang
import tilelang.language as T
from tilelang._ffi import get_function
from tilelang.engine.phase import verify
from tilelang.language.allocation import allocate


def lowered(func, arch="sm_90a"):
    return tilelang.lower(func, target=f"cuda -arch={arch}").kernel_source


def with_buffer(scope, dtype="float32"):
    """A program that has a buffer in a memory, whoever may name it, and uses it for nothing."""

    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=32):
            S = allocate("test", (4,), dtype, scope, scope)  # noqa: F841
            if T.get_thread_binding() < 4:
                A[T.get_thread_binding()] = 1

    return main


def test_what_users_may_name_is_in_the_table():
    scopes = [str(scope) for scope in get_function("target.UserScopes")()]
    assert {"global", "shared.dyn", "local.fragment", "shared.barrier"} <= set(scopes)
    assert not {"shared.cluster_barrier", "local.reducer", "local.descriptor.wgmma"} & set(scopes)

    def alloc(scope):
        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=32):
                T.alloc_buffer((4,), "float32", scope=scope)
                A[0] = 1

        return main

    for scope in scopes:
        if scope != "shared.barrier":  # uint64
            alloc(scope)
    with pytest.raises(
        ValueError, match=r"scope of T\.alloc_buffer is 'local.reducer', wanted one"
    ):
        alloc("local.reducer")


@pytest.mark.parametrize("checked", [False, True])
def test_a_memory_that_no_target_has_is_the_users_error(monkeypatch, checked):
    """With the checks of forms, too, which would call it a bug of the compiler."""
    monkeypatch.setenv("TILELANG_VERIFY_IR", "1" if checked else "0")
    with pytest.raises(ValueError, match="found S in memory 'tmem', which no target has"):
        lowered(with_buffer("tmem"))


@pytest.mark.parametrize(
    ("scope", "dtype", "arch", "wanted"),
    [
        ("shared.barrier", "uint64", "sm_80", "sm_90 or later"),
        ("shared.cluster_barrier", "uint64", "sm_80", "sm_90 or later"),
        ("local.descriptor.wgmma", "uint64", "sm_90", "sm_90a"),
    ],
)
def test_what_a_target_lacks_is_refused_by_name(scope, dtype, arch, wanted):
    text = f"in memory '{scope}' for {arch}, wanted {wanted};"
    with pytest.raises(ValueError, match=text):
        lowered(with_buffer(scope, dtype), arch)


def test_forms_have_the_memories_of_their_rows():
    mod = tvm.IRModule({"main": with_buffer("local.fragment")})
    verify(mod, "Trace", lowered=False)
    with pytest.raises(RuntimeError, match=r"found S in scope local\.fragment"):
        verify(mod, "LowerTileOp", lowered=True)
