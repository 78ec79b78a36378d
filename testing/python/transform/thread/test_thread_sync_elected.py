"""Barriers in what an elected thread does."""

import pytest
from tvm.script import tirx as T


@pytest.fixture
def sync(statements):
    """Statements after the pass, a barrier being the line BARRIER."""
    return lambda func: statements("ThreadSync", func).replace(
        'T.tvm_storage_sync("shared")', "BARRIER"
    )


def elected(inside, of=64):
    """One of `of` threads writes and reads in turns, elected once or in each iteration."""

    @T.prim_func(s_tir=True)
    def once(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((1,), "float32", scope="shared.dyn")
            if T.call_intrin("bool", "tl.shuffle_elect", of):
                for i in range(4):
                    S[0] = A[i]
                    A[i + 4] = S[0] + T.cast(tx * 0, "float32")

    @T.prim_func(s_tir=True)
    def again(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((1,), "float32", scope="shared.dyn")
            for i in range(4):
                if T.call_intrin("bool", "tl.shuffle_elect", 64):
                    S[0] = A[i]
                    A[i + 4] = S[0] + T.cast(tx * 0, "float32")

    return once if inside else again


def test_what_one_elected_thread_does_needs_no_barrier(sync):
    assert "BARRIER" not in sync(elected(True))


def test_one_of_the_block_is_one(sync):
    assert "BARRIER" not in sync(elected(True, of=0))


def test_one_of_each_warp_is_two_threads(sync):
    with pytest.raises(ValueError, match="found an access of shared buffer S that needs a barrier"):
        sync(elected(True, of=32))


def test_another_election_may_elect_another_thread(sync):
    text = sync(elected(False))
    assert text.startswith("for i in range(4):\n    BARRIER\n    if T.")
    assert text.count("BARRIER") == 1
