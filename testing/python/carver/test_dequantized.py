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


def test_a_scheduler_has_two_warps_that_unpack():
    """On an H200 17.0 us; a warp group a multiprocessor, with all of K, takes 19.5."""
    first = dequantized_schedules_of("int4", 16, 8192, 8192, True)[0]
    assert (first.threads, first.min_blocks) == (128, 2)


def test_rows_of_int4_that_are_not_packed_are_loaded_whole():
    def loads(form, M, packed):
        return {s.whole_rows for s in dequantized_schedules_of(form, M, 4096, 4096, packed)}

    assert loads("int4", 16, False) == {True}
    assert loads("int4", 16, True) == loads("mxfp4", 16, False) == {False}
    assert loads("int4", 4096, False) == {False}


def test_rows_that_tma_does_not_take_are_copied_or_few_of_them_loaded_by_words():
    def paddings(M, K):
        return {s.padded for s in dequantized_schedules_of("int4", M, 256, K)}

    assert paddings(24, 1030) == {True, False}
    assert paddings(200, 1030) == {True}
    assert paddings(1, 1030) == paddings(24, 1032) == {False}
    # On an H200 these take 9.7 us by words, and 11.3 from a copy; the next 37, and 25.
    assert not dequantized_schedules_of("int4", 9, 14464, 1142, True)[0].padded
    assert dequantized_schedules_of("int4", 53, 2816, 25902, True)[0].padded


def test_blocks_stay_where_k_is_short():
    first = dequantized_schedules_of("int4", 12912, 2112, 18816, True)[0]
    assert first.blocks is None  # 1481 us, with 132 that stay 1890
    assert dequantized_schedules_of("int4", 1312, 29824, 448, True)[0].blocks == 132


def test_two_stages_wait_for_each_step():
    first = dequantized_schedules_of("int4", 256, 8192, 8192, True)[0]
    assert (first.block_M, first.num_stages) == (128, 4)  # 51.9 us; two of 256 rows 60.9


def test_other_weights_are_refused():
    with pytest.raises(ValueError, match="found weights 'int2', wanted one of int4, mxfp4"):
        dequantized_schedules_of("int2", 16, 64, 128)
