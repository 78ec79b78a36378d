"""T.use_swizzle."""

import pytest


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ("10", "rasterization2DRow<10>"),
        ("panel_size=4, order='column'", "rasterization2DColumn<4>"),
    ],
)
def test_it_holds_for_the_rest_of_the_kernel(trace, traced, round_trip, arguments, pattern):
    statements = f"A[0, 0] = 1\nT.use_swizzle({arguments})\nA[0, 1] = 2"
    assert traced(statements) == (
        "A[0, 0] = T.float32(1.0)\n"
        f'with T.attr({{"threadblock_swizzle_pattern": "{pattern}"}}):\n'
        "    A[0, 1] = T.float32(2.0)\n"
    )
    round_trip(trace(statements))


def test_disabled_it_does_nothing(traced):
    assert "swizzle" not in traced("T.use_swizzle(10, enable=False)")


@pytest.mark.parametrize(
    ("arguments", "message"), [("0", "positive int"), ("4, 'snake'", "'row' or")]
)
def test_errors(trace, arguments, message):
    with pytest.raises(ValueError, match=rf"{message}[\s\S]*--> "):
        trace(f"T.use_swizzle({arguments})")
