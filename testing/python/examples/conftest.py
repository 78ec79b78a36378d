"""An example or a benchmark as a module, as when it is started."""

import importlib
import importlib.util
import logging
import pathlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES, BENCHMARKS = ROOT / "examples", ROOT / "benchmark"


@pytest.fixture(scope="module")
def example(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The file EXAMPLE of the test's module; it finds its neighbours."""
    file = EXAMPLES / request.module.EXAMPLE
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(file.parent)
        patch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        yield module


@pytest.fixture(scope="module")
def benchmark_script(request: pytest.FixtureRequest) -> Iterator[ModuleType]:
    """The script BENCHMARK of the test's module; it finds its neighbours, not modules of their
    names."""
    logger = logging.getLogger("tilelang")
    level = logger.level
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        names = {path.stem for path in BENCHMARKS.glob("*.py")}
        before = {name: sys.modules.pop(name) for name in names & sys.modules.keys()}
        yield importlib.import_module(request.module.BENCHMARK)
        for name in names & sys.modules.keys():
            del sys.modules[name]
        sys.modules.update(before)
    logger.setLevel(level)  # scripts change it


@pytest.fixture
def gradient_errors(example: ModuleType) -> Callable[..., list[float]]:
    """A function for the gradients of a delta rule, in chunks of 64 rows: of each one the relative
    error against float64. Gates are of channels where the example's are."""
    rule = example.check.__globals__
    of_channels = "kda" in example.__name__

    def errors(heads, length, sizes, gate=None, beta=None, device="cpu"):
        torch.manual_seed(0)
        q, k, v, betas = rule["inputs"](heads, length, *sizes, device)
        if gate is None:
            shape = (length, heads, sizes[0]) if of_channels else (length, heads)
            gate = -torch.rand(shape, device=device) / 8
        beta = betas if beta is None else beta
        d_out = torch.randn_like(v)
        found = example.backward(q, k, v, gate, beta, d_out, example.kernels_of(heads, 64, *sizes))
        leaves = [x.double().requires_grad_() for x in (q, k, v, gate, beta)]
        wanted = torch.autograd.grad(rule["reference"](*leaves), leaves, d_out.double())
        return [
            float((x.double() - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)
        ]

    return errors
