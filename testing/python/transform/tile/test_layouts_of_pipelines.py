"""Layouts of what a pipeline multiplies: versions of buffers, and statements in several places."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

PASSES = ("Simplify", "PipelinePlanning", "InjectSoftwarePipeline", "Simplify", "LayoutInference")
# The second product of an iteration runs a step after the first one.
SPLIT = {"order": [0, 2, 3, 5, 1, 4], "stage": [0, 1, 1, 1, 1, 2]}


def two_products(num_stages=0, annotate=False, **schedule):
    """Two products in a row, the first one's result in registers."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "float16"),
        B: T.Tensor((256, 32), "float16"),
        C: T.Tensor((256, 32), "float16"),
        D: T.Tensor((64, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((64, 32), "float16")
            C_shared = T.alloc_shared((64, 32), "float16")
            S = T.alloc_fragment((64, 64), "float32")
            P = T.alloc_fragment((64, 64), "float16")
            F = T.alloc_fragment((64, 32), "float32")
            if annotate:
                T.annotate_layout({B_shared: make_swizzled_layout(B_shared)})
            T.copy(A, A_shared)
            T.clear(F)
            for k in T.Pipelined(4, num_stages=num_stages, **schedule):
                T.copy(B[k * 64, 0], B_shared)
                T.clear(S)
                T.gemm(A_shared, B_shared, S, transpose_B=True)
                T.copy(S, P)
                T.copy(C[k * 64, 0], C_shared)
                T.gemm(P, C_shared, F)
            T.copy(F, D)

    return main


@pytest.mark.parametrize("annotate", [False, True])
def test_layouts_do_not_depend_on_the_schedule(tile_passes, layouts, annotate):
    plain, _ = layouts(tile_passes(two_products(annotate=annotate), *PASSES))
    split, _ = layouts(tile_passes(two_products(3, annotate=annotate, **SPLIT), *PASSES))
    assert plain.keys() == split.keys()
    versions = {"B_shared": 2, "C_shared": 2}
    for name, layout in plain.items():
        wanted = layout.expand([versions[name]]) if name in versions else layout
        assert split[name].is_equal(wanted), name


def test_results_do_not_depend_on_the_schedule():
    a, b, c = torch.randn(64, 32).half(), torch.randn(256, 32).half(), torch.randn(256, 32).half()
    target = {"kind": "cuda", "arch": "sm_90a"}
    plain, split = (
        tilelang.compile(func, target=target, execution_backend="emulate", out_idx=-1)(a, b, c)
        for func in (two_products(), two_products(3, annotate=True, **SPLIT))
    )
    wanted = (a.double() @ b.double().T).half().double() @ c.double()
    torch.testing.assert_close(plain.double(), wanted, rtol=1e-2, atol=0.5)
    assert torch.equal(split, plain)
