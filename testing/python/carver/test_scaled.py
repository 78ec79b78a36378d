"""Schedules of scaled products that the model chooses, for an H200: what they are, not what they
take."""

import pytest

from tilelang.carver import scaled_schedules_of


@pytest.mark.parametrize("size", [(1, 256, 128), (7, 512, 22621), (4096, 4096, 7168)])
def test_all_shares_have_work_and_all_operands_two_stages(size):
    groups = -(-size[2] // 128)
    for s in scaled_schedules_of(*size):
        shares = max(s.split, s.tail)
        assert -(-groups // shares) * (shares - 1) < groups
        assert s.num_stages >= 2
        assert s.padded == (size[2] % 16 != 0)


@pytest.mark.parametrize(("M", "swaps"), [(1, True), (24, True), (65, False), (4096, False)])
def test_a_short_a_is_swapped(M, swaps):
    """An instruction has 64 rows, or more: they come from B."""
    assert scaled_schedules_of(M, 4096, 7168)[0].swap == swaps


def test_last_tiles_are_shared_where_a_round_would_be_nearly_empty():
    """425 tiles of 192 x 128: three rounds of 132 and 29 tiles."""
    first = scaled_schedules_of(928, 10816, 7488)[0]
    assert (first.block_M, first.width) == (192, 128)
    assert 2 < first.tail <= 132 // 29


def test_fewer_blocks_have_more_rounds():
    """The model counts those of the call: 16 tiles are a round of so many, or four of four."""
    assert scaled_schedules_of(512, 512, 512, 4) != scaled_schedules_of(512, 512, 512)


def test_three_warp_groups_have_few_rows_between_their_multiples():
    """155 x 7616 x 20608 takes an H200 68 us by two shares of 192 x 128, by two products of 128 x
    128 80 us."""
    first = scaled_schedules_of(155, 7616, 20608)[0]
    assert (first.block_M, first.split, first.apart) == (192, 2, True)


def test_an_empty_product_is_refused():
    with pytest.raises(ValueError, match="found a product of 0 x 64 x 64"):
        scaled_schedules_of(0, 64, 64)
