import pytest

from tilelang.math import cdiv, next_power_of_2


@pytest.mark.parametrize(("a", "b", "expected"), [(10, 4, 3), (8, 4, 2), (0, 4, 0), (-5, 4, -1)])
def test_cdiv(a, b, expected):
    assert cdiv(a, b) == expected


@pytest.mark.parametrize(("x", "expected"), [(-3, 1), (0, 1), (1, 1), (2, 2), (3, 4), (1025, 2048)])
def test_next_power_of_2(x, expected):
    assert next_power_of_2(x) == expected
