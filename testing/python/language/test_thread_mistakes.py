"""Programs in which threads take apart what they have to do together, each beside a right one."""

import builtins
import linecache
import re
import textwrap
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T

FILE = "kernel.py"
HEAD = """\
@T.prim_func
def main(A: T.Tensor((64, 64), "float32"), N: T.Tensor((256,), "int32"),
         C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads={threads}):
        tx = T.get_thread_binding()
"""
SHARED = 'S = T.alloc_shared((64, 64), "float32")\n'
TILE = SHARED + 'F = T.alloc_fragment((64, 64), "float32")\nT.copy(A, F)\n'
SUMS = TILE + 'R = T.alloc_fragment((64,), "float32")\nT.fill(R, 5)\n'


@dataclass(frozen=True)
class Mistake:
    """A wrong program, what is said of the line with `# here`, and a right one with its result."""

    wrong: str
    said: str
    right: str
    result: Any
    threads: int = 128
    target: str = "cuda -arch=sm_80"


def first_row(x):
    """A tile with x in its first row, zeros below."""
    c = torch.zeros(64, 64)
    c[0, : len(x)] = x
    return c


MISTAKES = {
    "a copy by one thread": Mistake(
        SHARED + "if tx == 0:\n    T.copy(A, S)  # here\nT.copy(S, C)",
        r"T\.copy in a branch \(kernel\.py:\d+\) that thread 0 of 128 takes, wanted all threads",
        SHARED + "T.copy(A, S)\nT.copy(S, C)",
        lambda a, n: a,
    ),
    "a fill by every other thread": Mistake(
        "if tx % 2 == 1:\n    T.fill(C, 4)  # here",
        r"T\.fill in a branch \(.*\) that 64 threads that do not follow each other of 128 take",
        "if tx >= 32:\n    T.fill(C, 4)",
        lambda a, n: torch.full((64, 64), 4.0),
    ),
    "a sum by a part of a warp": Mistake(
        SUMS + "if tx < 100:\n    T.reduce_sum(F, R, dim=1)  # here\nT.copy(R, C[0, :])",
        r"T\.reduce_sum in a branch .* that threads 0 to 99 of 128 take",
        SUMS + "T.reduce_sum(F, R, dim=1)\nT.copy(R, C[0, :])",
        lambda a, n: first_row(a.sum(1)),
    ),
    "iterations for one thread": Mistake(
        "if tx == 5:\n    for i in T.Parallel(64):  # here\n        C[0, i] = A[1, i]",
        r"T\.Parallel in a branch .* that thread 5 of 128 takes.*T\.serial",
        "if tx == 5:\n    for i in T.serial(64):\n        C[0, i] = A[1, i]",
        lambda a, n: first_row(a[1]),
    ),
    "a product in the else of one thread": Mistake(
        'H = T.alloc_shared((64, 64), "float16")\nT.copy(A, H)\n'
        'P = T.alloc_fragment((64, 64), "float32")\nT.clear(P)\n'
        "if tx == 0:\n    C[0, 0] = 1\nelse:\n    T.gemm(H, H, P)  # here\nT.copy(P, C)",
        r"T\.gemm in a branch .* that threads 1 to 127 of 128 take",
        'H = T.alloc_shared((64, 64), "float16")\nT.copy(A, H)\n'
        'P = T.alloc_fragment((64, 64), "float32")\nT.clear(P)\n'
        "if tx == 0:\n    N[0] = 1\nT.gemm(H, H, P)\nT.copy(P, C)",
        lambda a, n: a @ a,
    ),
    "a loop as long as the thread's number says": Mistake(
        "for k in T.serial(tx // 64):\n    T.atomic_add(C, A)  # here",
        r"T\.atomic_add in a loop \(kernel\.py:\d+\) that threads may run a different number",
        "for k in T.serial(N[3]):\n    T.atomic_add(C, A)",
        lambda a, n: 3 * a,
    ),
    "a branch that data choose": Mistake(
        SHARED + "T.copy(A, S)\nif N[tx] > 3:\n    T.cumsum(S, S, dim=1)  # here\nT.copy(S, C)",
        r"T\.cumsum in a branch \(.*\) whose condition threads may find different",
        SHARED + "T.copy(A, S)\nif N[5] > 3:\n    T.cumsum(S, S, dim=1)\nT.copy(S, C)",
        lambda a, n: a.cumsum(1),
    ),
    "a while loop that data end": Mistake(
        "k = T.alloc_var('int32', init=0)\n"
        "while k < N[tx % 4]:\n    T.atomic_add(C, A)  # here\n    k += 1",
        r"T\.atomic_add in a loop .* that threads may run a different number of times",
        "k = T.alloc_var('int32', init=0)\nwhile k < N[2]:\n    T.atomic_add(C, A)\n    k += 1",
        lambda a, n: 2 * a,
    ),
    "a loop that some threads leave": Mistake(
        "for k in T.serial(4):\n    if N[tx] > 100 + k:\n        break\n"
        "    T.atomic_add(C, A)  # here",
        r"T\.atomic_add in a loop .* that threads may run a different number of times",
        "for k in T.serial(4):\n    if N[2] < k:\n        break\n    T.atomic_add(C, A)",
        lambda a, n: 3 * a,
    ),
    "a row for each thread": Mistake(
        "T.copy(A[tx, 0:64], C[tx, 0:64])  # here",
        r"T\.copy of a region of A that differs by thread, wanted one that all threads agree on",
        "for j in T.serial(64):\n    C[tx, j] = A[tx, j]",
        lambda a, n: a,
        threads=64,
    ),
    "a fill of each thread's row": Mistake(
        "T.fill(C[tx, 0:64], 2)  # here",
        r"T\.fill of a region of C that differs by thread",
        "for j in T.serial(64):\n    C[tx, j] = 2",
        lambda a, n: torch.full((64, 64), 2.0),
        threads=64,
    ),
    "a value for each thread": Mistake(
        "T.fill(C[0, :], A[1, tx])  # here",
        r"T\.fill of a value that differs by thread",
        "C[0, tx] = A[1, tx]",
        lambda a, n: first_row(a[1]),
        threads=64,
    ),
    "as many iterations as the thread's number": Mistake(
        "for i in T.Parallel(tx):  # here\n    C[0, i] = 1",
        r"T\.Parallel of bounds that differ by thread, .*T\.serial",
        "for i in T.serial(tx):\n    C[tx, i] = 1",
        lambda a, n: torch.ones(64, 64).tril(-1),
        threads=64,
    ),
    "a sum that all threads change": Mistake(
        "C[0, 0] = C[0, 0] + A[0, tx]  # here",
        r"an element of C that all threads change at the same time, .*T\.atomic_add",
        "T.atomic_add(C[0, 0], A[0, tx])",
        lambda a, n: first_row(a[0].sum()[None]),
        threads=64,
    ),
    "a maximum that all threads change": Mistake(
        "S = T.alloc_shared((1,), 'float32')\nS[0] = 0\n"
        "S[0] = T.max(S[0], A[0, tx])  # here\nC[0, 0] = S[0]",
        r"an element of S that all threads change at the same time",
        "S = T.alloc_shared((1,), 'float32')\nS[0] = 0\n"
        "T.atomic_max(S[0], A[0, tx])\nC[0, 0] = S[0]",
        lambda a, n: first_row(a[0].max()[None]),
        threads=64,
    ),
    "a warp's sum by lanes that data choose": Mistake(
        "x = T.alloc_var('float32', init=A[0, tx])\n"
        "if x > 0:\n    C[0, tx] = T.warp_reduce_sum(x)  # here",
        r"T\.warp_reduce_sum in a branch \(.*\) whose condition threads may find different",
        "x = T.alloc_var('float32', init=A[0, tx])\n"
        "total = T.warp_reduce_sum(T.if_then_else(x > 0, x, 0.0))\nif x > 0:\n    C[0, tx] = total",
        lambda a, n: first_row(a[0, :32].relu().sum() * (a[0, :32] > 0)),
        threads=32,
    ),
    "a shuffle of lanes that the block does not have": Mistake(
        "C[0, tx] = T.shfl_xor(A[0, tx], 1)  # here",
        r"shfl_xor_sync of the lanes 0xFFFFFFFF, of which only 0xFFFFF of warp 0 .*mask=0xFFFFF",
        "C[0, tx] = T.shfl_xor(A[0, tx], 1, mask=0xFFFFF)",
        lambda a, n: first_row(a[0, torch.arange(20) ^ 1]),
        threads=20,
    ),
    "a vote in a branch of half a warp": Mistake(
        "if tx < 16:\n    C[0, tx] = T.cast(T.any_sync(A[0, tx] > 0), 'float32')  # here",
        r"any_sync of the lanes 0xFFFFFFFF, of which only 0xFFFF of warp 0 .*mask=0xFFFF",
        "if tx < 16:\n    C[0, tx] = T.cast(T.any_sync(A[0, tx] > 0, 0xFFFF), 'float32')",
        lambda a, n: first_row(torch.full((16,), (a[0, :16] > 0).any().float())),
        threads=32,
    ),
    "a shuffle in a choice of lanes": Mistake(
        "C[0, tx] = T.shfl_up(A[0, tx], 1) if tx > 0 else 0  # here",
        r"shfl_up_sync of the lanes 0xFFFFFFFF, of which only 0xFFFFFFFE of warp 0 ",
        "C[0, tx] = T.if_then_else(tx > 0, T.shfl_up(A[0, tx], 1), 0)",
        lambda a, n: first_row(torch.cat([torch.zeros(1), a[0, :31]])),
        threads=32,
    ),
    "a vote behind a condition of lanes": Mistake(
        "if tx < 16 and T.any_sync(A[0, tx] > 0):  # here\n    C[0, tx] = 1",
        r"any_sync of the lanes 0xFFFFFFFF, of which only 0xFFFF of warp 0 ",
        "any_positive = T.any_sync(A[0, tx] > 0)\nif tx < 16 and any_positive:\n    C[0, tx] = 1",
        lambda a, n: first_row(torch.full((16,), (a[0, :32] > 0).any().float())),
        threads=32,
    ),
    "an element of a fragment by one thread": Mistake(
        "f = T.alloc_fragment((4,), 'float32')\nT.fill(f, 1)\n"
        "if tx == 0:\n    f[0] = 3  # here\nT.copy(f, C[0, 0:4])",
        r"a store to fragment f in a branch .* that thread 0 of 128 takes",
        "f = T.alloc_fragment((4,), 'float32')\nT.fill(f, 1)\nf[0] = 3\nT.copy(f, C[0, 0:4])",
        lambda a, n: first_row(torch.tensor([3.0, 1, 1, 1])),
    ),
    "a copy by TMA that several threads ask for": Mistake(
        SHARED
        + "full = T.alloc_barrier(1)\nif tx < 2:\n    T.tma_copy(A, S, barrier=full)  # here\n"
        "    T.barrier_arrive(full)\nT.barrier_wait(full, 0)\nT.copy(S, C)",
        r"T\.tma_copy in a branch .* that threads 0 to 1 of 128 take",
        SHARED + "full = T.alloc_barrier(1)\nif tx == 1:\n    T.tma_copy(A, S, barrier=full)\n"
        "    T.barrier_arrive(full)\nT.barrier_wait(full, 0)\nT.copy(S, C)",
        lambda a, n: a,
        target="cuda -arch=sm_90a",
    ),
    "a product of a warp group by one warp": Mistake(
        'H = T.alloc_shared((64, 64), "float16")\nP = T.alloc_fragment((64, 64), "float32")\n'
        "T.copy(A, H)\nif tx < 32:\n    T.clear(P)\n    T.wgmma_gemm(H, H, P)  # here\n"
        "    T.wait_wgmma(0)\n    T.copy(P, C)",
        r"threads must be a multiple of 128, found 32",
        'H = T.alloc_shared((64, 64), "float16")\nP = T.alloc_fragment((64, 64), "float32")\n'
        "T.copy(A, H)\nif tx >= 128:\n    T.clear(P)\n    T.wgmma_gemm(H, H, P)\n"
        "    T.wait_wgmma(0)\n    T.copy(P, C)",
        lambda a, n: a @ a,
        threads=256,
        target="cuda -arch=sm_90a",
    ),
}


def program(mistake, body):
    text = HEAD.format(threads=mistake.threads) + textwrap.indent(body, " " * 8) + "\n"
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    names = {"T": T}
    exec(builtins.compile(text, FILE, "exec"), names)
    return names["main"], 1 + text[: text.find("# here")].count("\n")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused(name):
    mistake = MISTAKES[name]
    func, line = program(mistake, mistake.wrong)
    with pytest.raises(ValueError, match=rf"^kernel\.py:{line}: ") as error:
        tilelang.lower(func, target=mistake.target)
    assert re.search(mistake.said, str(error.value)), error.value


@pytest.mark.parametrize("name", MISTAKES)
def test_the_repair_is_right(name):
    mistake = MISTAKES[name]
    func, _ = program(mistake, mistake.right)
    kernel = tilelang.compile(func, target=mistake.target, execution_backend="emulate")
    a = torch.randint(-3, 4, (64, 64), generator=torch.Generator().manual_seed(3)).float()
    n, c = torch.arange(256, dtype=torch.int32), torch.zeros(64, 64)
    kernel(a, n, c)
    assert torch.equal(c, mistake.result(a, torch.arange(256)))
