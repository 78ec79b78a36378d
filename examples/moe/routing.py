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
def best_of(values, of_thread, best, where, which):
    """Of values (tokens, lanes, own), a token's `lanes` threads have `own` each: the largest, and
    the first place that has it."""
    tokens, lanes, own = values.shape
    for i, p in T.Parallel(tokens, lanes):
        of_thread[i, p] = values[i, p, 0]
        for h in T.unroll(own - 1):
            of_thread[i, p] = T.max(of_thread[i, p], values[i, p, h + 1])
    T.reduce_max(of_thread, best, dim=1)
    for i, p in T.Parallel(tokens, lanes):
        where[i, p] = lanes * own - 1
        for h in T.unroll(own):
            if values[i, p, own - 1 - h] == best[i]:
                where[i, p] = p * own + own - 1 - h
    T.reduce_min(where, which, dim=1)


@T.macro
def choose_groups(worth, top, taken, of_thread, best, where, which, count):
    """The groups worth most, one after the other; the `top` scores of others are gone."""
    tokens, lanes, own = worth.shape
    low = -T.infinity("float32")
    for _ in T.serial(count):
        best_of(worth, of_thread, best, where, which)
        for i, p, h in T.Parallel(tokens, lanes, own):
            if p * own + h == which[i]:
                taken[i, p, h] = 1
                worth[i, p, h] = low
    for i, p, h in T.Parallel(tokens, lanes, own):
        top[i, p, h] = T.if_then_else(taken[i, p, h] == 1, top[i, p, h], low)


@T.macro
def take(scores, group, looked, of_thread, best, where, place):
    """The place of a score in each token's group that equals `best`, and what is best without it,
    which `best` is then."""
    tokens, lanes, part = looked.shape
    for i, p in T.Parallel(tokens, lanes):
        where[i, p] = lanes * part - 1
        for e in T.unroll(part):
            looked[i, p, e] = scores[i, group[i], p * part + e]
        for e in T.unroll(part):
            if looked[i, p, part - 1 - e] == best[i]:
                where[i, p] = p * part + part - 1 - e
    T.reduce_min(where, place, dim=1)
    for i in T.Parallel(tokens):
        scores[i, group[i], place[i]] = -T.infinity("float32")
    for i, p in T.Parallel(tokens, lanes):
        for e in T.unroll(part):
            looked[i, p, e] = scores[i, group[i], p * part + e]
        of_thread[i, p] = looked[i, p, 0]
        for e in T.unroll(part - 1):
            of_thread[i, p] = T.max(of_thread[i, p], looked[i, p, e + 1])
    T.reduce_max(of_thread, best, dim=1)


def route(groups, per_group, best_groups, k, tokens=8, lanes=None):
    """Of Logits (length, groups * per_group): the `k` experts of each token, with weights whose sum
    is 1, from the sigmoids of their logits; Bias counts where they are chosen only. A block has
    `tokens` tokens of `lanes` threads, by default one for each group. A thread knows the best score
    that is left of each of its groups. The threads of a token look through the group of a chosen
    expert together."""
    lanes = lanes or groups
    if groups % lanes:
        raise ValueError(
            f"found {groups} groups, wanted a multiple of {lanes}, the lanes of a token"
        )
    if k > best_groups * per_group:
        raise ValueError(
            f"found k={k}, wanted at most the {best_groups * per_group} of best groups"
        )
    length = T.dynamic("length")
    experts, own, part = groups * per_group, groups // lanes, T.ceildiv(per_group, lanes)
    low = -T.infinity("float32")

    @T.prim_func
    def main(
        Logits: T.Tensor((length, experts), "float32"),
        Bias: T.Tensor((experts,), "float32"),
        Weights: T.Tensor((length, k), "float32"),
        Experts: T.Tensor((length, k), "int32"),
    ):
        with T.Kernel(T.ceildiv(length, tokens), threads=tokens * lanes) as bx:
            # Groups are 16 bytes apart, so that threads read from different banks.
            scores = T.alloc_shared((tokens, groups, lanes * part + 4), "float32")
            top = T.alloc_fragment((tokens, lanes, own), "float32")
            second = T.alloc_fragment((tokens, lanes, own), "float32")
            worth = T.alloc_fragment((tokens, lanes, own), "float32")
            taken = T.alloc_fragment((tokens, lanes, own), "int32")
            looked = T.alloc_fragment((tokens, lanes, part), "float32")
            of_thread = T.alloc_fragment((tokens, lanes), "float32")
            where = T.alloc_fragment((tokens, lanes), "int32")
            best = T.alloc_fragment((tokens,), "float32")
            group = T.alloc_fragment((tokens,), "int32")
            place = T.alloc_fragment((tokens,), "int32")
            chosen = T.alloc_fragment((tokens, k), "int32")
            weights = T.alloc_fragment((tokens, k), "float32")
            total = T.alloc_fragment((tokens,), "float32")
            for i, g, e in T.Parallel(tokens, groups, lanes * part):
                x = g * per_group + e
                score = T.sigmoid(Logits[bx * tokens + i, x]) + Bias[x]
                scores[i, g, e] = T.if_then_else(e < per_group, score, low)
            # A group's worth: its two best scores.
            for i, p, h in T.Parallel(tokens, lanes, own):
                top[i, p, h] = low
                second[i, p, h] = low
                taken[i, p, h] = 0
                for e in T.unroll(per_group):
                    score = scores[i, p * own + h, e]
                    second[i, p, h] = T.max(second[i, p, h], T.min(top[i, p, h], score))
                    top[i, p, h] = T.max(top[i, p, h], score)
                worth[i, p, h] = top[i, p, h] + second[i, p, h]
            choose_groups(worth, top, taken, of_thread, best, where, group, best_groups)
            for n in T.serial(k):
                best_of(top, of_thread, best, where, group)
                take(scores, group, looked, of_thread, best, where, place)
                for i, m in T.Parallel(tokens, k):
                    if m == n:
                        chosen[i, m] = group[i] * per_group + place[i]
                for i, p, h in T.Parallel(tokens, lanes, own):
                    if p * own + h == group[i]:
                        top[i, p, h] = best[i]
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
