"""What one elected thread does is one branch."""

from tvm.script import tirx as T


def test_neighbours_of_one_election_are_joined(statements):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32")):
        T.launch_thread("threadIdx.x", 128)
        with T.sblock("tilelang_root"):
            if T.call_intrin("bool", "tl.shuffle_elect", 128):
                A[0] = 1
                A[1] = 2
            if T.call_intrin("bool", "tl.shuffle_elect", 128):
                A[2] = 3
            if T.call_intrin("bool", "tl.shuffle_elect", 64):
                A[3] = 4
            A[4] = 5
            if T.call_intrin("bool", "tl.shuffle_elect", 64):
                A[5] = 6

    elected = "if T.tl.shuffle_elect({}):"
    assert statements("JoinElections", func).splitlines() == [
        elected.format(128),
        *("    A[0] = 1", "    A[1] = 2", "    A[2] = 3"),
        *(elected.format(64), "    A[3] = 4"),
        "A[4] = 5",
        *(elected.format(64), "    A[5] = 6"),
    ]
