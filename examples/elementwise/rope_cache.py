"""Rotary positions (RoFormer, Su et al. 2021) of new queries and keys; keys and values are written
to the pages of a cache. Check it against float64.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T


@tilelang.jit
def rope_cache(heads, key_heads, dim, page, dtype=T.bfloat16, threads=64):
    """Of each token a row of QKV (tokens, heads + 2 key_heads, dim). Q and K are rotated by the
    angles of the token's row of `Positions`: element d of a head turns with element d + dim / 2 by
    the angle whose cosine and sine are in Angles (positions, dim), one behind the other. Q is
    returned; K and V go to row `Slots` of the pages of K_cache and V_cache (pages, page, key_heads,
    dim), unless that is negative."""
    tokens, positions, pages = T.dynamic("tokens, positions, pages")
    half, both = dim // 2, heads + key_heads

    @T.prim_func
    def main(
        QKV: T.Tensor((tokens, heads + 2 * key_heads, dim), dtype),
        Angles: T.Tensor((positions, dim), T.float32),
        Positions: T.Tensor((tokens,), T.int32),
        Slots: T.Tensor((tokens,), T.int32),
        K_cache: T.Tensor((pages, page, key_heads, dim), dtype),
        V_cache: T.Tensor((pages, page, key_heads, dim), dtype),
    ):
        Q = T.empty((tokens, heads, dim), dtype)
        with T.Kernel(tokens, threads=threads) as token:
            left = T.alloc_fragment((both, half), dtype)
            right = T.alloc_fragment((both, half), dtype)
            place, slot = Positions[token], Slots[token]
            for h, d in T.Parallel(both, half):
                x = T.cast(QKV[token, h, d], T.float32)
                y = T.cast(QKV[token, h, d + half], T.float32)
                cosine, sine = Angles[place, d], Angles[place, d + half]
                left[h, d] = x * cosine - y * sine
                right[h, d] = y * cosine + x * sine
            T.copy(left[:heads, :], Q[token, :, :half])
            T.copy(right[:heads, :], Q[token, :, half:])
            if slot >= 0:
                T.copy(left[heads:, :], K_cache[slot // page, slot % page, :, :half])
                T.copy(right[heads:, :], K_cache[slot // page, slot % page, :, half:])
                for h, d in T.Parallel(key_heads, dim):
                    V_cache[slot // page, slot % page, h, d] = QKV[token, both + h, d]
        return Q

    return main


def angles(positions, dim, base=10000.0, device="cpu"):
    """Cosines and sines of all positions, (positions, dim)."""
    frequency = base ** (-torch.arange(0, dim, 2, device=device, dtype=torch.float64) / dim)
    angle = torch.arange(positions, device=device)[:, None] * frequency
    return torch.cat((angle.cos(), angle.sin()), dim=1).float()


def inputs(tokens, heads, key_heads, dim, page, longest=4096, device="cpu"):
    """Q, K and V of tokens, angles, positions, slots, and two caches. Of each eight tokens one is
    not to be kept."""
    pages = -(-tokens // page) + 1
    qkv = torch.randn(tokens, heads + 2 * key_heads, dim, device=device).bfloat16()
    positions = torch.randint(longest, (tokens,), device=device).int()
    slots = torch.randperm(pages * page, device=device)[:tokens].int()
    slots[::8] = -1
    caches = [torch.zeros(pages, page, key_heads, dim, device=device).bfloat16() for _ in range(2)]
    return qkv, angles(longest, dim, device=device), positions, slots, *caches


def reference(qkv, table, positions, slots, k_cache, v_cache):
    """Q and the caches, in float64."""
    heads, half = qkv.shape[1] - 2 * k_cache.shape[2], qkv.shape[2] // 2
    x, (cosine, sine) = qkv.double(), table.double()[positions.long(), None].chunk(2, dim=2)
    left, right = x[..., :half], x[..., half:]
    turned = torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=2)
    both, kept = heads + k_cache.shape[2], slots >= 0
    caches = []
    for cache, new in ((k_cache, turned[:, heads:both]), (v_cache, x[:, both:])):
        caches.append(cache.double().clone())
        caches[-1].flatten(0, 1)[slots[kept].long()] = new[kept]
    return turned[:, :heads], *caches


def relative_error(tokens, heads, key_heads, dim, page, device="cpu"):
    """The largest of ||ours - reference|| / ||reference|| of Q and the caches."""
    torch.manual_seed(0)
    tensors = inputs(tokens, heads, key_heads, dim, page, device=device)
    wanted = reference(*tensors)
    q = rope_cache(heads, key_heads, dim, page)(*tensors)
    found = (q, *tensors[-2:])
    return max(
        float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)
    )


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=8192 if gpu else 11)
    parser.add_argument("--heads", type=int, nargs=2, default=[32, 8] if gpu else [6, 2])
    parser.add_argument("--dim", type=int, default=128 if gpu else 64, help="of a head")
    arguments = parser.parse_args()
    error = relative_error(
        *(arguments.tokens, *arguments.heads, arguments.dim, 16, "cuda" if gpu else "cpu")
    )
    assert error < 4e-3, f"relative error {error:.1e}, wanted under 4e-3"
    print(f"{arguments.tokens} tokens: relative error {error:.1e}")
