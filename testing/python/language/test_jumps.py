"""`break` and `continue` in loops of every kind, of which those of one iteration are no loops."""

import pytest
import torch

import tilelang
import tilelang.language as T

SM90 = {"kind": "cuda", "arch": "sm_90a"}
LOOPS = {
    "range": "range({})",
    "serial": "T.serial({})",
    "unroll": "T.unroll({})",
    "factor": "T.unroll({}, unroll_factor=1)",
    "from 3": "T.serial(3, {} + 3)",
    "steps": "range(0, 2 * {}, 2)",
    "pipelined": "T.Pipelined({})",
    "stages": "T.Pipelined({}, num_stages=2)",
    "persistent": "T.Persistent([{}], 1, 0)",
}
OF_REGISTERS = """
@T.prim_func
def main(B: T.Tensor((128,), "float32"), n: T.int32):
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        x = T.alloc_var("float32", 0)
        for k in T.serial(4):
            for _ in {loop}:
                if k == n:
                    {jump}
                x += 1
            x += 100
        B[tx] = x
"""
# A shared buffer has its values from threads that jump and from threads that do not.
OF_SHARED = """
@T.prim_func
def main(B: T.Tensor((128,), "float32"), n: T.int32):
    with T.Kernel(1, threads=128):
        tx = T.get_thread_binding()
        S = T.alloc_shared((128,), "float32")
        S[tx] = 0
        for k in T.serial(4):
            for _ in {loop}:
                if k == n:
                    {jump}
                y = S[(tx + 1) % 128]
                T.sync_threads()
                S[tx] = y + 1
            S[tx] += 100
        B[tx] = S[(tx + 1) % 128]
"""


def run(define, text, loop, extent, jump):
    program = define(text.format(loop=LOOPS[loop].format(extent), jump=jump))["main"]
    kernel, b = (
        tilelang.compile(program, target=SM90, execution_backend="emulate"),
        torch.zeros(128),
    )
    kernel(b, 1)
    return b, kernel.get_kernel_source()


@pytest.mark.parametrize("jump", ["break", "continue"])
@pytest.mark.parametrize("extent", [1, 2])
@pytest.mark.parametrize("loop", LOOPS)
def test_a_jump_is_one_of_its_own_loop(define, loop, extent, jump):
    found, source = run(define, OF_REGISTERS, loop, extent, jump)
    assert torch.equal(found, torch.full((128,), 4 * 100.0 + 3 * extent))
    assert source.count("for (") == 2


@pytest.mark.parametrize("jump", ["break", "continue"])
@pytest.mark.parametrize("extent", [1, 2])
@pytest.mark.parametrize("loop", ["serial", "unroll", "pipelined", "persistent"])
def test_threads_meet_behind_a_jump(define, loop, extent, jump):
    found, _ = run(define, OF_SHARED, loop, extent, jump)
    assert torch.equal(found, torch.full((128,), 4 * 100.0 + 3 * extent))


def test_a_loop_of_one_iteration_without_a_jump_is_its_body(define):
    """Neither a jump of an inner loop nor one of a `while` is its own."""
    text = """
@T.prim_func
def main(B: T.Tensor((128,), "float32"), n: T.int32):
    with T.Kernel(1, threads=128):
        x = T.alloc_var("float32", 0)
        for _ in T.serial(1):
            for k in T.serial(4):
                if k == n:
                    break
                x += 1
            while x < 9:
                x += 1
                if x == 5:
                    break
        B[T.get_thread_binding()] = x
"""
    program = define(text)["main"]
    kernel, b = (
        tilelang.compile(program, target=SM90, execution_backend="emulate"),
        torch.zeros(128),
    )
    kernel(b, 1)
    assert torch.equal(b, torch.full((128,), 5.0))
    assert kernel.get_kernel_source().count("for (") == 1


def test_a_jump_outside_of_loops():
    with pytest.raises(ValueError, match=r"T\.loop_break outside of loops"):

        @T.prim_func
        def main(B: T.Tensor((128,), "float32")):
            with T.Kernel(1, threads=128):
                B[T.get_thread_binding()] = 1
                T.loop_break()
