"""Programs as text: how tests trace them and read them back."""

import textwrap

import pytest
import tvm


@pytest.fixture
def trace(define):
    """Trace statements in a kernel of 128 threads over A, B: float32[8, 16] and n: int32."""

    def run(statements, **names):
        head = """\
            @T.prim_func
            def main(A: T.Tensor((8, 16), "float32"), B: T.Tensor((8, 16), "float32"), n: T.int32):
                with T.Kernel(4, threads=128) as bx:
                    tx = T.get_thread_binding()
            """
        text = textwrap.dedent(head) + textwrap.indent(textwrap.dedent(statements), "        ")
        return define(text, **names)["main"]

    return run


@pytest.fixture
def body():
    """Print the statements of a program's (one) kernel, without the launch around them."""

    def text(func):
        lines = func.script().splitlines()
        start = next(i for i, line in enumerate(lines) if '"tilelang_root"' in line)
        return textwrap.dedent("\n".join(lines[start + 1 :])) + "\n"

    return text


@pytest.fixture
def traced(trace, body):
    """Trace statements and print them, without the block's empty reads and writes."""
    return lambda statements, **names: body(trace(statements, **names)).replace(
        "T.reads()\nT.writes()\n", ""
    )


@pytest.fixture
def round_trip():
    """Check that a program parses back from what it prints."""

    def check(func):
        tvm.ir.assert_structural_equal(func, tvm.script.from_source(func.script()), True)

    return check
