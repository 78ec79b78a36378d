"""The gated delta rule by roles: sizes, gates and beta at their ends, refusals, registers."""

import pytest
import torch

import tilelang
import tilelang.language as T

EXAMPLE = "linear_attention/delta_rule_roles.py"


def error(example, q, k, v, gate, beta):
    rule = example.check.__globals__
    wanted = rule["reference"](q, k, v, gate, beta)
    return (example.by_roles(q, k, v, gate, beta).double() - wanted).norm() / wanted.norm()


def tensors(example, heads, length, key, value, device):
    torch.manual_seed(0)
    return example.check.__globals__["inputs"](heads, length, key, value, device)


@pytest.mark.parametrize(
    # Each slot is filled twice; each group has two chunks; less than a chunk; two blocks of a head;
    # whole chunks.
    ("heads", "length", "key", "value"),
    [(2, 450, 64, 128), (1, 150, 64, 128), (1, 5, 128, 128), (1, 130, 128, 256), (1, 128, 64, 128)],
)
def test_sizes(example, device, heads, length, key, value):
    q, k, v, beta = tensors(example, heads, length, key, value, device)
    gate = -torch.rand(length, heads, device=device) / 8
    assert error(example, q, k, v, gate, beta) < 5e-3


@pytest.mark.parametrize("scale", [0.2, 1.9])
def test_inverses(example, device, scale):
    """By warps, of what is around zero, and of a constant, whose powers grow. Nothing on the
    diagonal and above it is read."""
    rule = example.check.__globals__
    torch.manual_seed(0)
    system = torch.randn(64, 64) if scale < 1 else torch.ones(64, 64)
    system = (system * scale).to(device)

    @T.prim_func
    def main(System: T.Tensor((64, 64), "float32"), Inverse: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            held = T.alloc_fragment((64, 64), "float32")
            numbers, inverse = [T.alloc_shared((64, 64), "float16") for _ in range(2)]
            T.copy(System, held)
            T.clear(inverse)
            rule["invert_by_warps"](held, numbers, inverse, T.get_warp_idx())
            T.copy(inverse, Inverse)

    found = torch.empty(64, 64, device=device, dtype=torch.float16)
    upper = torch.full_like(system, torch.inf).triu()
    tilelang.compile(main, target={"kind": "cuda", "arch": "sm_90a"})(
        upper - system.tril(-1), found
    )
    wanted = torch.linalg.inv(torch.eye(64, device=device) + system.tril(-1).double())
    assert (found.double() - wanted).norm() < 1e-2 * wanted.norm()


@pytest.mark.parametrize("gates", [0, 20])
def test_gates_at_their_ends(example, device, gates):
    """No decay; decays whose inverses are infinite."""
    q, k, v, beta = tensors(example, 1, 70, 64, 128, device)
    gate = -torch.rand(70, 1, device=device) * gates
    assert error(example, q, k, v, gate, beta) < 5e-3


@pytest.mark.parametrize("roles", [True, False])
def test_gates_that_forget_all(example, device, roles):
    """As between sequences that are packed behind each other."""
    q, k, v, beta = tensors(example, 1, 70, 64, 128, device)
    gate = -torch.rand(70, 1, device=device) / 8
    gate[3], gate[20], gate[66] = -1e9, -torch.inf, -1e9
    rule = example.check.__globals__
    form = example.by_roles if roles else rule["by_inverses"]
    out = form(q, k, v, gate, beta, 64)
    wanted = rule["reference"](q, k, v, gate, beta)
    assert (out.double() - wanted).norm() < 5e-3 * wanted.norm()


def test_no_rows(example, device):
    q, k, v, beta = tensors(example, 1, 0, 64, 128, device)
    assert example.by_roles(q, k, v, torch.zeros(0, 1, device=device), beta).shape == (0, 1, 128)


def test_beta_of_any_sign(example, device):
    q, k, v, beta = tensors(example, 1, 70, 64, 128, device)
    beta = beta * 2 - 1
    beta[3:9] = 0
    gate = torch.full((70, 1), -0.1, device=device)
    assert error(example, q, k, v, gate, beta) < 5e-3


@pytest.mark.parametrize(("key", "value"), [(32, 128), (192, 128), (128, 64), (64, 0)])
def test_other_sizes_are_refused(example, key, value):
    with pytest.raises(ValueError, match=r"delta_rule\.by_inverses takes others"):
        example.delta_rule_by_roles(1, key, value)


def test_other_chunks_are_refused(example, device):
    q, k, v, beta = tensors(example, 1, 70, 64, 128, device)
    with pytest.raises(ValueError, match="found chunks of 32 rows, wanted 64"):
        example.by_roles(q, k, v, beta, beta, 32)


def test_registers(example, monkeypatch):
    """Of the benchmark's sizes: no product serialised, few addresses spilled."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    program = example.delta_rule_by_roles(256)
    (usage,) = tilelang.compile(program, execution_backend="emulate").resource_usage.values()
    assert usage.advisories == ()
    assert usage.spill_stores <= 64
