"""The gradients of the gated delta rule and of KDA, and the forward in two kernels, against the
recurrence in float64: rows that no chunk divides, gates that leave little; what a block takes."""

import pathlib
import re
import runpy
import sys

import pytest
import torch

import tilelang

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "linear_attention"


@pytest.fixture(scope="module")
def example():
    """Of the backward, which has the names of the two others that it takes."""
    sys.path.insert(0, str(FOLDER))
    try:
        chunks = runpy.run_path(str(FOLDER / "delta_rule_chunks.py"))
        return chunks | runpy.run_path(str(FOLDER / "delta_rule_backward.py"))
    finally:
        sys.path.remove(str(FOLDER))


def options(arch):
    return {"execution_backend": "auto", "target": f"cuda -arch={arch}"}


@pytest.mark.parametrize(
    # A chunk in the middle has a state before it and a gradient behind it.
    ("heads", "length", "sizes"),
    [(1, 71, (32, 32, 64)), (2, 135, (64, 64, 32))],
)
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_gradients(example, device, heads, length, sizes, channels, arch):
    found = example["errors"](heads, length, channels, device, sizes, 0.03, **options(arch))
    # Of Q, K, V, the gates and beta.
    assert max(found) < 1e-2, found


@pytest.mark.parametrize(("channels", "gates"), [(False, 20), (True, 4.9)])
def test_gates_that_leave_little(example, device, channels, gates):
    """Exponents of a gate a head are never above zero, those of channels within half a chunk."""
    sizes = (32, 32, 64)
    found = example["errors"](1, 39, channels, device, sizes, gates, **options("sm_90a"))
    assert max(found) < 1e-2, found


@pytest.mark.parametrize("channels", [False, True])
def test_forward_in_two_kernels(example, device, channels):
    heads, length, sizes = 2, 39, (32, 32, 64)
    q, k, v, beta = example["inputs"](heads, length, *sizes[1:], device)
    gate = -torch.rand((length, heads, 32) if channels else (length, heads), device=device)
    parts = example["parts_of"](q, v, sizes[0])
    out = torch.full((length, heads, 64), torch.nan, device=device)
    for program, tensors in (
        (example["chunk_parts"](heads, channels, *sizes), (q, k, v, gate, beta, *parts)),
        (example["outputs"](heads, *sizes), (*parts[1:], out)),
    ):
        tilelang.compile(program, **options("sm_90a"))(*tensors)
    wanted = example["reference"](q, k, v, gate, beta)
    assert (out.double() - wanted).norm() < 1e-2 * wanted.norm()


@pytest.mark.parametrize(
    ("name", "channels"),
    [
        ("chunk_parts", (False,)),
        ("chunk_parts", (True,)),
        ("states", ()),
        ("gradients_of_states", ()),
        ("outputs", ()),
        ("gradients", (False,)),
    ],
)
def test_two_blocks_of_a_multiprocessor(example, name, channels):
    """At the benchmark's sizes: registers and shared memory of two, and no product serialised."""
    program = example[name](256, *channels, 64, 128, 128)
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a", execution_backend="emulate")
    (usage,) = kernel.resource_usage.values()
    assert usage.advisories == ()
    threads = int(re.search(r"block \((\d+)", str(kernel.explain())).group(1))
    assert 2 * threads * usage.registers <= 65536
    # CUDA C++ Programming Guide, compute capability 9.0: 228 KB, of which a block takes one more.
    shared = int(re.search(r"shared memory: (\d+)", str(kernel.explain())).group(1))
    assert 2 * (shared + 1024) <= 228 * 1024
    # The last one keeps addresses of 17 tensors.
    assert usage.spill_stores <= (256 if name == "gradients" else 0)
