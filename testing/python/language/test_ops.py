"""The tile operators in IR."""

import pytest
from tvm import ir

from tilelang.language.ops import tile_call, tile_op


@pytest.mark.parametrize("name", ["copy", "fill", "gemm"])
def test_operators_are_registered_with_an_effect(name):
    op = tile_op(name)
    assert isinstance(op, ir.Op)
    assert op.get_attr("TCallEffectKind") == 3
    assert op.get_attr("TScriptPrinterName") == f"tl.{name}"


def test_python_constants_become_typed_arguments():
    call = tile_call("gemm", [True, 2])
    assert [str(a.ty.dtype) for a in call.args] == ["bool", "int32"]
    assert call.attrs is None
    assert tile_call("copy", [], {"coalesced_width": 4}).attrs["coalesced_width"] == 4


def test_a_program_with_every_operator_parses_back(trace, round_trip):
    round_trip(
        trace("""
            S = T.alloc_shared((16, 16), "float16")
            C = T.alloc_fragment((16, 16), "float32")
            T.clear(C)
            T.copy(A[0, 0], S[0:8, 0:16])
            T.gemm(S, S, C, transpose_A=True, clear_accum=n == 0)
        """)
    )
