"""RMSNorm or LayerNorm of a sum with a residual, and its gradients: rows stay in registers, so that
each tensor is read and written once. Check them against float64 autograd.

Runs on the GPU if there is one, else in the emulator, which needs none.
"""

import argparse

import torch

import tilelang
import tilelang.language as T

EPSILON = 1e-6


def processors():
    """Multiprocessors of the GPU; a few blocks where there is none."""
    if not torch.cuda.is_available():
        return 4
    return torch.cuda.get_device_properties().multi_processor_count


@tilelang.jit
def forward(N, centred=False, dtype=T.bfloat16, block_M=1, threads=256):
    """Of X and Residual (rows, N): their sum, that normalised times W plus Bias (N,), and of each
    row the mean and 1 / sqrt(variance + epsilon). RMSNorm, without `centred`, takes 0 for the mean
    and the mean square for the variance, and no Bias."""
    rows = T.dynamic("rows")

    @T.prim_func
    def main(
        X: T.Tensor((rows, N), dtype),
        Residual: T.Tensor((rows, N), dtype),
        W: T.Tensor((N,), dtype),
        Bias: T.Tensor((N,), dtype),
    ):
        Sum, Y = T.empty((rows, N), dtype), T.empty((rows, N), dtype)
        Mean, Scale = T.empty((rows,), T.float32), T.empty((rows,), T.float32)
        with T.Kernel(T.ceildiv(rows, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, N), dtype)
            residual = T.alloc_fragment((block_M, N), dtype)
            square = T.alloc_fragment((block_M, N), T.float32)
            mean = T.alloc_fragment((block_M,), T.float32)
            scale = T.alloc_fragment((block_M,), T.float32)

            T.copy(X[bx * block_M, 0], x)
            T.copy(Residual[bx * block_M, 0], residual)
            for i, j in T.Parallel(block_M, N):
                # What is normalised is what is stored, rounded.
                x[i, j] = T.cast(x[i, j], T.float32) + T.cast(residual[i, j], T.float32)
            T.copy(x, Sum[bx * block_M, 0])
            T.clear(mean)
            if centred:
                T.copy(x, square)
                T.reduce_sum(square, mean, dim=1)
                for i in T.Parallel(block_M):
                    mean[i] = mean[i] / N
            for i, j in T.Parallel(block_M, N):
                difference = T.cast(x[i, j], T.float32) - mean[i]
                square[i, j] = difference * difference
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + EPSILON)
            for i, j in T.Parallel(block_M, N):
                square[i, j] = (T.cast(x[i, j], T.float32) - mean[i]) * scale[i] * W[j]
                if centred:
                    square[i, j] += Bias[j]
            T.copy(square, Y[bx * block_M, 0])
            T.copy(mean, Mean[bx * block_M])
            T.copy(scale, Scale[bx * block_M])
        return Sum, Y, Mean, Scale

    return main


@tilelang.jit
def backward(N, blocks, centred=False, dtype=T.bfloat16, num_stages=2, threads=256):
    """Of dY, and of dSum, what comes from other users of the sum: dX, which is the residual's
    gradient, too; in float32 dW and dBias of the rows of each block, (2, blocks, N). A block goes
    through every `blocks`-th row and keeps its sums in registers; the next rows arrive meanwhile.

    With y = (x - mean) * scale: dx = scale * (g - mean(g) - y * mean(g * y)), g = dY * W; RMSNorm
    has no mean(g)."""
    rows = T.dynamic("rows")

    @T.prim_func
    def main(
        Sum: T.Tensor((rows, N), dtype),
        W: T.Tensor((N,), dtype),
        Mean: T.Tensor((rows,), T.float32),
        Scale: T.Tensor((rows,), T.float32),
        dY: T.Tensor((rows, N), dtype),
        dSum: T.Tensor((rows, N), dtype),
    ):
        dX, sums = T.empty((rows, N), dtype), T.empty((2, blocks, N), T.float32)
        with T.Kernel(blocks, threads=threads) as bx:
            x_shared = T.alloc_shared((N,), dtype)
            gradient_shared = T.alloc_shared((N,), dtype)
            other_shared = T.alloc_shared((N,), dtype)
            x = T.alloc_fragment((N,), dtype)
            gradient = T.alloc_fragment((N,), dtype)
            other = T.alloc_fragment((N,), dtype)
            weight = T.alloc_fragment((N,), dtype)
            product = T.alloc_fragment((N,), T.float32)
            weight_sum = T.alloc_fragment((N,), T.float32)
            bias_sum = T.alloc_fragment((N,), T.float32)
            along = T.alloc_fragment((1,), T.float32)
            average = T.alloc_fragment((1,), T.float32)

            T.copy(W, weight)
            T.clear(weight_sum)
            T.clear(bias_sum)
            T.clear(average)
            for step in T.Pipelined(T.ceildiv(rows - bx, blocks), num_stages=num_stages):
                row = step * blocks + bx
                T.copy(Sum[row, :], x_shared)
                T.copy(dY[row, :], gradient_shared)
                T.copy(dSum[row, :], other_shared)
                T.copy(x_shared, x)
                T.copy(gradient_shared, gradient)
                T.copy(other_shared, other)
                mean, scale = Mean[row], Scale[row]
                for j in T.Parallel(N):
                    y = (T.cast(x[j], T.float32) - mean) * scale
                    weight_sum[j] += gradient[j] * y
                    product[j] = gradient[j] * weight[j] * y
                T.reduce_sum(product, along, dim=0)
                if centred:
                    for j in T.Parallel(N):
                        bias_sum[j] += gradient[j]
                        product[j] = T.cast(gradient[j], T.float32) * weight[j]
                    T.reduce_sum(product, average, dim=0)
                for j in T.Parallel(N):
                    y = (T.cast(x[j], T.float32) - mean) * scale
                    g = T.cast(gradient[j], T.float32) * weight[j]
                    product[j] = scale * (g - average[0] / N - y * (along[0] / N)) + other[j]
                T.copy(product, dX[row, :])
            T.copy(weight_sum, sums[0, bx, :])
            T.copy(bias_sum, sums[1, bx, :])
        return dX, sums

    return main


@tilelang.jit(out_idx=[-1])
def column_sums(blocks, N, dtype=T.bfloat16, block_N=32, threads=128):
    """The sums over blocks of (2, blocks, N), in `dtype`, in the same order each time."""
    step = threads // 4

    @T.prim_func
    def main(sums: T.Tensor((2, blocks, N), T.float32), total: T.Tensor((2, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), 2, threads=threads) as (bx, by):
            part = T.alloc_fragment((step, block_N), T.float32)
            added = T.alloc_fragment((block_N,), T.float32)
            T.clear(part)
            for k in T.serial(T.ceildiv(blocks, step)):
                for i, j in T.Parallel(step, block_N):
                    if k * step + i < blocks and bx * block_N + j < N:
                        part[i, j] += sums[by, k * step + i, bx * block_N + j]
            T.reduce_sum(part, added, dim=0)
            T.copy(added, total[by, bx * block_N])

    return main


def gradients(saved, w, d_y, d_sum, centred=False, **tile):
    """dX, dW and dBias; `saved` are the sum, means and scales of the forward pass."""
    total, mean, scale = saved
    blocks, N = 2 * processors(), total.shape[1]
    d_x, sums = backward(N, blocks, centred, **tile)(total, w, mean, scale, d_y, d_sum)
    d_w, d_bias = column_sums(blocks, N)(sums)
    return d_x, d_w, d_bias


def reference(x, residual, w, bias, centred):
    """The sum and the normalised sum in float64."""
    total = x.double() + residual.double()
    mean = total.mean(1, keepdim=True) if centred else 0
    variance = ((total - mean) ** 2).mean(1, keepdim=True)
    y = (total - mean) * torch.rsqrt(variance + EPSILON) * w.double()
    return total, y + bias.double() if centred else y


def inputs(rows, N, device="cpu"):
    """X, the residual, W, the bias, and the gradients of the normalised sum and of the sum."""
    shapes = [(rows, N), (rows, N), (N,), (N,), (rows, N), (rows, N)]
    return [torch.randn(shape, device=device).bfloat16() for shape in shapes]


def relative_error(rows, N, centred, device="cpu"):
    """The largest of ||ours - float64|| / ||float64|| of all results."""
    torch.manual_seed(0)
    *tensors, d_y, d_sum = inputs(rows, N, device)
    total, y, *statistics = forward(N, centred)(*tensors)
    d_x, d_w, d_bias = gradients((total, *statistics), tensors[2], d_y, d_sum, centred)
    leaves = [x.double().requires_grad_() for x in tensors]
    results = reference(*leaves, centred)
    wanted = torch.autograd.grad(results, leaves, (d_sum.double(), d_y.double()), allow_unused=True)
    pairs = [(total, results[0]), (y, results[1]), (d_x, wanted[0]), (d_w, wanted[2])]
    if centred:
        pairs.append((d_bias, wanted[3]))
    return max(float((a.double() - b.detach()).norm() / b.detach().norm()) for a, b in pairs)


if __name__ == "__main__":
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, nargs=2, default=[8192, 4096] if gpu else [21, 1000])
    rows, N = parser.parse_args().size
    for centred in (False, True):
        error = relative_error(rows, N, centred, "cuda" if gpu else "cpu")
        assert error < 8e-3, f"relative error {error:.1e}, wanted under 8e-3"
        name = "LayerNorm" if centred else "RMSNorm"
        print(f"{name} of {rows} x {N} and its gradients: relative error {error:.1e}")
