"""Pipelines without asynchronous copies: tiles are loaded ahead into registers."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.emulator import schedule
from tilelang.engine.lower import lower
from tilelang.hip.compile import compile_code_object
from tilelang.utils.target import determine_target


def operands(length, planes=1):
    a, b = torch.randn(planes, 60, length).half(), torch.randn(64, length).half()
    return (a, b), a.float().sum(0) @ b.float().T


def attention(stages):
    """Scores of 64 queries as weights: two products in a row, K and V loaded ahead."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 32), "float16"),
        K: T.Tensor((256, 32), "float16"),
        V: T.Tensor((256, 32), "float16"),
        Y: T.Tensor((64, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            Q_shared = T.alloc_shared((64, 32), "float16")
            K_shared = T.alloc_shared((64, 32), "float16")
            V_shared = T.alloc_shared((64, 32), "float16")
            S = T.alloc_fragment((64, 64), "float32")
            P = T.alloc_fragment((64, 64), "float16")
            F = T.alloc_fragment((64, 32), "float32")
            T.copy(Q, Q_shared)
            T.clear(F)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(K[k * 64, 0], K_shared)
                T.clear(S)
                T.gemm(Q_shared, K_shared, S, transpose_B=True)
                T.copy(V[k * 64, 0], V_shared)
                T.copy(S, P)
                T.gemm(P, V_shared, F)
            T.copy(F, Y)

    return main


def compiled(program, arch="gfx942"):
    return tilelang.compile(program, out_idx=-1, target=f"hip -mcpu={arch}")


@pytest.mark.parametrize(
    ("stages", "plan"),
    [
        # Load, store of A, of B, and the product: the stores end the step;
        (1, ([0, 0, 0, 0, 1], [0, 3, 1, 4, 2], {})),
        # so they do with two versions, which take one barrier less;
        (2, ([0, 0, 0, 0, 1], [0, 3, 1, 4, 2], {"A_shared": 2, "B_shared": 2})),
        # then the loads have a step for themselves.
        (3, ([0, 1, 0, 1, 2], [2, 0, 3, 1, 4], {"A_shared": 2, "B_shared": 2})),
    ],
)
def test_plans(product, plan_of, stages, plan):
    assert plan_of(product(stages, 128), "gfx942") == plan


def test_other_targets_load_directly(product):
    target = determine_target("cuda -arch=sm_75", return_object=True)
    (function,) = lower(product(2, 128), target=target).device_mod.functions.values()
    (entry,) = function.attrs["tl.pipelines"]
    assert list(entry["stage"]) == [0, 0, 1]


def test_explanation_names_the_registers(product):
    text = compiled(product(2, 128)).explain()
    assert "ahead in registers" in text
    assert "barriers in a step: 1" in text
    assert "barriers in a step: 2" in compiled(product(1, 128)).explain()


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_loads_stand_in_front_of_products_and_stores_behind(product, arch):
    kernel = compiled(product(2, 4096), arch)
    assembly = compile_code_object(kernel.get_kernel_source(), arch, ["main_kernel"]).assembly
    before, _, behind = assembly.partition("Inner Loop Header")
    label = re.findall(r"^(\.LBB\w+):", before, re.MULTILINE)[-1]
    loop = behind[: behind.rindex(f" {label}\n")]
    assert loop.rindex("load_dwordx4") < loop.index("v_mfma")
    assert loop.index("ds_write") > loop.rindex("v_mfma")
    assert not re.search(r"s_waitcnt.*vmcnt", loop[: loop.rindex("v_mfma")])


@pytest.mark.parametrize(("stages", "tiles"), [(1, 5), (2, 1), (2, 2), (2, 5), (3, 2), (3, 5)])
def test_product(product, checked, stages, tiles):
    checked(compiled(product(stages, tiles * 32)), *operands(tiles * 32))


@pytest.mark.parametrize("stages", [2, 3])
def test_product_of_ragged_tiles(product, checked, stages):
    checked(compiled(product(stages, 104)), *operands(104))


@pytest.mark.parametrize(("stages", "annotate"), [(2, False), (2, True), (3, False), (3, True)])
def test_product_of_tiles_with_three_dimensions(product, checked, stages, annotate):
    """Versions make them four; a layout of the program gets a dimension in front."""
    program = product(stages, 128, planes=2, annotate=annotate)
    checked(compiled(program), *operands(128, planes=2))


@pytest.mark.parametrize(
    ("arch", "stages"), [("gfx942", 1), ("gfx942", 2), ("gfx942", 3), ("gfx950", 2), ("gfx950", 3)]
)
def test_attention(arch, stages):
    """On gfx950 by loads to LDS: K is waited for one step in front of V."""
    q = torch.randn(64, 32).half()
    k, v = torch.randn(256, 32).half(), torch.randn(256, 32).half()
    wanted = (q.float() @ k.float().T).half().float() @ v.float()
    kernel = compiled(attention(stages), arch)
    assert (kernel.get_kernel_source().count("buffer_load_lds") >= 4) == (arch == "gfx950")
    for seed in range(5):
        with schedule(seed=seed):
            torch.testing.assert_close(kernel(q, k, v), wanted, rtol=1e-2, atol=0.5)


def test_number_of_iterations_of_the_call(checked):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 64), "float16"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((16, 64), "float16")
            F = T.alloc_fragment((16, 64), "float32")
            R = T.alloc_fragment((64,), "float32")
            T.clear(F)
            for k in T.Pipelined(T.ceildiv(n, 16), num_stages=3):
                T.copy(A[k * 16, 0], S)
                for i, j in T.Parallel(16, 64):
                    F[i, j] += T.cast(S[i, j], "float32")
            T.reduce_sum(F, R, dim=0)
            T.copy(R, B)

    kernel = compiled(main)
    for rows in (0, 5, 16, 20, 70):
        a = torch.randn(rows, 64).half()
        checked(kernel, (a,), a.float().sum(0))


def through_tiles(stages):
    """Each iteration goes through two tiles of 32 KiB that nothing else uses."""

    @T.prim_func
    def main(A: T.Tensor((64, 512), "float16"), C: T.Tensor((64, 128), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 128), "float16")
            first = T.alloc_shared((64, 128), "float32")
            second = T.alloc_shared((64, 128), "float32")
            G = T.alloc_fragment((64, 128), "float32")
            F = T.alloc_fragment((64, 128), "float32")
            T.clear(F)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[0, k * 128], S)
                T.copy(S, first)
                for i, j in T.Parallel(64, 128):
                    G[i, j] = first[63 - i, j] * T.float32(2)
                T.copy(G, second)
                for i, j in T.Parallel(64, 128):
                    F[i, j] += second[63 - i, j]
            T.copy(F, C)

    return main


def test_tiles_of_the_last_iteration_are_its_own(checked):
    """All of them fit in 64 KiB if they share bytes in the loop and behind it. One that lived in
    both places would live with all others in between."""
    kernel = compiled(through_tiles(2))
    a = torch.randn(64, 512).half()
    checked(kernel, (a,), a.float().reshape(64, 4, 128).mul(2).sum(1))
    (launch,) = kernel.launch_plan.kernels
    assert launch.shared_bytes == 2 * 16384 + 32768
    assert kernel.get_kernel_source().count("tl::shared<float, 8192>") == 4


UNIFORM = """
#include <tl/common.h>
#include <tl/vmem.h>
extern "C" __global__ void rows(const float* A, float* C, int uniform, int lanes) {
  const int lane = threadIdx.x;
  tl::store(C + lane * 4, tl::buffer_load_if<4>(A, 1024u, lane * 4, uniform, lane < lanes));
}
"""


def test_what_all_lanes_add_stays_in_the_tensor():
    """Else the bytes that are left would be a huge number, and no offset out of range."""
    assembly = compile_code_object(UNIFORM, "gfx942", ["rows"]).assembly
    assert re.search(r"s_min_u32 s\d+, s\d+, 0x400\b", assembly)
