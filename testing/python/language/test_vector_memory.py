"""Wide loads and stores, bits of words, products of bytes."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def run(func, *args):
    kernel = tilelang.compile(func, out_idx=-1)
    return kernel(*[a.to(DEVICE) for a in args]).cpu()


@pytest.mark.parametrize("bits", [32, 64, 128, 256])
def test_words_through_global_and_shared_memory(bits):
    step = bits // 16
    load, store = getattr(T, f"ldg{bits}"), getattr(T, f"stg{bits}")
    shared = bits <= 128

    @T.prim_func
    def main(A: T.Tensor((32 * step,), "float16"), B: T.Tensor((32 * step,), "float16")):
        with T.Kernel(1, threads=32):
            t = T.get_thread_binding()
            S = T.alloc_shared((32 * step,), "float16")
            words = load(A[t * step], pred=t < 24)
            if shared:
                getattr(T, f"sts{bits}")(S[(31 - t) * step], words)
                store(B[t * step], getattr(T, f"lds{bits}")(S[t * step]), pred=t != 9)
            else:
                store(B[t * step], words, t != 9)

    a, out = torch.randn(32, step).half(), torch.zeros(32 * step).half().to(DEVICE)
    tilelang.compile(main)(a.flatten().to(DEVICE), out)
    wanted = torch.where(torch.arange(32)[:, None] < 24, a, 0)
    wanted = wanted.flip(0) if shared else wanted
    wanted[9] = 0
    assert torch.equal(out.cpu().view(32, step), wanted)


def test_read_only_loads_stay_in_bounds():
    @T.prim_func
    def main(A: T.Tensor((5, 9), "float16"), B: T.Tensor((3, 6, 16), "float16")):
        with T.Kernel(1, threads=32):
            T.annotate_safe_value({A: 2.0})
            for i, j in T.Parallel(6, 16):
                B[0, i, j] = T.__ldg(A[i, j])
                B[1, i, j] = T.__ldg(A, (i, j)) + T.float16(1)
                B[2, i, j] = A[i, j]

    a = torch.randn(5, 9).half()
    wanted = torch.full((6, 16), 2.0).half()
    wanted[:5, :9] = a
    assert torch.equal(run(main, a), torch.stack([wanted, wanted + 1, wanted]))


def prefetching(rows, columns):
    @T.prim_func
    def main(A: T.Tensor((rows, columns), "float16"), B: T.Tensor((rows, columns), "float16")):
        with T.Kernel(rows, threads=32) as row:
            if T.get_thread_binding() == 0:
                # Not at a multiple of 16 bytes, less than 16 of them, and none.
                T.prefetch_l2(A[row, 3], 2 * (columns - 3))
                T.prefetch_l2(A[row, 1], 14)
                T.prefetch_l2(A, row * 0)
            T.copy(A[row, 0:columns], B[row, 0:columns])

    return main


def test_prefetches_to_l2_change_nothing():
    a = torch.randn(5, 1001).half()
    assert torch.equal(run(prefetching(5, 1001), a), a)


@pytest.mark.parametrize(
    ("arch", "instruction"),
    [("sm_90a", "cp.async.bulk.prefetch.L2.global"), ("sm_80", "prefetch.global.L2")],
)
def test_prefetches_to_l2_are_instructions(arch, instruction):
    kernel = tilelang.compile(prefetching(5, 64), target=f"cuda -arch={arch}")
    assert instruction in kernel.ptx
    assert "const half_t* __restrict__ A" in kernel.get_kernel_source()


def test_prefetches_to_l2_are_of_global_memory():
    with pytest.raises(ValueError, match=r"prefetch_l2 found S in memory 'shared.*wanted global"):

        @T.prim_func
        def main():
            with T.Kernel(1, threads=32):
                S = T.alloc_shared((32,), "float16")
                T.prefetch_l2(S[0], 64)


def test_bits():
    masks = [0, 1, 0x80000000, 0b1011000, 0xFFFFFFFF]

    @T.prim_func
    def main(M: T.Tensor((5,), "uint32"), A: T.Tensor((6, 5), "int64")):
        with T.Kernel(1, threads=5):
            t = T.get_thread_binding()
            m = M[t]
            A[0, t] = T.cast(T.__ffs(m), "int64")
            A[1, t] = T.cast(T.__ffs(T.cast(m, "int64") << 20), "int64")
            A[2, t] = T.cast(T.__fns(m, 0, 2), "int64")
            A[3, t] = T.cast(T.__fns(m, 31, -1), "int64")
            A[4, t] = T.cast(T.__fns(m, 4, 0), "int64")
            A[5, t] = T.cast(T.__fns(m, 3, 1), "int64")

    none = 0xFFFFFFFF
    wanted = [
        [0, 1, 32, 4, 1],
        [0, 21, 52, 24, 21],
        [none, none, none, 4, 1],
        [none, 0, 31, 6, 31],
        [none, none, none, 4, 4],
        [none, none, 31, 3, 3],
    ]
    assert run(main, torch.tensor(masks, dtype=torch.uint32)).tolist() == wanted


def test_products_of_bytes():
    @T.prim_func
    def main(
        A: T.Tensor((32, 16), "int8"), B: T.Tensor((32, 16), "int8"), C: T.Tensor((32,), "int32")
    ):
        with T.Kernel(1, threads=32):
            t = T.get_thread_binding()
            a = T.alloc_local((16,), "int8")
            total = T.alloc_local((1,), "int32")
            total[0] = 7
            for k in T.vectorized(16):
                a[k] = A[t, k]
            for k in T.unroll(4):
                T.dp4a(a[4 * k], B[t, 4 * k], total)
            C[t] = total[0]

    a, b = (torch.randint(-128, 128, (32, 16), dtype=torch.int8) for _ in range(2))
    assert torch.equal(run(main, a, b), 7 + (a.int() * b.int()).sum(1, dtype=torch.int32))


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("T.lds32(A[0, 0])", ValueError, "T.lds32 found A in memory 'global', wanted shared"),
        ("T.stg64(A[0, 0], T.uint32(1))", TypeError, "wanted a uint32x2; T.reinterpret"),
        ("T.dp4a(A, B, A)", ValueError, "T.dp4a found A of dtype float32, wanted int8"),
        ("T.evaluate(T.__ldg(A))", TypeError, "without an index, wanted an element"),
        ("T.evaluate(T.__ffs(A[0, 0]))", TypeError, r"T.__ffs found .*, wanted one of int32"),
    ],
)
def test_errors(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(statement)
