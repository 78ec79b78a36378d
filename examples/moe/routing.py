"""Routing of tokens to experts (DeepSeek-V3, Liu et al. 2024): each group of experts is worth its
two best scores; of the best groups the k best experts are chosen, one maximum after the other. Then
rows are permuted, so that those of an expert are neighbours, and what experts made of them is added
by tokens. Check routing and permutation, and the permutation's gradients, against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse
import math

import torch
from fused_moe import permute, sort

import tilelang
import tilelang.language as T


@T.macro
def find(values, value, place):
    """The first place of a thread's values that has `value`."""
    place[0] = values.shape[0] - 1
    for n in T.unroll(values.shape[0] - 1):
        if values[values.shape[0] - 2 - n] == value:
            place[0] = values.shape[0] - 2 - n


@T.macro
def largest_of(values, best):
    """The largest of a thread's values."""
    best[0] = values[0]
    for n in T.unroll(values.shape[0] - 1):
        best[0] = T.max(best[0], values[n + 1])


@T.macro
def replace(values, place, value):
    """values[place] = value in registers, which have no addresses."""
    for n in T.unroll(values.shape[0]):
        values[n] = T.if_then_else(n == place, value, values[n])


@T.macro
def keep_best(worth, top, count):
    """Of a thread's groups, all but the `count` that are worth most have no best score any more."""
    best, group = T.alloc_local((1,), "float32"), T.alloc_local((1,), "int32")
    kept, low = T.alloc_local(worth.shape, "int32"), -T.infinity("float32")
    for g in T.unroll(worth.shape[0]):
        kept[g] = 0
    for _ in T.serial(count):
        largest_of(worth, best)
        find(worth, best[0], group)
        replace(kept, group[0], 1)
        replace(worth, group[0], low)
    for g in T.unroll(worth.shape[0]):
        top[g] = T.if_then_else(kept[g] == 1, top[g], low)


@T.macro
def take_largest(scores, row, parts, width, top, expert):
    """The first expert of the largest score of a row, whose groups have the best scores `top` in
    the thread's registers. The score is overwritten, and its group's best one found again: a group
    has `parts` of `width` scores, and all but one are as they were."""
    best, group = T.alloc_local((1,), "float32"), T.alloc_local((1,), "int32")
    tops, part = T.alloc_local((parts,), "float32"), T.alloc_local((1,), "int32")
    seen, place = T.alloc_local((width,), "float32"), T.alloc_local((1,), "int32")
    largest_of(top, best)
    find(top, best[0], group)
    first = group[0] * (parts * width)
    for n in T.unroll(parts):
        tops[n] = scores[row, first + n * width]
        for e in T.unroll(width - 1):
            tops[n] = T.max(tops[n], scores[row, first + n * width + e + 1])
    find(tops, best[0], part)
    for e in T.vectorized(width):
        seen[e] = scores[row, first + part[0] * width + e]
    find(seen, best[0], place)
    expert[0] = first + part[0] * width + place[0]
    scores[row, expert[0]] = -T.infinity("float32")
    replace(seen, place[0], -T.infinity("float32"))
    largest_of(seen, best)
    replace(tops, part[0], best[0])
    largest_of(tops, best)
    replace(top, group[0], best[0])


@T.macro
def best_two(scores, row, first, count, best, second):
    """The best of a group's `count` scores, from the row's place `first` on, and the next one."""
    best[0] = -T.infinity("float32")
    second[0] = -T.infinity("float32")
    for e in T.unroll(count):
        score = scores[row, first + e]
        second[0] = T.max(second[0], T.min(best[0], score))
        best[0] = T.max(best[0], score)


@T.macro
def choose(scores, row, top, Logits, token, per_group, Weights, Experts):
    """A token's experts, one after the other, and their weights."""
    k, width = Experts.shape[1], math.gcd(per_group, 4)
    weights, total = T.alloc_local((k,), "float32"), T.alloc_local((1,), "float32")
    chosen, expert = T.alloc_local((k,), "int32"), T.alloc_local((1,), "int32")
    for n in T.unroll(k):
        take_largest(scores, row, per_group // width, width, top, expert)
        chosen[n] = expert[0]
        weights[n] = Logits[token, expert[0]]
    total[0] = 0
    for n in T.unroll(k):
        weights[n] = T.sigmoid(weights[n])
        total[0] += weights[n]
    for n in T.unroll(k):
        Weights[token, n] = weights[n] / total[0]
        Experts[token, n] = chosen[n]


def route(groups, per_group, best_groups, k, tokens=32, threads=256):
    """Of Logits (length, groups * per_group): the `k` experts of each token, with weights whose sum
    is 1, from the sigmoids of their logits; Bias counts where they are chosen only. All threads
    make the scores of a block's tokens and find each group's two best ones; then a thread chooses
    for a token, without a word to others."""
    if k > best_groups * per_group:
        raise ValueError(
            f"found k={k}, wanted at most the {best_groups * per_group} of best groups"
        )
    length = T.dynamic("length")
    experts = groups * per_group
    # Rows begin 16 bytes apart in the banks, so that threads of different tokens read from
    # different ones.
    pitch = (experts + 3) // 8 * 8 + 4

    @T.prim_func
    def main(
        Logits: T.Tensor((length, experts), "float32"),
        Bias: T.Tensor((experts,), "float32"),
        Weights: T.Tensor((length, k), "float32"),
        Experts: T.Tensor((length, k), "int32"),
    ):
        with T.Kernel(T.ceildiv(length, tokens), threads=threads) as bx:
            scores = T.alloc_shared((tokens, pitch), "float32")
            best = T.alloc_shared((groups, tokens), "float32")
            second = T.alloc_shared((groups, tokens), "float32")
            largest, other = T.alloc_local((1,), "float32"), T.alloc_local((1,), "float32")
            top, worth = T.alloc_local((groups,), "float32"), T.alloc_local((groups,), "float32")
            thread = T.get_thread_binding()
            for i, x in T.Parallel(tokens, experts):
                scores[i, x] = T.sigmoid(Logits[bx * tokens + i, x]) + Bias[x]
            for n in T.serial(T.ceildiv(groups * tokens, threads)):
                i, g = (n * threads + thread) % tokens, (n * threads + thread) // tokens
                if g < groups:
                    best_two(scores, i, g * per_group, per_group, largest, other)
                    best[g, i] = largest[0]
                    second[g, i] = other[0]
            token = bx * tokens + thread
            if thread < tokens and token < length:
                for g in T.unroll(groups):
                    top[g] = best[g, thread]
                    worth[g] = top[g] + second[g, thread]
                keep_best(worth, top, best_groups)
                choose(scores, thread, top, Logits, token, per_group, Weights, Experts)

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
