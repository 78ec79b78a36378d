"""The gradients of the gated delta rule and of KDA, and KDA's forward, against the recurrence in
float64: rows that no chunk divides, gates that leave little; what a block takes."""

import pathlib
import re
import runpy
import sys

import pytest
import torch

import tilelang

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "examples" / "linear_attention"
BACKWARD = {False: "delta_rule_backward", True: "kda_backward"}


@pytest.fixture(scope="module")
def examples():
    """The names of each file."""
    sys.path.insert(0, str(FOLDER))
    try:
        names = "delta_rule", "kda", *BACKWARD.values()
        return {name: runpy.run_path(str(FOLDER / f"{name}.py")) for name in names}
    finally:
        sys.path.remove(str(FOLDER))


def options(arch):
    return {"execution_backend": "auto", "target": f"cuda -arch={arch}"}


def errors(examples, heads, length, channels, *arguments, **settings):
    own = examples[BACKWARD[channels]]
    form = own["kernels_of"], own["backward"]
    return examples[BACKWARD[False]]["errors"](
        form, heads, length, channels, *arguments, **settings
    )


@pytest.mark.parametrize(
    # A chunk in the middle has a state before it and a gradient behind it.
    ("heads", "length", "sizes"),
    [(1, 71, (32, 32, 64)), (2, 135, (64, 64, 32))],
)
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_gradients(examples, device, heads, length, sizes, channels, arch):
    found = errors(examples, heads, length, channels, device, sizes, 0.03, **options(arch))
    # Of Q, K, V, the gates and beta.
    assert max(found) < 1e-2, found


@pytest.mark.parametrize(("channels", "gates"), [(False, 20), (True, 4.9)])
def test_gates_that_leave_little(examples, device, channels, gates):
    """Exponents of a gate a head are never above zero, those of channels within half a chunk."""
    sizes = (32, 32, 64)
    found = errors(examples, 1, 39, channels, device, sizes, gates, **options("sm_90a"))
    assert max(found) < 1e-2, found


@pytest.mark.parametrize("channels", [False, True])
def test_betas_of_zero(examples, device, channels):
    """The gradient of a beta comes from products that have it in them."""
    rule, own = examples["delta_rule"], examples[BACKWARD[channels]]
    heads, length, (chunk, key, value) = 1, 39, (32, 32, 64)
    q, k, v, beta = rule["inputs"](heads, length, key, value, device)
    beta[::3] = 0
    gate = -torch.rand((length, heads, key) if channels else (length, heads), device=device) / 8
    d_out = torch.randn_like(v)
    kernels = own["kernels_of"](heads, chunk, key, value, **options("sm_90a"))
    found = own["backward"](q, k, v, gate, beta, d_out, kernels, chunk)
    leaves = [x.double().requires_grad_() for x in (q, k, v, gate, beta)]
    wanted = torch.autograd.grad(rule["reference"](*leaves), leaves, d_out.double())
    for x, y in zip(found, wanted, strict=True):
        assert (x.double() - y).norm() < 1e-2 * y.norm()


@pytest.mark.parametrize("gates", [0.5, 4.9])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_gates_of_channels(examples, device, arch, gates):
    own, heads, length, (chunk, key, value) = examples["kda"], 2, 39, (32, 32, 64)
    q, k, v, beta = examples["delta_rule"]["inputs"](heads, length, key, value, device)
    gate = -torch.rand(length, heads, key, device=device) * gates
    parts = own["parts_of"](k, chunk)
    out = torch.full((length, heads, value), torch.nan, device=device)
    first = tilelang.compile(own["chunk_parts"](heads, chunk, key), **options(arch))
    first(q, k, gate, beta, *parts)
    second = tilelang.compile(own["outputs"](heads, chunk, key, value), **options(arch))
    second(v, *parts[:3], out)
    wanted = examples["delta_rule"]["reference"](q, k, v, gate, beta)
    assert (out.double() - wanted).norm() < 1e-2 * wanted.norm()


@pytest.mark.parametrize(
    ("name", "program", "sizes", "blocks"),
    [
        ("delta_rule", "chunk_inverses", (64, 128), 6),
        ("delta_rule", "delta_rule_by_inverses", (64, 128, 128, 64), 2),
        ("delta_rule_backward", "states", (64, 128, 128), 2),
        ("delta_rule_backward", "gradients", (64, 128, 128), 1),
        ("kda", "chunk_parts", (64, 128), 2),
        ("kda", "outputs", (64, 128, 128), 2),
        ("kda_backward", "states", (64, 128, 128), 2),
        ("kda_backward", "gradients", (64, 128, 128), 1),
    ],
)
def test_blocks_of_a_multiprocessor(examples, name, program, sizes, blocks):
    """At the benchmark's sizes: registers and shared memory, and no product serialised."""
    kernel = tilelang.compile(
        examples[name][program](256, *sizes),
        target="cuda -arch=sm_90a",
        execution_backend="emulate",
    )
    (usage,) = kernel.resource_usage.values()
    assert usage.advisories == ()
    threads = int(re.search(r"block \((\d+)", str(kernel.explain())).group(1))
    assert blocks * threads * usage.registers <= 65536
    # CUDA C++ Programming Guide, compute capability 9.0: 228 KB, of which a block takes one more.
    shared = int(re.search(r"shared memory: (\d+)", str(kernel.explain())).group(1))
    assert blocks * (shared + 1024) <= 228 * 1024
    # The last ones keep addresses of many tensors.
    assert usage.spill_stores <= (256 if program == "gradients" else 0)
