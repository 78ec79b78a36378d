"""T.reduce_* against numpy: every way that results come together, dtypes, memories."""

import ml_dtypes  # noqa: F401  (numpy learns bfloat16)
import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FLOATS = ("float16", "bfloat16", "float32", "float64")
NUMBERS = ("sum", "max", "min", "absmax", "abssum")
BITS = ("bitand", "bitor", "bitxor")


def random(shape, dtype):
    t = getattr(torch, dtype)
    if t == torch.bool:
        return torch.rand(shape, device=DEVICE) < 0.5
    if t.is_floating_point:
        return torch.randn(shape, device=DEVICE).to(t)
    info = torch.iinfo(t)
    low, high = max(info.min + 1, -(2**31)), min(info.max, 2**31)  # -info.min does not exist
    return torch.randint(low, high, shape, device=DEVICE, dtype=torch.int64).to(t)


def expected(op, x, dim):
    """The exact result, integers with their own wrap-around."""
    if op.startswith("bit"):
        function = {"bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor}[op]
        return torch.from_numpy(function.reduce(x.cpu().numpy(), axis=dim))
    wide = x.double() if x.dtype.is_floating_point else x.long()
    if op.startswith("abs"):
        wide = wide.abs()
    if op.endswith("sum"):
        return wide.sum(dim) if x.dtype.is_floating_point else wide.sum(dim).to(x.dtype)
    return wide.amin(dim) if op == "min" else wide.amax(dim)


def check(op, found, x, dim):
    wanted = expected(op, x, dim).to(found.device)
    if not (op.endswith("sum") and x.dtype.is_floating_point):
        assert torch.equal(found.to(wanted.dtype), wanted)
        return
    # Each of the n additions rounds a sum of about sqrt(n).
    n = x.shape[dim]
    size = x.double().abs().sum(dim) if op == "abssum" else n**0.5 * 3
    error = (found.double() - wanted).abs()
    assert bool((error <= torch.finfo(x.dtype).eps * (n**0.5 + 1) * size).all()), error.max()


def rows_and_columns(m, n, threads, dtype="float32"):
    @T.prim_func
    def main(
        A: T.Tensor((m, n), dtype),
        rows: T.Tensor((m,), dtype),
        columns: T.Tensor((1, n), dtype),
        every: T.Tensor((1,), dtype),
    ):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_fragment((m, n), dtype)
            row = T.alloc_fragment((m,), dtype)
            column = T.alloc_fragment((1, n), dtype)
            one = T.alloc_fragment((1,), dtype)
            T.copy(A, tile)
            T.reduce_sum(tile, row, dim=1)
            T.reduce_max(tile, column, dim=0)
            T.reduce_min(row, one)
            T.copy(row, rows)
            T.copy(column, columns)
            T.copy(one, every)

    return tilelang.compile(main)


@pytest.mark.parametrize(
    ("m", "n", "threads"),
    [
        (64, 128, 128),
        (64, 60, 128),
        (1, 1000, 128),
        (17, 3, 32),
        (100, 129, 256),
        (60, 1, 48),
        (3, 17, 96),
        (64, 128, 96),
        (8, 100, 33),
        # A lane for each of the parts that 16 or more warps have of a row.
        (1, 2048, 512),
        (3, 1000, 1024),
    ],
)
def test_rows_and_columns(m, n, threads):
    x = random((m, n), "float32")
    rows, columns, every = (torch.empty(s, device=DEVICE) for s in [(m,), (1, n), (1,)])
    rows_and_columns(m, n, threads)(x, rows, columns, every)
    check("sum", rows, x, 1)
    check("max", columns[0], x, 0)
    check("min", every[0], rows, 0)


def test_the_way_follows_the_source():
    source = rows_and_columns(64, 128, 128).get_kernel_source()
    assert "tl::AllReduce<tl::SumOp, 32, 1>" in source  # a warp has a row
    assert "column_parts" in source  # the rows of a column are in several warps
    assert "tile_rows" not in source
    # Three warps do not combine pairwise: columns are dealt to threads anew.
    assert "tile_rows" in rows_and_columns(64, 128, 96).get_kernel_source()


def test_lanes_take_the_parts_of_many_warps():
    """Else each thread reads 15 more parts, one after the other."""
    source = rows_and_columns(1, 2048, 512).get_kernel_source()
    assert "tl::AllReduce<tl::SumOp, 16, 1>(row_parts[tx % 16])" in source


def all_ops(ops, m, n, dtype, threads=64):
    @T.prim_func
    def main(A: T.Tensor((m, n), dtype), out: T.Tensor((len(ops), m), dtype)):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_fragment((m, n), dtype)
            T.copy(A, tile)
            for k, op in enumerate(ops):
                result = T.alloc_fragment((m,), dtype)
                T.reduce(tile, result, op, dim=-1)
                T.copy(result, out[k, 0])

    return tilelang.compile(main, out_idx=-1)


@pytest.mark.parametrize(
    ("dtype", "ops"),
    [(d, NUMBERS) for d in FLOATS]
    + [(d, NUMBERS + BITS) for d in ("int8", "int32", "int64", "uint8")]
    + [("bool", BITS)],
)
def test_every_dtype(dtype, ops):
    x = random((5, 100), dtype)
    found = all_ops(ops, 5, 100, dtype)(x)
    for op, result in zip(ops, found, strict=True):
        check(op, result, x, 1)


def test_a_result_that_is_kept():
    @T.prim_func
    def main(A: T.Tensor((20, 60), "float16"), out: T.Tensor((2, 20), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((20, 60), "float16")
            total = T.alloc_fragment((20,), "float32")
            top = T.alloc_fragment((20,), "float32")
            T.copy(A, tile)
            T.fill(total, 100)
            T.fill(top, 1)
            for _ in T.serial(3):
                T.reduce_sum(tile, total, clear=False, batch=2)
                T.reduce_max(tile, top, clear=False)
            T.copy(total, out[0, 0])
            T.copy(top, out[1, 0])

    x = random((20, 60), "float16")
    total, top = tilelang.compile(main, out_idx=-1)(x)
    torch.testing.assert_close(total.double(), 100 + 3 * x.double().sum(1), rtol=1e-6, atol=1e-4)
    assert torch.equal(top, x.float().amax(1).clamp(min=1))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_nan(dtype):
    @T.prim_func
    def main(A: T.Tensor((4, 64), dtype), out: T.Tensor((5, 4), dtype)):
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((4, 64), dtype)
            result = T.alloc_fragment((4,), dtype)
            T.copy(A, tile)
            T.reduce_max(tile, result)
            T.copy(result, out[0, 0])
            T.reduce_max(tile, result, nan_propagate=True)
            T.copy(result, out[1, 0])
            T.reduce_min(tile, result, nan_propagate=True)
            T.copy(result, out[2, 0])
            T.reduce_absmax(tile, result, nan_propagate=True)
            T.copy(result, out[3, 0])
            T.reduce_min(tile, result)
            T.copy(result, out[4, 0])

    x = random((4, 64), dtype)
    x[1, 63], x[2, 0], x[3] = float("nan"), float("nan"), float("nan")
    found = tilelang.compile(main, out_idx=-1)(x)
    assert found[1:4].isnan().tolist() == [[False, True, True, True]] * 3
    numbers = x.double().nan_to_num(float("-inf"))
    assert torch.equal(found[0, :3].double(), numbers.amax(1)[:3])
    numbers = x.double().nan_to_num(float("inf"))
    assert torch.equal(found[4, :3].double(), numbers.amin(1)[:3])


def test_shared_memory():
    @T.prim_func
    def main(A: T.Tensor((2, 12, 40), "float32"), out: T.Tensor((3, 12), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((2, 12, 40), "float32")
            fragment = T.alloc_fragment((12, 40), "float32")
            sums = T.alloc_shared((12,), "float32")
            row = T.alloc_fragment((12,), "float32")
            flat = T.alloc_shared((1, 12, 1), "float32")
            T.copy(A, tile)
            T.reduce_max(tile[0:1, 0:12, 0:40], flat, dim=2)
            T.copy(flat[0, 0:12, 0], out[0, 0:12])
            T.copy(A[1, 0:12, 0:40], fragment)
            T.fill(sums, 5)
            T.reduce_sum(fragment, sums, clear=False)
            T.copy(sums, out[1, 0])
            staged = T.alloc_shared((12, 40), "float32")
            T.copy(A[1, 0:12, 0:40], staged)
            T.reduce_abssum(staged, row)
            T.copy(row, out[2, 0])

    x = random((2, 12, 40), "float32")
    top, total, size = tilelang.compile(main, out_idx=-1)(x)
    check("max", top, x[0], 1)
    check("sum", total - 5, x[1], 1)
    check("abssum", size, x[1], 1)


def test_memory_of_a_thread():
    @T.prim_func
    def main(A: T.Tensor((32, 3, 4), "float32"), out: T.Tensor((32, 5), "float32")):
        with T.Kernel(1, threads=32):
            t = T.get_thread_binding()
            own = T.alloc_local((3, 4), "float32")
            row = T.alloc_local((3,), "float32")
            column = T.alloc_local((1, 4), "float32")
            total = T.alloc_var("float32", 1.0)
            for i in T.serial(3):
                for j in T.serial(4):
                    own[i, j] = A[t, i, j]
            T.reduce_max(own, row, dim=1)
            T.reduce_sum(own, column, dim=0)
            T.reduce_sum(row, total, clear=False)
            for j in T.serial(4):
                out[t, j] = column[0, j]
            out[t, 4] = total

    x = random((32, 3, 4), "float32")
    found = tilelang.compile(main, out_idx=-1)(x)
    torch.testing.assert_close(found[:, :4], x.sum(1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[:, 4], 1 + x.amax(2).sum(1), rtol=1e-6, atol=1e-6)


def attention(n, d, causal, block=64, threads=128):
    """One head: rows of scores are reduced on a tensor core's accumulator, block by block."""

    @T.prim_func
    def main(
        Q: T.Tensor((n, d), "float16"),
        K: T.Tensor((n, d), "float16"),
        V: T.Tensor((n, d), "float16"),
        O: T.Tensor((n, d), "float32"),  # noqa: E741
    ):
        with T.Kernel(T.ceildiv(n, block), threads=threads) as bx:
            q, k, v = (T.alloc_shared((block, d), "float16") for _ in range(3))
            p = T.alloc_shared((block, block), "float16")
            scores = T.alloc_fragment((block, block), "float32")
            out = T.alloc_fragment((block, d), "float32")
            top, before, scale, total, block_total = (
                T.alloc_fragment((block,), "float32") for _ in range(5)
            )
            T.copy(Q[bx * block, 0], q)
            T.clear(out)
            T.clear(total)
            T.fill(top, -T.infinity("float32"))
            for step in T.Pipelined(bx + 1 if causal else T.ceildiv(n, block), num_stages=0):
                T.copy(K[step * block, 0], k)
                T.copy(V[step * block, 0], v)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block, block):
                    visible = step * block + j < n and (
                        not causal or step * block + j <= bx * block + i
                    )
                    scores[i, j] = T.if_then_else(
                        visible, scores[i, j] * (d**-0.5 * 1.44269504), -1e30
                    )
                T.copy(top, before)
                T.reduce_max(scores, top, dim=1, clear=False)
                for i in T.Parallel(block):
                    scale[i] = T.exp2(before[i] - top[i])
                for i, j in T.Parallel(block, block):
                    scores[i, j] = T.exp2(scores[i, j] - top[i])
                T.reduce_sum(scores, block_total, dim=1)
                for i in T.Parallel(block):
                    total[i] = total[i] * scale[i] + block_total[i]
                for i, j in T.Parallel(block, d):
                    out[i, j] = out[i, j] * scale[i]
                T.copy(scores, p)
                T.gemm(p, v, out)
            for i, j in T.Parallel(block, d):
                out[i, j] = out[i, j] / total[i]
            T.copy(out, O[bx * block, 0])

    return main


@pytest.mark.parametrize(("n", "causal"), [(128, True), (200, False)])
def test_attention(n, causal):
    q, k, v = (random((n, 64), "float16") for _ in range(3))
    kernel = tilelang.compile(attention(n, 64, causal), out_idx=-1)
    wanted = torch.nn.functional.scaled_dot_product_attention(
        *(t.double() for t in (q, k, v)), is_causal=causal
    )
    error = (kernel(q, k, v).double() - wanted).abs().max()
    assert error < 2e-3, error  # weights round to float16
    assert "tl::AllReduce<tl::MaxOp, 4, 1>" in kernel.get_kernel_source()


@pytest.mark.parametrize("threads", [64, 128])
def test_parts_of_fragments(threads, device):
    """Parts that begin at numbers and where a tensor says, from and to parts."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 96), "float32"),
        at: T.Tensor((2,), "int32"),
        B: T.Tensor((4, 64), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            F, G = T.alloc_fragment((64, 96), "float32"), T.alloc_fragment((64,), "float32")
            T.copy(A, F)
            T.reduce_max(F[:, 32:64], G, dim=1)
            T.copy(G, B[0, :])
            T.reduce_sum(F[at[0] : at[0] + 20, 96 - 64 :], G, dim=0)
            T.copy(G, B[1, :])
            T.reduce_min(F[8:40, at[1] : at[1] + 7], G[at[0] : at[0] + 32], dim=1, clear=False)
            T.copy(G, B[2, :])
            T.reduce_absmax(F[5:6, 0:64], G[63:64], dim=1)
            T.copy(G, B[3, :])

    a = torch.randint(-50, 50, (64, 96), device=device).float()
    b = torch.full((4, 64), float("nan"), device=device)
    tilelang.compile(main)(a, torch.tensor([9, 33], dtype=torch.int32, device=device), b)
    total = a[9:29, 32:].sum(0)
    least = total.clone()
    least[9:41] = torch.minimum(total[9:41], a[8:40, 33:40].amin(1))
    largest = least.clone()
    largest[63] = a[5, :64].abs().max()
    assert torch.equal(b, torch.stack([a[:, 32:64].amax(1), total, least, largest]))


@pytest.mark.parametrize("threads", [32, 64, 160])
def test_a_loop_goes_on_by_a_result(threads, device):
    """All threads have it, so that barriers may stand in a loop or a branch that asks for it."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), steps: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=threads):
            S, F = T.alloc_shared((64,), "int32"), T.alloc_fragment((64,), "int32")
            most, count = T.alloc_fragment((1,), "int32"), T.alloc_var("int32", 0)
            T.copy(A, S)
            most[0] = 1
            while most[0] > 0:
                for i in T.Parallel(64):
                    F[i] = S[(i + 1) % 64]
                T.reduce_max(F, most)
                if most[0] > 2:
                    for i in T.Parallel(64):
                        S[i] = F[i] - 2
                else:
                    for i in T.Parallel(64):
                        S[i] = F[i] - 1
                count += 1
            steps[0] = count

    a = torch.arange(-10, 54, dtype=torch.int32, device=device)
    steps = torch.zeros(1, dtype=torch.int32, device=device)
    tilelang.compile(main)(a, steps)
    assert steps.item() == 28  # 53, 51, .. 3, 1, 0
