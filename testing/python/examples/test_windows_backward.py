"""Gradients of attention with windows in one kernel: windows of a step and less, and refusals."""

import importlib

import pytest
import torch

import tilelang
import tilelang.language as T

EXAMPLE = "attention/flash_attention_windows_backward.py"


@pytest.mark.parametrize(("heads", "window"), [(32, 1), (32, 3), (8, 15)])
def test_windows_that_are_shorter_than_a_step(example, device, heads, window):
    """A query of a step then misses keys of its own step."""
    assert example.relative_error(1, heads, 1, 21, 64, window, device) < 2e-3


@pytest.mark.parametrize(("heads", "length", "window"), [(8, 150, 50), (16, 100, 30)])
def test_queries_of_the_next_range_add_to_a_range_s_keys(example, device, heads, length, window):
    assert example.ranges_of(1, heads, length, window, 1) > 1
    assert example.relative_error(1, heads, 1, length, 64, window, device) < 2e-3


@pytest.mark.parametrize(("heads", "window"), [(2, 65), (4, 97), (32, 141)])
def test_the_longest_windows_and_their_masks_fit(example, device, heads, window):
    assert example.relative_error(1, heads, 1, 150, 64, window, device) < 2e-3


def test_ranges_that_are_shorter_than_what_a_query_sees_are_refused(example):
    with pytest.raises(ValueError, match="found 4 ranges of 16 positions, wanted none, or 80 pos"):
        example.gradients(1, 8, 64, 64, 50, 1, ranges=4)


def test_a_sink_that_outweighs_all_keys(example, device):
    """Behind the sequence's end LogSum is 0, and exp(sink - 0) would be infinite."""
    tensors, _ = example.case(1, 32, 1, 5, 64, device)
    tensors[3].fill_(100.0)
    out, log_sum = example.attention(1, 32, 5, 64, 3, 1)(*tensors)
    gradients = example.backward(tensors, log_sum, torch.ones_like(out), 3)
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_exponentials_by_polynomials(example, device):
    @tilelang.jit(out_idx=[-1])
    def exponentials(size):
        @T.prim_func
        def main(X: T.Tensor((size,), T.float32), Y: T.Tensor((size,), T.float32)):
            with T.Kernel(1, threads=128):
                for i in T.Parallel(size):
                    Y[i] = example.polynomial_exp2(X[i])

        return main

    x = torch.cat([torch.linspace(-126, 126.9, 1022), torch.tensor([-1e4, -torch.inf])]).to(device)
    found, wanted = exponentials(1024)(x).double(), torch.exp2(x.double())
    assert ((found - wanted).abs() <= 1e-4 * wanted + 2e-38).all()


def test_a_key_of_large_scores_that_queries_do_not_see(example, device):
    """Its weights may be by polynomials, which then are any numbers."""
    walk = example.Walk.of(8, 1, 150, 50, 2)
    position = walk.keys - walk.new // 2
    assert walk.by_polynomial >= walk.new
    tensors, d_out = example.case(1, 8, 1, 150, 64, device)
    tensors[1][0, position, 0] = 20 * tensors[0][0, position - 1, 0]
    _, log_sum = example.attention(1, 8, 150, 64, 50, 1)(*tensors)
    found = example.backward(tensors, log_sum, d_out, 50)
    wanted = example.wanted_gradients(tensors, d_out, 50)[1:]
    assert example.largest_error(found, wanted) < 2e-3


def test_small_gradients_are_those_of_the_other_program(example, device):
    """Slopes of float16 begin to underflow: they are rounded before 1 / sqrt(dim) is applied."""
    plain = importlib.import_module("flash_attention_windows")
    tensors, d_out = plain.case(1, 8, 1, 70, 64, device)
    out, log_sum = plain.attention(1, 8, 70, 64, 50, 1)(*tensors)
    d_out *= 1e-4
    _, *wanted = plain.wanted_gradients(tensors, d_out, 50)
    found = example.backward(tensors, log_sum, d_out, 50)
    others = plain.backward(tensors, out, log_sum, d_out, 50)
    for x, other, y in zip(found, others, wanted, strict=True):
        assert (x.double() - y).norm() < 1.5 * (other.double() - y).norm()


def test_a_window_without_keys_is_refused(example):
    with pytest.raises(ValueError, match="found a window of 0, wanted at least 1"):
        example.gradients(1, 8, 64, 64, 0, 1)
    with pytest.raises(ValueError, match="found a sequence of 0, wanted at least 1"):
        example.gradients(1, 8, 0, 64, 50, 1)


def test_heads_that_no_keys_are_for_are_refused(example):
    plain = importlib.import_module("flash_attention_windows")
    for program in (plain.attention, plain.gradient_of_queries, plain.gradients_of_keys):
        with pytest.raises(ValueError, match="found 5 heads for 2 of keys, wanted a multiple"):
            program(1, 5, 64, 64, 10, key_heads=2)
        with pytest.raises(ValueError, match="found a window of 0, wanted at least 1"):
            program(1, 8, 64, 64, 0)


@pytest.mark.parametrize(
    ("heads", "key_heads", "dim", "window"),
    [(6, 1, 64, 50), (8, 8, 64, 50), (8, 3, 64, 50), (8, 1, 128, 50), (8, 1, 64, 130)],
)
def test_what_the_walk_has_no_room_for_is_refused(example, heads, key_heads, dim, window):
    with pytest.raises(ValueError, match=r"flash_attention_windows\.backward takes others"):
        example.gradients(1, heads, 64, dim, window, key_heads)
