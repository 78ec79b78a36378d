"""Block orders visit each tile once."""

import numpy as np
import pytest

SOURCE = "#include <tl/common.h>\n" + "".join(
    f"""
extern "C" __global__ void {order}_{panel}_{chiplets}(int* visits, int* tiles) {{
  const int start = blockIdx.y * gridDim.x + blockIdx.x;
  const dim3 blockIdx = tl::rasterization2D{order}<{panel}, {chiplets}>();
  visits[blockIdx.y * gridDim.x + blockIdx.x] += 1;
  tiles[2 * start] = blockIdx.x;
  tiles[2 * start + 1] = blockIdx.y;
}}
"""
    for order in ("Row", "Column", "MLX")
    for panel in (1, 3, 10)
    for chiplets in (1, 3, 8)
)


def walk(run, kernel, columns, rows, chiplets=1):
    visits = np.zeros((rows, columns), np.int32)
    tiles = np.zeros((rows * columns, 2), np.int32)
    run(SOURCE, f"{kernel}_{chiplets}", [visits, tiles], grid=(columns, rows), block=1)
    return visits, tiles


@pytest.mark.parametrize("grid", [(1, 1), (1, 7), (7, 1), (4, 6), (5, 7), (13, 11), (10, 20)])
@pytest.mark.parametrize("panel", [1, 3, 10])
@pytest.mark.parametrize("order", ["Row", "Column", "MLX"])
@pytest.mark.parametrize("chiplets", [1, 3, 8])
def test_every_tile_is_taken_once(run, order, panel, grid, chiplets):
    visits, _ = walk(run, f"{order}_{panel}", *grid, chiplets)
    assert (visits == 1).all()


def test_a_panel_of_rows_is_walked_back_and_forth(run):
    _, tiles = walk(run, "Row_3", 2, 5)
    forth = [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    back = [[1, 3], [1, 4], [0, 3], [0, 4]]
    assert tiles.tolist() == forth + back


def test_the_order_of_mlx_walks_forwards(run):
    _, tiles = walk(run, "MLX_3", 2, 5)
    first = [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert tiles.tolist() == [*first, [0, 3], [0, 4], [1, 3], [1, 4]]


def test_a_panel_of_columns_is_the_same_with_axes_swapped(run):
    _, rows = walk(run, "Row_3", 4, 7)
    _, columns = walk(run, "Column_3", 7, 4)
    np.testing.assert_array_equal(rows, columns[:, ::-1])


@pytest.mark.parametrize("grid", [(16, 16), (13, 11), (3, 2)])
def test_each_chiplet_walks_a_part_of_the_tiles(run, grid):
    """Block b runs on chiplet b % 8, which takes its share of one walk over the grid."""
    _, whole = walk(run, "Row_3", *grid)
    _, dealt = walk(run, "Row_3", *grid, 8)
    parts = [dealt[chiplet::8] for chiplet in range(8)]
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1
    np.testing.assert_array_equal(np.concatenate(parts), whole)
