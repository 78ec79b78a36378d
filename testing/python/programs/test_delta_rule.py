"""The gated delta rule, examples/linear_attention/delta_rule.py, on two architectures, and
by other solutions of the triangular system, row after row."""

import pathlib
import runpy

import pytest
import torch

import tilelang
import tilelang.language as T

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "linear_attention"
EXAMPLE = runpy.run_path(str(EXAMPLES / "delta_rule.py"))
CHUNK, KEY, VALUE = (EXAMPLE[name] for name in ("CHUNK", "KEY", "VALUE"))


@T.macro
def solve_in_fragment(system, right, solved):
    # solved[i] = right[i] - sum over j < i of system[i, j] solved[j]
    chunk, d_value = solved.shape
    T.copy(right, solved)
    for j in T.serial(chunk - 1):
        for i, d in T.Parallel(chunk, d_value):
            if i > j:
                solved[i, d] -= system[i, j] * solved[j, d]


@T.macro
def solve_in_shared(system, right, solved):
    chunk, d_value = solved.shape
    rows = T.alloc_shared((chunk, d_value), "float32")
    factors = T.alloc_shared((chunk, chunk), "float32")
    T.copy(right, rows)
    T.copy(system, factors)
    for i in T.serial(1, chunk):
        for d in T.Parallel(d_value):
            for j in T.serial(i):
                rows[i, d] -= factors[i, j] * rows[j, d]
    T.copy(rows, solved)


SOLVERS = {
    "shared": solve_in_shared,
    "fragment": solve_in_fragment,
    "blocks": EXAMPLE["solve_by_blocks"],
}


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_results(device, arch, solve):
    # Only the solution by blocks is quick with the chunk that a matrix instruction of Hopper wants.
    heads, chunk = 2, CHUNK if solve == "blocks" else CHUNK // 2
    length = 2 * chunk + 7
    kernel = tilelang.compile(
        EXAMPLE["delta_rule"](heads, SOLVERS[solve], chunk),
        execution_backend="auto",
        target=f"cuda -arch={arch}",
    )
    q, k, v, beta = EXAMPLE["inputs"](heads, length, KEY, VALUE, device)
    gate = -torch.rand(length, heads, device=device) / 8
    out = torch.full((length, heads, VALUE), torch.nan, device=device)
    kernel(q, k, v, gate, beta, out)
    torch.testing.assert_close(
        out.double(), EXAMPLE["reference"](q, k, v, gate, beta), rtol=2e-2, atol=2e-2
    )


def test_inverses_of_all_chunks_at_a_time(device):
    form = EXAMPLE["by_inverses"]
    assert EXAMPLE["relative_error"](form, 2, 2 * CHUNK + 7, device) < 1e-2
