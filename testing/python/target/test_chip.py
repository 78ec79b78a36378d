"""The table of chips."""

import pytest

from tilelang._ffi import get_function


@pytest.mark.parametrize(
    ("sm", "kibibytes", "cp_async"),
    [(75, 64, False), (80, 163, True), (86, 99, True), (90, 227, True), (120, 99, True)],
)
def test_shared_memory_and_features(sm, kibibytes, cp_async):
    chip = get_function("target.Chip")(sm)
    assert chip["shared_bytes_per_block"] == kibibytes * 1024
    assert (chip["has_ldmatrix"], chip["has_cp_async"]) == (True, cp_async)
    assert chip["has_stmatrix"] == (sm >= 90)
    assert chip["has_bulk_copy"] == (sm >= 90)


@pytest.mark.parametrize(
    ("sm", "kibibytes", "threads", "blocks"),
    [(75, 64, 1024, 16), (80, 164, 2048, 32), (86, 100, 1536, 16), (90, 228, 2048, 32)],
)
def test_a_multiprocessor(sm, kibibytes, threads, blocks):
    chip = get_function("target.Chip")(sm)
    assert chip["shared_bytes_per_sm"] == kibibytes * 1024
    assert (chip["threads_per_sm"], chip["blocks_per_sm"]) == (threads, blocks)


def test_unknown_chip():
    with pytest.raises(
        ValueError, match=r"found target arch sm_70, wanted one of sm_75, sm_80,.*nearest"
    ):
        get_function("target.Chip")(70)
