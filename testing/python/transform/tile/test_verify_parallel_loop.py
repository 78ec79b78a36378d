"""Races of T.Parallel: two iterations that touch one element."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.env import env

HERE = r"test_verify_parallel_loop\.py:\d+"


@pytest.fixture
def lowered(tmp_path):
    """Lowers a program given as text."""

    def run(source):
        path = tmp_path / "program.py"
        path.write_text(source)
        space = {}
        exec(compile(source, str(path), "exec"), space)
        tilelang.lower(space["main"], target="cuda -arch=sm_80")

    return run


def stored(index, value=lambda S, A, i, j: 1.0):
    """S[index] = value over 8 x 16 iterations, in the second of two tiles."""

    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), n: T.int32):
        with T.Kernel(2, threads=64) as bx:
            S = T.alloc_shared((256,), "float32")
            for i, j in T.Parallel(8, 16):
                S[index(i, j, bx, n)] = value(S, A, i, j)

    return main


@pytest.mark.parametrize(
    ("index", "told"),
    [
        (lambda i, j, bx, n: j, r"\(i, j\) = \(0, 0\) and \(1, 0\) .* S\[0\]"),
        (lambda i, j, bx, n: i * 15 + j + bx * 128, r"\(0, 15\) and \(1, 0\) .* S\[15\]"),
        (lambda i, j, bx, n: (i * 16 + j) % 127, r"\(0, 0\) and \(7, 15\) .* S\[0\]"),
        (lambda i, j, bx, n: 0, r"\(0, 0\) and \(0, 1\)"),
    ],
)
def test_two_writes(tile_passes, index, told):
    with pytest.raises(ValueError, match=rf"{HERE}: found iterations .*{told}.*wanted independent"):
        tile_passes(stored(index, lambda S, A, i, j: A[i * 16 + j]), "VerifyParallelLoop")


def test_a_write_and_a_read(tile_passes):
    shifted = stored(lambda i, j, bx, n: i * 16 + j, lambda S, A, i, j: S[i * 16 + j + 1])
    with pytest.raises(ValueError, match=r"\(0, 1\) and \(0, 0\) .* S\[1\].*read from another"):
        tile_passes(shifted, "VerifyParallelLoop")


@pytest.mark.parametrize(
    "index",
    [
        lambda i, j, bx, n: i * 16 + j,
        lambda i, j, bx, n: j * 8 + i + bx * 128,
        lambda i, j, bx, n: 127 - (i * 16 + j),
        lambda i, j, bx, n: i * n + j,  # not known here
    ],
)
def test_independent_iterations(tile_passes, index):
    tile_passes(stored(index, lambda S, A, i, j: A[j]), "VerifyParallelLoop")


def test_conditions_and_inner_loops_count(tile_passes):
    def main(width):
        @T.prim_func
        def main(A: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(16):
                    if i % 2 == 0:
                        for k in T.serial(width):
                            A[i // 2 * 3 + k] = k

        return main

    tile_passes(main(3), "VerifyParallelLoop")
    with pytest.raises(ValueError, match=r"\(i\) = \(0\) and \(2\) .* A\[3\]"):
        tile_passes(main(4), "VerifyParallelLoop")


def test_it_is_on_unless_it_is_turned_off(monkeypatch):
    race = stored(lambda i, j, bx, n: j, lambda S, A, i, j: A[i])
    target = "cuda -arch=sm_80"
    with pytest.raises(ValueError, match="wanted independent iterations"):
        tilelang.lower(race, target=target)
    with tilelang.transform.PassContext(config={"tl.disable_data_race_check": True}):
        tilelang.lower(race, target=target)
    monkeypatch.setenv("TILELANG_ENABLE_DATA_RACE_CHECK", "0")
    assert not env.TILELANG_ENABLE_DATA_RACE_CHECK
    tilelang.lower(race, target=target)
    with (
        tilelang.transform.PassContext(config={"tl.disable_data_race_check": False}),
        pytest.raises(ValueError, match="wanted independent iterations"),
    ):
        tilelang.lower(race, target=target)


def parallel(body: str, around: str = "pass", extents: str = "16, 32"):
    """A program with `body` under T.Parallel, behind `around`."""
    source = f"""
import tilelang.language as T

@T.prim_func
def main(x: T.Tensor((16, 32), "float32"), y: T.Tensor((16, 32), "float32"),
         idx: T.Tensor((16,), "int32"), n: T.int32):
    with T.Kernel(4, threads=64) as bx:
        f = T.alloc_fragment((16, 32), "float32")
        r = T.alloc_fragment((16,), "float32")
        total = T.alloc_fragment((1,), "float32")
        s = T.alloc_shared((64,), "float32")
        v = T.alloc_var("float32")
        {around}
        for i, j in T.Parallel({extents}):
"""
    for line in body.splitlines():
        source += "            " + line + "\n"
    return source


# Each with what it wants in the place: the same program, with the error and without it.
PAIRS = {
    "a sum of a row": ("r[i] += x[i, j]", "f[i, j] += x[i, j]"),
    "a maximum": ("r[i] = T.max(r[i], x[i, j])", "f[i, j] = T.max(f[i, j], x[i, j])"),
    "a total": ("total[0] = total[0] + x[i, j]", "T.atomic_add(y[0, 0], x[i, j])"),
    "another value for each": ("r[i] = x[i, j]", "r[i] = x[i, 3]"),
    "of a tensor": ("y[i, 0] += x[i, j]", "y[i, j] += x[i, j]"),
    "shared memory": ("s[i] = s[i] + x[i, j]", "s[i] = 2.0"),
    "a variable": ("v += x[i, j]", "v = x[i, j]\nv += 1.0\ny[i, j] = v"),
    "the largest in a variable": (
        "if x[i, j] > v:\n    v = x[i, j]",
        "v = x[i, j]\nif v > 1.0:\n    v = 1.0\ny[i, j] = v",
    ),
    "the largest in memory": (
        "if x[i, j] > s[0]:\n    s[0] = x[i, j]",
        "if x[i, j] > 1.0:\n    s[0] = 1.0",
    ),
    "a neighbour": ("y[i, j] = y[i, (j + 1) % 32]", "y[i, j] = x[i, (j + 1) % 32]"),
    "a shift": ("if i < 15:\n    y[i, j] = y[i + 1, j]", "if i < 0:\n    y[i, j] = y[i + 1, j]"),
    "an inner loop": (
        "for k in T.serial(2):\n    s[i + k] = x[i, k]",
        "for k in T.serial(2):\n    s[i * 2 + k] = x[i, k]",
    ),
    "half of the columns": ("if j < 16:\n    s[i] = x[i, j]", "if j == 16:\n    s[i] = x[i, j]"),
    "one of two values": (
        "if j < 16:\n    r[i] = 1.0\nelse:\n    r[i] = 2.0",
        "if j < 16:\n    y[i, j] = 1.0\nelse:\n    y[i, j] = 2.0",
    ),
    "a name for the value": ("t = x[i, j] * 2.0\nr[i] = t", "t = x[i, 0] * 2.0\nr[i] = t"),
}


@pytest.mark.parametrize("body", [p[0] for p in PAIRS.values()], ids=PAIRS.keys())
def test_dependent_iterations_are_refused(lowered, body):
    with pytest.raises(ValueError, match="wanted independent iterations"):
        lowered(parallel(body))


@pytest.mark.parametrize("body", [p[1] for p in PAIRS.values()], ids=PAIRS.keys())
def test_their_twins_are_not(lowered, body):
    lowered(parallel(body))


@pytest.mark.parametrize(
    ("body", "around"),
    [
        # All iterations write the same.
        ("s[0] = 1.0", "pass"),
        ("r[i] = total[0] + i", "pass"),
        ("if x[i, j] > 0.0:\n    s[0] = 1.0", "pass"),
        # An iteration has its own element, or writes before it reads.
        ("s[i] = 1.0\ny[i, j] = s[i]", "pass"),
        ("y[i, j] = 0.0\nfor k in T.serial(4):\n    y[i, j] += x[i, k]", "pass"),
        ("v = 0.0\nfor k in T.serial(4):\n    v += x[i, k]\ny[i, j] = v", "pass"),
        ("if j > 3:\n    v = 1.0\nelse:\n    v = 2.0\ny[i, j] = v", "pass"),
        # Not known: which elements, whether at all, where in the grid.
        ("s[idx[i]] = x[i, j]", "pass"),
        ("if idx[i] == j:\n    s[i] = x[i, j]", "pass"),
        ("s[i * n] = x[i, 0]", "pass"),
        ("y[0, (i * 32 + j) * bx] = x[i, j]", "assert bx > 0"),
    ],
)
def test_what_is_independent_or_not_known_passes(lowered, body, around):
    guard = around.startswith("assert")
    text = parallel(body)
    if guard:
        head, loop, rest = text.partition("        for i, j in T.Parallel")
        rest = "\n".join("    " + line for line in rest.splitlines()).lstrip()
        text = head + "        if bx > 0:\n    " + loop + rest + "\n"
    lowered(text)


def test_pairs_that_are_apart_are_independent(lowered):
    exchange = "p = i ^ 1\nif {} and s[i] > s[p]:\n    s[i] = s[p]"
    lowered(parallel(exchange.format("p > i"), extents="16, 1"))
    with pytest.raises(ValueError, match="wanted independent iterations"):
        lowered(parallel(exchange.format("p >= 0"), extents="16, 1"))


def test_an_extent_of_the_run_is_two_at_least(lowered):
    with pytest.raises(ValueError, match=r"\(0, 0\) and \(0, 1\)"):
        lowered(parallel("s[i] += x[i, j]", extents="n, 16"))
    lowered(parallel("y[i, j] += x[i, j]", extents="n, 16"))


def test_the_repair_names_reductions(lowered):
    with pytest.raises(ValueError, match=r"T\.reduce_sum.*T\.alloc_reducer or T\.atomic_add"):
        lowered(parallel("r[i] += x[i, j]"))


@pytest.mark.parametrize(
    ("move", "apart"),
    [
        (lambda S, A, k: T.copy(S[0:7, 0:16], S[1:8, 0:16]), r"\(1, 0\)"),
        (lambda S, A, k: T.copy(S[0:8, 1:16], S[0:8, 0:15]), r"\(0, -1\)"),
        (lambda S, A, k: T.copy(A[k, 0], A[k + 1, 0:16]), None),
        (lambda S, A, k: T.copy(A[k : k + 2, 0:16], A[k + 1 : k + 3, 0:16]), r"\(1, 0\)"),
        (lambda S, A, k: T.copy(S[0:4, 0:16], S[4:8, 0:16]), None),
        (lambda S, A, k: T.copy(S[0:4, 0:16], S[k : k + 4, 0:16]), None),
        (lambda S, A, k: T.copy(S, S), None),
        (lambda S, A, k: T.transpose(S[0:8, 0:8], S[0:8, 0:8]), r"\(0, 0\)"),
        (lambda S, A, k: T.transpose(S[0:8, 0:8], S[0:8, 8:16]), None),
        (lambda S, A, k: T.atomic_add(S[0:7, 0:16], S[1:8, 0:16]), r"\(-?1, 0\)"),
    ],
)
def test_a_tile_copied_over_itself(tile_passes, move, apart):
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((8, 16), "float32")
            T.copy(A, S)
            for k in T.serial(4):
                move(S, A, k)
            T.copy(S, A)

    if apart is None:
        tile_passes(main, "VerifyParallelLoop")
        return
    with pytest.raises(ValueError, match=rf"{HERE}: found .* that overlap, {apart} elements apart"):
        tile_passes(main, "VerifyParallelLoop")


def test_elements_of_a_thread_copied_over_themselves(tile_passes):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=1):
            x = T.alloc_local((8,), "float32")
            for i in T.serial(8):
                x[i] = A[i]
            x[1:8] = x[0:7]

    with pytest.raises(ValueError, match=r"in x that overlap, \(1\) elements apart"):
        tile_passes(main, "VerifyParallelLoop")


def test_a_fragment_copied_over_itself(device):
    """Its elements are read first."""

    @T.prim_func
    def main(A: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32):
            x = T.alloc_fragment((16, 16), "float32")
            T.copy(A, x)
            T.copy(x[0:15, 0:16], x[1:16, 0:16])
            T.copy(x, A)

    a = torch.arange(256.0, device=device).reshape(16, 16)
    wanted = torch.cat([a[:1], a[:15]])
    tilelang.compile(main)(a)
    assert torch.equal(a, wanted)


@T.macro
def each(store):
    """buffer[indices] = value for 16 x 16 independent iterations."""
    for i, j in T.Parallel(16, 16):
        buffer, indices, value = store(i, j)
        buffer[indices] = value


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (lambda S, R, N: T.copy(S[:15, :], R[1:, :]), r"overlap at S\[1, 0\]"),
        (lambda S, R, N: T.transpose(S, R), r"overlap at S\[0, 1\]"),
        (lambda S, R, N: T.cumsum(S[:15, :], R[1:, :]), r"overlap at S\[1, 0\]"),
        (lambda S, R, N: T.cumsum(S[:15, :], S[1:, :]), r"S that overlap, \(1, 0\) elements"),
        (lambda S, R, N: T.atomic_add(R[:15, :], S[1:, :]), r"overlap at S\[1, 0\]"),
        (lambda S, R, N: T.copy(S, N[:, :16]), r"overlap at S\[0, 0\]"),
        (lambda S, R, N: each(lambda i, j: (R, (i, j), S[i, 15 - j])), r"both touch S\[0, 15\]"),
        (
            lambda S, R, N: each(lambda i, j: (N, (i, j), S[i, j])),
            r"S\[0, 0\], in memory that N is",
        ),
        (lambda S, R, N: each(lambda i, j: (N, (i, 2 * j), S[i, j])), None),
        (lambda S, R, N: T.copy(S[:8, :], R[8:, :]), None),
        (lambda S, R, N: T.copy(S, R), None),
    ],
)
def test_names_of_one_memory_are_compared(tile_passes, statement, told):
    """N has elements of half the width."""

    @T.prim_func
    def main():
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((16, 16), "float32")
            R = T.reshape(S, (16, 16))
            N = T.view(S, (16, 32), "float16")
            statement(S, R, N)

    if told is None:
        tile_passes(main, "VerifyParallelLoop")
        return
    with pytest.raises(ValueError, match=rf"{HERE}: found .*{told}"):
        tile_passes(main, "VerifyParallelLoop")
