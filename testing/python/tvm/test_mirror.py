"""The proof that our view of TVM's classes is TVM's own, and what happens without it."""

import subprocess
import sys

import pytest
import tvm

import tilelang._ffi as library
from tilelang._ffi import get_function


def claim(field, offset, size, schema='{"type":"ir.Expr"}'):
    return list(get_function("CheckFieldClaim")("tirx.Evaluate", field, offset, size, schema))


def test_true_claim_passes():
    assert claim("value", 32, 8) == []


@pytest.mark.parametrize(
    ("field", "offset", "size", "schema", "told"),
    [
        ("value", 40, 8, '{"type":"ir.Expr"}', "found offset 32 size 8, wanted offset 40"),
        ("value", 32, 4, '{"type":"ir.Expr"}', "wanted offset 32 size 4"),
        ("value", 32, 8, '{"type":"ir.Var"}', "ir.Var"),
        ("worth", 32, 8, '{"type":"ir.Expr"}', "found no such field"),
    ],
)
def test_false_claim_is_told(field, offset, size, schema, told):
    (line,) = claim(field, offset, size, schema)
    assert line.startswith(f"tirx.Evaluate.{field}: ")
    assert told in line


def test_other_tvm_is_an_import_error(monkeypatch):
    monkeypatch.setattr(tvm, "__version__", "0.26.0")
    with pytest.raises(ImportError, match=r"found apache-tvm 0\.26\.0, wanted 0\.27\.0\.post1"):
        library._load()


def test_other_classes_are_an_import_error(monkeypatch):
    class Module:
        def tl_register(self):
            return ["tirx.For.body: found no such field"]

    monkeypatch.setattr(library.tvm_ffi, "load_module", lambda path: Module())
    with pytest.raises(ImportError, match=r"(?s)released wheel.*tirx\.For\.body"):
        library._load()


def test_second_copy_of_the_library_is_harmless(tmp_path):
    program = """
import shutil, sys, tvm_ffi, tilelang._ffi as library
copy = shutil.copy(library.library(), sys.argv[1])
assert list(tvm_ffi.load_module(copy).tl_register()) == []
print("alive", library.get_function("transform.LowerTileOp")().info.name)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "copy.so")], capture_output=True, text=True
    )
    assert done.stdout == "alive tl.LowerTileOp\n", done.stderr
