"""How wide the vectors of a loop over elements are (parallel.cc, WidthPlanner)."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

ROWS, COLUMNS = 64, 128


def scaled(group, offset=0):
    """Each element times the number that `group` neighbours have in common."""

    @T.prim_func
    def main(
        A: T.Tensor((ROWS, COLUMNS), "float16"),
        scale: T.Tensor((ROWS, COLUMNS // group + 1), "float16"),
        B: T.Tensor((ROWS, COLUMNS), "float16"),
    ):
        with T.Kernel(1, threads=128):
            for i, j in T.Parallel(ROWS, COLUMNS):
                B[i, j] = A[i, j] * scale[i, (j + offset) // group]

    return main


@pytest.mark.parametrize(
    ("group", "offset", "width"), [(2, 0, 2), (4, 0, 4), (32, 0, 8), (32, 1, 1)]
)
def test_neighbours_with_a_number_in_common_are_a_vector(group, offset, width):
    kernel = tilelang.compile(scaled(group, offset), -1, "emulate", target="cuda -arch=sm_90a")
    widths = re.findall(r"tl::store\(B[^;]*load<half_t, (\d+)>", kernel.get_kernel_source())
    assert [int(w) for w in widths] == ([width] if width > 1 else [])
    a, scale = torch.randn(ROWS, COLUMNS).half(), torch.randn(ROWS, COLUMNS // group + 1).half()
    wanted = a * scale[:, (torch.arange(COLUMNS) + offset) // group]
    torch.testing.assert_close(kernel(a, scale), wanted, rtol=0, atol=0)
