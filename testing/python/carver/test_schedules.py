"""Schedules that the cost model chooses, for an H200: what they are, not what they take."""

import math
from dataclasses import replace

import pytest

from tilelang.carver import CUDA, schedules_of

H200 = CUDA("cuda -arch=sm_90a")
SMS = 132


def best(*size, **options):
    return schedules_of(*size, arch=H200, **options)[0]


def waves(schedule, M, N):
    rows, columns = (N, M) if schedule.swap else (M, N)
    tiles = -(-rows // schedule.block_M) * -(-columns // schedule.block_N)
    return tiles * schedule.split / SMS


def test_few_tiles_share_k():
    """Without, 32 blocks would work, of 132. Of more columns there are 128 small tiles: on an H200
    these are 2 % faster than larger ones of which two blocks share each."""
    assert best(256, 4096, 7168).kind == "tiles"
    schedule = best(128, 1024, 7168)
    assert schedule.split > 1 or schedule.shared_tiles
    assert schedule.blocks > 0.6 * SMS


def test_shares_of_k_are_loaded_as_fast_as_l2_serves_each():
    """Tiles of 192 x 64 and five shares took 53 us on an H200, a step of 32 KB 940 clocks: more is
    read again of small tiles."""
    schedule = best(328, 832, 26752)
    assert schedule.split > 1
    assert schedule.block_M * schedule.block_N >= 128 * 96


@pytest.mark.parametrize("M", [1, 16, 24, 32])
def test_a_short_a_is_swapped(M):
    """An instruction has 64 rows, or more: they come from B."""
    schedule = best(M, 8192, 8192)
    assert schedule.swap
    assert schedule.block_N == max(16, -(-M // 8) * 8)


def test_products_of_many_tiles_are_not_swapped():
    assert not best(1024, 4096, 4096).swap


@pytest.mark.parametrize(
    ("size", "block_N"),
    [((5094, 128, 5312), 80), ((300, 4096, 8200), 152), ((269, 11648, 12800), 136)],
)
def test_tiles_are_swapped_where_their_widths_waste_little(size, block_N):
    """Two tiles have 160, 304 and 272 columns for the rows of A, or for a part of many."""
    schedule = best(*size)
    assert schedule.swap
    assert schedule.block_N == block_N


def test_clusters_are_suggested_where_rows_are_whole_lines_if_they_gain():
    """328 x 832 x 26752, nine shares of 128 x 168 swapped: 38.6 us on an H200, in clusters 37.2."""
    found = schedules_of(328, 832, 26752, arch=H200)
    assert any(s.cluster == 2 for s in found[:3])

    def tile(s):
        return s.block_M, s.block_N, s.block_K, s.stages, s.split, s.apart, s.swap, s.results

    alone = {tile(s): s.seconds for s in found if s.cluster == 1}
    assert all(s.seconds < 0.97 * alone[tile(s)] for s in found if s.cluster == 2)
    assert not any(s.cluster > 1 for s in schedules_of(4096, 4096, 4096, arch=H200))


def test_the_last_wave_is_full_or_shared():
    """5120 is 6.06 waves of 128 x 256."""
    schedule = best(5120, 5120, 5120)
    assert schedule.shared_tiles or waves(schedule, 5120, 5120) % 1 > 0.8


@pytest.mark.parametrize("size", [2056, 4104])
def test_widths_fill_waves(size):
    """192 x 176 makes one wave of 2056 x 2056, and four of 4104 x 4104."""
    schedule = best(size, size, size)
    assert (schedule.block_M, schedule.block_N) == (192, 176)
    # A result of 66 KB leaves room for three stages, half of it for four.
    assert (schedule.stages, schedule.parts, schedule.results) == (4, 2, 1)


@pytest.mark.parametrize("size", [(2056, 2056, 2056), (777, 1000, 333)])
def test_one_part_at_a_time_is_for_more_stages(size):
    """Threads that load elements, of rows of 333, take no more than two."""
    by_results = {1: {}, 2: {}}
    for s in schedules_of(*size, arch=H200):
        rest = replace(s, stages=0, parts=1, results=2, seconds=0)
        by_results[s.results][rest] = s.stages
    assert size[2] % 2 or by_results[1]
    for rest, stages in by_results[1].items():
        assert stages > by_results[2].get(rest, 0)


def test_results_of_short_sums_leave_in_few_parts():
    """817 x 6656 x 192 took an H200 12.9 us in six parts with five stages and panels of four rows,
    10.3 in one part with four stages and one panel of all seven."""
    found = schedules_of(817, 6656, 192, arch=H200)
    of_192 = next(s for s in found if (s.block_M, s.block_N) == (128, 192))
    assert (of_192.parts, of_192.stages, of_192.panel) == (1, 4, 8)
    assert of_192 in found[:3]


def test_who_adds_shares_up_does_so_behind_the_loads():
    """32 x 8192 x 8192 on an H200: 128 blocks of whole tiles take 44 us; two that share each of
    larger tiles 46, four 49."""
    found = [s for s in schedules_of(32, 8192, 8192, arch=H200) if not s.apart]
    fastest = {split: next(s.seconds for s in found if s.split == split) for split in (1, 2, 4)}
    assert found[0].split == 1
    assert fastest[1] + 1e-6 < fastest[2] < fastest[4] - 1e-6


def test_a_second_kernel_adds_many_shares_up():
    """328 x 832 x 26752 on an H200: eleven shares 41 us, four that the last block adds up 47."""
    assert best(328, 832, 26752).apart
    assert not any(s.apart for s in schedules_of(64, 8192, 512, arch=H200)[:3])


@pytest.mark.parametrize("size", [(4096,) * 3, (5120,) * 3, (6144,) * 3, (4096, 14336, 4096)])
def test_whole_tiles_are_chosen_where_waves_are_nearly_full(size):
    """Shares of stream K begin at different steps: neighbours want nothing at the same time."""
    schedule = best(*size)
    assert schedule.kind == "tiles"
    assert 0.94 < waves(schedule, *size[:2]) / math.ceil(waves(schedule, *size[:2])) <= 1


def test_clusters_load_what_lies_across_lines_of_l2():
    """6328 x 6328 x 6328 took an H200 917 us, and 776 by clusters of two blocks, which L2 serves
    less rows; 6336 is 99 lines."""
    schedule = best(6328, 6328, 6328)
    assert (schedule.cluster, schedule.split, schedule.shared_tiles) == (2, 1, 0)
    assert schedule.blocks % 2 == 0
    assert not any(s.cluster > 1 for s in schedules_of(6336, 6336, 6336, arch=H200))
    # Threads load what TMA does not take, and older chips have no clusters.
    assert not any(s.cluster > 1 and not s.padded for s in schedules_of(512, 512, 515, arch=H200))
    sm_80 = CUDA("cuda -arch=sm_80")
    # Shares of K are loaded so, too: a row of 300 x 4096 x 8200 has few tiles.
    assert any(s.cluster > 1 and s.split > 1 for s in schedules_of(300, 4096, 8200, arch=H200))
    streams = [s for s in schedules_of(2056, 999, 1000, arch=H200) if s.shared_tiles]
    assert {s.cluster for s in streams} == {1}
    assert not any(s.cluster > 1 for s in schedules_of(6328, 6328, 6328, arch=sm_80))


@pytest.mark.parametrize(
    "size", [(5120, 5120, 5120), (256, 4096, 7168), (3, 40, 24), (6328, 6328, 6328)]
)
def test_what_is_considered_fits(size):
    for s in schedules_of(*size, arch=H200):
        operands = s.stages * (s.block_M + s.block_N) * s.block_K * 2
        width = s.block_N // s.parts
        # What a second kernel adds up leaves without shared memory.
        results = 0 if s.apart else min(s.parts, s.results) * s.block_M * width * 2
        assert operands + results < H200.smem_cap
        assert s.block_N % s.parts == 0
        assert s.parts == 1 or width % 32 == 0 or width % 16 == 8
        assert s.blocks <= SMS
        assert s.split * s.shared_tiles == 0 or s.split == 1
        assert s.block_M * s.block_N // s.threads <= 200


def test_the_choice_is_that_of_the_sizes_alone():
    first = schedules_of(777, 1000, 333, arch=H200)
    assert first == schedules_of(777, 1000, 333, arch=CUDA("cuda -arch=sm_90a"))
    assert first == sorted(first, key=lambda s: s.seconds)


def test_longer_products_take_longer():
    times = [best(1024, 1024, K).seconds for K in (256, 512, 1024, 4096)]
    assert times == sorted(times)


def test_another_chip_has_other_blocks():
    assert schedules_of(4096, 4096, 4096, arch=CUDA("cuda -arch=sm_80"))[0].blocks == 108


def test_an_empty_product_is_refused():
    with pytest.raises(ValueError, match="found a product of 0 x 8 x 8"):
        schedules_of(0, 8, 8, arch=H200)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_rows_that_tma_does_not_take_are_copied_first(dtype):
    """45 x 22592 x 723 took an H200 186 us by loads of elements. And elements are never loaded
    through a deep pipeline, which only unrolls more of them: one of eight stages took ptxas a
    minute."""
    size = 4096, 4096, 4095
    assert best(*size, in_dtype=dtype).padded
    assert not any(s.padded for s in schedules_of(4096, 4096, 4096, dtype, arch=H200))
    direct = [s for s in schedules_of(*size, dtype, arch=H200) if not s.padded]
    assert {s.stages for s in direct} == {2}
    few_rows = best(45, 22592, 723, in_dtype=dtype)
    assert few_rows.padded or few_rows.odd_rows


def test_threads_multiply_few_rows_that_tma_does_not_take():
    """3 x 10176 x 10306 takes an H200 100 us by copies and tiles, and 53 by threads; an
    instruction has eight rows for words of A. The number of rows of B is odd, or they would be
    loaded by TMA."""
    assert best(3, 10175, 10306, in_dtype="float8_e4m3fn").by_threads
    assert not best(3, 10175, 10304, in_dtype="float8_e4m3fn").by_threads
    assert not best(9, 10175, 10306, in_dtype="float8_e4m3fn").by_threads


def test_weights_with_rows_that_tma_does_not_take_are_read_once_for_few_rows():
    """36 x 8256 x 31103 takes an H200 192 us by copies. Rows are shifted by registers that wgmma
    reads, of whole rows of 16 bytes."""
    size = 36, 8256, 31103
    schedule = best(*size, in_dtype="float8_e4m3fn", out_dtype="bfloat16")
    assert schedule.odd_rows
    assert "odd rows" in schedule.kind
    assert not best(36, 8256, 31104, in_dtype="float8_e4m3fn").odd_rows
    assert not best(36, 8255, 31103, in_dtype="float8_e4m3fn").odd_rows
    older = schedules_of(*size, "float8_e4m3fn", arch=CUDA("cuda -arch=sm_80"))
    assert not any(s.odd_rows for s in older)


def test_blocks_multiply_fewer_rows_where_multiprocessors_would_have_none():
    """2 x 1600 x 2051 takes an H200 10.8 us by blocks of 8 rows of B, and 13.3 by those of 16; of
    10176 rows it is the other way round."""
    assert best(2, 1600, 2051).by_threads == 8
    assert best(3, 10175, 10306, in_dtype="float8_e4m3fn").by_threads == 16


def test_threads_take_longer_to_store_results_than_tma():
    """192 x 3145 x 1472 in 8-bit floats takes an H200 9.5 us, and with 3152 columns 8."""
    odd, even = (best(192, n, 1472, in_dtype="float8_e4m3fn") for n in (3145, 3152))
    assert even.seconds < odd.seconds < 1.5 * even.seconds
