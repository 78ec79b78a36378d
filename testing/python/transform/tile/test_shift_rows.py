"""Rows that begin between vectors of 16 bytes are loaded by the vectors that cover them."""

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}


def column_sums(rows=24, columns=101, form="", loop=T.Pipelined, dtype="float16", **options):
    """Sums of columns by tiles of 8 x 32; `form` adds something to the kernel."""
    if loop is T.Pipelined:
        options.setdefault("num_stages", 2)

    @T.prim_func
    def main(X: T.Tensor((rows, columns), dtype), Y: T.Tensor((columns,), "float32")):
        with T.Kernel(T.ceildiv(columns, 32), threads=128) as bx:
            x = T.alloc_shared((8, 32), dtype)
            total = T.alloc_fragment((32,), "float32")
            other = T.alloc_shared((8, 32), dtype)
            if form == "a layout":
                T.annotate_layout({x: tilelang.layout.make_swizzled_layout(x)})
            if form == "a value outside":
                T.annotate_safe_value({X: 1})
            T.clear(total)
            for k in loop(T.ceildiv(rows, 8), **options):
                if form == "a use in front":
                    T.copy(x, other)
                T.copy(X[k * 8 - (form == "a negative place"), bx * 32], x)
                if form == "another writer":
                    x[0, 0] = 0
                for j in T.Parallel(32):
                    for i in T.serial(8):
                        total[j] += T.cast(x[i, j], "float32")
                if form == "a tensor that is written":
                    X[0, 0] = 0
            if form == "a use behind the loop":
                T.copy(x, other)
            T.copy(total, Y[bx * 32])

    return main


def test_a_row_is_a_vector_longer(statements):
    text = statements(column_sums(), "ShiftRows")
    assert "x[r0, r1] = X_flat[((k * 8 + r0) * 101 + bx * 32) // 8 * 8 + r1]" in text
    assert "for r1 in T.parallel(40):" in text
    assert "bx * 32 + j < 101, x[i, ((k * 8 + i) * 101 + bx * 32) % 8 + j]" in text


KEPT = {
    "whole vectors": {"columns": 104},
    "bytes of the tensor": {"rows": 23},
    "elements of 4 bytes": {"dtype": "float32"},
    "no stages": {"num_stages": 0},
    **{
        form: {"form": form}
        for form in (
            "a layout",
            "a value outside",
            "a use in front",
            "a negative place",
            "another writer",
            "a tensor that is written",
            "a use behind the loop",
        )
    },
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays(tile_passes, name):
    text = tile_passes(column_sums(**KEPT[name]), "ShiftRows")["main"].script()
    assert "X_flat" not in text


def test_other_targets_and_unchecked_accesses_stay(tile_passes):
    for options in (
        {"arch": "sm_75"},
        {"arch": "gfx942"},
        {"config": {"tl.disable_safe_memory_legalize": True}},
    ):
        text = tile_passes(column_sums(), "ShiftRows", **options)["main"].script()
        assert "X_flat" not in text


@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("float16", {"loop": T.serial}),
        ("bfloat16", {"num_stages": 1}),
    ],
)
def test_sums_of_columns(dtype, options):
    """The last tiles have rows and columns that are none of the tensor."""
    program = column_sums(36, 102, dtype=dtype, **options)
    kernel = tilelang.compile(program, target=HOPPER, execution_backend="emulate", checks=True)
    assert " / 8 * 8 " in kernel.get_kernel_source()
    x = torch.randint(-4, 5, (36, 102)).to(getattr(torch, dtype))
    y = torch.full((102,), torch.nan)
    kernel(x, y)
    assert torch.equal(y, x.float().sum(0))


def test_tensors_of_any_address():
    kernel = tilelang.compile(column_sums(), target=HOPPER, execution_backend="emulate")
    memory = torch.randint(-4, 5, (24 * 101 + 8,)).half()
    for offset in (0, 3):
        x, y = memory[offset : offset + 24 * 101].view(24, 101), torch.full((101,), torch.nan)
        kernel(x, y)
        assert torch.equal(y, x.float().sum(0))


def test_loads_of_a_pipeline_are_asynchronous():
    kernel = tilelang.compile(column_sums(), target=HOPPER)
    source = kernel.get_kernel_source()
    assert "cp_async_gs" in source
    assert "half_t(0.0f)" in source
