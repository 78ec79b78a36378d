"""An example as a module, as when it is started."""

import importlib.util
import pathlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


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
