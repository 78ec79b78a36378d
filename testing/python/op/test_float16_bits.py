"""The bits of a 16-bit float that an instruction has just made, byte by byte."""

import pytest
import torch

import tilelang
import tilelang.language as T

OPERATIONS = {
    "add": lambda a, b, dtype: a + b,
    "mul": lambda a, b, dtype: a * b,
    "negated": lambda a, b, dtype: -(a - b),
    "max": lambda a, b, dtype: T.max(a, b),
    "cast": lambda a, b, dtype: T.cast(T.cast(a, "float32") * 3, dtype),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_low_byte_of_a_result(dtype, name, device):
    operation = OPERATIONS[name]

    @T.prim_func
    def main(
        A: T.Tensor((64,), dtype),
        B: T.Tensor((64,), dtype),
        bits: T.Tensor((64,), dtype),
        low: T.Tensor((64,), "uint8"),
    ):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            bits[tx] = operation(A[tx], B[tx], dtype)
            low[tx] = T.cast(T.reinterpret("uint16", operation(A[tx], B[tx], dtype)), "uint8")

    a, b = torch.randn(2, 64, device=device).to(getattr(torch, dtype))
    bits, low = torch.empty_like(a), torch.empty(64, dtype=torch.uint8, device=device)
    tilelang.compile(main)(a, b, bits, low)
    assert torch.equal(low, bits.view(torch.uint8)[::2])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int8"])
@pytest.mark.parametrize("op", ["sum", "max", "min"])
def test_registers_behind_an_index_of_the_thread(dtype, op, device):
    """A reducer's rows are registers of each thread; which one, depends on the thread."""
    rows, columns, threads = 2, 32, 32

    @T.prim_func
    def main(A: T.Tensor((rows, columns), dtype), B: T.Tensor((rows,), dtype)):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_fragment((rows, columns), dtype)
            total = T.alloc_reducer((rows,), dtype, op)
            T.copy(A, tile)
            T.reducer_init(total, 0)
            for i, j in T.Parallel(rows, columns):
                if op == "sum":
                    total[i] += tile[i, j]
                elif op == "max":
                    total[i] = T.max(total[i], tile[i, j])
                else:
                    total[i] = T.min(total[i], tile[i, j])
            T.finalize_reducer(total)
            T.copy(total, B)

    a = torch.randint(-2, 3, (rows, columns), device=device).to(getattr(torch, dtype))
    b = torch.empty(rows, device=device).to(getattr(torch, dtype))
    tilelang.compile(main)(a, b)
    zero = torch.zeros(rows, 1, device=device)
    wide = torch.cat([a.float(), zero], 1)
    wanted = {"sum": wide.sum(1), "max": wide.amax(1), "min": wide.amin(1)}[op]
    assert torch.equal(b.float(), wanted)
