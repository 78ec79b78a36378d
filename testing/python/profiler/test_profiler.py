import pytest
import torch

from tilelang.engine.param import KernelParam
from tilelang.profiler import Profiler
from tilelang.utils.tensor import TensorSupplyType


class Program:
    """Stands for a launcher: ``C = A + B`` on the CPU, off by `error` from the second call on."""

    device = "cpu"

    def __init__(self, error=0.0):
        self.error = error
        self.calls = 0

    def __call__(self, a, b):
        self.calls += 1
        return a + b + (self.error if self.calls > 1 else 0)


def profiler(program=None, shape=(8, 4)):
    params = [KernelParam("float32", shape)] * 3
    return Profiler(params, [2], TensorSupplyType.Auto, program or Program())


def test_inputs_are_generated_for_what_is_no_output():
    assert [t.shape for t in profiler()._get_inputs()] == [(8, 4)] * 2
    assert len(profiler()._get_inputs(with_output=True)) == 3
    assert profiler().run_once().shape == (8, 4)


def test_a_right_kernel_is_close():
    profiler().assert_allclose(torch.add)
    profiler().assert_allclose(lambda a, b: (a + b,), input_tensors=[torch.ones(2), torch.ones(2)])


def test_a_wrong_kernel_is_not_close():
    with pytest.raises(AssertionError, match="kernel and reference are not close"):
        profiler().assert_allclose(torch.sub)
    with pytest.raises(AssertionError, match="the reference returned 2 outputs, the kernel 1"):
        profiler().assert_allclose(lambda a, b: (a, b))


def test_a_manual_check_sees_both():
    seen = []
    profiler().manual_assert_close(torch.add, manual_check_prog=lambda r, k: seen.extend([r, k]))
    assert torch.equal(seen[0][0], seen[1][0])
    with pytest.raises(ValueError, match="expected manual_check_prog"):
        profiler().manual_assert_close(torch.add)


def test_runs_that_differ_are_found():
    profiler().assert_consistent()
    with pytest.raises(AssertionError, match="output 0 of run 1 differs"):
        profiler(Program(error=1.0)).assert_consistent()


def test_a_kernel_is_timed_on_its_device():
    program = Program()
    assert profiler(program).do_bench(n_warmup=1, n_repeat=2) > 0
    assert program.calls == 1 + 1 + 1 + 2
    with pytest.raises(ValueError, match="symbolic dimension `m`"):
        profiler(shape=("m",)).do_bench()
    assert profiler(shape=("m",)).do_bench(n_repeat=1, dynamic_symbolic_constraints={"m": 3}) > 0


def test_another_function_is_timed_on_the_same_inputs():
    shapes = []
    profiler().do_bench(lambda a, b: shapes.append(a.shape), n_warmup=1, n_repeat=1)
    assert shapes == [(8, 4)] * 4
