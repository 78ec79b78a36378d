"""Loops and their annotations."""

import pytest
import torch

import tilelang
import tilelang.language as T


@pytest.mark.parametrize(
    ("iterated", "header"),
    [
        ("range(4)", "for i in range(4):"),
        ("range(n, n + 4)", "for i in range(n, n + 4):"),
        ("T.serial(2, 5)", "for i in range(2, 5):"),
        ("T.Serial(n)", "for i in range(n):"),
        ("T.serial(4, annotations={'x': 1})", 'for i in T.serial(4, annotations={"x": 1}):'),
        ("T.unroll(4)", "for i in T.unroll(4):"),
        ("T.Unroll(4, unroll_factor=2)", 'T.unroll(4, annotations={"pragma_unroll_factor": 2}):'),
        ("T.vectorized(4)", "for i in T.vectorized(4):"),
        ("T.Vectorized(n, n + 4)", "for i in T.vectorized(n, n + 4):"),
        ("T.Parallel(4)", "for i in T.parallel(4):"),
        ("T.Parallel(4, coalesced_width=2)", '4, annotations={"coalesced_width": 2}):'),
        ("T.Pipelined(4)", "for i in range(4):"),
        ("T.Pipelined(4, num_stages=0)", 'for i in T.serial(4, annotations={"num_stages": 0}):'),
        ("T.Pipelined(1, 4, 3)", 'for i in T.serial(1, 4, annotations={"num_stages": 3}):'),
        (
            "T.Pipelined(4, num_stages=2, order=[1, 0], stage=[0, 1], sync=[])",
            '{"num_stages": 2, "tl_pipeline_order": [1, 0], "tl_pipeline_stage": [0, 1]}',
        ),
        ("T.Pipelined(4, order=[-1], stage=[-1], group=[[0]])", '"tl_pipeline_group": [[0]]'),
    ],
)
def test_headers(traced, iterated, header):
    lines = traced(f"for i in {iterated}:\n    A[0, i] = 0").splitlines()
    assert header in lines[0]
    assert lines[1:] == ["    A[0, i] = T.float32(0.0)"]


@pytest.mark.parametrize(
    ("bounds", "trips", "value"),
    [
        ("0, 10, 4", "3", "v * 4"),
        ("10, 0, -3", "4", "10 + v * -3"),
        ("5, 5, 2", "0", "5 + v * 2"),
        ("2, n, 3", "n // 3", "2 + v * 3"),
    ],
)
def test_steps(traced, bounds, trips, value):
    text = traced(f"for i in range({bounds}):\n    A[0, i] = 0")
    if not trips.isdigit():
        header = f'T.serial({trips}, annotations={{"tl.exact_extent": 1}})'
    else:
        header = f"range({trips})"
    assert text == f"for v in {header}:\n    A[0, {value}] = T.float32(0.0)\n"


def test_a_runtime_step_warns(traced):
    with pytest.warns(UserWarning, match="whose sign only the run knows"):
        assert "* n" in traced("for i in range(0, 8, n):\n    A[0, i] = 0")


@pytest.mark.filterwarnings("ignore:the step of")
@pytest.mark.parametrize("bounds", [(0, 20, 5), (20, 0, -5), (20, 1, -5), (3, 9, -1), (9, 3, 1)])
def test_a_step_of_the_run_has_either_sign(bounds, device):
    """A negative one was taken for positive: 20 to 0 in steps of -5 had 0, too."""

    @T.prim_func
    def main(start: T.int32, stop: T.int32, step: T.int32, C: T.Tensor((24,), "int32")):
        with T.Kernel(1, threads=1):
            for i in range(start, stop, step):
                C[i] = 1

    found = torch.zeros(24, dtype=torch.int32, device=device)
    tilelang.compile(main)(*bounds, found)
    assert found.nonzero().flatten().tolist() == sorted(range(*bounds))


def test_nests(traced):
    assert traced("for i, j in T.Parallel(8, n):\n    A[i, j] = 0") == (
        "for i in T.parallel(8):\n    for j in T.parallel(n):\n        A[i, j] = T.float32(0.0)\n"
    )
    assert traced("for i, j in T.grid(8, 4):\n    A[i, j] = 0").startswith(
        "for i, j in T.grid(8, 4)"
    )


def test_a_tuple_of_variables(traced):
    assert "A[ij_0, ij_1]" in traced("for ij in T.Parallel(8, 4):\n    A[ij[0], ij[1]] = 0")


def test_explicit_unrolling_writes_every_iteration(traced):
    text = traced("for i in T.unroll(0, 4, 2, explicit=True):\n    A[0, i] = i")
    assert text == "A[0, 0] = T.float32(0.0)\nA[0, 2] = T.float32(2.0)\n"


def test_python_iterables_are_unrolled(traced):
    text = traced("for i, (a, b) in enumerate([(1, 2), (3, 4)]):\n    A[i, a] = b")
    assert text == "A[0, 1] = T.float32(2.0)\nA[1, 3] = T.float32(4.0)\n"


@pytest.mark.parametrize(
    ("loop", "error", "message"),
    [
        ("T.serial(0, 4, 0)", ValueError, "is 0, wanted another number"),
        ("range(1.5)", TypeError, "stop of T.serial is 1.5"),
        ("T.unroll(4, explicit=True, unroll_factor=2)", ValueError, "wanted one of them"),
        ("T.unroll(n, explicit=True)", ValueError, "bounds that are not constant"),
        ("T.unroll(4, unroll_factor=0)", ValueError, "wanted a positive int"),
        ("T.vectorized(n)", ValueError, "wanted a constant"),
        ("T.Parallel()", ValueError, "has no extent"),
        ("T.Parallel(4, -1)", ValueError, "extent 1 of T.Parallel is -1"),
        ("T.Parallel(128 / 4)", TypeError, "T.ceildiv"),
        ("T.Parallel(A)", TypeError, "extent 0 of T.Parallel is the buffer A"),
        ("T.Pipelined(4, num_stages=-1)", ValueError, "num_stages"),
        ("T.Pipelined(4, order=[0])", ValueError, "only one of order and stage"),
        ("T.Pipelined(4, group=[[0]])", ValueError, "group without order and stage"),
        ("T.Pipelined(4, order=[0], stage=[0, 1])", ValueError, "1 entries in order and 2"),
        ("T.Pipelined(4, order=[0, 2], stage=[0, 1])", ValueError, "wanted each of 0 to 1"),
        ("T.Pipelined(4, order=[-1], stage=[-1])", ValueError, "without group"),
    ],
)
def test_errors(trace, loop, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(f"for i in {loop}:\n    pass")
