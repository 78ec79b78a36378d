"""The text of a function is the one that Python loaded, whatever happens to its file later."""

import importlib.util
import subprocess
import sys
import textwrap

import pytest

import tilelang.language as T
from tilelang.language.source import definition_text

KERNELS = """
import tilelang
import tilelang.language as T


def program(value):
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            A[0] = 2.0
    return main


@tilelang.jit
def eager(A: T.Tensor[[4], T.float32]):
    with T.Kernel(1):
        A[0] = 2.0


@tilelang.jit
def lazy():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            A[0] = 2.0
    return main


@T.macro
def act(A):
    A[0] = 2.0


def of_macro():
    @tilelang.jit
    def main(A: T.Tensor[[4], T.float32]):
        with T.Kernel(1):
            act(A)
    return main
"""
USES = [
    lambda m: m.program(1),
    lambda m: m.eager.get_tir(),
    lambda m: m.lazy.get_tir(),
    lambda m: m.of_macro().get_tir(),
]
EDITS = {
    "another number": lambda text: text.replace("2.0", "3.0"),
    "lines before": lambda text: "\n\n\n" + text,
    "nothing left": lambda text: "",
    "other functions at these lines": lambda text: text.replace("def ", "def other_"),
    "no Python": lambda text: text.replace("with", "with with"),
}


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_an_edited_file_counts_as_it_was_loaded(tmp_path, use, edit):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    module = load(path)
    path.write_text(edit(KERNELS))
    assert "A[0] = T.float32(2.0)" in use(module).script()


NESTED = """
import tilelang.language as T


def program():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for k in T.serial(4):
                def plain(x):
                    for i in T.Parallel(8):
                        A[x * 8 + i] = 2.0

                @T.macro
                def act(x):
                    plain(T.min(x, 3))

                act(k)
    return main
"""


@pytest.mark.parametrize("edit", [str, *EDITS.values()], ids=["none", *EDITS])
def test_functions_in_a_kernel_are_of_its_text(tmp_path, edit):
    """Their code is not that of the file: Python 3.11 calls `T.min` otherwise where it sees the
    import, so that these were refused as edited."""
    path = tmp_path / "nested.py"
    path.write_text(NESTED)
    module = load(path)
    first = module.program().script()
    path.write_text(edit(NESTED))
    assert "T.float32(2.0)" in first
    assert module.program().script() == first


def test_a_text_that_was_never_read_is_refused_where_it_is_another(tmp_path):
    path = tmp_path / "kernels.py"
    text = KERNELS[: KERNELS.index("@tilelang.jit")]
    path.write_text(text)
    module = load(path)
    path.write_text(text.replace("2.0", "3.0"))
    with pytest.raises(OSError, match=r"kernels.py:7: .*main; the file has been edited since"):
        module.program(1)
    path.write_text(text)
    assert "2.0" in module.program(1).script()


def test_texts_without_a_loader_are_taken_as_they_are():
    assert definition_text(load).startswith("def load(path):")
    with pytest.raises(TypeError, match="wanted a function written in Python"):
        definition_text(len)


def test_edited_decorated_functions_are_those_of_now(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    assert "2.0" in load(path).lazy.get_tir().script()
    path.write_text(KERNELS.replace("2.0", "5.0"))
    assert "5.0" in load(path).lazy.get_tir().script()


SCRIPT = textwrap.dedent("""
    import tilelang
    import tilelang.language as T

    @tilelang.jit
    def f(A: T.Tensor[[4], T.float32]):
        with T.Kernel(1):
            A[0] = 2.0

    print("2.0" in f.get_tir().script())
""")


def test_a_program_on_the_command_line(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.stdout == "True\n", done.stderr


def test_a_program_that_nothing_keeps_is_refused(tmp_path):
    done = subprocess.run(
        [sys.executable, "-"], input=SCRIPT, capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 1
    assert "cannot read the source of f, defined in <stdin> at line 5; define it in" in done.stderr


def test_functions_made_by_exec_are_refused():
    variables = {"T": T}
    exec("def f(A: T.Tensor((4,), 'float32')):\n    pass", variables)
    with pytest.raises(OSError, match="cannot read the source of f, defined in <string>"):
        T.prim_func(variables["f"])
