"""T.Persistent: every tile once, in the documented order."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def tiles(domain, wave_size, index, group_size):
    """The tiles of one program in its order, by the formula of the docstring."""
    *outer, last = domain
    group = min(group_size, last)
    grouped = [-(-last // group), *outer, group]
    total = torch.Size(grouped).numel()
    for linear in range(index, total, wave_size):
        rest, places = linear, []
        for extent in reversed(grouped):
            places.insert(0, rest % extent)
            rest //= extent
        first, *middle, inner = places
        if first * group + inner < last:
            yield (*middle, first * group + inner)


@pytest.mark.parametrize(
    ("domain", "wave_size", "group_size"),
    [((5, 11), 4, 4), ((3, 2, 8), 7, 8), ((6,), 4, 2)],
)
def test_tiles_are_dealt_in_waves(domain, wave_size, group_size):
    @T.prim_func
    def main(order: T.Tensor((wave_size, *domain), "int32")):
        with T.Kernel(wave_size, threads=1) as bx:
            count = T.alloc_var("int32", 1)
            for place in T.Persistent(domain, wave_size, bx, group_size):
                where = place if len(domain) > 1 else (place,)
                order[(bx, *where)] = count
                count += 1

    order = torch.zeros(wave_size, *domain, dtype=torch.int32, device=DEVICE)
    tilelang.compile(main, execution_backend="auto")(order)
    for index in range(wave_size):
        mine = list(tiles(domain, wave_size, index, group_size))
        assert order[index].count_nonzero() == len(mine)
        assert [int(order[(index, *tile)]) for tile in mine] == list(range(1, len(mine) + 1))


@pytest.mark.parametrize("domain", [(0,), (0, 4), (4, 0), (2, 0, 3)])
def test_no_tiles(domain):
    @T.prim_func
    def main(counter: T.Tensor((1,), "int32"), A: T.Tensor((1,), "int32")):
        with T.Kernel(2, threads=1) as bx:
            for _ in T.Persistent(domain, 2, bx):
                A[0] = 1
            for _ in T.Persistent(domain, 2, bx, counter=counter):
                A[0] = 2

    counter, a = (torch.zeros(1, dtype=torch.int32, device=DEVICE) for _ in range(2))
    tilelang.compile(main, execution_backend="auto")(counter, a)
    assert int(a) == int(counter) == 0


@pytest.mark.parametrize("counts", [False, True])
def test_a_call_without_tiles(counts):
    n = T.dynamic("n")

    @T.prim_func
    def main(counter: T.Tensor((1,), "int32"), A: T.Tensor((2, n), "int32")):
        with T.Kernel(2, threads=1) as bx:
            for i, j in T.Persistent((2, n), 2, bx, counter=counter if counts else None):
                A[i, j] += i + 1

    kernel = tilelang.compile(main, execution_backend="auto")
    for size in (0, 3, 11):
        counter, a = (torch.zeros(s, dtype=torch.int32, device=DEVICE) for s in ((1,), (2, size)))
        kernel(counter, a)
        assert a.tolist() == [[1] * size, [2] * size]
        assert not counter.any()


def test_dynamic_extents_and_a_break(traced):
    text = traced("""
        for i, j in T.Persistent([n, 8], 4, bx):
            if i == 3:
                break
            A[i, j] = 0
    """)
    assert text.splitlines()[0] == "for wave in range(n * 2):"
    assert "T.break_loop()" in text


def test_stages_and_annotations_are_the_loops(traced):
    text = traced(
        "for i in T.Persistent([8], 4, bx, num_stages=2, annotations={'x': 1}):\n    A[i, 0] = 0"
    )
    assert text.startswith('for wave in T.serial(2, annotations={"num_stages": 2, "x": 1}):')


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ("[], 4, bx", ValueError, "T.Persistent has no extent"),
        ("[4, 1.5], 4, bx", TypeError, "extent 1 of T.Persistent is 1.5"),
        ("[2**16, 2**15], 4, bx", ValueError, "found 2147483648 tiles and 4 programs"),
        ("[4], 0, bx", ValueError, "wave_size of T.Persistent is 0"),
        ("[4], 4, bx, 0", ValueError, "group_size of T.Persistent is 0"),
        ("[4], 4, bx, num_stages=-1", ValueError, "num_stages of T.Persistent is -1"),
        ("[4], 4, A", TypeError, "index of T.Persistent is the buffer A"),
    ],
)
def test_errors(trace, arguments, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(f"for i in T.Persistent({arguments}):\n    pass")
