"""What is public does not change unnoticed."""

import importlib.util
import inspect
from pathlib import Path

_spec = importlib.util.spec_from_file_location(
    "public_api", Path(__file__).with_name("public_api.py")
)
public_api = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(public_api)


def test_the_list_is_what_the_package_has():
    listed, found = public_api.FILE.read_text().splitlines(), public_api.public()
    assert [line for line in listed if line not in found] == [], (
        "removed or changed; if that is meant, say in CHANGELOG.md how to change a program, and "
        "run python testing/python/packaging/public_api.py"
    )
    assert [line for line in found if line not in listed] == [], (
        "new; run python testing/python/packaging/public_api.py, and add it to CHANGELOG.md"
    )


def test_a_changed_parameter_is_seen():
    def before(a, *, b=1):
        pass

    def after(a, b=1):
        pass

    assert public_api.parameters(before) == "(a, *, b=)"
    assert public_api.parameters(after) == "(a, b=)"


def test_objects_that_are_returned_are_listed_by_their_members():
    text = public_api.FILE.read_text()
    assert "tilelang.JITKernel.explain(" in text
    assert "tilelang.JITKernel(" not in text


def test_functions_have_an_example():
    """Those of the language: testing/python/language/test_docstrings.py."""
    without = []
    for name in {*public_api.MODULES} - {"tilelang.language"}:
        module = importlib.import_module(name)
        for member in public_api.MODULES[name] or public_api.names(module):
            found = getattr(module, member)
            if inspect.isfunction(found) and "Example" not in (inspect.getdoc(found) or ""):
                without.append(f"{name}.{member}")
    assert without == []
