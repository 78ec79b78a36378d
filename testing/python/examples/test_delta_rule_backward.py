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


def errors_of(examples, channels, chunk, tensors, gate, beta):
    """Of the results and of each gradient."""
    rule, own = examples["delta_rule"], examples[BACKWARD[channels]]
    q, k, v = tensors
    d_out = torch.randn_like(v)
    forward = examples["kda"]["by_channels"] if channels else rule["by_inverses"]
    kernels = own["kernels_of"](k.shape[1], chunk, k.shape[2], v.shape[2], **options("sm_90a"))
    found = [
        forward(q, k, v, gate, beta, chunk),
        *own["backward"](q, k, v, gate, beta, d_out, kernels, chunk),
    ]
    leaves = [x.double().requires_grad_() for x in (q, k, v, gate, beta)]
    out = rule["reference"](*leaves)
    wanted = [out.detach(), *torch.autograd.grad(out, leaves, d_out.double())]
    return [float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)]


@pytest.mark.parametrize("value", [0.0, -1e-12, -0.5])
@pytest.mark.parametrize("channels", [False, True])
def test_betas_that_are_not_positive(examples, device, channels, value):
    """The gradient of a beta comes from products that have it in them."""
    length, (chunk, key, width) = 39, (32, 32, 64)
    *tensors, beta = examples["delta_rule"]["inputs"](1, length, key, width, device)
    beta[::3] = value
    gate = -torch.rand((length, 1, key) if channels else (length, 1), device=device) / 8
    found = errors_of(examples, channels, chunk, tensors, gate, beta)
    assert max(found) < 1e-2, found


def test_betas_of_zero_and_decays_at_their_limit(examples, device):
    """Beta times a state that has decayed by exp(-60) in half a chunk is no zero."""
    length, (chunk, key, width) = 64, (32, 32, 64)
    *tensors, beta = examples["delta_rule"]["inputs"](1, length, key, width, device)
    beta[::3] = 0
    gate = torch.zeros(length, 1, key, device=device)
    # Behind the first rows of the second chunk, which see the whole state.
    gate[chunk + 5 : chunk + 16] = -60 / 11
    found = errors_of(examples, True, chunk, tensors, gate, beta)
    assert max(found) < 1e-2, found


def test_decays_at_their_limit_in_each_half(examples, device):
    """From a chunk's middle to the next one's it is exp(-120), which float32 does not have."""
    length, (chunk, key, width) = 71, (32, 32, 64)
    *tensors, beta = examples["delta_rule"]["inputs"](1, length, key, width, device)
    gate = torch.full((length, 1, key), -60 / 16, device=device)
    found = errors_of(examples, True, chunk, tensors, gate, beta)
    assert max(found) < 1e-2, found


@pytest.mark.parametrize("chunk", [24, 128])
def test_chunks_that_are_not_inverted(examples, device, chunk):
    rule = examples["delta_rule"]
    q, k, v, beta = rule["inputs"](1, 130, 32, 32, device)
    gates = torch.zeros(130, 1, device=device), torch.zeros(130, 1, 32, device=device)
    wanted = f"found chunks of {chunk} rows, wanted a multiple of 16 up to 64"
    for form, gate in (
        (rule["by_inverses"], gates[0]),
        (rule["by_systems"], gates[0]),
        (examples["kda"]["by_channels"], gates[1]),
    ):
        with pytest.raises(ValueError, match=wanted):
            form(q, k, v, gate, beta, chunk)


WALKS = [
    ("delta_rule", "delta_rule_by_inverses"),
    ("delta_rule_backward", "states"),
    ("kda", "outputs"),
    ("kda_backward", "states"),
]


@pytest.mark.parametrize(
    ("arch", "d_value", "cluster"),
    [("sm_80", 128, 1), ("sm_90a", 128, 2), ("sm_90a", 1024, 8), ("sm_90a", 704, 1)],
)
@pytest.mark.parametrize(("name", "program"), WALKS)
def test_blocks_of_a_head(examples, monkeypatch, name, program, arch, d_value, cluster):
    """They are clusters of at most eight, on chips that have clusters."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", f"cuda -arch={arch}")
    made = examples[name][program](2, 64, 64, d_value, columns=64)
    plan = tilelang.compile(made, execution_backend="emulate").artifact.launch_plan
    assert plan.kernels[0].cluster == (cluster, 1, 1)


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
def test_blocks_of_a_multiprocessor(examples, monkeypatch, name, program, sizes, blocks):
    """At the benchmark's sizes: registers and shared memory, and no product serialised."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    program_of = examples[name][program]
    kernel = tilelang.compile(program_of(256, *sizes), execution_backend="emulate")
    (usage,) = kernel.resource_usage.values()
    assert usage.advisories == ()
    threads = int(re.search(r"block \((\d+)", str(kernel.explain())).group(1))
    assert blocks * threads * usage.registers <= 65536
    # CUDA C++ Programming Guide, compute capability 9.0: 228 KB, of which a block takes one more.
    shared = int(re.search(r"shared memory: (\d+)", str(kernel.explain())).group(1))
    assert blocks * (shared + 1024) <= 228 * 1024
    # The last ones keep addresses of many tensors.
    assert usage.spill_stores <= (256 if program == "gradients" else 0)
