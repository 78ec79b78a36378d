"""Branches and loops, and the jumps in them."""

import pytest
import torch

import tilelang
import tilelang.language as T


def test_branches(traced):
    assert traced("""
        if tx == 0:
            A[0, 0] = 1
        elif n:
            A[0, 1] = 2
        else:
            A[0, 2] = 3
    """) == (
        "if tx == 0:\n    A[0, 0] = T.float32(1.0)\nelse:\n    if n != 0:\n"
        "        A[0, 1] = T.float32(2.0)\n    else:\n        A[0, 2] = T.float32(3.0)\n"
    )


def test_while_break_continue(traced, trace, round_trip):
    statements = """
        while n > 3:
            if n == 4:
                continue
            if n == 5:
                break
            A[0, 0] = 1
    """
    text = traced(statements)
    assert text.startswith("while n > 3:\n    if n == 4:\n        T.continue_loop()\n")
    assert "    if n == 5:\n        T.break_loop()\n" in text
    round_trip(trace(statements))


def test_break_of_a_python_loop(traced):
    assert traced("for u in (0, 1, 2):\n    if u == 1:\n        break\n    A[0, u] = 0") == (
        "A[0, 0] = T.float32(0.0)\n"
    )


def test_break_of_a_python_loop_under_a_runtime_condition(trace):
    with pytest.raises(NotImplementedError, match=r"iterate over T\.serial"):
        trace("for u in (0, 1):\n    if n == u:\n        break")


def test_break_of_a_parallel_loop(trace):
    with pytest.raises(NotImplementedError, match="`break` in the parallel loop at line 5"):
        trace("for i in T.Parallel(4):\n    break")


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("target", ["cuda -arch=sm_80", "cuda -arch=sm_90a"])
def test_a_pipelined_loop_with_a_jump_is_a_plain_one(stages, target):
    @T.prim_func
    def main(
        A: T.Tensor((8, 64, 64), "float16"),
        L: T.Tensor((2,), "int32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(8, num_stages=stages):
                if k == L[0]:
                    continue
                if k == L[1]:
                    break
                T.copy(A[k, 0, 0], S)
                for i, j in T.Parallel(64, 64):
                    F[i, j] += S[i, j]
            T.copy(F, C)

    kernel = tilelang.compile(main, out_idx=-1, target=target, execution_backend="emulate")
    a = torch.randint(-8, 8, (8, 64, 64)).half()
    for skipped, end in ((2, 6), (0, 8), (-1, 0)):
        found = kernel(a, torch.tensor([skipped, end], dtype=torch.int32))
        used = [k for k in range(end) if k != skipped]
        assert torch.equal(found, a[used].float().sum(0))
    assert "a step works on several iterations" in str(kernel.explain())


@pytest.mark.parametrize("factor", [None, 2])
def test_an_unrolled_loop_may_be_left(factor):
    @T.prim_func
    def main(L: T.Tensor((2,), "int32"), C: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            total = T.alloc_var("int32", 0)
            for k in T.unroll(8, unroll_factor=factor):
                if k == L[0]:
                    continue
                if k > L[1] + tx:
                    break
                total += 1 << k
            C[tx] = total

    kernel = tilelang.compile(main, out_idx=-1, execution_backend="emulate")
    for skipped, end in ((2, 1), (0, -3), (-1, 9)):
        found = kernel(torch.tensor([skipped, end], dtype=torch.int32))
        wanted = [
            sum(1 << k for k in range(8) if k != skipped and k <= end + tx) for tx in range(32)
        ]
        assert found.tolist() == wanted


def test_a_loop_written_out_has_jumps_that_python_decides(traced, trace):
    assert traced(
        "for u in T.unroll(3, explicit=True):\n    if u == 1: break\n    A[0, u] = 0"
    ) == ("A[0, 0] = T.float32(0.0)\n")
    with pytest.raises(NotImplementedError, match=r"T\.unroll\(n\) without explicit"):
        trace("for u in T.unroll(3, explicit=True):\n    if n == u: break")


@T.macro
def is_left(rest):
    return rest > 0


def test_loops_that_a_break_ends_and_conditions_of_macros(device):
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), C: T.Tensor((8, 3), "int32")):
        with T.Kernel(8, threads=1) as bx:
            k = T.alloc_var("int32", init=0)
            while True:
                if A[k] > bx:
                    break
                k += 1
            C[bx, 0] = k
            rest = T.alloc_var("int32", init=A[bx])
            turns = T.alloc_var("int32", init=0)
            while is_left(rest):
                rest -= 2
                turns += 1
            C[bx, 1] = turns
            C[bx, 2] = 5 if bx > 3 and is_left(turns - 2) else 6

    a = [1, 0, 3, 8, 2, 5, 7, 4]
    found = torch.zeros(8, 3, dtype=torch.int32, device=device)
    tilelang.compile(main)(torch.tensor(a, dtype=torch.int32, device=device), found)
    turns = [(x + 1) // 2 for x in a]
    last = [5 if b > 3 and t > 2 else 6 for b, t in enumerate(turns)]
    assert found[:, 0].tolist() == [next(k for k in range(8) if a[k] > b) for b in range(8)]
    assert found[:, 1:].tolist() == [[*pair] for pair in zip(turns, last, strict=True)]


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        (
            "k = 0\nwhile k < 3:\n    k = k + 1\n    if n: break",
            RuntimeError,
            "Infinite while loop",
        ),
        ("while True:\n    if False: break", RuntimeError, "Infinite while loop"),
        ("while True:\n    pass", RuntimeError, "Infinite while loop"),
        ("for i in A:\n    pass", TypeError, "cannot iterate over the buffer A"),
        ("for i, j in T.Parallel(4):\n    pass", ValueError, "wanted 2"),
    ],
)
def test_errors_name_the_place(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> <kernel \d+>:\d+:\d+\n   \|"):
        trace(statement)
