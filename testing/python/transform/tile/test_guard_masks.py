"""Masks are skipped in iterations in which they mask nothing."""

import itertools
import re

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T

ROWS, TILE, TILES = 64, 32, 5

# Conditions of position, row, and the tile that a block has, and when they always hold.
GUARDED = {
    "causal": lambda i, j, x, k: x * ROWS + i >= k * TILE + j,
    "by an offset": lambda i, j, x, k: x * ROWS + i + TILE - 2 >= k * TILE + j,
    "strict": lambda i, j, x, k: k * TILE + j < x * ROWS + i,
    "a window": lambda i, j, x, k: T.And(i + 3 * ROWS >= k * TILE + j, i <= k * TILE + j),
    "no key": lambda i, j, x, k: T.Not(T.Or(i + x * ROWS < k * TILE + j, j < 0)),
    "blocks of rows": lambda i, j, x, k: (x * ROWS + i) // 3 * 3 + 2 >= k * TILE + j,
    "reversed": lambda i, j, x, k: k * TILE + TILE - 1 - j <= 2 * i + x * ROWS,
}


def wrapped(value, dtype):
    """What is left of an integer in a type that may not hold it."""
    if isinstance(value, int):
        return int(np.array(value).astype(dtype))
    return T.cast(T.cast(value, dtype), "int64")


OTHERS = {
    "unsigned": lambda i, j, x, k: wrapped(x * ROWS + i - k * TILE - j, "uint32") < 40,
    "bytes": lambda i, j, x, k: wrapped(x * ROWS + i + k * 50, "int8") >= j,
    "a sum of bytes": lambda i, j, x, k: wrapped(i + x * ROWS + 160, "uint8") + k * 2 >= j,
    "no loop changes it": lambda i, j, x, k: i >= j + x,
    "always": lambda i, j, x, k: i + j >= 0 - k,
    "never": lambda i, j, x, k: i > k * TILE + j + 3 * ROWS,
    "to and fro": lambda i, j, x, k: j % 2 + k > 2,
    "equal": lambda i, j, x, k: i + k != j,
}


def masked_products(condition, form="begun"):
    @T.prim_func
    def main(
        A: T.Tensor((2 * ROWS, ROWS), "float16"),
        B: T.Tensor((TILES * TILE, ROWS), "float16"),
        Out: T.Tensor((2 * ROWS, TILES * TILE), "float32"),
    ):
        with T.Kernel(2, threads=128) as x:
            a = T.alloc_shared((ROWS, ROWS), "float16")
            b = T.alloc_shared((TILE, ROWS), "float16")
            scores = T.alloc_fragment((ROWS, TILE), "float32")
            T.copy(A[x * ROWS, 0], a)
            for k in T.Pipelined(TILES, num_stages=2):
                T.copy(B[k * TILE, 0], b)
                if form == "behind":
                    T.gemm(a, b, scores, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(ROWS, TILE):
                        seen = condition(i, j, x, k)
                        scores[i, j] = T.if_then_else(seen, scores[i, j], -4096)
                elif form == "in a branch":
                    T.gemm(a, b, scores, transpose_B=True, clear_accum=True)
                    if k > 0:
                        for i, j in T.Parallel(ROWS, TILE):
                            seen = condition(i, j, x, k)
                            scores[i, j] = T.if_then_else(seen, scores[i, j], -4096)
                else:
                    for i, j in T.Parallel(ROWS, TILE):
                        scores[i, j] = T.if_then_else(condition(i, j, x, k), 0, -4096)
                    if form == "touched":
                        scores[0, 0] += 1
                    T.gemm(a, b, scores, transpose_B=True)
                T.copy(scores, Out[x * ROWS, k * TILE])

    return main


@pytest.mark.parametrize("name", [*GUARDED, *OTHERS])
@pytest.mark.parametrize(
    ("form", "arch"), [("begun", "sm_80"), ("begun", "sm_90a"), ("behind", "sm_90a")]
)
def test_results(device, statements, name, form, arch):
    condition = {**GUARDED, **OTHERS}[name]
    program = masked_products(condition, form)
    text = statements(program, "GuardMasks", arch=arch)
    assert ("if " in text) == (name in GUARDED), text
    kernel = tilelang.compile(program, target=f"cuda -arch={arch}", execution_backend="auto")
    a = torch.randint(-3, 4, (2 * ROWS, ROWS), device=device).half()
    b = torch.randint(-3, 4, (TILES * TILE, ROWS), device=device).half()
    out = torch.full((2 * ROWS, TILES * TILE), torch.nan, device=device)
    kernel(a, b, out)
    seen = torch.tensor(
        [
            [bool(condition(i % ROWS, j % TILE, i // ROWS, j // TILE)) for j in range(out.shape[1])]
            for i in range(out.shape[0])
        ],
        device=device,
    )
    product = a.float() @ b.float().T
    masked = product - 4096 if form == "begun" else torch.full_like(product, -4096)
    assert torch.equal(out, torch.where(seen, product, masked))


@pytest.mark.parametrize("name", GUARDED)
def test_a_mask_runs_where_it_masks_something(statements, name):
    """In these iterations, and in no others; its product clears in the others."""
    condition = GUARDED[name]
    for form in ("begun", "behind"):
        text = statements(masked_products(condition, form), "GuardMasks", arch="sm_90a")
        (guard,) = re.findall(r"if not (.*):", text)
        assert (f", {guard})" in text) == (form == "begun"), text
        for x, k in itertools.product(range(2), range(TILES)):
            places = itertools.product(range(ROWS), range(TILE))
            masks = not all(condition(i, j, x, k) for i, j in places)
            assert masks != eval(guard, {"bx": x, "k": k})


@pytest.mark.parametrize(("form", "conditions"), [("touched", 0), ("in a branch", 1)])
def test_left_alone(statements, form, conditions):
    text = statements(masked_products(GUARDED["causal"], form), "GuardMasks")
    assert text.count("if ") == conditions, text


def other_masks(form):
    """Loops like causal masks in which something differs, in front of a product."""
    ordered = {"order": [0, 1, 2, 3], "stage": [0, 1, 1, 1]} if form == "ordered" else {}

    @T.prim_func
    def main(
        B: T.Tensor((TILES * TILE, ROWS), "float16"),
        Out: T.Tensor((2 * ROWS, TILES * TILE), "float32"),
    ):
        with T.Kernel(2, threads=128) as x:
            a = T.alloc_shared((ROWS, ROWS), "float16")
            b = T.alloc_shared((TILE, ROWS), "float16")
            s = T.alloc_fragment((ROWS, TILE), "float32")
            other = T.alloc_fragment((ROWS, TILE), "float32")
            same = T.view(s, (ROWS, TILE), "float32")
            T.clear(a)
            T.clear(s)
            T.clear(other)
            for k in T.Pipelined(TILES, num_stages=2, **ordered):
                T.copy(B[k * TILE, 0], b)
                for i, j in T.Parallel(ROWS, TILE // 2 if form == "a part" else TILE):
                    seen = x * ROWS + i >= k * TILE + j
                    if form == "from another place":
                        s[i, j] = T.if_then_else(seen, s[i, TILE - 1 - j], -4096)
                    elif form == "from another tile":
                        s[i, j] = T.if_then_else(seen, other[i, j], -4096)
                    elif form == "to another place":
                        s[i, TILE - 1 - j] = T.if_then_else(seen, 0, -4096)
                    elif form == "to and fro":
                        s[i, j] = T.if_then_else(j % 2 + k > 2, 0, -4096)
                    elif form == "one of two":
                        s[i, j] = T.if_then_else(T.And(seen, i + k != j), 0, -4096)
                    elif form == "two numbers":
                        s[i, j] = T.if_then_else(seen, 5, -4096)
                    elif form == "two stores":
                        other[i, j] = 1
                        s[i, j] = T.if_then_else(seen, 0, -4096)
                    elif form == "memory":
                        s[i, j] = T.if_then_else(B[i, j] >= k * TILE + j, 0, -4096)
                    elif form == "of a thread":
                        mine = T.get_thread_binding() >= k * TILE + j
                        s[i, j] = T.if_then_else(mine, 0, -4096)
                    else:
                        s[i, j] = T.if_then_else(seen, 0, -4096)
                if form == "left" and B[k, 0] < 0:
                    break
                if form == "another name":
                    T.copy(same, Out[x * ROWS, k * TILE])
                if form == "cleared":
                    T.gemm(a, b, s, transpose_B=True, clear_accum=k == 2)
                else:
                    T.gemm(a, b, s, transpose_B=True)
                T.copy(s, Out[x * ROWS, k * TILE])

    return main


@pytest.mark.parametrize(
    ("form", "conditions"),
    [
        ("causal", 1),
        ("ordered", 0),
        ("a part", 0),
        ("from another place", 0),
        ("from another tile", 0),
        ("to another place", 0),
        ("to and fro", 0),
        ("one of two", 0),
        ("two numbers", 0),
        ("two stores", 0),
        ("memory", 0),
        ("of a thread", 0),
        ("left", 1),
        ("another name", 0),
        ("cleared", 0),
    ],
)
def test_what_is_no_mask(statements, form, conditions):
    text = statements(other_masks(form), "GuardMasks", arch="sm_90a")
    assert text.count("if ") == conditions, text
