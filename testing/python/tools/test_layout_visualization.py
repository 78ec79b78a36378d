"""Layouts of inference: as values, in the log, as files and on a page."""

import logging

import pytest

import tilelang
import tilelang.language as T
from tilelang.tools.inferred_layouts import inferred_layouts
from tilelang.tools.layout_picture import picture
from tilelang.tools.layout_visualization import LayoutVisualization, layouts_page
from tilelang.tools.lower_trace import lower_trace

TARGET = "cuda -arch=sm_90a"


def tiles_of(func, target=TARGET):
    with lower_trace() as traces:
        tilelang.lower(func, target=target)
    return inferred_layouts(traces[0].after("LayoutInference").mod)


@pytest.fixture
def tiles(pipelined_gemm):
    return {tile.buffer: tile for tile in tiles_of(pipelined_gemm)}


def test_places_of_fragments_and_shared_tiles(tiles):
    assert set(tiles) >= {"A_shared", "B_shared", "C_local"}
    result = tiles["C_local"]
    assert (result.scope, result.dtype, result.shape) == ("local.fragment", "float32", (64, 64))
    # PTX ISA, Register Fragments for wgmma.mma_async.m64nNk16: row 8 is the thread's next pair.
    assert result.holders[:4] == [(0,), (0,), (1,), (1,)]
    assert (result.holders[8 * 64], result.places[8 * 64]) == ((0,), 2)
    operand = tiles["A_shared"]
    assert (operand.shape, operand.rows, operand.columns) == ((3, 64, 64), 64, 64)
    assert operand.holders == []
    # A swizzle of 128 bytes: in row 1 the first two chunks of 16 bytes have changed places.
    assert [operand.bank(operand.places[64 + j]) for j in (0, 8, 16)] == [4, 0, 12]


def test_what_is_held_by_several_threads():
    @T.prim_func
    def row_sums(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((32, 32), "float32")
            R = T.alloc_fragment((32,), "float32")
            T.copy(A, F)
            T.reduce_sum(F, R, dim=1)
            T.copy(R, B)

    (held,) = [tile for tile in tiles_of(row_sums) if tile.buffer == "R"]
    assert {len(threads) for threads in held.holders} == {8}
    assert "T0+ R0" in picture(held)


def test_pictures_say_threads_and_banks(tiles):
    assert ">T1 R0<" in picture(tiles["C_local"])
    shared = picture(tiles["A_shared"])
    assert "first bank of each 8 elements (16 bytes); rows 0 to 15" in shared
    assert "byte 144, bank 4" in shared


def lowered_with(func, formats, monkeypatch, folder):
    monkeypatch.chdir(folder)
    keys = {"tl.layout_visualization_enable": True, "tl.layout_visualization_formats": formats}
    with tilelang.transform.PassContext(config=keys):
        tilelang.lower(func, target=TARGET)


def test_the_log_is_the_default(pipelined_gemm, monkeypatch, tmp_path, said):
    lowered_with(pipelined_gemm, "", monkeypatch, tmp_path)
    (text,) = [t for t in said if t.startswith("layouts of gemm:")]
    assert "\n  C_local (local.fragment): Fragment(i < 64, j < 64) -> thread " in text
    assert not list(tmp_path.iterdir())


def test_files_of_each_format(pipelined_gemm, monkeypatch, tmp_path, said):
    pytest.importorskip("matplotlib")
    lowered_with(pipelined_gemm, "html, svg", monkeypatch, tmp_path)
    names = sorted(file.name for file in (tmp_path / "tmp" / "gemm").iterdir())
    assert {"A_shared.svg", "C_local.svg", "layouts.html"} <= set(names)
    assert not any(t.startswith("layouts of") for t in said)


def test_a_format_that_is_none(pipelined_gemm, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="found 'gif', wanted 'all' or some of txt, html"):
        lowered_with(pipelined_gemm, "gif", monkeypatch, tmp_path)


def test_who_asks_for_pictures_has_the_program_lowered(pipelined_gemm, monkeypatch, tmp_path, said):
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))
    for configs in (None, {"tl.layout_visualization_enable": True}):
        tilelang.compile(
            pipelined_gemm, target=TARGET, execution_backend="emulate", pass_configs=configs
        )
    assert len([t for t in said if t.startswith("layouts of gemm:")]) == 1
    assert logging.getLogger("tilelang").level <= logging.INFO


def test_the_observer_sees_only_inference(tmp_path):
    observer = LayoutVisualization("main", ("html",), tmp_path)
    observer.write("tl.LowerTileOp", None)
    observer.close()
    assert not list(tmp_path.iterdir())


def test_the_page_in_a_browser(tmp_path, shown, tiles):
    path = tmp_path / "layouts.html"
    path.write_text(layouts_page("gemm", [tiles["C_local"], tiles["A_shared"]]))
    for scheme in ("light", "dark"):
        page = shown(path, "layouts", scheme)
        fragment, shared = page.locator("canvas").all()
        side = 384 // 64
        fragment.hover(position={"x": 2.5 * side, "y": 8.5 * side})
        told = fragment.locator("xpath=following-sibling::output")
        assert told.inner_text() == "[8, 2]: thread 1, register 2"
        shared.hover(position={"x": 0.5 * side, "y": 1.5 * side})
        told = shared.locator("xpath=following-sibling::output")
        assert told.inner_text() == "[1, 0]: byte 144, bank 4"
        # Warps are rows of 16 in one colour.
        colors = fragment.evaluate(
            "c => [0, 15, 16].map(y => c.getContext('2d').getImageData(1, y * 6 + 1, 1, 1).data[0])"
        )
        assert colors[0] == colors[1] != colors[2]
