"""The two forms of programs, as checks that run after every pass in these tests."""

import pytest
import tvm
from tvm.script import tirx as T
from tvm_ffi import structural_walk

import tilelang
import tilelang.language as TL
from tilelang import transform
from tilelang.engine.phase import verify


def module(func):
    return tvm.IRModule({"main": func})


def test_an_unknown_scope():
    @T.prim_func(s_tir=True)
    def func():
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((8,), "float32", scope="texture")
            S[0] = T.float32(0)

    with pytest.raises(RuntimeError, match=r"after pass Mine: .*S in scope texture"):
        verify(module(func), "Mine", lowered=False)


@TL.prim_func
def filling(X: TL.Tensor((128,), "float32")):
    with TL.Kernel(1, threads=128):
        TL.fill(X, 0)


@pytest.fixture
def fill():
    """The statement of a tile operator."""
    found = []

    def note(node):
        if isinstance(node.value, tvm.ir.Call) and node.value.op.name == "tl.tileop.fill":
            found.append(node)

    structural_walk(filling, [(tvm.tirx.Evaluate, note)])
    return found[0]


def test_a_tile_operator_in_a_parallel_loop(fill):
    i = tvm.tirx.Var("i", "int32")
    loop = tvm.tirx.For(i, 0, 8, tvm.tirx.ForKind.PARALLEL, fill)
    with pytest.raises(RuntimeError, match=r"after pass Mine: .*fill in a parallel loop"):
        verify(module(tvm.tirx.PrimFunc([], loop)), "Mine", lowered=False)


def test_a_tile_operator_inside_of_an_expression(fill):
    S = tvm.tirx.decl_buffer((1,), "float32", name="S", scope="local")
    value = tvm.ir.Call(fill.value.op, fill.value.args, ret_ty=tvm.ir.PrimType("float32"))
    store = tvm.tirx.BufferStore(S, value, [0])
    with pytest.raises(RuntimeError, match=r"fill inside of an expression, wanted a statement"):
        verify(module(tvm.tirx.PrimFunc([S], store)), "Mine", lowered=False)


@pytest.mark.parametrize(
    ("scope", "kind", "found"),
    [
        ("local.fragment", "serial", "S in scope local.fragment"),
        ("local.reducer", "serial", "S in scope local.reducer"),
        ("local", "parallel", "a parallel loop"),
    ],
)
def test_what_lowering_leaves_nothing_of(scope, kind, found):
    S = tvm.tirx.decl_buffer((8,), "float32", name="S", scope=scope)
    i = tvm.tirx.Var("i", "int32")
    store = tvm.tirx.BufferStore(S, T.float32(0), [i])
    kinds = {"serial": tvm.tirx.ForKind.SERIAL, "parallel": tvm.tirx.ForKind.PARALLEL}
    loop = tvm.tirx.For(i, 0, 8, kinds[kind], store)
    with pytest.raises(RuntimeError, match=f"after pass Mine: .*{found}"):
        verify(module(tvm.tirx.PrimFunc([S], loop)), "Mine", lowered=True)


def test_a_schedule_that_nobody_has_applied():
    S = tvm.tirx.decl_buffer((8,), "float32", name="S", scope="local")
    i = tvm.tirx.Var("i", "int32")
    store = tvm.tirx.BufferStore(S, T.float32(0), [i])
    loop = tvm.tirx.For(i, 0, 8, tvm.tirx.ForKind.SERIAL, store, annotations={"num_stages": 2})
    with pytest.raises(RuntimeError, match="a loop with the annotation num_stages"):
        verify(module(tvm.tirx.PrimFunc([S], loop)), "Mine", lowered=True)


def test_an_intrinsic_without_its_arguments():
    body = tvm.tirx.Evaluate(tvm.ir.Call(tvm.ir.Op.get("tl.cp_async_wait"), []))
    with pytest.raises(RuntimeError, match=r"found tl\.cp_async_wait with 0 arguments"):
        verify(module(tvm.tirx.PrimFunc([], body)), "Mine", lowered=True)


def test_the_pass_is_named_that_leaves_another_form(monkeypatch):
    """A pass that keeps the tile operators of a program is found when it has run."""
    monkeypatch.setattr(transform, "LowerTileOp", lambda: keep)
    with pytest.raises(RuntimeError, match=r"after pass tl.LowerTileOp: .*found tl.tileop.fill"):
        tilelang.lower(filling, target="cuda -arch=sm_80")


@tvm.transform.module_pass(opt_level=0, name="tl.LowerTileOp")
def keep(mod, _):
    return mod


def over_groups(first=1, kind="serial", threads=128, beside=""):
    """A range of threads that stands for several warp groups, as text."""
    loop = f"T.{kind}(0, 2, annotations={{'tl.instances': {first}}})"
    lines = [
        "@T.prim_func(s_tir=True)",
        "def func(X: T.Buffer((1024,), 'float32')):",
        "    tx = T.launch_thread('threadIdx.x', 512)",
        f"    if tx >= 128 and tx < {128 + threads}:",
        f"        with T.attr([128, {threads}], 'tl.thread_range', 1):",
        *([f"            {beside}"] if beside else []),
        f"            for s in {loop}:",
        "                X[s * 128 + tx] = T.float32(0)",
    ]
    return module(tvm.script.from_source("\n".join(lines), extra_vars={"T": T}))


@pytest.mark.parametrize("lowered", [False, True])
def test_a_loop_over_warp_groups(lowered):
    verify(over_groups(), "Mine", lowered=lowered)


@pytest.mark.parametrize(
    "changed",
    [
        {"first": 2},
        {"kind": "unroll"},
        {"threads": 256},
        {"beside": "X[0] = T.float32(1)"},
    ],
)
def test_a_loop_over_warp_groups_that_looks_like_one_of_iterations(changed):
    with pytest.raises(RuntimeError, match=r"with the annotation tl\.instances that is not alone"):
        verify(over_groups(**changed), "Mine", lowered=False)


def test_a_loop_over_warp_groups_that_a_pass_has_unrolled():
    with pytest.raises(RuntimeError, match=r"tl\.instances, which is not serial from 0 on"):
        verify(over_groups(kind="unroll"), "Mine", lowered=True)


@pytest.mark.parametrize(
    ("pass_name", "message"),
    [
        ("ThreadSync", "a loop over warp groups that is not alone in their range"),
        ("SpreadInstances", "a loop over warp groups outside of their branch"),
    ],
)
def test_passes_want_the_range_of_a_loop_over_warp_groups(pass_name, message):
    mod = over_groups()
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    mod = tvm.tirx.transform.BindTarget(target)(mod)
    func = mod["main"]
    loops = []
    structural_walk(func, [(tvm.tirx.For, loops.append)])
    launch = func.body
    while launch.attr_key != "thread_extent":
        launch = launch.body
    bare = tvm.tirx.AttrStmt(launch.node, launch.attr_key, launch.value, loops[-1])
    mod = tvm.IRModule({"main": func.with_body(bare)})
    with pytest.raises(tvm.error.InternalError, match=message):
        getattr(transform, pass_name)()(mod)
