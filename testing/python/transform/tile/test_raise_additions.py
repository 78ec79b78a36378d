"""Loops that add a tile element by element become T.atomic_add of the tile."""

import pytest

import tilelang.language as T


def addition(form=""):
    """C += F, by elements."""

    @T.prim_func
    def main(A: T.Tensor((256, 64), "float32"), C: T.Tensor((2, 256, 64), "float32")):
        with T.Kernel(4, threads=128) as x:
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A[x * 64, 0], F)
            for i, j in T.Parallel(64, 64):
                if form == "transposed":
                    T.atomic_add(C[1, x * 64 + j, i], F[i, j])
                elif form == "mirrored":
                    T.atomic_add(C[1, x * 64 + 63 - i, j], F[i, j])
                elif form == "scaled":
                    T.atomic_add(C[1, x * 64 + i, j], F[i, j] * 2)
                elif form == "released":
                    T.atomic_add(C[1, x * 64 + i, j], F[i, j], memory_order="release")
                elif form == "some":
                    if i < j:
                        T.atomic_add(C[1, x * 64 + i, j], F[i, j])
                elif form == "columns":
                    T.atomic_add(C[1, x, j], F[i, j])
                else:
                    T.atomic_add(C[1, x * 64 + i, j], F[i, j])

    return main


def test_a_tile(tile_passes):
    text = tile_passes(addition(), "RaiseAdditions", arch="sm_90a")["main"].script()
    region = "C[1, bx * 64:bx * 64 + 64, 0:64], F[0:64, 0:64]"
    assert f'T.tl.atomic({region}, "add", "relaxed")' in text
    assert "atomic_add" not in text


@pytest.mark.parametrize(
    "form", ["transposed", "mirrored", "scaled", "released", "some", "columns"]
)
def test_other_additions_stay(tile_passes, form):
    text = tile_passes(addition(form), "RaiseAdditions", arch="sm_90a")["main"].script()
    assert "T.tl.atomic_add(" in text
