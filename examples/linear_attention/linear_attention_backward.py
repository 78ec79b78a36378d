"""The gradients of linear attention and of retention. Each is linear attention itself, of other
tensors, in the order of the rows or in the reverse one. Check them against float64 autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch
from linear_attention import decays, inputs, linear_attention, reference

# With O[i] = sum over j <= i of (q[i] . k[j]) v[j], a sum that is linear in each of q, k and v:
#   dQ[i] = sum over j <= i of (dO[i] . v[j]) k[j],
#   dV[j] = sum over i >= j of (k[j] . q[i]) dO[i],
#   dK[j] = sum over i >= j of (v[j] . dO[i]) q[i],
# each term times the decay from j to i. What the last two have as states at the end comes back in
# front: the gradient of the initial state.


def backward(q, k, v, initial, d_out, d_state, retention=False, **tile):
    """dQ, dK, dV and the gradient of the initial state, (batch, heads, dim, value_dim) in float32.
    `d_state` is the gradient of the state at the end."""
    batch, length, heads, dim = q.shape
    value_dim, scale = v.shape[3], dim**-0.5
    options = {"retention": retention, "scale": scale, **tile}
    of_values = linear_attention(batch, heads, length, value_dim, dim, **options)
    d_q, _ = of_values(d_out, v, k, initial.transpose(2, 3).contiguous())
    # The reverse order begins behind the end, a row after the state at the end.
    decay = decays(heads, retention, q.device)[:, None, None].float()
    behind = d_state / (scale * decay)
    kernel = linear_attention(batch, heads, length, dim, value_dim, reverse=True, **options)
    d_v, before = kernel(k, q, d_out, behind)
    kernel = linear_attention(batch, heads, length, value_dim, dim, reverse=True, **options)
    d_k, _ = kernel(v, d_out, q, behind.transpose(2, 3).contiguous())
    return d_q, d_k, d_v, before * scale * decay


def relative_error(batch, heads, length, dim, value_dim, retention, device="cpu", **tile):
    """The largest of ||ours - float64|| / ||float64|| of the gradients."""
    torch.manual_seed(0)
    tensors = inputs(batch, heads, length, dim, value_dim, device)
    d_out, d_state = torch.randn_like(tensors[2]), torch.randn_like(tensors[3])
    found = backward(*tensors, d_out, d_state, retention, **tile)
    leaves = [x.double().requires_grad_() for x in tensors]
    results = reference(*leaves, retention)
    wanted = torch.autograd.grad(results, leaves, (d_out.double(), d_state.double()))
    return max(
        float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)
    )


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--length", type=int, default=4096 if gpu else 100, help="positions")
    length = parser.parse_args().length
    batch, heads, dim, value_dim = (4, 16, 64, 128) if gpu else (1, 2, 32, 64)
    for retention in (False, True):
        error = relative_error(
            *(batch, heads, length, dim, value_dim, retention, "cuda" if gpu else "cpu")
        )
        assert error < 8e-3, f"relative error {error:.1e}, wanted under 8e-3"
        name = "retention" if retention else "linear attention"
        print(f"{name}, {batch} x {length} x {heads} x {dim}: relative error {error:.1e}")
