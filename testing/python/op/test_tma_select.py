"""Whether TMA makes a copy is decided in one function, and each moment leaves its answer on the
call."""

import pathlib
import re

import pytest
import torch
import tvm
from tvm_ffi import structural_walk

import tilelang
import tilelang.language as T
from tilelang import transform
from tilelang.utils.target import determine_target

SRC = pathlib.Path(__file__).resolve().parents[3] / "src"


def after(last, func, arch="sm_90a"):
    """The tile program behind a pass."""
    mod = tvm.IRModule({"main": func})
    steps = [
        transform.BindTarget(determine_target(f"cuda -arch={arch}", return_object=True)),
        transform.MaterializeKernelLaunch(),
        transform.SelectInstructions(),
    ]
    if last == "LayoutInference":
        steps.append(transform.LayoutInference())
    for step in steps:
        mod = step(mod)
    return mod


def copy_attrs(mod):
    """Attributes of the copy to global memory."""
    found = []

    def call(node):
        value = node.value
        if isinstance(value, tvm.ir.Call) and value.op.name == "tl.tileop.copy":
            found.append(value.attrs)

    structural_walk(mod["main"], [(tvm.tirx.Evaluate, call)])
    (attrs,) = found
    return attrs


def stored(annotated=False, demanded=False):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            if annotated:
                # Every row begins 64 elements behind the one before, in another order.
                T.annotate_layout({S: T.Layout((64, 64), lambda i, j: i * 64 + (j + 8 * i) % 64)})
            for i, j in T.Parallel(64, 64):
                S[i, j] = A[i, j] + T.float16(1)
            if demanded:
                T.copy(S, B, prefer_instruction="tma")
            else:
                T.copy(S, B)

    return main


def test_the_planner_of_tma_is_called_in_one_place():
    planners = re.compile(r"(?<!std::string )\b(PlanTma|PlanIm2col)\(")
    callers = [
        path.name
        for path in SRC.rglob("*.cc")
        for line in path.read_text().splitlines()
        if planners.search(line)
    ]
    assert callers == ["tma_select.cc"] * 2


def test_each_moment_leaves_its_answer_on_the_call():
    before = copy_attrs(after("SelectInstructions", stored()))
    assert list(before["instruction"]) == ["tma", "vector"]
    assert "tma" not in before
    found = copy_attrs(after("LayoutInference", stored()))
    assert list(found["instruction"]) == ["tma"]
    assert "tma" in found  # the boxes


def test_a_layout_that_tma_does_not_write_is_found_when_layouts_are_known():
    before = copy_attrs(after("SelectInstructions", stored(True)))
    assert list(before["instruction"]) == ["tma", "vector"]
    found = copy_attrs(after("LayoutInference", stored(True)))
    assert list(found["instruction"]) == ["vector"]
    assert list(found["rejected"]) == ["tma"]


@pytest.mark.parametrize(
    ("arch", "annotated", "why"),
    [("sm_80", False, "a target without TMA"), ("sm_90a", True, "neither row-major nor a swizzle")],
)
def test_a_demand_is_refused_by_the_same_function(arch, annotated, why):
    with pytest.raises(ValueError, match=why):
        after("LayoutInference", stored(annotated, True), arch)


@pytest.mark.parametrize(
    ("columns", "tiles", "stores"),
    [
        # The map ends at a chunk of 16 bytes, or the tiles in front of the end.
        pytest.param(136, 3, True, id="whole chunks"),
        pytest.param(131, 2, True, id="in front of the end"),
        pytest.param(131, 3, False, id="over the end"),
        pytest.param(132, 3, False, id="half a chunk"),
    ],
)
def test_a_store_by_tma_overwrites_nothing_behind_a_row(columns, tiles, stores):
    """It writes the chunk as a whole in which the map ends: columns 131 to 135 of 136 are not the
    tensor's. A load fills what is behind the end with zeros, by elements."""

    @T.prim_func
    def main(C: T.StridedTensor((64, columns), (136, 1), T.float16)):
        with T.Kernel(tiles, threads=128) as b:
            S = T.alloc_shared((64, 64), T.float16)
            T.fill(S, 1)
            T.copy(S, C[0, b * 64])

    source = tilelang.compile(main, target="cuda -arch=sm_90a").get_kernel_source()
    assert ("tma_store<" in source) == stores


def test_a_demand_for_such_a_store_is_refused():
    @T.prim_func
    def main(C: T.StridedTensor((64, 131), (136, 1), T.float16)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 136), T.float16)
            T.fill(S, 1)
            T.tma_copy(S, C[0, 0])
            T.tma_store_wait(0)

    with pytest.raises(ValueError, match="rows of C that end behind 131 elements"):
        tilelang.compile(main, target="cuda -arch=sm_90a")


@pytest.mark.parametrize("how", ["each", "row"])
def test_a_tile_whose_elements_a_loop_writes_has_the_layout_of_its_load(how):
    """A store of an element counted as a pointer to the tile, whose load then proposed no layout;
    the multiply-adds padded the rows, and the load by TMA was refused."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float32"),
        B: T.Tensor((64, 32), "float32"),
        C: T.Tensor((64, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 32), "float32")
            Bs = T.alloc_shared((32, 32), "float32")
            total = T.alloc_fragment((64, 32), "float32")
            T.clear(total)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 32], As)
                T.copy(B[k * 32, 0], Bs)
                if how == "each":
                    for i, j in T.Parallel(64, 32):
                        As[i, j] = -As[i, j]
                else:
                    for j in T.Parallel(32):
                        As[5, j] = 0
                T.gemm(As, Bs, total)
            T.copy(total, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    a, b = torch.randint(-4, 5, (64, 64)).float(), torch.randint(-4, 5, (64, 32)).float()
    c = torch.zeros(64, 32)
    kernel(a, b, c)
    if how == "each":
        assert torch.equal(c, -(a @ b))
    else:
        a[5] = 0
        assert torch.equal(c, a @ b)
    assert kernel.get_kernel_source().count("tl::tma_load<") == 2


def test_a_tile_that_is_filled_row_by_row_is_row_major():
    """Each row begins elsewhere in memory. No swizzle begins at each of them."""
    columns = 71

    @T.prim_func
    def main(A: T.Tensor((8, columns), "uint8"), B: T.Tensor((8, columns), "uint8")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((8, 128), "uint8")
            row = T.view(A, (8 * columns,), "uint8")
            for _ in T.Pipelined(1, num_stages=2):
                for i in T.unroll(8):
                    first = i * columns // 16 * 16
                    T.copy(row[first : first + 128], S[i, :])
                for i, j in T.Parallel(8, columns):
                    B[i, j] = S[i, i * columns % 16 + j]

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    assert kernel.explain().count("producer, by TMA") == 8
    a = torch.arange(8 * columns).to(torch.uint8).view(8, columns)
    b = torch.zeros_like(a)
    kernel(a, b)
    assert torch.equal(a, b)
