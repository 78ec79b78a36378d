"""Kernels begin with what they use."""

import tilelang.language as T
from tilelang.layout import make_swizzled_layout


def test_buffers_that_nothing_names_are_gone(tile_passes):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            used = T.alloc_shared((64, 64), "float16")
            _unused = T.alloc_shared((64, 64), "float16")
            annotated = T.alloc_shared((64, 64), "float16")
            T.annotate_layout({annotated: make_swizzled_layout(annotated)})
            viewed = T.alloc_shared((64, 64), "float16")
            view = T.reshape(viewed, (4096,))
            T.copy(A, used)
            T.fill(view, 0)

    text = tile_passes(main)["main"].script(show_meta=False)
    kept = [f" {name} = T.sblock_alloc_buffer" in text for name in ("used", "annotated", "viewed")]
    assert kept == [True, True, True]
    assert "_unused" not in text
