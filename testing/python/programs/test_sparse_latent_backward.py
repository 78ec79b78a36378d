"""Backward of attention over chosen rows of a latent cache: examples/mla/sparse_mla_backward.py on
two architectures and sparse_mla_backward_roles.py, and an accumulator that is added in parts."""

import pathlib
import runpy

import pytest
import torch

import tilelang
import tilelang.language as T

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "mla"
HEADS, LATENT, ROTATED = 64, 64, 32


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    return lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"))


def check(kernel, plain, device, latent, rotated, length=90, chosen=77, queries=3):
    """The results are those of float64: the tail of a list, and entries that name no row."""
    q = torch.randn(queries, HEADS, latent + rotated).half().to(device)
    kv = torch.randn(length, latent + rotated).half().to(device)
    do = torch.randn(queries, HEADS, latent).half().to(device)
    lists = [torch.randperm(length)[:chosen] for _ in range(queries)]
    indices = torch.stack(lists).int().to(device)
    indices[1, 5:60:7] = -1
    out, log_sum = plain["reference"](q.double(), kv.double(), indices, latent)
    delta = (out * do.double()).sum(-1)
    wanted_dq, wanted_dkv = plain["gradients"](q, kv, indices, do)
    dq, dkv = torch.full_like(q, torch.nan), torch.zeros(kv.shape, device=device)
    kernel(q, kv, do, indices, log_sum.float(), delta.float(), dq, dkv)
    torch.testing.assert_close(dq.double(), wanted_dq, rtol=1e-2, atol=1e-2)
    torch.testing.assert_close(dkv.double(), wanted_dkv, rtol=1e-2, atol=2e-2)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, example, arch):
    plain = example("sparse_mla_backward")
    program = plain["sparse_mla_backward"](HEADS, LATENT, ROTATED, "float16", width=32)
    kernel = tilelang.compile(program, execution_backend="auto", target=f"cuda -arch={arch}")
    check(kernel, plain, device, LATENT, ROTATED)


def test_results_by_roles(device, example):
    program = example("sparse_mla_backward_roles")["sparse_mla_backward"](HEADS, dtype="float16")
    kernel = tilelang.compile(program, execution_backend="auto", target="cuda -arch=sm_90a")
    # A warp adds to lines of L2: four floats a thread, eight threads a row.
    assert "tx % 8 * 4, tl::load<float, 4>(by_lines" in kernel.get_kernel_source()
    check(kernel, example("sparse_mla_backward"), device, 512, 64, queries=2)


@T.prim_func
def added_in_parts(
    A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64))
):
    with T.Kernel(1, threads=128):
        a, b = [T.alloc_shared((64, 64), "float16") for _ in range(2)]
        staged = T.alloc_shared((32, 64), "float32")
        product = T.alloc_fragment((64, 64), "float32")
        T.copy(A, a)
        T.copy(B, b)
        T.gemm(a, b, product, clear_accum=True)
        for part in T.serial(2):
            for i, j in T.Parallel(64, 64):
                if i < 32:
                    staged[i, j] = product[part * 32 + i, j]
            for i, j in T.Parallel(32, 16):
                T.atomic_addx4(C[part * 32 + i, j * 4], staged[i, j * 4])


def test_the_parts_of_an_accumulator_stay_in_their_threads(device):
    kernel = tilelang.compile(added_in_parts, execution_backend="auto", target="cuda -arch=sm_90a")
    assert "product: copied to shared memory" not in kernel.explain()
    a, b = (torch.randn(64, 64).half().to(device) for _ in range(2))
    c = torch.ones(64, 64, device=device)
    kernel(a, b, c)
    torch.testing.assert_close(c.double(), 1 + a.double() @ b.double(), rtol=1e-3, atol=1e-3)
