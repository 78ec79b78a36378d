"""Two steps of an online softmax are one where what the loop carries allows it."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_swizzled_layout

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
SCALE = 0.25


@T.macro
def scores_of(form, Q, K, S, k):
    """Scores of a step, masked or changed."""
    bm, bn = S.shape
    if form == "causal":
        for i, j in T.Parallel(bm, bn):
            S[i, j] = T.if_then_else(192 + i >= k * bn + j, 0, -T.infinity("float32"))
    else:
        T.clear(S)
    T.gemm(Q, K, S, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
    if form == "number of a step":
        for i, j in T.Parallel(bm, bn):
            S[i, j] += k
    if form == "place in a step":
        for i, j in T.Parallel(bm, bn):
            S[i, j] += j
    if form == "capped":
        for i, j in T.Parallel(bm, bn):
            S[i, j] = T.tanh(S[i, j])


@T.macro
def next_maximum(form, S, m, before):
    """The maximum of all scores so far."""
    T.copy(m, before)
    if form == "filled":
        T.fill(m, -T.infinity("float32"))
    T.reduce_max(S, m, dim=1, clear=form == "of a step")
    if form == "filled":
        for i in T.Parallel(m.shape[0]):
            m[i] = T.max(m[i], before[i])
    if form == "doubled":
        for i in T.Parallel(m.shape[0]):
            m[i] = m[i] * 2


@T.macro
def exponent(form, m):
    """What weights are relative to."""
    if form == "guarded":
        return T.if_then_else(m == -T.infinity("float32"), 0, m * SCALE)
    return m * SCALE


@T.macro
def weights_of(form, S, m, before, r, total):
    """Weights of a step, and what the sums so far are multiplied by."""
    bm, bn = S.shape
    for i in T.Parallel(bm):
        if form == "another base":
            r[i] = T.exp(before[i] * SCALE - m[i] * SCALE)
        elif form == "another scale":
            r[i] = T.exp2(before[i] * SCALE - m[i] * 0.5)
        elif form == "difference":
            r[i] = T.exp2((before[i] - m[i]) * SCALE)
        else:
            r[i] = T.exp2(exponent(form, before[i]) - exponent(form, m[i]))
    for i, j in T.Parallel(bm, bn):
        if form == "relative to the last":
            S[i, j] = T.exp2(S[i, j] * SCALE - before[i] * SCALE)
        elif form == "by the sum":
            S[i, j] = T.exp2(S[i, j] * SCALE - m[i] * SCALE) * total[i]
        else:
            S[i, j] = T.exp2(S[i, j] * SCALE - exponent(form, m[i]))


def attention(
    form="", keys=32, steps=8, stages=2, dim=64, rows=64, threads=128, blocks=1, first=0, **loop
):
    """softmax(Q K^T) V for a tile of rows, and logarithms of sums, of steps from the `first` on."""

    @T.prim_func
    def main(
        Q: T.Tensor((rows, dim), "bfloat16"),
        K: T.Tensor((keys * steps, dim), "bfloat16"),
        V: T.Tensor((keys * steps, dim), "bfloat16"),
        Out: T.Tensor((rows, dim), "float32"),
        Sums: T.Tensor((rows,), "float32"),
        All: T.Tensor((rows, keys * steps), "float32"),
    ):
        with T.Kernel(blocks, threads=threads):
            q = T.alloc_shared((rows, dim), "bfloat16")
            a = T.alloc_shared((keys, dim), "bfloat16")
            b = T.alloc_shared((keys, dim), "bfloat16")
            S = T.alloc_fragment((rows, keys), "float32")
            P = T.alloc_fragment((rows, keys), "bfloat16")
            out = T.alloc_fragment((rows, dim), "float32")
            of_step = T.alloc_fragment((rows, dim), "float32")
            m = T.alloc_fragment((rows,), "float32")
            before = T.alloc_fragment((rows,), "float32")
            r = T.alloc_fragment((rows,), "float32")
            s = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            count = T.alloc_fragment((rows,), "float32")
            if form == "layout":
                T.annotate_layout({a: make_swizzled_layout(a)})
            T.copy(Q, q)
            T.clear(out)
            T.clear(total)
            T.clear(count)
            T.fill(m, -T.infinity("float32"))
            for k in T.Pipelined(first, steps, num_stages=stages, **loop):
                T.copy(K[k * keys, 0], a)
                scores_of(form, q, a, S, k)
                if form == "stored":
                    T.copy(S, All[0, k * keys])
                next_maximum(form, S, m, before)
                weights_of(form, S, m, before, r, total)
                T.reduce_sum(S, s, dim=1)
                for i in T.Parallel(rows):
                    total[i] = total[i] * r[i] + s[i]
                if form == "counted":
                    for i in T.Parallel(rows):
                        count[i] += 1
                T.copy(S, P)
                if form != "not rescaled":
                    for i, j in T.Parallel(rows, dim):
                        out[i, j] *= r[i]
                T.copy(V[k * keys, 0], b)
                if form == "product of a step":
                    T.gemm(P, b, of_step, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                    for i, j in T.Parallel(rows, dim):
                        out[i, j] += of_step[i, j]
                else:
                    T.gemm(P, b, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(rows, dim):
                out[i, j] /= total[i]
            T.copy(out, Out)
            for i in T.Parallel(rows):
                total[i] = T.log2(total[i]) + m[i] * SCALE
            T.copy(total, Sums)
            if form == "of the last step":
                T.copy(r, Sums)
            if form == "counted":
                T.copy(count, Sums)

    return main


def steps_and_stages(tile_passes, function):
    text = tile_passes(function, "WidenSoftmax", arch="sm_90a")["main"].script()
    (loop,) = re.findall(r"T\.(?:serial|range)\((\d+).*\"num_stages\": (?:T\.int32\()?(\d+)", text)
    return tuple(map(int, loop))


@pytest.mark.parametrize(
    "form",
    ["", "causal", "capped", "filled", "guarded", "difference", "product of a step"],
)
def test_two_steps_are_one(tile_passes, form):
    assert steps_and_stages(tile_passes, attention(form)) == (2, 2)


@pytest.mark.parametrize(
    ("function", "steps", "stages"),
    [
        (attention(steps=6), 3, 2),
        (attention(steps=7), 7, 2),
        (attention(keys=64), 4, 2),
        (attention(keys=128, steps=4), 4, 2),
        (attention(keys=64, dim=256, steps=4), 4, 2),  # 160 registers are all of a thread's
        (attention(stages=3), 2, 2),
        (attention(stages=1), 2, 1),
        (attention(rows=192, threads=384), 8, 2),
        (attention(keys=64, blocks=1024), 4, 2),  # two blocks of three
        (attention(keys=64, dim=32, blocks=1024), 8, 2),
        (attention(keys=64, steps=9, blocks=1024), 9, 2),  # and a last step that nothing hides
        (attention(keys=64, dim=128, blocks=1024), 8, 2),  # one block of two, of one warp group
        (attention(rows=128, dim=128), 8, 2),  # a thread would have 224 registers in fragments
    ],
)
def test_steps(tile_passes, function, steps, stages):
    assert steps_and_stages(tile_passes, function) == (steps, stages)


@pytest.mark.parametrize(
    "form",
    [
        "number of a step",
        "place in a step",
        "of a step",
        "doubled",
        "another base",
        "another scale",
        "relative to the last",
        "by the sum",
        "stored",
        "counted",
        "not rescaled",
        "of the last step",
        "layout",
    ],
)
def test_kept(tile_passes, form):
    assert steps_and_stages(tile_passes, attention(form)) == (8, 2)


@pytest.mark.parametrize(
    ("options", "pairs", "last"),
    [
        ({"steps": 9}, "4", "1"),
        ({"steps": T.dynamic("n")}, "n // 2", "T.max(n, 0) % 2"),
        ({"steps": T.dynamic("n"), "first": 1}, "(n - 1) // 2", "T.max(n - 1, 0) % 2"),
    ],
)
def test_the_last_one_of_an_odd_number_of_steps(tile_passes, options, pairs, last):
    text = tile_passes(attention(**options), "WidenSoftmax", arch="sm_90a")["main"].script()
    loops = re.findall(r'serial\((.*), annotations={"num_stages": (?:T\.int32\()?(\d)', text)
    loops += re.findall(r'range\((.*), annotations={"num_stages": (?:T\.int32\()?(\d)', text)
    assert loops == [(pairs, "2"), (last, "1")]


@pytest.mark.parametrize(("form", "steps"), [("causal", 4), ("guarded", 9)])
def test_it_computes_the_same(form, steps):
    kernel = tilelang.compile(attention(form, steps=steps), target=HOPPER)
    assert "two steps of its softmax are one" in kernel.explain()
    keys = 32 * steps
    q, k, v = (torch.randn(n, 64).bfloat16() for n in (64, keys, keys))
    out, sums = torch.full((64, 64), torch.nan), torch.full((64,), torch.nan)
    kernel(q, k, v, out, sums, torch.zeros(64, keys))
    scores = q.double() @ k.double().T * SCALE * 0.6931471805599453
    assert torch.allclose(out.double(), scores.softmax(-1) @ v.double(), atol=2e-2)
    assert torch.allclose(sums.double(), scores.logsumexp(-1) / 0.6931471805599453, atol=1e-3)
