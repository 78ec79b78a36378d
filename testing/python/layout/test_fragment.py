"""Fragments: members and the forms of the constructor."""

import numpy as np
import pytest

from tilelang.layout import Fragment, make_gemm_fragment_8x8, make_gemm_fragment_8x8_transposed


def holders(fragment):
    """(threads, register) of every element, in row-major order."""
    threads = np.array(fragment.thread_table()).reshape(-1, fragment.num_replicas)
    return [(t.tolist(), r[0]) for t, r in zip(threads, fragment.table(), strict=True)]


def rows(replicate=4):
    return Fragment((6,), lambda i, rep: (i % 3 * 4 + rep, i // 3), replicate=replicate)


def test_base_tile_is_the_one_of_the_ptx_manual():
    base = make_gemm_fragment_8x8()
    places = np.array(holders(base), dtype=object).reshape(8, 8, 2)
    transposed = np.array(holders(make_gemm_fragment_8x8_transposed()), dtype=object)
    for i, j in np.ndindex(8, 8):
        assert tuple(places[i, j]) == ([4 * i + j // 2], j % 2)
        assert tuple(transposed.reshape(8, 8, 2)[j, i]) == tuple(places[i, j])


def test_both_forms_of_the_constructor_are_one_function():
    together = Fragment((8, 4), lambda i, j: (i * 2 + j // 2, j % 2))
    apart = Fragment(
        (8, 4),
        forward_thread_fn=lambda i, j: i * 2 + j // 2,
        forward_index_fn=lambda i, j: j % 2,
    )
    assert together.is_equal(apart)
    assert together.get_thread_size() == 16
    assert int(together.map_forward_thread([3, 2])) == 7
    assert [int(e) for e in together(3, 3)] == [1]
    with pytest.raises(ValueError, match="takes 2 indices, found 1"):
        together.map_forward_thread([1])


def test_replicas():
    fragment = rows()
    assert holders(fragment)[4] == ([4, 5, 6, 7], 1)
    assert int(fragment.map_forward_thread([4], 3)) == 7
    assert fragment.get_thread_size() == 12


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({}, TypeError, "wanted forward_fn, or forward_thread_fn together"),
        ({"forward_thread_fn": lambda i: i}, TypeError, "together with forward_index_fn"),
        ({"forward_fn": lambda i: i}, TypeError, r"wanted \(thread, register\)"),
        ({"forward_fn": lambda: (0, 0)}, TypeError, "does not take 1 indices"),
        ({"forward_fn": lambda i: (i, 0), "replicate": 0}, ValueError, "positive int"),
    ],
)
def test_what_is_no_fragment(arguments, error, told):
    with pytest.raises(error, match=told):
        Fragment((8,), **arguments)


@pytest.mark.parametrize("on_thread", [False, True])
@pytest.mark.parametrize("last_fastest", [False, True])
def test_repeat_counts_blocks_in_either_order(on_thread, last_fastest):
    base = Fragment((2, 3), lambda i, j: (j, i))
    tiled = base.repeat([3, 2], repeat_on_thread=on_thread, lower_dim_first=last_fastest)
    places = np.array(holders(tiled), dtype=object).reshape(6, 6, 2)
    for i, j in np.ndindex(6, 6):
        q = i // 2 * 2 + j // 3 if last_fastest else i // 2 + j // 3 * 3
        thread, register = j % 3 + 3 * q * on_thread, i % 2 + 2 * q * (not on_thread)
        assert tuple(places[i, j]) == ([thread], register)


def test_replicate_uses_new_threads():
    assert holders(rows().replicate(2))[4] == ([4, 5, 6, 7, 16, 17, 18, 19], 1)


def test_condense_drops_what_no_thread_depends_on():
    fragment = Fragment((4,), lambda i, rep: (i * 6 + rep // 2 % 3 * 2, 0), replicate=12)
    condensed = fragment.condense_rep_var()
    assert condensed.num_replicas == 3
    assert holders(condensed)[1] == ([6, 8, 10], 0)
    assert rows().condense_rep_var().is_equal(rows())


def test_reshape_of_registers():
    fragment = Fragment((4, 8), lambda i, j: (i * 2 + j // 4, j % 4))
    wide = fragment.reshape((4, 4), 16, 32)
    assert holders(wide)[5] == ([2], 1)
    assert wide.reshape((4, 8), 32, 16).is_equal(fragment)
    with pytest.raises(ValueError, match="do not lie side by side"):
        fragment.reshape((4, 1), 16, 128)


def test_text_shows_threads_and_registers():
    text = str(Fragment((2, 4), lambda i, j: (i * 2 + j // 2, j % 2)))
    assert text.splitlines()[1:] == ["  0:0 0:1 1:0 1:1", "  2:0 2:1 3:0 3:1"]
    both = Fragment((1, 2), lambda i, j, rep: (j + 2 * rep, 0), replicate=2)
    assert str(both).splitlines()[1:] == ["  0+2:0 1+3:0"]


def test_one_that_is_made_again_is_the_first():
    """Its tables, digits and inverse are computed once, however many operators infer it."""
    first = Fragment((8, 6), lambda i, j: (i * 2 + j % 2, j // 2))
    assert Fragment((8, 6), lambda i, j: (i * 2 + j % 2, j // 2)).same_as(first)
    others = {
        "another shape": Fragment((4, 6), lambda i, j: (i * 2 + j % 2, j // 2)),
        "another register": Fragment((8, 6), lambda i, j: (i * 2 + j % 2, j // 2 + 1)),
        "another thread": Fragment((8, 6), lambda i, j: (i * 2 + j % 2 + 1, j // 2)),
        "replicas": Fragment((8, 6), lambda i, j, rep: (i * 2 + j % 2, j // 2), replicate=2),
    }
    assert not any(other.same_as(first) for other in others.values())
