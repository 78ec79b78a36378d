"""Routing of tokens to experts (DeepSeek-V3, Liu et al. 2024): each group of experts is worth its
two best scores; of the best groups the k best experts are chosen, one maximum after the other."""

import pytest
import torch

import tilelang
import tilelang.language as T


def route(groups, per_group, best_groups, k, tokens=8, threads=64):
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
            scores = T.alloc_fragment((tokens, experts), "float32")
            choice = T.alloc_fragment((tokens, groups, per_group), "float32")
            flat = T.reshape(choice, (tokens, experts))
            rest = T.alloc_fragment((tokens, groups, per_group), "float32")
            top = T.alloc_fragment((tokens, groups), "float32")
            second = T.alloc_fragment((tokens, groups), "float32")
            best = T.alloc_fragment((tokens,), "float32")
            where = T.alloc_fragment((tokens, groups), "int32")
            which = T.alloc_fragment((tokens,), "int32")
            found = T.alloc_fragment((tokens, experts), "int32")
            taken = T.alloc_fragment((tokens, groups), "int32")
            score = T.alloc_fragment((tokens,), "float32")
            kept = T.alloc_fragment((tokens, experts), "float32")
            total = T.alloc_fragment((tokens,), "float32")
            weights = T.alloc_fragment((tokens, k), "float32")
            T.copy(Logits[bx * tokens, 0], scores)
            for i, e in T.Parallel(tokens, experts):
                scores[i, e] = T.sigmoid(scores[i, e])
            for i, e in T.Parallel(tokens, experts):
                flat[i, e] = scores[i, e] + Bias[e]
            # A group's worth: its maximum, and that of what is left.
            T.reduce_max(choice, top, dim=2)
            for i, g, e in T.Parallel(tokens, groups, per_group):
                rest[i, g, e] = T.if_then_else(choice[i, g, e] == top[i, g], low, choice[i, g, e])
            T.reduce_max(rest, second, dim=2)
            for i, g in T.Parallel(tokens, groups):
                top[i, g] += second[i, g]
                taken[i, g] = 0
            for _ in T.serial(best_groups):
                T.reduce_max(top, best, dim=1)
                for i, g in T.Parallel(tokens, groups):
                    where[i, g] = T.if_then_else(top[i, g] == best[i], g, groups)
                T.reduce_min(where, which, dim=1)
                for i, g in T.Parallel(tokens, groups):
                    if g == which[i]:
                        taken[i, g] = 1
                        top[i, g] = low
            for i, g, e in T.Parallel(tokens, groups, per_group):
                choice[i, g, e] = T.if_then_else(taken[i, g] == 1, choice[i, g, e], low)
            T.clear(total)
            for n in T.serial(k):
                T.reduce_max(flat, best, dim=1)
                for i, e in T.Parallel(tokens, experts):
                    found[i, e] = T.if_then_else(flat[i, e] == best[i], e, experts)
                T.reduce_min(found, which, dim=1)
                for i, e in T.Parallel(tokens, experts):
                    kept[i, e] = T.if_then_else(e == which[i], scores[i, e], 0)
                T.reduce_sum(kept, score, dim=1)
                for i, e in T.Parallel(tokens, experts):
                    if e == which[i]:
                        flat[i, e] = low
                for i in T.Parallel(tokens):
                    weights[i, n] = score[i]
                    total[i] += score[i]
                    if bx * tokens + i < length:
                        Experts[bx * tokens + i, n] = which[i]
            for i, n in T.Parallel(tokens, k):
                if bx * tokens + i < length:
                    Weights[bx * tokens + i, n] = weights[i, n] / total[i]

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
