"""Programs as text, as the tests of the language define them."""

import importlib.util
from pathlib import Path

import pytest

_path = Path(__file__).parents[1] / "language" / "conftest.py"
_spec = importlib.util.spec_from_file_location("language_conftest", _path)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
trace = _module.trace


@pytest.fixture
def trace_error(trace):
    """What is said about statements in the kernel of `trace`, without the place."""

    def said(statements):
        with pytest.raises(Exception) as raised:  # noqa: PT011 - the class is in the text
            trace(statements)
        return f"{type(raised.value).__name__}: {raised.value}".partition("\n")[0]

    return said
