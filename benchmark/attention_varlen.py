"""Attention over sequences of different lengths beside the program for equal ones.

The speeds are of useful operations: of the padded program, whose sequences all have the longest
length, every one is.
"""

import torch
from attention_forward import BOUND, CONFIG, CONFIGS, flops, make_inputs
from common import Row, example, main, norm_error

HEADS, DIM = 32, 128


def drawn_lengths(count, longest):
    """The longest, and others between a quarter of it and it."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(longest // 4, longest + 1, (count - 1,), generator=generator)
    return [longest, *drawn.tolist()]


def error(lengths, q, k, v, causal, found):
    """The largest relative error of the first and the last sequence's first and last head."""
    reference = example("flash_attention").reference
    errors = []
    for here in (slice(lengths[0]), slice(sum(lengths) - lengths[-1], None)):
        for head in {0, q.shape[1] - 1}:
            qkv = (x[None, here, head : head + 1] for x in (q, k, v))
            wanted = reference(*qkv, causal)[0, :, 0]
            errors.append(norm_error(found[here, head], wanted))
    return max(errors)


def row(lengths, heads, dim, causal):
    """Sequences of these lengths."""
    varlen, padded = example("flash_attention_varlen"), example("flash_attention")
    batch, longest, config = len(lengths), max(lengths), CONFIG[dim]

    def baseline(*inputs):
        return padded.flash_attention(batch, heads, longest, dim, causal, **config)(*inputs)

    return Row(
        name=f"{batch} x {heads} x {min(lengths)} to {longest} x {dim} "
        f"{'causal' if causal else 'full'}",
        program=varlen.flash_attention_varlen,
        arguments={"heads": heads, "dim": dim, "causal": causal},
        config=config,
        # The list of tiles, an input, is for one height.
        configs=[c for c in CONFIGS if c["block_M"] == config["block_M"]],
        inputs=lambda device: varlen.inputs(
            lengths, heads, dim, causal, block_M=config["block_M"], device=device
        ),
        error=lambda inputs, found: (error(lengths, *inputs[:3], causal, found), BOUND),
        work=sum(flops(1, heads, length, dim, causal) for length in lengths),
        baseline=baseline,
        baseline_inputs=lambda device: make_inputs(
            batch=batch, heads=heads, length=longest, dim=dim, device=device
        ),
        baseline_work=flops(batch, heads, longest, dim, causal),
        wanted=0.95,
    )


def rows(small):
    """Full and causal."""
    lengths = [200, 1, 130] if small else drawn_lengths(8, 4096)
    return [row(lengths, 1 if small else HEADS, DIM, causal) for causal in (False, True)]


if __name__ == "__main__":
    main(__doc__, rows)
