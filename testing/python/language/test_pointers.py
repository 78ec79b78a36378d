"""Tensors at addresses: tables of pointers, several tensors at one pointer, errors."""

import pytest
import torch

import tilelang
import tilelang.language as T


@pytest.mark.usefixtures("tensors_on_device")
def test_tensors_of_a_table_of_addresses_have_sizes_of_the_run():
    @tilelang.jit
    def double(
        table: T.Tensor[[int], T.ptr],
        sizes: T.Tensor[[int], T.int32],
        out: T.Tensor[[int, int], T.float32],
    ):
        n, m = out.shape
        with T.Kernel(2, threads=64) as bx:
            for t in T.serial(T.ceildiv(n, 2)):
                if t * 2 + bx < n:
                    X = T.make_tensor_from_addr(table[t * 2 + bx], (sizes[t * 2 + bx],), T.float32)
                    tile = T.alloc_shared((m,), T.float32)
                    T.copy(X[0], tile)
                    for i in T.Parallel(m):
                        out[t * 2 + bx, i] = tile[i] * 2

    tensors = [torch.randn(n) for n in (64, 30, 1)]
    table = torch.tensor([x.data_ptr() for x in tensors])
    sizes = torch.tensor([len(x) for x in tensors], dtype=torch.int32)
    out = torch.ones(3, 64)
    double(table, sizes, out)
    for x, found in zip(tensors, out, strict=True):
        assert torch.equal(found[: len(x)], 2 * x)
        assert not found[len(x) :].any()
    assert double.compile(table, sizes, out).cubin.startswith(b"\x7fELF")


@pytest.mark.usefixtures("tensors_on_device")
def test_a_pointer_has_several_tensors():
    @tilelang.jit
    def truncate(A: T.ptr, n: T.int32):
        X = T.make_tensor(A, (n,), T.float32)
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            Y = T.make_tensor(A, (n,), T.int32)
            for i in T.Parallel(64):
                Y[bx * 64 + i] = T.cast(X[bx * 64 + i], T.int32)

    a = torch.arange(100) + 0.5
    truncate(a, 100)
    assert a.view(torch.int32).tolist() == list(range(100))


@pytest.mark.usefixtures("tensors_on_device")
def test_a_pointer_that_nothing_is_at_is_a_parameter_still():
    @T.prim_func
    def main(A: T.ptr, B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = i

    b = torch.zeros(32)
    tilelang.compile(main)(0, b)
    assert b.tolist() == list(range(32))


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        ("T.make_tensor(A, (4,))", TypeError, "found the buffer A .*wanted a parameter annotated"),
        ("T.make_tensor(1.5, (4,))", TypeError, "wanted a parameter annotated T.ptr or an integer"),
        ("T.match_buffer(n, (4,))", TypeError, "wanted a parameter annotated T.ptr"),
        ("T.make_tensor_from_addr(n, (4,), storage_scope='shared')", ValueError, "'shared'"),
        ("[T.make_tensor(n, (4,)) for _ in T.Parallel(4)]", TypeError, "iterable"),
        ("T.ptr(T.float32, 'shared')", ValueError, "wanted 'global'"),
    ],
)
def test_refused(trace, statement, error, words):
    with pytest.raises(error, match=words):
        trace(statement)


@pytest.mark.parametrize("loop", ["T.Parallel(4)", "T.Pipelined(4)", "T.unroll(4)"])
def test_an_address_is_not_taken_in_a_loop_that_is_taken_apart(loop):
    frames = {"T.Parallel(4)": T.Parallel, "T.Pipelined(4)": T.Pipelined, "T.unroll(4)": T.unroll}

    with pytest.raises(ValueError, match="which the compiler takes apart; put it before"):

        @T.prim_func
        def main(table: T.Tensor((4,), T.ptr)):
            with T.Kernel(1, threads=32):
                for i in frames[loop](4):
                    T.make_tensor_from_addr(table[i], (4,), T.float32)[0] = 1


def test_a_second_tensor_is_in_a_kernel():
    with pytest.raises(ValueError, match="is outside of a kernel"):

        @T.prim_func
        def main(A: T.ptr):
            T.make_tensor(A, (4,))
            T.make_tensor(A, (4,), T.int32)


def test_the_dtype_of_an_address_is_int64():
    assert T.dtype(T.ptr) == T.dtype(T.ptr(T.float16)) == T.int64
