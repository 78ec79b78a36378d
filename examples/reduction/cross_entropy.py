"""Cross-entropy of rows of logits and labels, and the logits' gradients in their place: most of a
row stays on the chip between its two uses. Check it against float64 autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T
from tilelang.carver.arch import auto_infer_current_arch

LOG2_E = 1.44269504
IGNORED = -100  # the label of rows that do not count, as in torch
OTHER_BYTES = 1024  # of shared memory: sums over threads
WIDTH = 8  # elements of a vector
APART = 8  # vectors of a thread that are read from global memory


def processors():
    """Multiprocessors of the GPU; a few blocks where there is none."""
    if not torch.cuda.is_available():
        return 4
    return torch.cuda.get_device_properties().multi_processor_count


@T.macro
def load(Logits, row, begin, raw):
    """From column `begin` on, a vector of each thread for each of `raw`; what has no weight behind
    the row's end."""
    threads, vocabulary = raw[0].shape[0], Logits.shape[1]
    for u, part in enumerate(raw):
        for t, j in T.Parallel(threads, WIDTH):
            column = begin + (u * threads + t) * WIDTH + j
            part[t, j] = T.if_then_else(
                column < vocabulary, Logits[row, column], -T.infinity(part.dtype)
            )


@T.macro
def fetch(Logits, row, k, Held):
    """Tile k of a row."""
    tile = Held.shape[1]
    T.async_copy(Logits[row, k * tile : (k + 1) * tile], Held[k, :])


@T.macro
def add(values, own_max, own_sum):
    """Weights of `values`, to those that a thread has."""
    (threads,) = own_max.shape
    before = T.alloc_fragment((threads,), T.float32)
    added = T.alloc_fragment((threads,), T.float32)
    T.copy(own_max, before)
    for part in values:
        T.reduce_max(part, own_max, dim=1, clear=False)
    T.clear(added)
    for part in values:
        for t, j in T.Parallel(threads, WIDTH):
            part[t, j] = T.exp2(part[t, j] * LOG2_E - own_max[t] * LOG2_E)
        T.reduce_sum(part, added, dim=1, clear=False)
    for t in T.Parallel(threads):
        own_sum[t] = own_sum[t] * T.exp2((before[t] - own_max[t]) * LOG2_E) + added[t]


@T.macro
def add_held(Held, values, own_max, own_sum):
    """`add` of the tiles that are on the chip."""
    (held, _), (threads, _) = Held.shape, values[0].shape
    for k in T.unroll(held, unroll_factor=2):
        # An empty group, so that as many are behind each tile of a row.
        T.ptx_wait_group(held - 1)
        T.ptx_commit_group()
        for u, value in enumerate(values):
            for t, j in T.Parallel(threads, WIDTH):
                value[t, j] = Held[k, (u * threads + t) * WIDTH + j]
        add(values, own_max, own_sum)


@T.macro
def sum_up(own_max, own_sum, top, total):
    """The largest logit of a row, and the sum of weights beside it, of those that threads have."""
    T.reduce_max(own_max, top, dim=0)
    for t in T.Parallel(*own_sum.shape):
        own_sum[t] = own_sum[t] * T.exp2((own_max[t] - top[0]) * LOG2_E)
    T.reduce_sum(own_sum, total, dim=0)


@T.macro
def store_loaded(Logits, row, begin, raw, top, scale):
    """Gradients of what `load` has loaded."""
    threads, vocabulary = raw[0].shape[0], Logits.shape[1]
    for u, part in enumerate(raw):
        for t, j in T.Parallel(threads, WIDTH):
            column = begin + (u * threads + t) * WIDTH + j
            weight = T.exp2(part[t, j] * LOG2_E - top[0] * LOG2_E)
            if column < vocabulary:
                Logits[row, column] = weight * scale


@T.macro
def store_held(Logits, row, k, Held, threads, top, scale):
    """Gradients of tile k."""
    tile = Held.shape[1]
    for u in T.unroll(tile // (threads * WIDTH), explicit=True):
        for t, j in T.Parallel(threads, WIDTH):
            column = (u * threads + t) * WIDTH + j
            weight = T.exp2(Held[k, column] * LOG2_E - top[0] * LOG2_E)
            Logits[row, k * tile + column] = weight * scale


# Fast math leaves out what exp2 does for subnormal weights.
@tilelang.jit(out_idx=[-1], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
def cross_entropy(vocabulary, dtype=T.bfloat16, threads=1024, parts=1, held=None):
    """The losses (rows,) of Logits (rows, vocabulary), and in their place the gradients of the sum
    of losses times `factor`. Blocks take rows in turn. The first `held` tiles of a row, as many as
    fit, stay in shared memory; a tile that is done with makes room for the next row's. What is
    behind these is read by threads, and a second time if it is more than `APART` vectors of each;
    so is all of a row where it has other than whole 16 bytes, or the chip no cp.async.
    A thread has `parts` vectors of a tile, and a maximum and a sum of its own."""
    rows, blocks = T.dynamic("rows"), processors()
    line = threads * WIDTH  # a vector of each thread
    tile = parts * line
    if held is None:  # cp.async takes rows that are multiples of 16 bytes.
        chip = auto_infer_current_arch()
        room = (chip.smem_cap - OTHER_BYTES) // (tile * 2)
        can_hold = chip.has_async_copies and vocabulary % WIDTH == 0
        held = min(vocabulary // tile, room) if can_hold else 0
    rest = -(-(vocabulary - held * tile) // line)
    lines = min(rest, APART)
    chunks = -(-rest // max(lines, 1))

    @T.prim_func
    def main(
        Logits: T.Tensor((rows, vocabulary), dtype),
        Labels: T.Tensor((rows,), T.int32),
        factor: T.float32,
        Loss: T.Tensor((rows,), T.float32),
    ):
        with T.Kernel(blocks, threads=threads) as block:
            if held:
                Held = T.alloc_shared((held, tile), dtype)
            raw = [T.alloc_fragment((threads, WIDTH), dtype) for _ in range(lines)]
            values = [T.alloc_fragment((threads, WIDTH), T.float32) for _ in range(parts)]
            own_max = T.alloc_fragment((threads,), T.float32)
            own_sum = T.alloc_fragment((threads,), T.float32)
            top = T.alloc_fragment((1,), T.float32)
            total = T.alloc_fragment((1,), T.float32)

            if held and block < rows:
                for k in T.serial(held):
                    fetch(Logits, block, k, Held)
            for turn in T.serial(T.ceildiv(rows - block, blocks)):
                row = block + turn * blocks
                T.assume(row < rows)
                label = Labels[row]
                counts = label != IGNORED
                labelled = T.cast(Logits[row, T.max(label, 0)], T.float32)
                T.fill(own_max, -(2.0**100))
                T.clear(own_sum)
                if chunks == 1:
                    load(Logits, row, held * tile, raw)
                if held:
                    add_held(Held, values, own_max, own_sum)
                for chunk in T.serial(chunks):
                    if chunks > 1:
                        load(Logits, row, held * tile + chunk * lines * line, raw)
                    for some in [raw[u : u + parts] for u in range(0, lines, parts)]:
                        for part, value in zip(some, values, strict=False):
                            T.copy(part, value)
                        add(values[: len(some)], own_max, own_sum)
                sum_up(own_max, own_sum, top, total)
                for i in T.Parallel(1):
                    log_sum = T.log2(total[i]) / LOG2_E + top[i]
                    Loss[row] = T.if_then_else(counts, log_sum - labelled, 0)
                scale = T.if_then_else(counts, factor / total[0], 0)
                for back in T.serial(chunks):
                    begin = held * tile + (chunks - 1 - back) * lines * line
                    if chunks > 1:
                        load(Logits, row, begin, raw)
                    store_loaded(Logits, row, begin, raw, top, scale)
                if held:
                    for k in T.unroll(held, unroll_factor=2):
                        store_held(Logits, row, k, Held, threads, top, scale)
                        if row + blocks < rows:
                            fetch(Logits, row + blocks, k, Held)
                # Behind the weights, of which one is the label's.
                if counts:
                    weight = T.exp2(labelled * LOG2_E - top[0] * LOG2_E)
                    Logits[row, label] = weight * scale - factor

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
    default = [8192, 128256, 32003] if gpu else [5, 1003, 1288]
    parser.add_argument("--size", type=int, nargs="+", default=default, help="rows, vocabularies")
    rows, *vocabularies = parser.parse_args().size
    for vocabulary in vocabularies:
        tile = {} if gpu else {"threads": 32, "parts": 2}
        error = relative_error(rows, vocabulary, "cuda" if gpu else "cpu", **tile)
        assert error < 4e-3, f"relative error {error:.1e}, wanted under 4e-3"
        print(f"{rows} x {vocabulary}: relative error {error:.1e}")
