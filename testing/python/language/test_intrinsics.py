"""Calls that are not tile operators."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_calls(trace, traced, round_trip):
    statements = """
        T.call_extern("void", "put", T.address_of(A[0, n]), T.address_of(B))
        A[0, 0] = T.call_extern(T.float32, "get", 1)
        T.evaluate(T.call_intrin("int32", "tirx.popcount", n))
    """
    assert traced(statements) == (
        'T.call_extern("void", "put", T.address_of(A[0, n]), T.address_of(B[0, 0]))\n'
        'A[0, 0] = T.call_extern("float32", "get", 1)\n'
        "T.popcount(n)\n"
    )
    round_trip(trace(statements))


@pytest.mark.parametrize(
    ("statement", "message"),
    [("T.evaluate(A)", "wanted a call"), ("T.address_of(n)", "wanted a buffer or an element")],
)
def test_errors(trace, statement, message):
    with pytest.raises(TypeError, match=rf"{message}[\s\S]*--> "):
        trace(statement)


def test_pointers_for_functions_of_the_target(trace, traced):
    for base, place in (
        ("A", "A[0, 0]"),
        ("A[2:4, 8:16]", "A[2, 8]"),
        ("A[n, 3], 'rw', 64", "A[n, 3]"),
        ("A[n, 3], 2, offset=4, extent=1", "A[n, 7]"),
        ("A[n, 3], ignore_last_ndim=1", "A[n, 0]"),
    ):
        printed = traced(f"T.call_extern('void', 'f', T.access_ptr({base}))")
        assert printed == f'T.call_extern("void", "f", T.address_of({place}))\n'
    for base, message in (
        ("A, 'x'", "'x', wanted 'r', 'w' or 'rw'"),
        ("A, ignore_last_ndim=3", "is 3, wanted 0 to 2"),
        ("T.alloc_fragment((8, 8), 'float32')", "elements are in several threads"),
    ):
        with pytest.raises(ValueError, match=message):
            trace(f"T.access_ptr({base})")


def test_a_function_of_the_target_writes_through_a_pointer():
    @T.prim_func
    def main(A: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "float32")):
        with T.Kernel(4, threads=32) as bx:
            T.import_source("__device__ void put(float* at, float x) { *at = x; }")
            t = T.get_thread_binding()
            S = T.alloc_shared((32,), "float32")
            T.call_extern("void", "put", T.access_ptr(S[31 - t], "w"), A[bx, t])
            T.call_extern("void", "put", T.access_ptr(B[bx, 0], "w", offset=t), S[t])

    a = torch.randn(4, 32, device=DEVICE)
    assert torch.equal(tilelang.compile(main, out_idx=-1)(a), a.flip(1))
