"""The algebra of shapes and strides: by what it says of every coordinate."""

import itertools
import random

import pytest

import tilelang
from tilelang.layout.cute import (
    CuteLayout,
    coalesce,
    complement,
    composition,
    cosize,
    from_layout,
    left_inverse,
    logical_divide,
    logical_product,
    make_layout,
    right_inverse,
    size,
    to_layout,
)


def layouts(count, seed=0, dense=False):
    """Layouts of powers of two and 3 at random; dense ones are permutations of their places."""
    rng = random.Random(seed)
    for _ in range(count):
        shape = [rng.choice([1, 2, 3, 4]) for _ in range(rng.randint(1, 4))]
        order = rng.sample(range(len(shape)), len(shape))
        strides, step = [0] * len(shape), 1
        for d in order:
            step *= 1 if dense else rng.choice([1, 1, 2])
            strides[d] = step
            step *= shape[d]
        if len(shape) > 2:
            nested = (shape[0], tuple(shape[1:])), (strides[0], tuple(strides[1:]))
            yield make_layout(*nested)
        else:
            yield make_layout(tuple(shape), tuple(strides))


def places(layout):
    return [layout(i) for i in range(size(layout))]


def test_coordinates():
    layout = make_layout((4, (2, 3)), (2, (1, 8)))
    for i, j, k in itertools.product(range(4), range(2), range(3)):
        place = 2 * i + j + 8 * k
        assert layout(i, (j, k)) == layout((i, (j, k))) == layout(i, j + 2 * k) == place
        assert layout(i + 4 * (j + 2 * k)) == place
    assert (size(layout), cosize(layout), str(layout)) == (24, 24, "(4,(2,3)):(2,(1,8))")
    assert make_layout((4, (2, 3))).stride == (1, (4, 8))


def test_coalesce():
    for layout in layouts(100):
        assert places(coalesce(layout)) == places(layout)
    assert str(coalesce(make_layout((2, (1, 6)), (1, (6, 2))))) == "12:1"


def test_composition():
    """Those of the documentation, and whatever there is of others."""
    found = composition(make_layout((6, 2), (8, 2)), make_layout((4, 3), (3, 1)))
    assert str(found) == "((2,2),3):((24,2),8)"
    assert str(composition(make_layout(20, 2), make_layout((5, 4), (4, 1)))) == "(5,4):(8,2)"
    composed = 0
    for outer, inner in zip(layouts(300, 1), layouts(300, 2), strict=True):
        if cosize(inner) > size(outer):
            continue
        try:
            found = composition(outer, inner)
        except ValueError:
            continue
        composed += 1
        assert places(found) == [outer(inner(i)) for i in range(size(inner))]
    assert composed > 50


def test_complement():
    assert str(complement(make_layout(4, 2), 24)) == "(2,3):(1,8)"
    assert str(complement(make_layout((2, 4), (1, 6)), 24)) == "3:2"
    for layout in layouts(100, 3):
        rest = complement(layout, 96)
        both = places(make_layout(layout, rest))
        assert len(set(both)) == len(both)
        assert cosize(make_layout(layout, rest)) >= 96


def test_inverses():
    for layout in layouts(100, 4, dense=True):
        inverse = right_inverse(layout)
        assert size(inverse) == size(layout)
        assert [layout(inverse(i)) for i in range(size(layout))] == list(range(size(layout)))
    for layout in layouts(100, 5):
        inverse = left_inverse(layout)
        assert [inverse(p) for p in places(layout)] == list(range(size(layout)))


def test_division():
    divided = logical_divide(make_layout((4, 2, 3), (2, 1, 8)), make_layout(4, 2))
    assert str(divided) == "((2,2),(2,3)):((4,1),(2,8))"
    tiled = logical_divide(make_layout((8, 6), (6, 1)), (4, 2))
    for i, j in itertools.product(range(8), range(6)):
        assert tiled((i % 4, i // 4), (j % 2, j // 2)) == 6 * i + j


def test_product():
    assert str(logical_product(make_layout(4), make_layout(3))) == "(4,3):(1,4)"
    repeated = logical_product(make_layout((2, 2), (4, 1)), make_layout(6))
    tile, copies = repeated[0], repeated[1]
    assert places(tile) == [0, 4, 1, 5]
    assert places(copies) == [0, 2, 8, 10, 16, 18]


def test_layouts_of_buffers():
    tiled = logical_divide(make_layout((8, 6), (6, 1)), (4, 2))
    layout = to_layout(tiled)
    assert layout.get_input_shape() == [8, 6]
    assert layout.addresses() == list(range(48))
    blocked = make_layout(((2, 4), (3, 2)), ((1, 12), (4, 48)))
    wanted = [blocked(i, j) for i in range(8) for j in range(6)]
    assert to_layout(blocked).table() == [(p,) for p in wanted]
    back = from_layout(to_layout(make_layout(((2, 4), 6), ((1, 12), 2))))
    assert back == make_layout(((2, 4), 6), ((1, 12), 2))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: CuteLayout((2, 3), 1), "wanted ints or tuples of one structure"),
        (lambda: make_layout((2, 0)), "wanted positive ints"),
        (lambda: make_layout((2, 3))((1, 2, 3)), r"found coordinate \(1, 2, 3\) of shape"),
        (
            lambda: composition(make_layout((4, 3), (1, 8)), make_layout(4, 3)),
            "no layout at 4:3",
        ),
        (lambda: complement(make_layout((4, 4), (1, 6))), "has no complement"),
        (
            lambda: from_layout(tilelang.layout.Layout([4, 4], lambda i, j: [i * 4 + (j ^ i)])),
            "such as a swizzle",
        ),
    ],
)
def test_refusals(make, what):
    with pytest.raises(ValueError, match=what):
        make()
