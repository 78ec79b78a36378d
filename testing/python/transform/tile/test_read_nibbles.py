"""ReadNibbles: elements of 4 bits that are shifted and masked out of bytes."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang import transform, tvm

ROWS, BYTES = 32, 32
SIGNED = 8

FORMS = {
    "bytes": lambda x, j: x >> T.cast(j % 2 * 4, "uint8") & T.uint8(15),
    "mask in front": lambda x, j: T.uint8(15) & x >> T.cast(j % 2 * 4, "uint8"),
    "integers": lambda x, j: T.cast(x, "int32") >> j % 2 * 4 & 15,
    "shifted place": lambda x, j: T.cast(x, "int32") >> (j % 2 << 2) & 15,
}
KEPT = {
    "low halves": lambda x, j: x & T.uint8(15),
    "fewer bits": lambda x, j: x >> T.cast(j % 2 * 4, "uint8") & T.uint8(7),
    "another shift": lambda x, j: x >> T.cast(j % 2 * 3, "uint8") & T.uint8(15),
}


def unpacking(form, dtype="uint8", scope="fragment", value="float16", less=lambda x: x):
    """Each element as a number, or as one less a constant."""
    alloc = T.alloc_fragment if scope == "fragment" else T.alloc_shared

    @T.prim_func
    def main(A: T.Tensor((ROWS, BYTES), dtype), B: T.Tensor((ROWS, 2 * BYTES), value)):
        with T.Kernel(1, threads=64):
            packed = alloc((ROWS, BYTES), dtype)
            values = T.alloc_fragment((ROWS, 2 * BYTES), value)
            T.copy(A, packed)
            for i, j in T.Parallel(ROWS, 2 * BYTES):
                values[i, j] = T.cast(less(form(packed[i, j // 2], j)), value)
            T.copy(values, B)

    return main


def lowered(program):
    """The stores of `values` behind the pass."""
    mod = transform.ReadNibbles()(transform.Simplify()(tvm.IRModule({"main": program})))
    return "\n".join(re.findall(r"values\[.*", mod.script()))


def run(program, given):
    kernel = tilelang.compile(program, -1, "emulate", target="cuda -arch=sm_90a")
    return kernel, kernel(given)


def all_bytes(dtype):
    return torch.arange(ROWS * BYTES).view(ROWS, BYTES).to(torch.uint8).view(getattr(torch, dtype))


def halves(given):
    given = given.view(torch.uint8)
    return torch.stack([given & 15, given >> 4], -1).flatten(1)


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "uint8") for name in FORMS), ("integers", "int8")]
)
@pytest.mark.parametrize("scope", ["fragment", "shared"])
def test_forms(name, dtype, scope):
    program = unpacking(FORMS[name], dtype, scope)
    assert "packed_nibbles[" in lowered(program)
    given = all_bytes(dtype)
    kernel, found = run(program, given)
    assert re.search(r"uint4b_t, (4|8)", kernel.get_kernel_source()), "no words are cast"
    torch.testing.assert_close(found, halves(given).half(), rtol=0, atol=0)


@pytest.mark.parametrize("name", KEPT)
def test_kept(name):
    program = unpacking(KEPT[name])
    assert "packed_nibbles" not in lowered(program)
    given = all_bytes("uint8")
    shift = torch.arange(2 * BYTES) % 2 * {"fewer bits": 4, "another shift": 3}.get(name, 0)
    mask = 7 if name == "fewer bits" else 15
    wanted = (given.repeat_interleave(2, 1) >> shift & mask).half()
    torch.testing.assert_close(run(program, given)[1], wanted, rtol=0, atol=0)


@pytest.mark.parametrize("value", ["float16", "bfloat16", "float32"])
def test_floats_of_sums(value):
    """One subtraction of floats for two, where that is exact."""

    def less(found):
        return T.cast(found, "int32") - SIGNED

    program = unpacking(FORMS["bytes"], value=value, less=less)
    text = lowered(program)
    assert "int32" not in text
    assert f'T.Cast("{value}", packed_nibbles[' in text
    given = all_bytes("uint8")
    wanted = (halves(given).int() - SIGNED).to(getattr(torch, value))
    torch.testing.assert_close(run(program, given)[1], wanted, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("value", "less", "wanted"),
    [
        # An unsigned byte wraps round below 0.
        ("float16", lambda x: x - T.uint8(3), lambda x: (x - 3).to(torch.uint8)),
        # Signed elements of 4 bits are other numbers.
        ("float16", lambda x: T.cast(x, "int4"), lambda x: x.int() - 16 * (x > 7)),
        # bfloat16 has integers up to 256: the sum is rounded once.
        ("bfloat16", lambda x: T.cast(x, "int32") + 250, lambda x: x.int() + 250),
    ],
)
def test_kept_sums(value, less, wanted):
    program = unpacking(FORMS["bytes"], value=value, less=less)
    assert "float" not in lowered(program).split(",", 2)[2]
    given = all_bytes("uint8")
    found = run(program, given)[1]
    exact = wanted(halves(given)).to(getattr(torch, value))
    torch.testing.assert_close(found, exact, rtol=0, atol=0)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_a_pipeline_of_bytes_by_another_name(arch):
    """Versions of the tile, a view of it in another shape, and bytes that lie anywhere in a row."""
    steps, half = 4, BYTES // 2

    @T.prim_func
    def main(
        A: T.Tensor((ROWS, steps * BYTES), "uint8"),
        scale: T.Tensor((ROWS, steps * 2), "float16"),
        B: T.Tensor((ROWS, steps * 2 * BYTES), "float16"),
    ):
        with T.Kernel(1, threads=64):
            packed = T.alloc_shared((ROWS, BYTES), "uint8")
            values = T.alloc_shared((ROWS, 2 * BYTES), "float16")
            halves_of_rows = T.view(packed, (ROWS, 2, half), "uint8")
            for k in T.Pipelined(steps, num_stages=2):
                T.copy(A[0, k * BYTES], packed)
                for h in T.serial(2):
                    for i, j in T.Parallel(ROWS, BYTES):
                        values[i, h * BYTES + j] = (
                            T.cast(FORMS["bytes"](halves_of_rows[i, h, j // 2], j), "float16")
                            * scale[i, k * 2 + h]
                        )
                T.copy(values, B[0, k * 2 * BYTES])

    given = torch.randint(0, 256, (ROWS, steps * BYTES), dtype=torch.uint8)
    scale = torch.randn(ROWS, steps * 2).half()
    kernel = tilelang.compile(main, -1, "emulate", target=f"cuda -arch={arch}")
    assert "uint4b_t" in kernel.get_kernel_source()
    wanted = halves(given).half() * scale.repeat_interleave(BYTES, 1)
    torch.testing.assert_close(kernel(given, scale), wanted, rtol=0, atol=0)


def named(stores):
    """The byte and the element have names; the loop may store to the tile."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, BYTES), "uint8"), B: T.Tensor((ROWS, 2 * BYTES), "float16")):
        with T.Kernel(1, threads=64):
            packed = T.alloc_shared((ROWS, BYTES), "uint8")
            values = T.alloc_shared((ROWS, 2 * BYTES), "float16")
            T.copy(A, packed)
            for i in T.Parallel(ROWS):
                for j in T.serial(2 * BYTES):
                    byte = packed[i, j // 2]
                    if stores:
                        packed[i, j // 2] = T.uint8(0)
                    element = byte >> T.cast(j % 2 * 4, "uint8") & T.uint8(15)
                    values[i, j] = T.cast(T.cast(element, "int32") - SIGNED, "float16")
            T.copy(values, B)

    return main


@pytest.mark.parametrize("stores", [False, True])
def test_a_byte_with_a_name(stores):
    program = named(stores)
    mod = transform.ReadNibbles()(transform.Simplify()(tvm.IRModule({"main": program})))
    assert ("packed_nibbles" in mod.script()) is not stores
    assert ("packed[i, j // 2]" in mod.script()) is stores
    # A sum of floats: the element's name is gone.
    assert ('T.Cast("float16", packed_nibbles[' in mod.script()) is not stores
    given = all_bytes("uint8")
    wanted = halves(given).half()
    if stores:
        wanted[:, 1::2] = 0
    torch.testing.assert_close(run(program, given)[1], wanted - SIGNED, rtol=0, atol=0)
