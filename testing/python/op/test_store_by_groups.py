"""Epilogues of roles with several warp groups: each stores its own, and waits for no other."""

import pytest
import torch

import tilelang
import tilelang.language as T

SM90 = {"kind": "cuda", "arch": "sm_90a"}
ROWS, COLUMNS, DEPTH = 128, 64, 128


def products(store, times=1, policy=T.GemmWarpPolicy.FullRow, rows=ROWS, width=COLUMNS):
    """C of A @ B, whose tile is made `times` over, with a factor, and stored as `store` does."""

    @T.prim_func
    def main(
        A: T.Tensor((ROWS, DEPTH), "float16"),
        B: T.Tensor((DEPTH, COLUMNS), "float16"),
        C: T.Tensor((rows, width), "float16"),
    ):
        with T.Kernel(1, threads=256):
            A_shared = T.alloc_shared((ROWS, 64), "float16")
            B_shared = T.alloc_shared((64, COLUMNS), "float16")
            S = T.alloc_shared((ROWS, COLUMNS), "float16")
            acc = T.alloc_fragment((ROWS, COLUMNS), "float32")
            for t in T.serial(times):
                T.clear(acc)
                for k in T.Pipelined(DEPTH // 64, num_stages=2):
                    T.copy(A[0, k * 64], A_shared)
                    T.copy(B[k * 64, 0], B_shared)
                    T.gemm(A_shared, B_shared, acc, policy=policy)
                for i, j in T.Parallel(ROWS, COLUMNS):
                    acc[i, j] = acc[i, j] * (t + 1)
                T.copy(acc, S)
                store(S, C, t)

    return main, (rows, width)


def run(program):
    """The source of a kernel, A @ B and C."""
    func, shape = program
    kernel = tilelang.compile(func, target=SM90, execution_backend="emulate")
    torch.manual_seed(0)
    a, b = torch.randn(ROWS, DEPTH).half(), torch.randn(DEPTH, COLUMNS).half()
    c = torch.zeros(shape, dtype=torch.float16)
    kernel(a, b, c)
    return kernel.get_kernel_source(), a.float() @ b.float(), c.float()


def assert_apart(source, stores=1):
    """No barrier of both consumer groups."""
    assert source.count("tl::tma_store<") == stores
    assert "tl::sync_threads_partial(tx / 128 + 2, 128)" in source
    assert ", 256)" not in source
    assert "shuffle_elect<256>" not in source


def close(found, wanted):
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-2)


@T.macro
def store_tile(S, C, t):
    T.copy(S, C[t * ROWS, 0])


@pytest.mark.parametrize("times", [1, 3])
def test_groups_store_their_rows(times):
    source, product, c = run(products(store_tile, times, rows=times * ROWS))
    assert_apart(source)
    close(c, torch.cat([product * (t + 1) for t in range(times)]))


@T.macro
def store_boxes(S, C, t):
    """Rows of the accumulator, under two indices."""
    T.copy(T.reshape(S, (ROWS // 8, 8, COLUMNS)), T.reshape(C, (ROWS // 8, 8, COLUMNS)))


def test_groups_store_their_outer_rows():
    source, product, c = run(products(store_boxes, 2))
    assert_apart(source)
    close(c, product * 2)


def test_groups_that_have_columns_meet():
    source, product, c = run(products(store_tile, policy=T.GemmWarpPolicy.FullCol))
    assert source.count("tl::sync_threads_partial(3, 256)") == 1
    close(c, product)


@T.macro
def store_lower(S, C, t):
    T.copy(S, C[t * (ROWS // 2), 0])


def test_rows_that_groups_take_turns_at_are_stored_by_one_thread():
    """The second tile's upper rows are the first one's lower ones: the later store stays."""
    source, product, c = run(products(store_lower, 2, rows=ROWS + ROWS // 2))
    assert "shuffle_elect<256>" in source
    wanted = torch.cat([product, torch.zeros(ROWS // 2, COLUMNS)])
    wanted[ROWS // 2 :] = product * 2
    close(c, wanted)


@T.macro
def store_twice(S, C, t):
    T.copy(S, C[0, 0])
    T.copy(S, C[0, COLUMNS])


def test_several_stores_of_the_same_rows():
    source, product, c = run(products(store_twice, 2, width=2 * COLUMNS))
    assert_apart(source, stores=2)
    close(c, torch.cat([product * 2] * 2, dim=1))


@T.macro
def store_shifted(S, C, t):
    T.copy(S, C[0, 0])
    T.copy(S, C[ROWS // 2, 0])


def test_several_stores_of_other_rows():
    """Rows 64 to 127 are of the first store's lower and of the second one's upper half."""
    source, product, c = run(products(store_shifted, rows=ROWS + ROWS // 2))
    assert source.count("shuffle_elect<256>") == 2
    wanted = torch.cat([product, torch.zeros(ROWS // 2, COLUMNS)])
    wanted[ROWS // 2 :] = product
    close(c, wanted)


@T.macro
def store_some(S, C, t):
    for i, j in T.Parallel(ROWS, COLUMNS):
        if i < 100:
            C[i, j] = S[i, j]


def test_a_dealt_loop_goes_by_groups():
    source, product, c = run(products(store_some))
    assert_apart(source, stores=0)
    product[100:] = 0
    close(c, product)


@T.macro
def store_transposed(S, C, t):
    for i, j in T.Parallel(COLUMNS, ROWS):
        C[i, j] = S[j, i]


def test_a_loop_over_other_groups_rows_meets():
    source, product, c = run(products(store_transposed, rows=COLUMNS, width=ROWS))
    assert source.count("tl::sync_threads_partial(3, 256)") == 1
    close(c, product.T)
