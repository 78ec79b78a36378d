"""Cross-entropy of rows of logits and labels, and the logits' gradients in their place: a row is
read twice, and written once. Check it against float64 autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

LOG2_E = 1.44269504
IGNORED = -100  # the label of rows that do not count, as in torch


# Fast math leaves out what exp2 does for subnormal weights.
@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def cross_entropy(vocabulary, dtype=T.bfloat16, threads=1024, parts=4):
    """The losses (rows,) of Logits (rows, vocabulary), and in their place the gradients of the sum
    of losses times `factor`. A thread has `parts` vectors of a tile, and a maximum and a sum of its
    own: threads meet once. With one block a multiprocessor, the rows at work fit in L2, from where
    the second pass reads them, the last tile first."""
    rows, width = T.dynamic("rows"), 8
    tiles = -(-vocabulary // (threads * parts * width))

    @T.macro
    def load(Logits, row, step, tile):
        """A tile of a row, and what has no weight behind the row's end."""
        for u, part in enumerate(tile):
            for t, j in T.Parallel(threads, width):
                column = ((step * parts + u) * threads + t) * width + j
                part[t, j] = T.if_then_else(
                    column < vocabulary, Logits[row, column], -T.infinity(T.float32)
                )

    @T.prim_func
    def main(
        Logits: T.Tensor((rows, vocabulary), dtype),
        Labels: T.Tensor((rows,), T.int32),
        factor: T.float32,
        Loss: T.Tensor((rows,), T.float32),
    ):
        with T.Kernel(rows, threads=threads) as row:
            tile = [T.alloc_fragment((threads, width), T.float32) for _ in range(parts)]
            own_max = T.alloc_fragment((threads,), T.float32)
            own_before = T.alloc_fragment((threads,), T.float32)
            own_sum = T.alloc_fragment((threads,), T.float32)
            tile_sum = T.alloc_fragment((threads,), T.float32)
            top = T.alloc_fragment((1,), T.float32)
            total = T.alloc_fragment((1,), T.float32)

            label = Labels[row]
            counts = label != IGNORED
            labelled = T.cast(Logits[row, T.max(label, 0)], T.float32)
            T.fill(own_max, -(2.0**100))
            T.clear(own_sum)
            for step in T.serial(tiles):
                load(Logits, row, step, tile)
                T.copy(own_max, own_before)
                for part in tile:
                    T.reduce_max(part, own_max, dim=1, clear=False)
                T.clear(tile_sum)
                for part in tile:
                    for t, j in T.Parallel(threads, width):
                        part[t, j] = T.exp2((part[t, j] - own_max[t]) * LOG2_E)
                    T.reduce_sum(part, tile_sum, dim=1, clear=False)
                for t in T.Parallel(threads):
                    rescale = T.exp2((own_before[t] - own_max[t]) * LOG2_E)
                    own_sum[t] = own_sum[t] * rescale + tile_sum[t]
            T.reduce_max(own_max, top, dim=0)
            for t in T.Parallel(threads):
                own_sum[t] = own_sum[t] * T.exp2((own_max[t] - top[0]) * LOG2_E)
            T.reduce_sum(own_sum, total, dim=0)
            for i in T.Parallel(1):
                log_sum = T.log2(total[i]) / LOG2_E + top[i]
                Loss[row] = T.if_then_else(counts, log_sum - labelled, 0)
            scale = T.if_then_else(counts, factor / total[0], 0)
            for back in T.serial(tiles):
                step = tiles - 1 - back
                load(Logits, row, step, tile)
                for u, part in enumerate(tile):
                    for t, j in T.Parallel(threads, width):
                        part[t, j] = T.exp2((part[t, j] - top[0]) * LOG2_E) * scale
                    for t, j in T.Parallel(threads, width):
                        # The label of a row that does not count is no column.
                        if ((step * parts + u) * threads + t) * width + j == label:
                            part[t, j] = part[t, j] - factor
                    for t, j in T.Parallel(threads, width):
                        column = ((step * parts + u) * threads + t) * width + j
                        if column < vocabulary:
                            Logits[row, column] = part[t, j]

    return main


def inputs(rows, vocabulary, device="cpu"):
    """Logits, labels, of which the last one does not count, and the factor of a mean."""
    logits = 2 * torch.randn(rows, vocabulary, device=device)
    labels = torch.randint(vocabulary, (rows,), device=device).int()
    labels[-1] = IGNORED
    return logits.bfloat16(), labels, 1 / max(1, rows - 1)


def reference(logits, labels, factor):
    """Losses and gradients in float64."""
    x = logits.double().requires_grad_()
    loss = torch.nn.functional.cross_entropy(
        x, labels.long(), reduction="none", ignore_index=IGNORED
    )
    (gradient,) = torch.autograd.grad(loss.sum() * factor, x)
    return loss.detach(), gradient


def relative_error(rows, vocabulary, device="cpu", **tile):
    """The larger of ||ours - float64|| / ||float64|| of losses and gradients."""
    torch.manual_seed(0)
    logits, labels, factor = inputs(rows, vocabulary, device)
    wanted = reference(logits, labels, factor)
    loss = cross_entropy(vocabulary, **tile)(logits, labels, factor)
    return max(
        float((x.double() - y).norm() / y.norm())
        for x, y in zip((loss, logits), wanted, strict=True)
    )


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=[8192, 128256] if gpu else [5, 1003])
    rows, vocabulary = parser.parse_args().size
    error = relative_error(
        rows, vocabulary, "cuda" if gpu else "cpu", **({} if gpu else {"threads": 32, "parts": 2})
    )
    assert error < 4e-3, f"relative error {error:.1e}, wanted under 4e-3"
    print(f"{rows} x {vocabulary}: relative error {error:.1e}")
