"""A name of ours in the program's form is written once; who else asks for it has the constant."""

import re
from collections import Counter
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "src"
LAYERS = ("tvm", "layout", "target", "op", "analysis", "transform", "codegen")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
# What the script printer calls a tile operator: `OperatorRegistration(op, "tl.copy", ..)`.
PRINTED = re.compile(r'(OperatorRegistration \w+\(\s*[^,]+,\s*)"[^"]*"')


def names(text):
    """Names of ops, attributes and pass configs, with one for each place."""
    return re.findall(r'"(tl\.[\w.]*\w)"', PRINTED.sub(r"\1", COMMENT.sub("", text)))


def test_each_name_is_written_once():
    found = Counter(
        name
        for layer in LAYERS
        for path in (SOURCES / layer).rglob("*")
        if path.suffix in (".cc", ".h")
        for name in names(path.read_text())
    )
    assert len(found) > 100
    assert not {name: count for name, count in found.items() if count > 1}


def test_names_are_found():
    text = 'f("tl.a", "tl.b"); // "tl.c"\nOperatorRegistration r(kOp, "tl.copy", Make);'
    assert names(text) == ["tl.a", "tl.b"]
