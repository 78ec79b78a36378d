"""Routing of tokens to experts (DeepSeek-V3, Liu et al. 2024): each group of experts is worth its
two best scores; of the best groups the k best experts are chosen, one maximum after the other."""

import pytest
import torch

import tilelang
import tilelang.language as T


def route(groups, per_group, best_groups, k, tokens=8, threads=64):
    """A thread has the scores of a group of a token: most steps are its own, and the threads of a
    token meet to agree on a maximum."""
    length = T.dynamic("length")
    experts = groups * per_group
    low = -T.infinity("float32")

    @T.prim_func
    def main(
        Logits: T.Tensor((length, experts), "float32"),
        Bias: T.Tensor((experts,), "float32"),
        Weights: T.Tensor((length, k), "float32"),
        Experts: T.Tensor((length, k), "int32"),
    ):
        with T.Kernel(T.ceildiv(length, tokens), threads=threads) as bx:
            # Groups are 16 bytes apart, so that threads read from different banks.
            scores = T.alloc_shared((tokens, groups, per_group + 4), "float32")
            choice = T.alloc_fragment((tokens, groups, per_group), "float32")
            top = T.alloc_fragment((tokens, groups), "float32")
            second = T.alloc_fragment((tokens, groups), "float32")
            best = T.alloc_fragment((tokens,), "float32")
            where = T.alloc_fragment((tokens, groups), "int32")
            which = T.alloc_fragment((tokens,), "int32")
            chosen = T.alloc_shared((tokens, k), "int32")
            taken = T.alloc_fragment((tokens, groups), "int32")
            weights = T.alloc_fragment((tokens, k), "float32")
            total = T.alloc_fragment((tokens,), "float32")
            for i, g, e in T.Parallel(tokens, groups, per_group):
                scores[i, g, e] = T.sigmoid(Logits[bx * tokens + i, g * per_group + e])
            # A group's worth: its two best scores.
            for i, g in T.Parallel(tokens, groups):
                top[i, g] = low
                second[i, g] = low
                taken[i, g] = 0
                for e in T.unroll(per_group):
                    choice[i, g, e] = scores[i, g, e] + Bias[g * per_group + e]
                    second[i, g] = T.max(second[i, g], T.min(top[i, g], choice[i, g, e]))
                    top[i, g] = T.max(top[i, g], choice[i, g, e])
            for i, g in T.Parallel(tokens, groups):
                top[i, g] += second[i, g]
            for _ in T.serial(best_groups):
                T.reduce_max(top, best, dim=1)
                for i, g in T.Parallel(tokens, groups):
                    where[i, g] = T.if_then_else(top[i, g] == best[i], g, groups)
                T.reduce_min(where, which, dim=1)
                for i, g in T.Parallel(tokens, groups):
                    if g == which[i]:
                        taken[i, g] = 1
                        top[i, g] = low
            for i, g in T.Parallel(tokens, groups):
                for e in T.unroll(per_group):
                    choice[i, g, e] = T.if_then_else(taken[i, g] == 1, choice[i, g, e], low)
            for n in T.serial(k):
                T.reduce_max(choice, top, dim=2)
                T.reduce_max(top, best, dim=1)
                for i, g in T.Parallel(tokens, groups):
                    where[i, g] = experts
                    for e in T.unroll(per_group):
                        if choice[i, g, per_group - 1 - e] == best[i]:
                            where[i, g] = g * per_group + per_group - 1 - e
                T.reduce_min(where, which, dim=1)
                for i, g in T.Parallel(tokens, groups):
                    for e in T.unroll(per_group):
                        if g * per_group + e == which[i]:
                            choice[i, g, e] = low
                for i in T.Parallel(tokens):
                    chosen[i, n] = which[i]
            for i, n in T.Parallel(tokens, k):
                expert = chosen[i, n]
                weights[i, n] = scores[i, expert // per_group, expert % per_group]
            T.reduce_sum(weights, total, dim=1)
            for i, n in T.Parallel(tokens, k):
                weights[i, n] /= total[i]
            T.copy(weights, Weights[bx * tokens, 0])
            T.copy(chosen, Experts[bx * tokens, 0])

    return main


def reference(logits, bias, groups, best_groups, k):
    scores = logits.double().sigmoid()
    choice = (scores + bias.double()).reshape(len(logits), groups, -1)
    worth = choice.topk(2, dim=2).values.sum(2)
    best = torch.zeros_like(worth, dtype=torch.bool)
    best.scatter_(1, worth.topk(best_groups, dim=1).indices, True)
    experts = choice.masked_fill(~best[:, :, None], -torch.inf).flatten(1).topk(k, dim=1).indices
    weights = scores.gather(1, experts)
    return weights / weights.sum(1, keepdim=True), experts


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    groups, per_group, best_groups, k, length = 4, 8, 2, 3, 21
    kernel = tilelang.compile(
        route(groups, per_group, best_groups, k),
        execution_backend="auto",
        target=f"cuda -arch={arch}",
    )
    logits = torch.randn(length, groups * per_group, device=device)
    bias = torch.randn(groups * per_group, device=device) / 4
    weights = torch.full((length, k), torch.nan, device=device)
    experts = torch.full((length, k), -1, dtype=torch.int32, device=device)
    kernel(logits, bias, weights, experts)
    wanted, order = reference(logits, bias, groups, best_groups, k)
    assert torch.equal(experts.long(), order)
    torch.testing.assert_close(weights.double(), wanted, rtol=1e-5, atol=1e-6)
