"""Manifold-constrained hyper-connections (Xie et al. 2025): a token's hidden state is `STREAMS`
streams. Its RMS norm and a product give the weights of the streams; those among the streams are
made doubly stochastic by Sinkhorn and Knopp's iterations, in registers. What is before a layer,
what is behind it, and both gradients. Check them against float64 autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

STREAMS, STEPS, EPS = 4, 5, 1e-6
WEIGHTS = STREAMS * (STREAMS + 2)


@T.macro
def balance(weights, mix, rows, columns, sums):
    """Sinkhorn and Knopp's iterations: a matrix of each token from its weights, with rows and
    columns of sum 1. `sums` (2, STEPS, tokens, STREAMS) gets what they were divided by."""
    tokens = mix.shape[0]
    for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
        mix[i, s, t] = weights[i, 2 * STREAMS + s * STREAMS + t]
    T.reduce_max(mix, rows, dim=2)
    for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
        mix[i, s, t] = T.exp(mix[i, s, t] - rows[i, s])
    for n in T.serial(STEPS):
        T.reduce_sum(mix, rows, dim=2)
        for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
            mix[i, s, t] = mix[i, s, t] / (rows[i, s] + EPS)
        T.reduce_sum(mix, columns, dim=1)
        for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
            mix[i, s, t] = mix[i, s, t] / (columns[i, t] + EPS)
        if sums is not None:
            T.copy(rows, sums[0, n, :, :])
            T.copy(columns, sums[1, n, :, :])


@T.macro
def balance_backward(mix, slope, rows, columns, sums):
    """`slope`, the gradient of the balanced matrix, becomes that of the weights; `mix` becomes what
    it was before. A sum that divides takes back what its row or column has gained."""
    tokens = mix.shape[0]
    product = T.alloc_fragment(mix.shape, "float32")
    for n in T.serial(STEPS):
        for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
            product[i, s, t] = slope[i, s, t] * mix[i, s, t]
        T.reduce_sum(product, columns, dim=1)
        for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
            divisor = sums[1, STEPS - 1 - n, i, t] + EPS
            slope[i, s, t] = (slope[i, s, t] - columns[i, t]) / divisor
            mix[i, s, t] *= divisor
        for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
            product[i, s, t] = slope[i, s, t] * mix[i, s, t]
        T.reduce_sum(product, rows, dim=2)
        for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
            divisor = sums[0, STEPS - 1 - n, i, s] + EPS
            slope[i, s, t] = (slope[i, s, t] - rows[i, s]) / divisor
            mix[i, s, t] *= divisor
    for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
        slope[i, s, t] *= mix[i, s, t]


def pre(hidden, tokens=64, step=32, threads=128, num_stages=2):
    """Weights of the streams from the state X (length, STREAMS, hidden), then the layer's input:
    the streams' weighted sum. The product with W (32, STREAMS * hidden) is one of tf32, which has
    all bits of X and 10 of the mantissas of W. It is Products, (length, 32), and Scale, (length,),
    is the norm's: gradients are computed from these."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        W: T.Tensor((32, STREAMS * hidden), "float32"),
        Bias: T.Tensor((32,), "float32"),
        Layer: T.Tensor((length, hidden), "bfloat16"),
        Post: T.Tensor((length, STREAMS), "float32"),
        Mix: T.Tensor((length, STREAMS, STREAMS), "float32"),
        Products: T.Tensor((length, 32), "float32"),
        Scale: T.Tensor((length,), "float32"),
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
            T.copy(weights, Products[bx * tokens, 0])
            for i in T.Parallel(tokens):
                square[i] = T.rsqrt(square[i] / (STREAMS * hidden) + EPS)
            T.copy(square, Scale[bx * tokens])
            for i, j in T.Parallel(tokens, 32):
                weights[i, j] = weights[i, j] * square[i] + Bias[j]
            T.copy(weights, weights_shared)
            for i, s in T.Parallel(tokens, STREAMS):
                gate[i, s] = T.sigmoid(weights_shared[i, s])
            for i, s in T.Parallel(tokens, STREAMS):
                if bx * tokens + i < length:
                    Post[bx * tokens + i, s] = 2 * T.sigmoid(weights_shared[i, STREAMS + s])
            balance(weights_shared, mix, rows, columns, None)
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


def post_backward(hidden, step=64):
    """Gradients of the streams, the layer's result, Post and Mix, from dOut, that of the result of
    `post`. A block has a token."""
    # Their sums over a row are in registers: 20 for each element of a step.
    threads = max(step // 4, 64)
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        Result: T.Tensor((length, hidden), "bfloat16"),
        Post: T.Tensor((length, STREAMS), "float32"),
        Mix: T.Tensor((length, STREAMS, STREAMS), "float32"),
        dOut: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        dX: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        dResult: T.Tensor((length, hidden), "bfloat16"),
        dPost: T.Tensor((length, STREAMS), "float32"),
        dMix: T.Tensor((length, STREAMS, STREAMS), "float32"),
    ):
        with T.Kernel(length, threads=threads) as token:
            x = T.alloc_fragment((STREAMS, step), "float32")
            d_out = T.alloc_fragment((STREAMS, step), "float32")
            result = T.alloc_fragment((step,), "float32")
            mix = T.alloc_fragment((STREAMS, STREAMS), "float32")
            gate = T.alloc_fragment((STREAMS,), "float32")
            d_x = T.alloc_fragment((STREAMS, step), "float32")
            d_result = T.alloc_fragment((step,), "float32")
            of_mix = T.alloc_fragment((STREAMS, STREAMS, step), "float32")
            of_gate = T.alloc_fragment((STREAMS, step), "float32")
            d_mix = T.alloc_fragment((STREAMS, STREAMS), "float32")
            d_gate = T.alloc_fragment((STREAMS,), "float32")
            T.copy(Mix[token, 0, 0], mix)
            T.copy(Post[token, 0], gate)
            T.clear(of_mix)
            T.clear(of_gate)
            for k in T.serial(T.ceildiv(hidden, step)):
                here = slice(k * step, (k + 1) * step)
                T.copy(X[token, :, here], x)
                T.copy(Result[token, here], result)
                T.copy(dOut[token, :, here], d_out)
                for t, j in T.Parallel(STREAMS, step):
                    d_x[t, j] = 0
                    for s in T.serial(STREAMS):
                        d_x[t, j] += mix[s, t] * d_out[s, j]
                for j in T.Parallel(step):
                    d_result[j] = 0
                    for s in T.serial(STREAMS):
                        d_result[j] += gate[s] * d_out[s, j]
                for s, t, j in T.Parallel(STREAMS, STREAMS, step):
                    of_mix[s, t, j] += d_out[s, j] * x[t, j]
                for s, j in T.Parallel(STREAMS, step):
                    of_gate[s, j] += d_out[s, j] * result[j]
                T.copy(d_x, dX[token, :, here])
                T.copy(d_result, dResult[token, here])
            T.reduce_sum(of_mix, d_mix, dim=2)
            T.reduce_sum(of_gate, d_gate, dim=1)
            T.copy(d_mix, dMix[token, 0, 0])
            T.copy(d_gate, dPost[token, 0])

    return main


@T.macro
def slopes_of(weights, gate, d_gate, d_mix, dPost, first, slopes):
    """The gradients of a token's 24 weights: of its gates, `gate`, from theirs, of its shares of
    the result from dPost, and of its balanced matrix from d_mix."""
    (tokens, _), length = gate.shape, dPost.shape[0]
    T.clear(slopes)
    for i, s in T.Parallel(tokens, STREAMS):
        gate[i, s] = T.sigmoid(weights[i, s])
        slopes[i, s] = d_gate[i, s] * gate[i, s] * (1 - gate[i, s])
    for i, s in T.Parallel(tokens, STREAMS):
        share = T.sigmoid(weights[i, STREAMS + s])
        slopes[i, STREAMS + s] = T.if_then_else(
            first + i < length, dPost[first + i, s] * 2 * share * (1 - share), 0
        )
    for i, s, t in T.Parallel(tokens, STREAMS, STREAMS):
        slopes[i, 2 * STREAMS + s * STREAMS + t] = d_mix[i, s, t]


@T.macro
def gate_slopes(X, dLayer, first, partial, d_gate):
    """The gradients of the streams' gates: products of the streams and the layer's input."""
    (tokens, _, step), hidden = partial.shape, X.shape[2]
    T.clear(partial)
    for k in T.serial(T.ceildiv(hidden, step)):
        for i, s, j in T.Parallel(tokens, STREAMS, step):
            if k * step + j < hidden:
                x = T.cast(X[first + i, s, k * step + j], "float32")
                partial[i, s, j] += x * dLayer[first + i, k * step + j]
    T.reduce_sum(partial, d_gate, dim=2)


def pre_backward(hidden, tokens=64, step=32, threads=128, num_stages=2):
    """Gradients of `pre`: of the streams, added to Grad, which `post_backward` found; of the
    products with W, in bfloat16; and of Bias, added to dBias."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        W: T.Tensor((32, STREAMS * hidden), "float32"),
        Bias: T.Tensor((32,), "float32"),
        Products: T.Tensor((length, 32), "float32"),
        Scale: T.Tensor((length,), "float32"),
        dLayer: T.Tensor((length, hidden), "bfloat16"),
        dPost: T.Tensor((length, STREAMS), "float32"),
        dMix: T.Tensor((length, STREAMS, STREAMS), "float32"),
        Grad: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        dX: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        dProducts: T.Tensor((length, 32), "bfloat16"),
        dBias: T.Tensor((32,), "float32"),
    ):
        with T.Kernel(T.ceildiv(length, tokens), threads=threads) as bx:
            w = T.alloc_shared((32, step), "float32")
            weights = T.alloc_shared((tokens, 32), "float32")
            sums = T.alloc_shared((2, STEPS, tokens, STREAMS), "float32")
            slopes_shared = T.alloc_shared((tokens, 32), "float32")
            products = T.alloc_fragment((tokens, 32), "float32")
            slopes = T.alloc_fragment((tokens, 32), "float32")
            scale = T.alloc_fragment((tokens,), "float32")
            of_scale = T.alloc_fragment((tokens,), "float32")
            bias = T.alloc_fragment((32,), "float32")
            mix = T.alloc_fragment((tokens, STREAMS, STREAMS), "float32")
            d_mix = T.alloc_fragment((tokens, STREAMS, STREAMS), "float32")
            rows = T.alloc_fragment((tokens, STREAMS), "float32")
            columns = T.alloc_fragment((tokens, STREAMS), "float32")
            d_gate = T.alloc_fragment((tokens, STREAMS), "float32")
            gate = T.alloc_fragment((tokens, STREAMS), "float32")
            partial = T.alloc_fragment((tokens, STREAMS, step), "float32")
            d_x = T.alloc_fragment((tokens, step), "float32")
            first = bx * tokens
            T.copy(Products[first, 0], products)
            T.copy(Scale[first], scale)
            for i, j in T.Parallel(tokens, 32):
                weights[i, j] = products[i, j] * scale[i] + Bias[j]
            gate_slopes(X, dLayer, first, partial, d_gate)
            T.copy(dMix[first, 0, 0], d_mix)
            balance(weights, mix, rows, columns, sums)
            balance_backward(mix, d_mix, rows, columns, sums)
            slopes_of(weights, gate, d_gate, d_mix, dPost, first, slopes_shared)
            T.copy(slopes_shared, slopes)
            T.reduce_sum(slopes, bias, dim=0)
            for j in T.Parallel(32):
                T.atomic_add(dBias[j], bias[j])
            # The norm's: d scale / d x = -scale^3 x / (STREAMS * hidden).
            for i, j in T.Parallel(tokens, 32):
                products[i, j] *= slopes[i, j]
            T.reduce_sum(products, of_scale, dim=1)
            for i in T.Parallel(tokens):
                of_scale[i] *= -scale[i] * scale[i] * scale[i] / (STREAMS * hidden)
            for i, j in T.Parallel(tokens, 32):
                slopes[i, j] *= scale[i]
            T.copy(slopes, slopes_shared)
            T.copy(slopes, dProducts[first, 0])
            for s in T.serial(STREAMS):
                for k in T.Pipelined(T.ceildiv(hidden, step), num_stages=num_stages):
                    T.copy(W[0, s * hidden + k * step], w)
                    T.gemm(
                        *(slopes_shared, w, d_x),
                        clear_accum=True,
                        annotations={"allow_tf32": True},
                    )
                    for i, j in T.Parallel(tokens, step):
                        if first + i < length and k * step + j < hidden:
                            d_x[i, j] += (
                                Grad[first + i, s, k * step + j]
                                + T.sigmoid(weights[i, s]) * dLayer[first + i, k * step + j]
                                + of_scale[i] * X[first + i, s, k * step + j]
                            )
                    T.copy(d_x, dX[first : first + tokens, s, k * step : (k + 1) * step])

    return main


def weights_backward(hidden, tokens=64, columns=64, splits=4, threads=128, num_stages=2):
    """The gradient of W, which is added to dW: that of the products, transposed, times the streams.
    `splits` blocks share the tokens."""
    length = T.dynamic("length")

    @T.prim_func
    def main(
        X: T.Tensor((length, STREAMS, hidden), "bfloat16"),
        dProducts: T.Tensor((length, 32), "bfloat16"),
        dW: T.Tensor((32, STREAMS * hidden), "float32"),
    ):
        with T.Kernel(T.ceildiv(STREAMS * hidden, columns), splits, threads=threads) as (bx, by):
            x = T.alloc_shared((tokens, columns), "bfloat16")
            slopes = T.alloc_shared((tokens, 32), "bfloat16")
            d_w = T.alloc_fragment((columns, 32), "float32")
            flat = T.view(X, (length, STREAMS * hidden))
            T.clear(d_w)
            share = T.ceildiv(T.ceildiv(length, tokens), splits)
            for n in T.Pipelined(share, num_stages=num_stages):
                T.copy(flat[(by * share + n) * tokens, bx * columns], x)
                T.copy(dProducts[(by * share + n) * tokens, 0], slopes)
                T.gemm(x, slopes, d_w, transpose_A=True)
            for i, j in T.Parallel(columns, 32):
                if bx * columns + i < STREAMS * hidden:
                    T.atomic_add(dW[j, bx * columns + i], d_w[i, j])

    return main


def reference(x, w, bias):
    """The layer's input, Post and Mix in float64."""
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
    """The streams behind the layer in float64."""
    wanted = torch.einsum("ist,itj->isj", mix.double(), x.double())
    return wanted + gate.double()[:, :, None] * layer.double()[:, None]


def forward(x, w, bias, tile=None):
    """The layer's input, Post, Mix, and what gradients need."""
    (length, _, hidden), device = x.shape, x.device
    layer = torch.empty(length, hidden, dtype=x.dtype, device=device)
    shapes = (length, STREAMS), (length, STREAMS, STREAMS), (length, 32), (length,)
    results = [layer, *(torch.empty(shape, device=device) for shape in shapes)]
    tilelang.compile(pre(hidden, **tile or {}))(x, w, bias, *results)
    return results


def backward(x, w, bias, result, saved, d_out, d_layer_of, tile=None, step=64):
    """Gradients of the streams, W, Bias and the layer's result. `saved` is what `forward` has made,
    but for its first; `d_layer_of` makes of the gradient of the layer's result that of its
    input."""
    length, _, hidden = x.shape
    gate, mix, products, scale = saved
    grad, d_result = torch.empty_like(x), torch.empty_like(result)
    d_gate, d_mix = torch.empty_like(gate), torch.empty_like(mix)
    kernel = tilelang.compile(post_backward(hidden, step))
    kernel(x, result, gate, mix, d_out, grad, d_result, d_gate, d_mix)
    d_x, d_w, d_bias = torch.empty_like(x), torch.zeros_like(w), torch.zeros_like(bias)
    d_products = torch.empty(length, 32, dtype=x.dtype, device=x.device)
    kernel = tilelang.compile(pre_backward(hidden, **tile or {}))
    of_layer = d_layer_of(d_result)
    kernel(*(x, w, bias, products, scale, of_layer, d_gate, d_mix, grad, d_x, d_products, d_bias))
    tilelang.compile(weights_backward(hidden))(x, d_products, d_w)
    return d_x, d_w, d_bias, d_result


def inputs(length, hidden, device="cpu"):
    """The streams, weights, of which the last eight are zero, and biases."""
    x = torch.randn(length, STREAMS, hidden, device=device).bfloat16()
    w = torch.randn(32, STREAMS * hidden, device=device) / hidden**0.5
    bias = torch.randn(32, device=device)
    w[WEIGHTS:], bias[WEIGHTS:] = 0, 0
    return x, w, bias


def relative_error(length, hidden, device="cpu", tile=None, step=64):
    """The largest of ||ours - float64|| / ||float64|| of the result and the gradients, where the
    layer in between is a factor for each channel."""
    torch.manual_seed(0)
    x, w, bias = inputs(length, hidden, device)
    layer = 1 + torch.rand(hidden, device=device).bfloat16()
    read, *saved = forward(x, w, bias, tile)
    result, out = read * layer, torch.empty_like(x)
    tilelang.compile(post(hidden, step))(x, result, *saved[:2], out)
    d_out = torch.randn_like(out)
    found = backward(x, w, bias, result, saved, d_out, lambda d: d * layer, tile, step)[:3]
    leaves = [t.double().requires_grad_() for t in (x, w, bias)]
    layer_input, gate, mix = reference(*leaves)
    wanted = reference_post(leaves[0], layer_input * layer.double(), gate, mix)
    slopes = torch.autograd.grad(wanted, leaves, d_out.double())
    pairs = zip((out, *found), (wanted.detach(), *slopes), strict=True)
    return max(float((a.double() - b).norm() / b.norm()) for a, b in pairs)


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=[4096, 4096] if gpu else [19, 72])
    length, hidden = parser.parse_args().size
    error = relative_error(
        *(length, hidden, "cuda" if gpu else "cpu"),
        {"step": 64} if gpu else None,
        512 if gpu else 64,
    )
    assert error < 1e-2, f"relative error {error:.1e}, wanted under 1e-2"
    print(f"{length} x {STREAMS} x {hidden}: relative error {error:.1e}")
