"""Gradients of attention over chosen rows: sizes that the programs take, and refusals."""

import importlib

import pytest

import tilelang

EXAMPLE = "mla/sparse_mla_backward.py"


@pytest.mark.parametrize(("latent", "rotated"), [(192, 64), (160, 32)])
def test_roles_with_other_columns(example, device, latent, rotated):
    """The rows' gradients are three pieces, which the fourth group adds, or five, of which the left
    and the right group add one each: columns are added once each."""
    roles = importlib.import_module("sparse_mla_backward_roles")
    target = {"kind": "cuda", "arch": "sm_90a"}
    kernel = tilelang.compile(roles.sparse_mla_backward(64, latent, rotated), target=target)
    assert example.relative_error(kernel, 1, 90, 77, 64, latent, rotated, device) < 2e-2


@pytest.mark.parametrize(("latent", "rotated"), [(128, 48), (512, 96), (80, 16), (64, 8)])
def test_columns_that_roles_refuse(example, latent, rotated):
    roles = importlib.import_module("sparse_mla_backward_roles")
    with pytest.raises(ValueError, match=f"found latent {latent}, rotated {rotated}, wanted"):
        roles.sparse_mla_backward(64, latent, rotated)


@pytest.mark.parametrize(
    ("latent", "rotated", "width"),
    [(160, 32, 128), (192, 64, 128), (64, 16, 64), (144, 16, 144), (48, 32, 48)],
)
def test_columns_that_are_refused(example, latent, rotated, width):
    with pytest.raises(ValueError, match=f"found latent {latent}, .* wanted a width that divides"):
        example.sparse_mla_backward(64, latent, rotated, width=width)
