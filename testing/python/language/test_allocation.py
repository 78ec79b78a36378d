"""Buffers of a kernel."""

import dataclasses
import types

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.engine.launch_plan import LaunchPlan

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_scopes_and_names(traced):
    assert traced("""
        S = T.alloc_shared((8, 4), T.float16)
        static = T.alloc_shared(128, "float32", scope="shared")
        flags = T.alloc_shared(4, "bool")
        F = T.alloc_fragment([8, 4], dtype="float32")
        L = T.alloc_local((4,), T.int8)
        stages = [T.alloc_shared((8,), T.float16) for _ in range(2)]
    """) == (
        'S = T.sblock_alloc_buffer((8, 4), "float16", scope="shared.dyn")\n'
        'static = T.sblock_alloc_buffer((128,), scope="shared")\n'
        'flags = T.sblock_alloc_buffer((4,), "bool", scope="shared")\n'
        'F = T.sblock_alloc_buffer((8, 4), scope="local.fragment")\n'
        'L = T.sblock_alloc_buffer((4,), "int8", scope="local")\n'
        'stages_0 = T.sblock_alloc_buffer((8,), "float16", scope="shared.dyn")\n'
        'stages_1 = T.sblock_alloc_buffer((8,), "float16", scope="shared.dyn")\n'
        "T.evaluate(0)\n"
    )


def test_members_of_an_object_are_named_after_both(traced):
    text = traced(
        "own = types.SimpleNamespace(S=T.alloc_shared((8,), T.int8))\n"
        "pair = Pair(T.alloc_local((4,), T.int8), [own.S])",
        types=types,
        Pair=dataclasses.make_dataclass("Pair", ["first", "others"]),
    )
    assert "own_S = T.sblock_alloc_buffer((8,)" in text
    assert "pair_first = T.sblock_alloc_buffer((4,)" in text
    assert "pair_others" not in text


def test_a_buffer_allocated_in_a_loop_belongs_to_the_kernel(traced):
    text = traced("for i in range(2):\n    F = T.alloc_fragment(4, 'float32')\n    T.clear(F)")
    assert text.startswith('F = T.sblock_alloc_buffer((4,), scope="local.fragment")\nfor i in')


def test_a_scalar_is_read_and_written_by_its_name(traced):
    assert traced("""
        v = T.alloc_var(T.int32, 3)
        v += n
        for i in range(4):
            v = v + i
        A[0, v] = v[0]
    """) == (
        'v = T.sblock_alloc_buffer((1,), "int32", scope="local.var")\n'
        "v[0] = 3\nv[0] = v[0] + n\n"
        "for i in range(4):\n    v[0] = v[0] + i\n"
        'A[0, v[0]] = T.Cast("float32", v[0])\n'
    )


def test_scalars_are_swapped(traced):
    text = traced("a = T.alloc_var('int32')\nb = T.alloc_var('int32')\na, b = b, a")
    assert text.endswith(
        "value: T.let[T.int32] = b[0]\nvalue_1: T.let[T.int32] = a[0]\n"
        "a[0] = value\nb[0] = value_1\n"
    )


def test_assigning_a_buffer_rebinds_the_name(traced):
    text = traced("v = T.alloc_var('int32', 1)\nv = T.alloc_var('int32', 2)\nA[0, v] = 0")
    assert "v_1[0] = 2\nA[0, v_1[0]]" in text


def test_scalars_in_a_list_and_in_an_object(traced, define):
    holder = define("class Holder:\n    pass")["Holder"]()
    text = traced(
        """
        vs = [T.alloc_var("int32", 0) for _ in range(2)]
        vs[1] = vs[0] + 1
        vs[1] += 2
        holder.v = vs[0] + 0
        holder.w = T.alloc_var("int32")
        holder.w = n
        holder.w += holder.w
        """,
        holder=holder,
    )
    assert "vs_1[0] = vs_0[0] + 1\nvs_1[0] = vs_1[0] + 2\n" in text
    assert "[0] = n\n" in text


@pytest.mark.parametrize(
    ("arguments", "scope", "stores"),
    [
        ("'int32'", "local.var", False),
        ("'int32', 'local.var.x'", "local.var.x", False),
        ("'int32', 1", "local.var", True),
        ("'int32', 1, 'local.var.x'", "local.var.x", True),
        ("'int32', init=1", "local.var", True),
    ],
)
def test_overloads_of_alloc_var(traced, arguments, scope, stores):
    text = traced(f"v = T.alloc_var({arguments})\nA[0, 0] = 0")
    assert f'scope="{scope}"' in text
    assert ("v[0] = 1" in text) is stores


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ("T.alloc_var('int32', 1, init=2)", TypeError, "found init twice"),
        ("T.alloc_var('int32', 'local.var', scope='local.var')", TypeError, "found scope twice"),
        ("T.alloc_var('int32', 1, 'local.var', 2)", TypeError, "found 4 positional"),
        ("T.alloc_var('int32', 1, 2)", TypeError, "wanted a string"),
        ("T.alloc_shared((n, 0), 'float32')", ValueError, "wanted positive constants"),
        ("T.alloc_shared((n + tx,), 'float32')", ValueError, "wanted constants, sizes and scalars"),
        ("T.alloc_fragment((0,), 'float32')", ValueError, "wanted positive constants"),
        ("T.alloc_local(4.0, 'float32')", TypeError, "wanted an int or several"),
        ("T.alloc_shared(4, 'float32', scope='local')", ValueError, "wanted 'shared' or one"),
        ("T.alloc_shared(4, 'float31')", ValueError, "float31"),
    ],
)
def test_errors(trace, call, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(call)


def test_a_workspace_is_shared_by_the_kernels_of_a_call():
    n, blocks = T.dynamic("n"), 4

    @T.prim_func
    def total(A: T.Tensor((n,), "float32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(blocks, threads=32) as bx:
            tx = T.get_thread_binding()
            parts = T.alloc_global((blocks, 32, T.ceildiv(n, 128)), "float32")
            for i in T.serial(T.ceildiv(n, 128)):
                j = i * 128 + bx * 32 + tx
                parts[bx, tx, i] = T.if_then_else(j < n, A[j], 0)
        with T.Kernel(1, threads=1):
            B[0] = 0
            for b, t, i in T.grid(blocks, 32, T.ceildiv(n, 128)):
                B[0] += parts[b, t, i]

    kernel = tilelang.compile(total, out_idx=-1, execution_backend="auto")
    for size in (1, 128, 300):
        a = torch.arange(size, dtype=torch.float32, device=DEVICE)
        assert kernel(a).tolist() == [a.sum().item()]
    assert [p.shape for p in kernel.params][1:] == [(1,)]
    assert "parts = empty((4, 32, " in kernel.get_host_source()
    assert kernel.get_host_source().startswith("def total(A):")
    plan = kernel.artifact.launch_plan
    assert plan.workspaces == 1
    assert LaunchPlan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("(4, bx + 1), 'int8'", ValueError, r"bx \+ 1, which the kernel computes; wanted sizes"),
        ("4, 'int8', 'shared'", ValueError, "scope of T.alloc_global is 'shared', wanted 'global'"),
    ],
)
def test_workspaces_that_are_refused(trace, arguments, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> <kernel"):
        trace(f"T.alloc_global({arguments})")


def test_outside_of_a_kernel(define):
    with pytest.raises(ValueError, match=r"T\.alloc_shared is outside of a kernel"):
        define("@T.prim_func\ndef main(n: T.int32):\n    S = T.alloc_shared(4, 'float32')")
