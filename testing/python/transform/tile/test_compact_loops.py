"""CompactLoops: a pipelined loop under a condition is one over the iterations in which it holds."""

import pytest
import torch

import tilelang
import tilelang.language as T

ROWS = 64
COUNTED = "goes over the iterations in which its condition holds"


@T.macro
def step(K, b, tiles, second=True):
    """Adds K[b] K[b]' K[b] to `out`, by two products, or K[b] by one."""
    q, k, v, scores, weights, out = tiles
    T.copy(K[b, :, :], k)
    T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
    T.copy(scores, weights)
    if second:
        T.copy(K[b, :, :], v)
        T.gemm(weights, v, out)


def program(loop, count, dtype="int32", stages=2, first=0):
    """`loop`, a macro, over a number of tiles that the call knows from the `first` on, of which
    `Chosen` has `count` numbers that say which."""
    tiles = T.dynamic("tiles")

    @T.prim_func
    def main(
        K: T.Tensor((tiles, ROWS, ROWS), "float16"),
        Chosen: T.Tensor((count,), dtype),
        Out: T.Tensor((ROWS, ROWS), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q, k, v = (T.alloc_shared((ROWS, ROWS), "float16") for _ in range(3))
            scores, out = (T.alloc_fragment((ROWS, ROWS), "float32") for _ in range(2))
            weights = T.alloc_fragment((ROWS, ROWS), "float16")
            T.copy(K[0, :, :], q)
            T.clear(out)
            each = (q, k, v, scores, weights, out)
            loop(K, Chosen, T.Pipelined(first, tiles, num_stages=stages), each)
            T.copy(out, Out)

    return main


@T.macro
def of_numbers(K, Chosen, iterations, tiles):
    for b in iterations:
        if Chosen[b] != 0:
            step(K, b, tiles)


@T.macro
def of_bytes(K, Chosen, iterations, tiles):
    for b in iterations:
        if Chosen[b]:
            step(K, b, tiles)


@T.macro
def of_bits(K, Chosen, iterations, tiles):
    for b in iterations:
        if Chosen[b // 4] >> b % 4 & 1 != 0:
            step(K, b, tiles)


@T.macro
def of_names(K, Chosen, iterations, tiles):
    for b in iterations:
        chosen = Chosen[b]
        if chosen == 1 and b < 6:
            step(K, b, tiles)


# Of seven tiles.
LOOPS = {
    "numbers": (of_numbers, "int32", [0, 1, 0, 0, 1, 1, 0], [1, 4, 5]),
    "bytes": (of_bytes, "bool", [True, True, False, False, False, False, True], [0, 1, 6]),
    "bits": (of_bits, "uint8", [0b1010, 0b100], [1, 3, 6]),
    "a name, and more than it": (of_names, "int32", [2, 1, 0, 1, 0, 0, 1], [1, 3]),
    "nothing chosen": (of_numbers, "int32", [0] * 7, []),
}


@pytest.mark.parametrize(("name", "first"), [*((name, 0) for name in LOOPS), ("numbers", 2)])
def test_results(device, name, first):
    loop, dtype, chosen, wanted = LOOPS[name]
    kernel = tilelang.compile(
        program(loop, len(chosen), dtype, first=first),
        execution_backend="auto",
        target="cuda -arch=sm_90a",
    )
    assert COUNTED in kernel.explain()
    assert "warpgroup_wait<1>" in kernel.get_kernel_source()
    k = torch.randint(-1, 2, (7, ROWS, ROWS)).half().to(device)
    out = torch.full((ROWS, ROWS), torch.nan, device=device)
    kernel(k, torch.tensor(chosen, dtype=getattr(torch, dtype), device=device), out)
    terms = [k[0].float() @ k[b].float().T @ k[b].float() for b in wanted if b >= first]
    assert torch.equal(out, sum(terms, torch.zeros_like(out)))


@T.macro
def of_one_product(K, Chosen, iterations, tiles):
    for b in iterations:
        if Chosen[b] != 0:
            step(K, b, tiles, second=False)


@T.macro
def with_more_than_a_branch(K, Chosen, iterations, tiles):
    for b in iterations:
        if Chosen[b] != 0:
            step(K, b, tiles)
        T.clear(tiles[3])


@T.macro
def without_memory(K, Chosen, iterations, tiles):
    for b in iterations:
        if b % 2 == 0:
            step(K, b, tiles)


@T.macro
def with_more_in_front(K, Chosen, iterations, tiles):
    for b in iterations:
        T.clear(tiles[3])
        if Chosen[b] != 0:
            step(K, b, tiles)


@T.macro
def with_another_branch(K, Chosen, iterations, tiles):
    for b in iterations:
        if Chosen[b] != 0:
            step(K, b, tiles)
        else:
            T.clear(tiles[5])


@pytest.mark.parametrize(
    ("loop", "stages", "arch"),
    [
        (with_more_in_front, 2, "sm_90a"),
        (with_another_branch, 2, "sm_90a"),
        (of_one_product, 2, "sm_90a"),
        (with_more_than_a_branch, 2, "sm_90a"),
        (without_memory, 2, "sm_90a"),
        (of_numbers, 1, "sm_90a"),
        (of_numbers, 2, "sm_80"),
    ],
)
def test_other_loops_stay(loop, stages, arch):
    lowered = tilelang.lower(program(loop, 7, stages=stages), target=f"cuda -arch={arch}")
    assert "b_count" not in lowered.kernel_source
