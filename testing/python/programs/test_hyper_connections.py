"""Manifold-constrained hyper-connections (Xie et al. 2025): a token's hidden state is `STREAMS`
streams. Its RMS norm and a product give the weights of the streams; those among the streams are
made doubly stochastic by Sinkhorn and Knopp's iterations, in registers."""

import pytest
import torch

import tilelang
import tilelang.language as T

STREAMS, STEPS, EPS = 4, 5, 1e-6
WEIGHTS = STREAMS * (STREAMS + 2)


def pre(hidden, tokens=64, step=32, threads=128, num_stages=2):
    """Weights of the streams from the state, then the layer's input: the streams' weighted sum. The
    product is one of tf32, which has all bits of X and 10 of the mantissas of W."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        W: T.Tensor((32, STREAMS * hidden), "float32"),
        Bias: T.Tensor((32,), "float32"),
        Layer: T.Tensor((length, hidden), "bfloat16"),
        Post: T.Tensor((length, STREAMS), "float32"),
        Mix: T.Tensor((length, STREAMS, STREAMS), "float32"),
    ):
        with T.Kernel(T.ceildiv(length, tokens), threads=threads) as bx:
            x = T.alloc_shared((tokens, step), "bfloat16")
            x32 = T.alloc_fragment((tokens, step), "float32")
            w = T.alloc_shared((32, step), "float32")
            squares = T.alloc_fragment((tokens, step), "float32")
            square = T.alloc_fragment((tokens,), "float32")
            weights = T.alloc_fragment((tokens, 32), "float32")
            weights_shared = T.alloc_shared((tokens, 32), "float32")
            mix = T.alloc_fragment((tokens, STREAMS, STREAMS), "float32")
            rows = T.alloc_fragment((tokens, STREAMS), "float32")
            columns = T.alloc_fragment((tokens, STREAMS), "float32")
            gate = T.alloc_fragment((tokens, STREAMS), "float32")
            layer = T.alloc_fragment((tokens, step), "float32")
            flat = T.view(X, (length, STREAMS * hidden))
            T.clear(weights)
            T.clear(squares)
            for k in T.Pipelined(STREAMS * hidden // step, num_stages=num_stages):
                T.copy(flat[bx * tokens, k * step], x)
                T.copy(W[0, k * step], w)
                T.copy(x, x32)
                for i, j in T.Parallel(tokens, step):
                    squares[i, j] += x32[i, j] * x32[i, j]
                T.gemm(x32, w, weights, transpose_B=True, annotations={"allow_tf32": True})
            T.reduce_sum(squares, square, dim=1)
            for i, j in T.Parallel(tokens, 32):
                weights[i, j] = (
                    weights[i, j] * T.rsqrt(square[i] / (STREAMS * hidden) + EPS) + Bias[j]
                )
            T.copy(weights, weights_shared)
            for i, s in T.Parallel(tokens, STREAMS):
                gate[i, s] = T.sigmoid(weights_shared[i, s])
            for i, s in T.Parallel(tokens, STREAMS):
                if bx * tokens + i < length:
                    Post[bx * tokens + i, s] = 2 * T.sigmoid(weights_shared[i, STREAMS + s])
            # A matrix with rows and columns of sum 1.
            for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
                mix[i, s, t] = weights_shared[i, 2 * STREAMS + s * STREAMS + t]
            T.reduce_max(mix, rows, dim=2)
            for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
                mix[i, s, t] = T.exp(mix[i, s, t] - rows[i, s])
            for _ in T.serial(STEPS):
                T.reduce_sum(mix, rows, dim=2)
                for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
                    mix[i, s, t] = mix[i, s, t] / (rows[i, s] + EPS)
                T.reduce_sum(mix, columns, dim=1)
                for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
                    mix[i, s, t] = mix[i, s, t] / (columns[i, t] + EPS)
            T.copy(mix, Mix[bx * tokens, 0, 0])
            for k in T.serial(T.ceildiv(hidden, step)):
                T.clear(layer)
                for s in T.unroll(STREAMS):
                    for i, j in T.Parallel(tokens, step):
                        layer[i, j] += gate[i, s] * X[bx * tokens + i, s, k * step + j]
                T.copy(layer, Layer[bx * tokens, k * step])

    return main


def post(hidden, step=64, threads=64):
    """A block has a token: the streams are mixed, and the layer's result is added to each."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        Result: T.Tensor((length, hidden), "bfloat16"),
        Post: T.Tensor((length, STREAMS), "float32"),
        Mix: T.Tensor((length, STREAMS, STREAMS), "float32"),
        Out: T.Tensor((length, STREAMS, hidden), "bfloat16"),
    ):
        with T.Kernel(length, threads=threads) as token:
            x = T.alloc_fragment((STREAMS, step), "float32")
            result = T.alloc_fragment((step,), "float32")
            mix = T.alloc_fragment((STREAMS, STREAMS), "float32")
            gate = T.alloc_fragment((STREAMS,), "float32")
            out = T.alloc_fragment((STREAMS, step), "float32")
            T.copy(Mix[token, 0, 0], mix)
            T.copy(Post[token, 0], gate)
            for k in T.Pipelined(T.ceildiv(hidden, step), num_stages=1):
                T.copy(X[token, :, k * step : (k + 1) * step], x)
                T.copy(Result[token, k * step : (k + 1) * step], result)
                for s, j in T.Parallel(STREAMS, step):
                    out[s, j] = gate[s] * result[j]
                    for t in T.serial(STREAMS):
                        out[s, j] += mix[s, t] * x[t, j]
                T.copy(out, Out[token, :, k * step : (k + 1) * step])

    return main


def reference(x, w, bias):
    flat = x.double().reshape(len(x), -1)
    weights = flat @ w.double().T * (flat.square().mean(1, keepdim=True) + EPS).rsqrt()
    weights = weights + bias.double()
    gate = weights[:, :STREAMS].sigmoid()
    gate_back = 2 * weights[:, STREAMS : 2 * STREAMS].sigmoid()
    mix = weights[:, 2 * STREAMS : WEIGHTS].reshape(-1, STREAMS, STREAMS)
    mix = (mix - mix.amax(2, keepdim=True)).exp()
    for _ in range(STEPS):
        mix = mix / (mix.sum(2, keepdim=True) + EPS)
        mix = mix / (mix.sum(1, keepdim=True) + EPS)
    return torch.einsum("is,isj->ij", gate, x.double()), gate_back, mix


def reference_post(x, layer, gate, mix):
    wanted = torch.einsum("ist,itj->isj", mix.double(), x.double())
    return wanted + gate.double()[:, :, None] * layer.double()[:, None]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch):
    hidden, length = 72, 19
    before, after = (
        tilelang.compile(p(hidden), execution_backend="auto", target=f"cuda -arch={arch}")
        for p in (pre, post)
    )
    x = torch.randn(length, STREAMS, hidden, device=device).bfloat16()
    w = torch.randn(32, STREAMS * hidden, device=device) / 16
    bias = torch.randn(32, device=device)
    nan = {"fill_value": torch.nan, "device": device}
    layer = torch.full((length, hidden), dtype=torch.bfloat16, **nan)
    gate, mix = torch.full((length, STREAMS), **nan), torch.full((length, STREAMS, STREAMS), **nan)
    before(x, w, bias, layer, gate, mix)
    wanted = reference(x, w, bias)
    torch.testing.assert_close(gate.double(), wanted[1], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(mix.double(), wanted[2], rtol=2e-3, atol=2e-3)
    torch.testing.assert_close(layer.double(), wanted[0], rtol=1e-2, atol=1e-2)
    out = torch.full((length, STREAMS, hidden), dtype=torch.bfloat16, **nan)
    after(x, layer, gate, mix, out)
    wanted = reference_post(x, layer, gate, mix)
    torch.testing.assert_close(out.double(), wanted, rtol=1e-2, atol=1e-2)
