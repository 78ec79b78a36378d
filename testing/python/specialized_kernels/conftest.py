"""Kernels that compilers of pipelines break on, warp specialised for sm_90a, in the emulator."""

import re

import pytest
import torch

import tilelang
from tilelang.emulator import schedule

SCHEDULES = ({"order": "round_robin"}, {"seed": 1}, {"order": "adversarial", "seed": 1})


class Kernel:
    """A compiled kernel, what the compiler says of it, and its runs under several schedules."""

    def __init__(self, func, config):
        self.compiled = tilelang.compile(
            func,
            out_idx=-1,
            target={"kind": "cuda", "arch": "sm_90a"},
            execution_backend="emulate",
            pass_configs=config,
        )
        self.source = self.compiled.get_kernel_source()
        self.text = self.compiled.explain()

    @property
    def why_not(self):
        """Why it is not warp specialised, None if it is."""
        for line in self.text.splitlines():
            if line.strip().startswith("warp specialised: "):
                return None
            if line.strip().startswith("not warp specialised: "):
                return line.rpartition(": ")[2]
        raise AssertionError("nothing is said of warp specialisation:\n" + self.text)

    @property
    def fills(self):
        """Who makes each of the producer's copies, in program order."""
        return re.findall(r": producer, by (.*?), channel \d", self.text)

    @property
    def channels(self):
        lines = [line.strip() for line in self.text.splitlines()]
        return [line for line in lines if line.startswith("channel ")]

    @property
    def producer(self):
        """The source of the producer's threads."""
        return self._branch(r"if \((tx|warp_group) < ")

    @property
    def consumer(self):
        return self._branch(r" <= (tx|warp_group)\) \{")

    def _branch(self, begin):
        lines = self.source.splitlines()
        first = next(i for i, line in enumerate(lines) if re.search(begin, line))
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        last = lines.index(indent + "}", first)
        return "\n".join(lines[first:last])

    def check(self, *args, wanted, limit=0.0):
        """Runs it; each result lies within `limit`, relative to the norm of the wanted one."""
        for chosen in SCHEDULES:
            with schedule(**chosen):
                found = self.compiled(*args)
            error = float((found.double() - wanted.double()).norm())
            assert error <= limit * float(wanted.double().norm()), chosen


@pytest.fixture
def build():
    """Compiles; the kernel has to be warp specialised, or not with the reason `why_not`."""

    def compile_one(func, why_not=None, config=None):
        kernel = Kernel(func, config)
        assert kernel.why_not == why_not
        return kernel

    return compile_one


@pytest.fixture
def integers():
    """Small whole numbers: sums of their products are exact."""

    def make(*shape, dtype="float16", low=-4, high=5):
        return torch.randint(low, high, shape).to(getattr(torch, dtype))

    return make
