"""Routing of tokens to experts (DeepSeek-V3, Liu et al. 2024): each group of experts is worth its
two best scores; of the best groups the k best experts are chosen, one maximum after the other. Then
rows are permuted, so that those of an expert are neighbours, and what experts made of them is added
by tokens. Check routing and permutation, and the permutation's gradients, against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from fused_moe import permute, sort

import tilelang
import tilelang.language as T


@T.macro
def choose_groups(worth, top, best, where, which, taken, count):
    """The groups worth most, one after the other; the `top` scores of others are gone."""
    tokens, groups = worth.shape
    low = -T.infinity("float32")
    for _ in T.serial(count):
        T.reduce_max(worth, best, dim=1)
        for i, g in T.Parallel(tokens, groups):
            where[i, g] = T.if_then_else(worth[i, g] == best[i], g, groups)
        T.reduce_min(where, which, dim=1)
        for i, g in T.Parallel(tokens, groups):
            if g == which[i]:
                taken[i, g] = 1
                worth[i, g] = low
    for i, g in T.Parallel(tokens, groups):
        top[i, g] = T.if_then_else(taken[i, g] == 1, top[i, g], low)


@T.macro
def find_next(scores, best, which, left, top_of_share, where, following, place, per_group):
    """What the group of each token's chosen expert has best of the rest, and its place there: of
    those behind the chosen one in the order of scores, then of experts."""
    tokens, groups, share = left.shape
    low = -T.infinity("float32")
    for i, g in T.Parallel(tokens, groups):
        top_of_share[i, g] = low
        for e in T.unroll(share):
            x = g * share + e
            score = scores[i, which[i] // per_group, T.min(x, per_group - 1)]
            is_left = (score < best[i]) | ((score == best[i]) & (x > which[i] % per_group))
            left[i, g, e] = T.if_then_else(is_left & (x < per_group), score, low)
            top_of_share[i, g] = T.max(top_of_share[i, g], left[i, g, e])
    T.reduce_max(top_of_share, following, dim=1)
    for i, g in T.Parallel(tokens, groups):
        where[i, g] = per_group - 1
        for e in T.unroll(share):
            if left[i, g, share - 1 - e] == following[i]:
                where[i, g] = g * share + share - 1 - e
    T.reduce_min(where, place, dim=1)


def route(groups, per_group, best_groups, k, tokens=8, threads=64):
    """Of Logits (length, groups * per_group): the `k` experts of each token, with weights whose sum
    is 1, from the sigmoids of their logits; Bias counts where they are chosen only. A thread knows
    the best score of a group of a token that is left. Once it is chosen, the threads of a token
    find that group's next one together: those behind it in the order of scores, then of experts."""
    length = T.dynamic("length")
    experts = groups * per_group
    # What a thread looks at of a group.
    share = T.ceildiv(per_group, groups)
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
            top = T.alloc_fragment((tokens, groups), "float32")
            second = T.alloc_fragment((tokens, groups), "float32")
            expert = T.alloc_fragment((tokens, groups), "int32")
            worth = T.alloc_fragment((tokens, groups), "float32")
            taken = T.alloc_fragment((tokens, groups), "int32")
            best = T.alloc_fragment((tokens,), "float32")
            where = T.alloc_fragment((tokens, groups), "int32")
            which = T.alloc_fragment((tokens,), "int32")
            left = T.alloc_fragment((tokens, groups, share), "float32")
            top_of_share = T.alloc_fragment((tokens, groups), "float32")
            following = T.alloc_fragment((tokens,), "float32")
            place = T.alloc_fragment((tokens,), "int32")
            chosen = T.alloc_fragment((tokens, k), "int32")
            weights = T.alloc_fragment((tokens, k), "float32")
            total = T.alloc_fragment((tokens,), "float32")
            for i, g, e in T.Parallel(tokens, groups, per_group):
                x = g * per_group + e
                scores[i, g, e] = T.sigmoid(Logits[bx * tokens + i, x]) + Bias[x]
            # A group's worth: its two best scores.
            for i, g in T.Parallel(tokens, groups):
                top[i, g] = low
                second[i, g] = low
                expert[i, g] = 0
                taken[i, g] = 0
                for e in T.unroll(per_group):
                    score = scores[i, g, e]
                    second[i, g] = T.max(second[i, g], T.min(top[i, g], score))
                    expert[i, g] = T.if_then_else(score > top[i, g], e, expert[i, g])
                    top[i, g] = T.max(top[i, g], score)
                expert[i, g] += g * per_group
                worth[i, g] = top[i, g] + second[i, g]
            choose_groups(worth, top, best, where, which, taken, best_groups)
            for n in T.serial(k):
                T.reduce_max(top, best, dim=1)
                for i, g in T.Parallel(tokens, groups):
                    where[i, g] = T.if_then_else(top[i, g] == best[i], expert[i, g], experts)
                T.reduce_min(where, which, dim=1)
                for i, m in T.Parallel(tokens, k):
                    if m == n:
                        chosen[i, m] = which[i]
                find_next(
                    scores, best, which, left, top_of_share, where, following, place, per_group
                )
                for i, g in T.Parallel(tokens, groups):
                    if g == which[i] // per_group:
                        top[i, g] = following[i]
                        expert[i, g] = g * per_group + place[i]
            for i, m in T.Parallel(tokens, k):
                weights[i, m] = T.sigmoid(Logits[bx * tokens + i, chosen[i, m]])
            T.reduce_sum(weights, total, dim=1)
            for i, m in T.Parallel(tokens, k):
                weights[i, m] /= total[i]
            T.copy(weights, Weights[bx * tokens, 0])
            T.copy(chosen, Experts[bx * tokens, 0])

    return main


@tilelang.jit
def permutation(tokens, hidden, experts, k, dtype=T.bfloat16):
    """Of Experts (tokens, k): Sorted (tokens * k, hidden), the rows of X (tokens, hidden) so that
    those of an expert are neighbours; Places (tokens * k,), the token's number times k plus the
    number of its choice of each of these rows; Rows (tokens, k), where each choice's row is; and
    Ends (experts,), where each expert's rows end."""
    rows = tokens * k

    @T.prim_func
    def main(X: T.Tensor((tokens, hidden), dtype), Experts: T.Tensor((tokens, k), T.int32)):
        Sorted = T.empty((rows, hidden), dtype)
        Places, Rows = T.empty((rows,), T.int32), T.empty((tokens, k), T.int32)
        Ends = T.empty((experts,), T.int32)
        Counts = T.alloc_global((2, experts), T.int32)
        with T.Kernel(1, threads=256):
            T.clear(Counts)
        with T.Kernel(T.ceildiv(rows, 256), threads=256) as bx:
            for i in T.Parallel(256):
                place = bx * 256 + i
                if place < rows:
                    T.atomic_add(Counts[0, Experts[place // k, place % k]], 1)
        sort(Experts, Counts, Ends, Places, Rows, k)
        permute(X, Rows, Sorted, k)
        return Sorted, Places, Rows, Ends

    return main


@tilelang.jit(out_idx=[-1])
def combine(tokens, hidden, k, dtype=T.bfloat16, width=1024):
    """(tokens, hidden): the sum over each token's choices of Weights (tokens, k) times the row of Y
    (tokens * k, hidden) that Rows (tokens, k) names. With weights of 1 it makes gradients of X of
    those of the sorted rows."""

    @T.prim_func
    def main(
        Y: T.Tensor((tokens * k, hidden), dtype),
        Rows: T.Tensor((tokens, k), T.int32),
        Weights: T.Tensor((tokens, k), T.float32),
        Output: T.Tensor((tokens, hidden), dtype),
    ):
        with T.Kernel(T.ceildiv(hidden, width), tokens, threads=128) as (bx, token):
            total = T.alloc_fragment((width,), T.float32)
            T.clear(total)
            for n in T.unroll(k):
                for j in T.Parallel(width):
                    if bx * width + j < hidden:
                        total[j] += Weights[token, n] * Y[Rows[token, n], bx * width + j]
            T.copy(total, Output[token, bx * width])

    return main


@tilelang.jit(out_idx=[-2, -1])
def combine_backward(tokens, hidden, k, dtype=T.bfloat16, width=1024):
    """Gradients of Y (tokens * k, hidden) and of Weights (tokens, k) from that of the result, dOut
    (tokens, hidden). A block has a row of Y, at the place that Places names."""

    @T.prim_func
    def main(
        Y: T.Tensor((tokens * k, hidden), dtype),
        Places: T.Tensor((tokens * k,), T.int32),
        Weights: T.Tensor((tokens, k), T.float32),
        dOut: T.Tensor((tokens, hidden), dtype),
        dY: T.Tensor((tokens * k, hidden), dtype),
        dWeights: T.Tensor((tokens, k), T.float32),
    ):
        with T.Kernel(tokens * k, threads=128) as row:
            slope = T.alloc_fragment((width,), T.float32)
            product = T.alloc_fragment((width,), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            token, n = Places[row] // k, Places[row] % k
            T.clear(product)
            for step in T.serial(T.ceildiv(hidden, width)):
                T.copy(dOut[token, step * width], slope)
                for j in T.Parallel(width):
                    if step * width + j < hidden:
                        product[j] += slope[j] * Y[row, step * width + j]
                for j in T.Parallel(width):
                    slope[j] = slope[j] * Weights[token, n]
                T.copy(slope, dY[row, step * width])
            T.reduce_sum(product, total, dim=0)
            dWeights[token, n] = total[0]

    return main


def reference(logits, bias, groups, best_groups, k):
    """Weights and experts in float64."""
    scores = logits.double().sigmoid()
    choice = (scores + bias.double()).reshape(len(logits), groups, -1)
    worth = choice.topk(2, dim=2).values.sum(2)
    best = torch.zeros_like(worth, dtype=torch.bool)
    best.scatter_(1, worth.topk(best_groups, dim=1).indices, True)
    experts = choice.masked_fill(~best[:, :, None], -torch.inf).flatten(1).topk(k, dim=1).indices
    weights = scores.gather(1, experts)
    return weights / weights.sum(1, keepdim=True), experts


def inputs(length, experts, device="cpu"):
    """Logits and biases."""
    logits = torch.randn(length, experts, device=device)
    return logits, torch.randn(experts, device=device) / 4


def routing_error(length, groups, per_group, best_groups, k, device="cpu"):
    """||ours - float64|| / ||float64|| of the weights; the experts are checked. And the experts."""
    logits, bias = inputs(length, groups * per_group, device)
    weights = torch.empty(length, k, device=device)
    experts = torch.empty(length, k, dtype=torch.int32, device=device)
    tilelang.compile(route(groups, per_group, best_groups, k))(logits, bias, weights, experts)
    wanted, order = reference(logits, bias, groups, best_groups, k)
    # Scores that float32 rounds in another way may name another one of two equal experts.
    same = experts.long() == order
    assert same.double().mean() > 0.999, "other experts"
    difference = (weights.double() - wanted)[same]
    return float(difference.norm() / wanted[same].norm()), weights, experts


def permutation_error(weights, experts, hidden, count, device="cpu"):
    """The largest of ||ours - float64|| / ||float64|| of what tokens get back where an expert's
    rows are multiplied by a number of its own, and of the gradients; the order is checked."""
    tokens, k = experts.shape
    x = torch.randn(tokens, hidden, device=device).bfloat16()
    d_out = torch.randn_like(x)
    factor = torch.randint(1, 5, (count,), device=device).bfloat16()
    rows, places, inverse, ends = permutation(tokens, hidden, count, k)(x, experts)
    of_rows = experts.flatten()[places.long()].long()
    assert torch.equal(of_rows, of_rows.sort().values), "rows of an expert are no neighbours"
    assert torch.equal(ends.long(), torch.bincount(of_rows, minlength=count).cumsum(0))
    y = rows * factor[of_rows, None]
    out = combine(tokens, hidden, k)(y, inverse, weights)
    d_y, d_weights = combine_backward(tokens, hidden, k)(y, places, weights, d_out)
    d_rows = d_y * factor[of_rows, None]
    d_x = combine(tokens, hidden, k)(d_rows, inverse, torch.ones_like(weights))
    leaves = [t.double().requires_grad_() for t in (x, weights)]
    wanted = leaves[0] * (leaves[1] * factor.double()[experts.long()]).sum(1, keepdim=True)
    slopes = torch.autograd.grad(wanted, leaves, d_out.double())
    pairs = zip((out, d_x, d_weights), (wanted.detach(), *slopes), strict=True)
    return max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=[8192, 7168] if gpu else [21, 72])
    parser.add_argument("--experts", type=int, nargs=2, default=[8, 32] if gpu else [4, 8])
    parser.add_argument("--chosen", type=int, nargs=2, default=[4, 8] if gpu else [2, 3])
    arguments = parser.parse_args()
    (tokens, hidden), (groups, per_group) = arguments.size, arguments.experts
    device, shape = "cuda" if gpu else "cpu", f"{tokens} tokens, {groups * per_group} experts"
    torch.manual_seed(0)
    best_groups, k = arguments.chosen
    error, weights, experts = routing_error(tokens, groups, per_group, best_groups, k, device)
    assert error < 1e-5, f"routing: relative error {error:.1e}, wanted under 1e-5"
    print(f"routing, {shape}: relative error {error:.1e}")
    error = permutation_error(weights, experts, hidden, groups * per_group, device)
    assert error < 8e-3, f"permutation: relative error {error:.1e}, wanted under 8e-3"
    print(f"permutation, {shape}: relative error {error:.1e}")
