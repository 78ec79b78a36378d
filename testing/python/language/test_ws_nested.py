"""Random programs of T.ws: ranges of one and two warp groups use the same memory, and wait for a
third warp group, which comes to no barrier of theirs."""

import random

import pytest
import torch

import tilelang
from tilelang.emulator import schedule

HEAD = """\
@T.prim_func
def main(A: T.Tensor((384,), "float32"), B: T.Tensor((384,), "float32")):
    with T.Kernel(1, threads=384):
        S = T.alloc_shared((2, 384), "float32")
        arrived = T.alloc_barrier([128] * {rounds})
        tx = T.get_thread_binding()
        S[0, tx] = A[tx]
        S[1, tx] = 2 * A[tx]
        for k in T.serial({rounds}):
"""
STATEMENTS = {
    "write": "S[{slot}, tx] = tx + {shift}",
    "read": "B[tx] += S[{slot}, (tx + {shift}) % {threads}]",
    "move": "S[{slot}, tx] = S[1 - {slot}, (tx + {shift}) % {threads}] + 1",
}
Step = tuple[str, int, int]


def drawn(rng: random.Random) -> tuple[int, list[tuple[int, list[Step]]], int]:
    """Rounds of a loop, threads and statements of its ranges, and which of them waits."""
    ranges = [
        (
            rng.choice((128, 256)),
            [
                (rng.choice(list(STATEMENTS)), rng.randrange(2), rng.randrange(1, 128))
                for _ in range(rng.randint(1, 3))
            ],
        )
        for _ in range(rng.randint(2, 6))
    ]
    return rng.randint(1, 3), ranges, rng.randrange(len(ranges))


def written(rounds, ranges, waits):
    lines = []
    for number, (threads, steps) in enumerate(ranges):
        lines.append("with T.ws(0):" if threads == 128 else "with T.ws(0, 1):")
        for kind, slot, shift in steps:
            text = STATEMENTS[kind].format(slot=slot, shift=shift, threads=threads)
            lines.append(f"    {text}")
        if number == waits:
            lines.append("    T.barrier_wait(arrived[k], 0)")
    lines += ["with T.ws(2):", "    T.barrier_arrive(arrived[k])"]
    return HEAD.format(rounds=rounds) + "".join(f"            {line}\n" for line in lines)


def computed(a, rounds, ranges):
    S, B = torch.stack([a, 2 * a]), torch.zeros(384)
    for threads, steps in rounds * ranges:
        tx = torch.arange(threads)
        for kind, slot, shift in steps:
            if kind == "write":
                S[slot, :threads] = (tx + shift).float()
            elif kind == "read":
                B[:threads] += S[slot, (tx + shift) % threads]
            else:
                S[slot, :threads] = S[1 - slot, (tx + shift) % threads] + 1
    return B


@pytest.mark.parametrize("seed", range(12))
def test_ranges_that_contain_one_another(define, seed):
    rounds, ranges, waits = drawn(random.Random(seed))
    program = define(written(rounds, ranges, waits))["main"]
    kernel = tilelang.compile(program, target="cuda -arch=sm_90a", execution_backend="emulate")
    a, found = torch.arange(384).float(), torch.zeros(384)
    with schedule(seed=seed):
        kernel(a, found)
    assert torch.equal(found, computed(a, rounds, ranges))
