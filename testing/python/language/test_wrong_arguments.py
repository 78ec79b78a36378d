"""Every function of the language says in its own words that an argument is of a wrong kind."""

import inspect
import re

import pytest

import tilelang.language as T

FRAMES = ("Kernel", "ClusterKernel", "CUDASourceCodeKernel", "prim_func", "macro", "inline")
FUNCTIONS = sorted(
    name
    for name, value in vars(T).items()
    if inspect.isfunction(value) and not name.startswith("_") and name not in FRAMES
)
WRONG = {"a tensor": lambda A: A, "None": lambda A: None, "a list": lambda A: [1, 2]}
WRONG |= {"a number": lambda A: 3.5, "an object": lambda A: object()}
# What Python, and TVM, say of arguments in a function's body.
OTHERS = re.compile(
    "object (has no|is not|does not)|unsupported operand|unhashable|Mismatched|Check"
)


def said(name, wrong):
    """What a call says of as many arguments as it needs, all of them wrong."""
    function = getattr(T, name)
    parameters = inspect.signature(function).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD]

    @T.prim_func
    def main(A: T.Tensor((8, 8), "float16")):
        with T.Kernel(1, threads=32):
            function(*[wrong(A)] * max(len(needed), 1))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_arguments_of_a_wrong_kind(wrong):
    """15 functions had Python's or TVM's words alone, and T.launch_thread ended the process."""
    texts = {}
    for name in FUNCTIONS:
        try:
            said(name, wrong)
        except Exception as error:  # noqa: BLE001  the classes of all functions
            texts[name] = f"{type(error).__name__}: {error}"
    assert len(texts) > 100
    assert {n: t for n, t in texts.items() if OTHERS.search(t) and "wanted" not in t} == {}
