"""Which left operands that are made of accumulators are fragments."""

import pytest
import torch

import tilelang
import tilelang.language as T

ROWS, KEYS, DIM = 64, 64, 128
FULL_ROW, FULL_COLUMN = T.GemmWarpPolicy.FullRow, T.GemmWarpPolicy.FullCol


@T.macro
def copied(scores, weights):
    T.copy(scores, weights)


@T.macro
def masked(scores, weights):
    for i, j in T.Parallel(ROWS, KEYS):
        weights[i, j] = T.if_then_else(i >= j, scores[i, j] * (i + 1), 0)


@T.macro
def turned(scores, weights):
    for i, j in T.Parallel(ROWS, KEYS):
        weights[i, j] = scores[j, i]


@T.macro
def added_up(scores, weights):
    T.copy(scores, weights)
    for i, j in T.Parallel(ROWS, KEYS):
        scores[i, j] = weights[i, j ^ 1]


def products(
    make=copied,
    policy=FULL_ROW,
    of_scores=FULL_ROW,
    dim=DIM,
    dtype="float16",
    transposed=False,
    threads=128,
):
    """(Q K^T) V, of which the scores go through shared memory."""

    @T.prim_func
    def main(
        Q: T.Tensor((ROWS, 64), dtype),
        K: T.Tensor((KEYS * 4, 64), dtype),
        V: T.Tensor((KEYS * 4, dim), dtype),
        Out: T.Tensor((ROWS, dim), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            q = T.alloc_shared((ROWS, 64), dtype)
            k = T.alloc_shared((KEYS, 64), dtype)
            v = T.alloc_shared((KEYS, dim), dtype)
            weights = T.alloc_shared((ROWS, KEYS), dtype)
            scores = T.alloc_fragment((ROWS, KEYS), "float32")
            out = T.alloc_fragment((ROWS, dim), "float32")
            T.copy(Q, q)
            T.clear(out)
            for n in T.Pipelined(4, num_stages=2):
                T.copy(K[n * KEYS, 0], k)
                T.copy(V[n * KEYS, 0], v)
                T.gemm(q, k, scores, transpose_B=True, policy=of_scores, clear_accum=True)
                make(scores, weights)
                T.gemm(weights, v, out, policy=policy, transpose_A=transposed)
            T.copy(out, Out)

    return main


def scope_of_weights(tile_passes, program):
    passes = ("HoistViews", "Simplify", "RegisterOperands")
    text = tile_passes(program, *passes, arch="sm_90a")["main"].script(show_meta=False)
    (line,) = [line for line in text.splitlines() if line.strip().startswith("weights = ")]
    return line.split('scope="')[1].split('"')[0]


@pytest.mark.parametrize("make", [copied, masked])
def test_weights_are_a_fragment(tile_passes, make):
    assert scope_of_weights(tile_passes, products(make)) == "local.fragment"


KEPT = {
    "columns of a warp": {"policy": FULL_COLUMN, "threads": 256},
    "scores with columns of a warp": {"of_scores": FULL_COLUMN, "threads": 256},
    "elements of other threads": {"make": turned},
    "read by others": {"make": added_up},
    "too many registers": {"dim": 512},
    "a transposed operand": {"transposed": True},
    "elements of 8 bits": {"dtype": "float8_e4m3fn"},
}


@pytest.mark.parametrize("name", KEPT)
def test_weights_stay_in_shared_memory(tile_passes, name):
    assert scope_of_weights(tile_passes, products(**KEPT[name])) == "shared.dyn"


def test_results():
    torch.manual_seed(0)
    q, k = (torch.randn(n, 64).half() / 8 for n in (ROWS, KEYS * 4))
    v, out = torch.randn(KEYS * 4, DIM).half(), torch.empty(ROWS, DIM)
    tilelang.compile(products(masked), target={"kind": "cuda", "arch": "sm_90a"})(q, k, v, out)
    rows = torch.arange(ROWS)[:, None]
    factor = (rows + 1) * (rows >= torch.arange(KEYS * 4) % KEYS)
    wanted = (q.double() @ k.double().T * factor) @ v.double()
    assert float((out - wanted).norm() / wanted.norm()) < 1e-3
