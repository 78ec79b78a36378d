"""``T.reshape`` and ``T.view`` in every memory, across layouts, pipelines and dtypes."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def numbers(*shape):
    return torch.randn(*shape, device=DEVICE)


def test_global_views_are_bounded_by_their_own_shape():
    @T.prim_func
    def main(A: T.Tensor((60, 100), "float32"), B: T.Tensor((64, 40), "float32"), n: T.int32):
        with T.Kernel(1, threads=96):
            V = T.reshape(A, (200, 30))
            W = T.view(B, (2560,), "int32")
            S = T.alloc_shared((64, 40), "float32")
            T.copy(V[150:214, 0:40], S)
            for i in T.Parallel(2560):
                W[i] = T.reinterpret(S[i // 40, i % 40], "int32")

    a, b = numbers(60, 100), numbers(64, 40)
    tilelang.compile(main)(a, b, 0)
    wanted = torch.zeros(64, 40, device=DEVICE)
    wanted[:50, :30] = a.reshape(200, 30)[150:]
    assert torch.equal(b, wanted)


def test_global_view_of_a_symbolic_shape():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 12), "int32"), B: T.Tensor((n, 3, 4), "int32")):
        with T.Kernel(n, threads=32) as bx:
            V = T.reshape(A, (n, 3, 4))
            for i, j in T.Parallel(3, 4):
                B[bx, i, j] = V[bx, i, j] + 1

    a = torch.arange(60, dtype=torch.int32, device=DEVICE).reshape(5, 12)
    b = torch.zeros(5, 3, 4, dtype=torch.int32, device=DEVICE)
    tilelang.compile(main)(a, b)
    assert torch.equal(b, a.reshape(5, 3, 4) + 1)


def view_of(extents, shape):
    """The program of a large tensor and its last element under another shape."""

    @T.prim_func
    def main(A: T.Tensor(extents, "float16"), B: T.Tensor((1,), "float16")):
        with T.Kernel(1, threads=32):
            V = T.reshape(A, shape)
            B[0] = V[tuple(extent - 1 for extent in shape)]

    return main


def test_a_tensor_may_have_more_bits_than_32_bits_count():
    source = tilelang.lower(view_of((8000, 128, 256), (1024000, 256))).kernel_source
    assert "A[262143999]" in source
    # 2^32 bits for each n, which are none in 32 bits.
    n = T.dynamic("n")
    tilelang.lower(view_of((n, 16384, 16384), (n * 16384, 16384)))
    with pytest.raises(AssertionError, match="wanted 4294967296 "):
        view_of((n, 16384, 16384), (n, 16384, 32768))


@pytest.mark.parametrize("memory", ["shared", "fragment"])
@pytest.mark.parametrize(
    ("dtype", "shape"), [("float32", (100, 60)), ("float32", (6000,)), ("int16", (60, 200))]
)
def test_tiles(memory, dtype, shape):
    @T.prim_func
    def main(A: T.Tensor((60, 100), "float32"), B: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=128):
            S = getattr(T, f"alloc_{memory}")((60, 100), "float32")
            V = T.view(S, shape, dtype)
            T.copy(A, S)
            T.copy(V, B)

    a = numbers(60, 100)
    b = torch.zeros(shape, dtype=getattr(torch, dtype), device=DEVICE)
    tilelang.compile(main)(a, b)
    assert torch.equal(b.view(torch.int32).flatten(), a.view(torch.int32).flatten())


def test_bytes_of_a_thread_and_of_a_wider_type():
    @T.prim_func
    def main(
        A: T.Tensor((128,), "int32"), B: T.Tensor((128, 4), "uint8"), C: T.Tensor((64,), "int64")
    ):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            word = T.alloc_local((1,), "int32")
            parts = T.view(word, dtype="uint8")
            S = T.alloc_shared((128,), "int32")
            pairs = T.view(S, dtype="int64")
            word[0] = A[tx]
            for k in T.serial(4):
                B[tx, k] = parts[k]
            T.copy(A, S)
            T.copy(pairs, C)

    a = torch.randint(-(2**31), 2**31 - 1, (128,), dtype=torch.int32, device=DEVICE)
    b = torch.zeros(128, 4, dtype=torch.uint8, device=DEVICE)
    c = torch.zeros(64, dtype=torch.int64, device=DEVICE)
    kernel = tilelang.compile(main)
    kernel(a, b, c)
    assert torch.equal(b, a.view(torch.uint8).reshape(128, 4))
    assert torch.equal(c, a.view(torch.int64))
    assert "auto parts = tl::view<uint8_t>(&word);" in kernel.get_kernel_source()


@pytest.mark.parametrize("stages", [0, 2, 3])
def test_gemm_on_views_of_pipelined_tiles(stages):
    @T.prim_func
    def main(
        A: T.Tensor((64, 160), "float16"),
        B: T.Tensor((160, 64), "float16"),
        C: T.Tensor((4096,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            raw = T.alloc_shared((64 * 32,), "float16")
            A_shared = T.reshape(raw, (64, 32))
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for k in T.Pipelined(5, num_stages=stages):
                T.copy(A[0, k * 32], A_shared)
                T.copy(B[k * 32, 0], B_shared)
                T.gemm(T.reshape(raw, (64, 32)), B_shared, C_local)
            flat = T.reshape(C_local, (4096,))
            T.copy(flat, C)

    a, b = numbers(64, 160).half(), numbers(160, 64).half()
    c = torch.zeros(4096, device=DEVICE)
    kernel = tilelang.compile(main)
    kernel(a, b, c)
    wanted = (a.double() @ b.double()).flatten()
    assert torch.allclose(c.double(), wanted, atol=1e-3)
    # The view carries the gemm's swizzle, and the pipeline's versions.
    assert "^" in kernel.get_kernel_source()
    assert ("cp_async_gs" in kernel.get_kernel_source()) == (stages > 0)


def test_a_barrier_stands_between_two_names_of_one_memory():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            S = T.alloc_shared((128,), "int32")
            V = T.view(S, dtype="float32")
            S[tx] = A[tx]
            B[tx] = V[127 - tx]

    a, b = numbers(128).view(torch.int32), torch.zeros(128, device=DEVICE)
    kernel = tilelang.compile(main)
    kernel(a, b)
    assert kernel.get_kernel_source().count("__syncthreads") == 1
    assert torch.equal(b, a.view(torch.float32).flip(0))


def test_elements_of_one_name_are_compared():
    """A view was one element to the barriers: an update under a condition was refused."""

    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "int32")
            V = T.view(S, (16, 16), "uint8")
            T.copy(A, S)
            for i, j in T.Parallel(16, 16):
                if V[i, j] > 100:
                    V[i, j] = V[i, j] // 2
            T.copy(S, B)

    a = torch.randint(-(2**31), 2**31 - 1, (64,), dtype=torch.int32, device=DEVICE)
    b = torch.zeros_like(a)
    kernel = tilelang.compile(main)
    kernel(a, b)
    parts = a.view(torch.uint8)
    assert torch.equal(b.view(torch.uint8), torch.where(parts > 100, parts // 2, parts))
    # A thread's bytes are those of the word that it copies, where threads copy.
    assert "__syncthreads" not in tilelang.lower(main, target="cuda -arch=sm_80").kernel_source


@pytest.mark.parametrize("dtype", ["uint32", "int16", "uint64"])
def test_elements_of_two_names_are_compared(dtype):
    """Elements of two names were compared by shape and dtype alone: where one thread reads by one
    name and writes by the other under a condition, no place for a barrier was found."""
    shape = (16, 32 if dtype == "int16" else 16 if dtype == "uint32" else 8)

    @T.prim_func
    def main(A: T.Tensor((16, 16), "int32"), B: T.Tensor((16, 16), "int32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            S = T.alloc_shared((16, 16), "int32")
            V = T.view(S, shape, dtype)
            for k in T.serial(2):
                for c in T.vectorized(2):
                    S[8 * k + tx // 8, tx % 8 * 2 + c] = A[8 * k + tx // 8, tx % 8 * 2 + c]
            if S[tx // 8, tx % 8 * 2] > 0:
                for c in T.serial(2 * shape[1] // 16):
                    V[tx // 8, tx % 8 * (2 * shape[1] // 16) + c] = T.cast(c + 1, dtype)
            for k in T.serial(2):
                for c in T.vectorized(2):
                    B[8 * k + tx // 8, tx % 8 * 2 + c] = S[8 * k + tx // 8, tx % 8 * 2 + c]

    a = torch.randint(-5, 5, (16, 16), dtype=torch.int32, device=DEVICE)
    b = torch.zeros_like(a)
    kernel = tilelang.compile(main)
    kernel(a, b)
    wanted = a.clone()
    signed = {"uint32": torch.int32, "uint64": torch.int64}.get(dtype, torch.int16)
    new = torch.arange(1, 2 * shape[1] // 16 + 1, device=DEVICE).to(signed).view(torch.int32)
    pairs = wanted[:8].view(8, 8, 2)
    pairs[:] = torch.where(pairs[..., :1] > 0, new, pairs)
    assert torch.equal(b, wanted)
    assert "__syncthreads" not in kernel.get_kernel_source()


def test_a_wider_name_that_other_threads_write_has_a_barrier():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32"), B: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            S = T.alloc_shared((128,), "int32")
            V = T.view(S, dtype="int64")
            S[tx] = A[tx]
            if tx < 64:
                V[tx] = V[tx] + 1
            B[tx] = S[tx]

    a = torch.randint(-5, 5, (128,), dtype=torch.int32, device=DEVICE)
    b = torch.zeros_like(a)
    kernel = tilelang.compile(main)
    kernel(a, b)
    assert torch.equal(b.view(torch.int64), a.view(torch.int64) + 1)
    assert kernel.get_kernel_source().count("__syncthreads") == 2


def test_memory_lives_as_long_as_its_last_name():
    @T.prim_func
    def main(
        A: T.Tensor((128,), "int32"),
        B: T.Tensor((128,), "float32"),
        C: T.Tensor((2, 128), "float32"),
    ):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            S, R = T.alloc_shared((128,), "int32"), T.alloc_shared((128,), "float32")
            V = T.view(S, dtype="float32")
            S[tx] = A[tx]
            R[tx] = B[tx]
            C[0, tx] = R[127 - tx]
            C[1, tx] = V[127 - tx]

    a, b, c = numbers(128).view(torch.int32), numbers(128), numbers(2, 128)
    tilelang.compile(main)(a, b, c)
    assert torch.equal(c, torch.stack([b.flip(0), a.view(torch.float32).flip(0)]))


def test_a_scattered_wide_element_is_refused():
    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 32), "int32"),
    ):
        with T.Kernel(1, threads=128):
            S, R = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, S)
            T.copy(B, R)
            T.gemm(S, R, F, clear_accum=True)
            # Eight 16-bit columns lie together under the swizzle, the product's pairs of columns in
            # one thread: quadruples do not.
            T.copy(T.view(F, (32, 32), "float32x4"), T.alloc_shared((32, 32), "float32x4"))

    with pytest.raises(ValueError, match="scatters the elements"):
        tilelang.compile(main)


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        ("T.reshape(A, (8, 15))", AssertionError, "^T.reshape/view shape check failed: found 3840"),
        ("T.view(A, (128,), 'float16')", AssertionError, "2048 bits as float16"),
        ("T.view(A[0:4, 0:16], (64,))", TypeError, "a whole buffer"),
        ("T.reshape(T.alloc_shared((8,), 'int8'), (n, 8 // n))", AssertionError, "found"),
        ("T.view(A, (8, 8), strides=(16, 3))", ValueError, "not certain to stay in the buffer A"),
        ("T.view(A, (8, 8), strides=(-1, 1))", ValueError, "wanted positive strides"),
        ("T.view(A, (8, 8), strides=(n, 1))", ValueError, "not certain to stay"),
        ("T.view(A, (8, 8), strides=(1,))", ValueError, "1 strides for 2 dimensions"),
        ("T.view(T.alloc_shared((8,), 'int8'), (4,), strides=(2,))", ValueError, "wanted global"),
    ],
)
def test_refused(trace, statement, error, words):
    with pytest.raises(error, match=words):
        trace(statement)


@pytest.mark.usefixtures("tensors_on_device")
def test_a_view_with_strides_is_a_transpose_or_leaves_elements_out():
    M, N = T.dynamic("M, N")

    @T.prim_func
    def main(A: T.Tensor((M, N), "float32"), B: T.Tensor((N, M), "float32")):
        with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
            At = T.view(A, (N, M), strides=(1, N))
            for i in T.Parallel(32):
                for j in T.serial(M):
                    B[bx * 32 + i, j] = At[bx * 32 + i, j]

    a, b = torch.randn(5, 40), torch.empty(40, 5)
    tilelang.compile(main)(a, b)
    assert torch.equal(b, a.T)


def test_a_strided_tensor_is_not_viewed():
    with pytest.raises(ValueError, match=r"strides \(128, 1\), wanted a contiguous"):

        @T.prim_func
        def main(A: T.StridedTensor((8, 64), (128, 1), "float32")):
            with T.Kernel(1, threads=32):
                T.reshape(A, (512,))


def test_a_view_that_nothing_uses_asks_for_no_layout():
    """Wide elements would have to lie in one thread, and the fastest reduction takes rows apart."""

    @T.prim_func
    def main(
        A: T.Tensor((32, 32), "int32"), B: T.Tensor((32,), "int32"), C: T.Tensor((1024,), "int32")
    ):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((32, 32), "int32")
            R = T.alloc_fragment((32,), "int32")
            wide = T.view(F, (512,), "int64")
            flat = T.view(wide, (1024,), "int32")
            T.copy(A, F)
            for i, j in T.Parallel(32, 32):
                F[i, j] = F[i, j] * 3
            T.reduce_sum(F, R, dim=0)
            T.copy(R, B)
            T.copy(flat, C)

    a = torch.randint(-9, 9, (32, 32), dtype=torch.int32, device=DEVICE)
    b = torch.zeros(32, dtype=torch.int32, device=DEVICE)
    c = torch.zeros(1024, dtype=torch.int32, device=DEVICE)
    tilelang.compile(main)(a, b, c)
    assert torch.equal(b, 3 * a.sum(0, dtype=torch.int32))
    assert torch.equal(c, 3 * a.flatten())


def test_a_view_may_be_used_by_its_layout_alone():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((4096,), "float16")
            rows = T.reshape(S, (64, 64))
            T.annotate_layout({rows: tilelang.layout.make_swizzled_layout(rows)})
            T.copy(T.reshape(A, (4096,)), S)
            T.copy(S, T.reshape(B, (4096,)))

    a, b = numbers(64, 64).half(), numbers(64, 64).half()
    tilelang.compile(main)(a, b)
    assert torch.equal(a, b)
