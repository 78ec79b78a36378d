"""Attention forward beside cuDNN: head dimensions 64 and 128, full and causal, grouped queries."""

import itertools

import torch
from common import Row, example, main, norm_error
from torch.nn.attention import SDPBackend, sdpa_kernel

SIZES = [(8, 32, 4096), (4, 16, 16384)]
CONFIG = {
    64: {"block_M": 192, "block_N": 128, "num_stages": 2, "threads": 384},
    128: {"block_M": 128, "block_N": 128, "num_stages": 2, "threads": 256},
}
# Tall tiles have more beyond the diagonal.
SHORT_CAUSAL = {
    64: {**CONFIG[128], "hold_Q": True},
    128: CONFIG[128],
}
CONFIGS = [
    {"block_M": m, "block_N": n, "num_stages": s, "threads": t}
    for (m, t), n, s in itertools.product(
        [(128, 128), (128, 256), (192, 384)], [64, 96, 128, 176], [1, 2, 3]
    )
]
# ||ours - reference|| / ||reference||: of float16 weights and results.
BOUND = 1e-3


def cudnn(q, k, v, causal):
    """Attention of tensors (batch, length, heads, dim)."""
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(
            *(x.transpose(1, 2) for x in (q, k, v)),
            is_causal=causal,
            enable_gqa=q.shape[2] != k.shape[2],
        )


def corners(*tensors):
    """The first and the last batch and head, one at a time, whose scores in float64 fit into
    memory."""
    for batch in (0, -1):
        for head in (0, -1):
            yield [x[batch, None, :, head, None] for x in tensors]


def error(q, k, v, causal, found):
    """The largest relative error of the corners."""
    reference = example("flash_attention").reference
    return max(norm_error(out, reference(*qkv, causal)) for *qkv, out in corners(q, k, v, found))


def flops(batch, heads, length, dim, causal):
    """Two products of length x length x dim for each head; a causal mask leaves half."""
    return 4.0 * batch * heads * length**2 * dim * (0.5 if causal else 1.0)


def make_inputs(*, device, **sizes):
    """Q, K and V, and a counter."""
    attention = example("flash_attention")
    return [*attention.inputs(**sizes, device=device), attention.new_counter(device)]


def row(batch, heads, length, dim, causal, key_heads=None):
    """One set of sizes."""
    attention = example("flash_attention")
    sizes = {"batch": batch, "heads": heads, "length": length, "dim": dim}
    name = f"{batch} x {heads}{f'/{key_heads}' if key_heads else ''} x {length} x {dim}"
    return Row(
        name=f"{name} {'causal' if causal else 'full'}",
        program=attention.flash_attention,
        arguments={**sizes, "causal": causal, "key_heads": key_heads},
        config=(SHORT_CAUSAL if causal and length <= 4096 else CONFIG)[dim],
        configs=[{**c, "hold_Q": hold} for c in CONFIGS for hold in (False, True)],
        inputs=lambda device: make_inputs(**sizes, key_heads=key_heads, device=device),
        error=lambda inputs, found: (error(*inputs[:3], causal, found), BOUND),
        work=flops(**sizes, causal=causal),
        baseline=lambda q, k, v, counter: cudnn(q, k, v, causal),
    )


def rows(small):
    """The sizes of the table, or a small one."""
    sizes = [(1, 1, 200)] if small else SIZES
    found = [
        row(*size, dim, causal) for size in sizes for dim in (128, 64) for causal in (False, True)
    ]
    grouped = (1, 4, 200) if small else SIZES[0]
    return [*found, *(row(*grouped, 128, c, key_heads=grouped[1] // 4) for c in (False, True))]


if __name__ == "__main__":
    main(__doc__, rows)
