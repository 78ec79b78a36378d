"""T.PersistentTileScheduler: every tile once, in the order that it says."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def order(m_tiles, n_tiles, swizzle_size, column_major):
    """The tiles as (m, n) in order, band by band."""
    length, across = (m_tiles, n_tiles) if column_major else (n_tiles, m_tiles)
    tiles = [
        (along, band)
        for first in range(0, across, swizzle_size)
        for along in range(length)
        for band in range(first, min(first + swizzle_size, across))
    ]
    return tiles if column_major else [t[::-1] for t in tiles]


@pytest.mark.parametrize(
    ("swizzle_size", "column_major"), [(1, True), (1, False), (4, True), (3, False)]
)
def test_every_tile_once(swizzle_size, column_major):
    workers, m_tiles, n_tiles = 4, 5, 6

    @T.prim_func
    def main(A: T.Tensor((m_tiles, n_tiles, 3), "int32")):
        with T.Kernel(workers, threads=1) as bx:
            tiles = T.PersistentTileScheduler(
                m_tiles, n_tiles, workers, swizzle_size, column_major, name="tiles"
            )
            tiles.init(bx)
            while tiles.valid():
                A[tiles.m_idx, tiles.n_idx, 0] = bx
                A[tiles.m_idx, tiles.n_idx, 1] = tiles.current_iter
                m, n = tiles.coord(tiles.current_iter * workers + bx)
                A[m, n, 2] = 1
                tiles.next_tile()

    found = tilelang.compile(main, out_idx=-1)().cpu()
    for i, (m, n) in enumerate(order(m_tiles, n_tiles, swizzle_size, column_major)):
        assert found[m, n].tolist() == [i % workers, i // workers, 1]


def test_tiles_of_a_dynamic_shape():
    rows = T.dynamic("rows")

    @T.prim_func
    def main(A: T.Tensor((rows, 4), "int32")):
        with T.Kernel(3, threads=4) as bx:
            tiles = T.PersistentTileScheduler(rows, 4, num_workers=3, swizzle_size=2)
            tiles.init(bx)
            while tiles.valid():
                if T.get_thread_binding() == 0:
                    A[tiles.m_idx, tiles.n_idx] += 1
                tiles.next_tile()

    a = torch.zeros((7, 4), dtype=torch.int32, device=DEVICE)
    tilelang.compile(main)(a)
    assert a.eq(1).all()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("T.PersistentTileScheduler(0, 2, 1)", "num_m_tiles of .* is 0, wanted a positive"),
        ("T.PersistentTileScheduler(2, 2, 1).valid()", r"used before init\(worker_id\)"),
        ("T.PersistentTileScheduler(2, 2, 1, stateful=False).init(0)", "with stateful=False"),
    ],
)
def test_errors(trace, statement, message):
    with pytest.raises(ValueError, match=rf"{message}[\s\S]*--> "):
        trace(statement)


@pytest.mark.skipif(DEVICE == "cuda", reason="needs a machine without a GPU")
def test_the_number_of_workers_comes_from_the_gpu(trace):
    with pytest.raises(ValueError, match="there is no GPU; give num_workers"):
        trace("T.PersistentTileScheduler(2, 2)")
