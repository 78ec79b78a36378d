"""Reductions over threads in TVM's way, the barriers of its names, raw cp.async."""

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def emulated(program, **options):
    return tilelang.compile(program, target=HOPPER, execution_backend="emulate", **options)


def reduced(threads, dims, combine=lambda x, y: x + y, identity=0.0, dtype="float32"):
    """B[thread] = what the threads of its row, along `dims`, have together of A[thread]."""
    count = threads[0] * threads[1]

    @T.prim_func
    def main(A: T.Tensor((count,), dtype), B: T.Tensor((count,), dtype)):
        with T.Kernel(1, threads=threads):
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            me = ty * threads[0] + tx
            total = T.alloc_local((1,), dtype)
            with T.attr(
                T.comm_reducer(combine, [T.cast(identity, dtype)]),
                "reduce_scope",
                T.reinterpret(T.uint64(0), dtype="handle"),
            ):
                over = [T.get_thread_binding(d) for d in dims]
                T.evaluate(
                    T.tvm_thread_allreduce(
                        T.uint32(1), A[me], tx != 1, total[0], *over, dtype="handle"
                    )
                )
            B[me] = total[0]

    return main


@pytest.mark.parametrize(
    ("threads", "dims", "shuffles"),
    [((16, 8), [0], True), ((24, 4), [0], False), ((64, 2), [0], False), ((16, 6), [1], False)],
)
def test_threads_of_a_dimension_have_their_sum(threads, dims, shuffles):
    kernel = emulated(reduced(threads, dims))
    a = torch.randint(-8, 9, threads[::-1]).float()
    taken = a.clone()
    taken[:, 1] = 0  # the condition leaves out threads with tx == 1
    wanted = taken.sum(1 if dims == [0] else 0, keepdim=True).expand_as(a)
    b = torch.zeros(a.numel())
    kernel(a.reshape(-1), b)
    assert torch.equal(b.reshape(a.shape), wanted)
    assert ("shfl_xor" in kernel.get_kernel_source()) == shuffles


def test_all_threads_have_their_maximum():
    kernel = emulated(reduced((32, 3), [0, 1], T.max, -1000, "int32"))
    a = torch.randint(-900, 900, (96,), dtype=torch.int32)
    b = torch.zeros_like(a)
    kernel(a, b)
    assert b.eq(a.reshape(3, 32)[:, [0, *range(2, 32)]].max()).all()


def test_the_operation_is_anything_associative():
    kernel = emulated(reduced((8, 4), [0], lambda x, y: x * y % 97, 1, "int32"))
    a = torch.randint(1, 97, (4, 8), dtype=torch.int32)
    b = torch.zeros(32, dtype=torch.int32)
    kernel(a.reshape(-1), b)
    for row, found in zip(a.tolist(), b.reshape(4, 8).tolist(), strict=True):
        wanted = 1
        for x in (row[0], *row[2:]):
            wanted = wanted * x % 97
        assert found == [wanted] * 8


CALL = "T.tvm_thread_allreduce(1, A[0, tx], True, x[0], tx)"


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        (CALL, ValueError, 'outside of `with T.attr\\(T.comm_reducer\\(..\\), "reduce_scope"'),
        ("with T.attr(0, 'reduce_scope', 0): A[0, 0] = 1", TypeError, "wanted T.comm_reducer"),
        (
            f"with T.attr(ADD, 'reduce_scope', 0): {CALL.replace(', tx)', ', bx)')}",
            ValueError,
            "found bx, wanted indices of threads",
        ),
        (
            f"with T.attr(ADD, 'reduce_scope', 0): {CALL.replace('(1', '(2')}",
            ValueError,
            "for 2 values, wanted 1 value",
        ),
        ("T.comm_reducer(lambda x, y: x, [0, 1])", ValueError, "found 2 identities, wanted one"),
        ("T.tvm_storage_sync('local')", ValueError, "found the scope 'local', wanted one of"),
        ("T.ptx_cp_async(S[0], A[0, 0], 12)", ValueError, "found 12 bytes, wanted 4, 8 or 16"),
        ("T.ptx_cp_async(A[0, 0], S[0], 16)", ValueError, "found A in scope global, wanted shared"),
        ("T.ptx_cp_async(S[0], 3, 16)", TypeError, "found 3 of type int"),
    ],
)
def test_errors(trace, statement, error, message):
    head = "x = T.alloc_local((1,), 'float32')\nS = T.alloc_shared((16,), 'float32')\n"
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(head + statement, ADD=T.comm_reducer(lambda x, y: x + y, [0.0]))


def test_barriers_by_tvms_name(traced):
    text = traced("""
        T.tvm_storage_sync("shared")
        T.tvm_storage_sync("shared.dyn")
        T.tvm_storage_sync("warp")
        T.tvm_storage_sync("global")
    """)
    assert text == (
        'T.tvm_storage_sync("shared", T.bool(False), -1)\n' * 2
        + "T.tl.sync_warp(T.uint32(4294967295))\n"
        + "T.tl.sync_grid()\n"
    )


def test_a_barrier_of_the_grid_lets_blocks_read_each_others_results():
    @T.prim_func
    def main(A: T.Tensor((4, 64), "int32"), P: T.Tensor((4,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(4, threads=64) as bx:
            tx = T.get_thread_binding()
            if tx == 0:
                P[bx] = A[bx, 0] + 1
            T.sync_grid()
            if tx == 0:
                B[bx] = P[(bx + 1) % 4]

    kernel = emulated(main)
    assert "cooperative" in kernel.get_host_source()
    a, b = torch.arange(256, dtype=torch.int32).reshape(4, 64), torch.zeros(4, dtype=torch.int32)
    kernel(a, torch.zeros_like(b), b)
    assert b.tolist() == [65, 129, 193, 1]


@pytest.mark.parametrize("pointers", [False, True])
def test_a_raw_asynchronous_copy(pointers):
    @T.prim_func
    def main(A: T.Tensor((64, 4), "float32"), n: T.int32, B: T.Tensor((64, 4), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            S = T.alloc_shared((64, 4), "float32")
            if pointers:
                T.ptx_cp_async(T.access_ptr(S[tx, 0], "w"), T.address_of(A[tx, 0]), 16, tx < n)
            else:
                T.ptx_cp_async(S[tx, 0], A[tx, 0], 16, predicate=tx < n)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            for j in T.serial(4):
                B[tx, j] = S[63 - tx, j]

    kernel = emulated(main)
    assert "tl::cp_async_gs_conditional<16>(" in kernel.get_kernel_source()
    a, b = torch.rand(64, 4), torch.zeros(64, 4)
    kernel(a, 40, b)
    a[40:] = 0
    assert torch.equal(b, a.flip(0))
