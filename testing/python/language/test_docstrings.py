"""What an editor shows on a name of T: every one says what it is, and how it is used."""

import ast
import inspect
import re
import textwrap

import pytest

import tilelang.language as T

PUBLIC = sorted(
    name for name in dir(T) if not name.startswith("_") and not inspect.ismodule(getattr(T, name))
)
# TVM's own classes: their docstrings are TVM's.
TVM = [name for name in PUBLIC if getattr(getattr(T, name), "__module__", "").startswith("tvm.")]
OURS = sorted({*PUBLIC} - {*TVM})


def examples(name):
    """The code in the part of the docstring under `Example`, where there is one."""
    _, _, text = (inspect.getdoc(getattr(T, name)) or "").partition("\nExample\n-------\n")
    found = re.findall(r"``(.+?)``", text, re.DOTALL)
    if "::\n" in text:
        found.append(textwrap.dedent(text.partition("::\n")[2]))
    return found


def test_only_types_are_tvms():
    assert TVM == ["Broadcast", "PrimExpr", "Ramp", "Shuffle", "Var"]
    assert all(inspect.getdoc(getattr(T, name)) for name in TVM)


def test_docstrings_have_examples():
    without = [name for name in OURS if not examples(name)]
    assert not without, "no `Example` with ``code`` in the docstring"


def calls(code):
    """The calls of T.<name> in an example; text that is not Python has none."""
    for text in (code, code + " pass", code + "\n    pass"):
        try:
            tree = ast.parse(text)
        except SyntaxError:
            continue
        return [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func.value) == "T"
        ]
    return []


@pytest.mark.parametrize("name", [n for n in OURS if not isinstance(getattr(T, n), T.dtype)])
def test_an_example_uses_names_that_exist_and_arguments_that_fit(name):
    for code in examples(name):
        used = set(re.findall(r"\bT\.(\w+)", code))
        assert used <= {*dir(T)}, used - {*dir(T)}
        for call in calls(code):
            function = getattr(T, call.func.attr)
            if any(isinstance(a, ast.Starred) for a in call.args) or isinstance(function, T.dtype):
                continue
            arguments = {k.arg: None for k in call.keywords if k.arg}
            inspect.signature(function).bind(*call.args, **arguments)


def raised_by(function):
    """The classes of the errors that a function's own code raises."""
    return {
        node.exc.func.id
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
        if isinstance(node, ast.Raise)
        and isinstance(node.exc, ast.Call)
        and isinstance(node.exc.func, ast.Name)
    }


def test_errors_are_documented():
    functions = {n: getattr(T, n) for n in OURS if inspect.isfunction(getattr(T, n))}
    silent = {
        name: sorted(e for e in raised_by(f) if e not in inspect.getdoc(f))
        for name, f in functions.items()
    }
    assert not {name: errors for name, errors in silent.items() if errors}
