"""The gradients of attention beside cuDNN: head dimensions 64 and 128, full and causal."""

import itertools

import torch
from attention_forward import corners, cudnn
from common import Row, example, main, norm_error

SIZES = [(8, 32, 4096), (4, 16, 16384)]
TILE = {"block_N": 128, "threads": 256, "by_tma": True}
CONFIG = {
    64: {**TILE, "block_M": 128, "num_stages": 2, "overlap": False},
    128: {**TILE, "block_M": 64, "num_stages": 3, "overlap": True},
}
CONFIGS = [
    {**TILE, "block_M": m, "num_stages": s, "overlap": overlap}
    for m, s, overlap in itertools.product([64, 128], [1, 2, 3], [False, True])
]
# Products of float16 weights and differences, rounded to float16.
BOUND = 2e-3


def make_inputs(batch, heads, length, dim, causal, device):
    """Q, K, V, the result and its sums, and the gradient of it."""
    forward = example("flash_attention")
    q, k, v = forward.inputs(batch, heads, length, dim, device=device)
    kernel = forward.flash_attention(batch, heads, length, dim, causal, log_sum=True)
    out, log_sum = kernel(q, k, v, forward.new_counter(device))
    return [q, k, v, out, log_sum, torch.randn_like(q)]


def ours(kernel, q, k, v, out, log_sum, d_out):
    """dQ, dK and dV, with all that it takes to make them."""
    return example("flash_attention_backward").backward(q, k, v, out, log_sum, d_out, kernel)


def error(q, k, v, d_out, causal, found):
    """The largest relative error of the corners of dQ, dK and dV."""
    reference = example("flash_attention").reference
    errors = []
    for *qkv, gradient, d_q, d_k, d_v in corners(q, k, v, d_out, *found):
        leaves = [x.double().requires_grad_() for x in qkv]
        wanted = torch.autograd.grad(reference(*leaves, causal), leaves, gradient.double())
        errors += [norm_error(x, y) for x, y in zip((d_q, d_k, d_v), wanted, strict=True)]
    return max(errors)


class Baseline:
    """The backward pass of a result that is made once, by cuDNN or another of torch's backends."""

    def __init__(self, causal, forward=cudnn):
        self.causal, self.forward = causal, forward
        self.saved = None

    def __call__(self, q, k, v, out, log_sum, d_out):
        if self.saved is None:
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            self.saved = leaves, self.forward(*leaves, self.causal)
        leaves, result = self.saved
        return torch.autograd.grad(result, leaves, d_out.transpose(1, 2), retain_graph=True)


def row(batch, heads, length, dim, causal):
    """One set of sizes."""
    sizes = {"batch": batch, "heads": heads, "length": length, "dim": dim}
    return Row(
        name=f"{batch} x {heads} x {length} x {dim} {'causal' if causal else 'full'}",
        program=example("flash_attention_backward").gradients,
        arguments={**sizes, "causal": causal},
        config=CONFIG[dim],
        configs=CONFIGS,
        inputs=lambda device: make_inputs(**sizes, causal=causal, device=device),
        error=lambda given, found: (error(*given[:3], given[5], causal, found), BOUND),
        call=ours,
        # Five products of length x length x dim for each head.
        work=10.0 * batch * heads * length**2 * dim * (0.5 if causal else 1.0),
        baseline=Baseline(causal),
        wanted=0.9,
    )


def rows(small):
    """The sizes of the table, or a small one."""
    return [
        row(*size, dim, causal)
        for size in ([(1, 1, 200)] if small else SIZES)
        for dim in (128, 64)
        for causal in (False, True)
    ]


if __name__ == "__main__":
    main(__doc__, rows)
