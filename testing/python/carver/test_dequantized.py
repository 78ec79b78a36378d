"""Schedules of products with weights of 4 bits that the model chooses: what they are, not what they
take."""

import pytest

from tilelang.carver import dequantized_schedules_of


@pytest.mark.parametrize("form", ["int4", "mxfp4"])
@pytest.mark.parametrize("size", [(1, 17, 1216), (16, 8192, 8192), (4096, 4096, 4096)])
def test_all_shares_have_work_and_all_operands_two_stages(form, size):
    (*_, K) = size
    for s in dequantized_schedules_of(form, *size):
        steps = -(-K // s.block_K)
        assert s.split == 1 or steps // s.split >= 2
        assert s.num_stages >= (3 if s.parts > 1 else 2)
        assert s.scale_sums <= (form == "int4")


def test_a_short_a_is_one_tile_of_which_several_blocks_share_a_multiprocessor():
    first = dequantized_schedules_of("mxfp4", 20, 16384, 8192)[0]
    assert first.block_M == 24
    assert first.min_blocks == 2


def test_rows_that_tma_does_not_take_are_copied():
    assert all(s.padded for s in dequantized_schedules_of("int4", 24, 256, 1030))
    assert not any(s.padded for s in dequantized_schedules_of("int4", 1, 256, 1030))


def test_other_weights_are_refused():
    with pytest.raises(ValueError, match="found weights 'int2', wanted one of int4, mxfp4"):
        dequantized_schedules_of("int2", 16, 64, 128)
