"""Pictures of layouts: files of each format, and what is drawn."""

import sys

import pytest

from tilelang.layout import Fragment, Layout, make_gemm_fragment_8x8
from tilelang.tools import plot_layout


def labels(path):
    """Texts of the cells of an SVG file, in drawing order; those of the axes have one digit."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    texts = [line[5:-4] for line in lines if line.startswith("<!-- ")]
    return [t for t in texts if len(t) > 1]


def test_every_format_is_a_file_of_that_format(tmp_path):
    pytest.importorskip("matplotlib")
    paths = plot_layout(make_gemm_fragment_8x8(), tmp_path / "new", "mma", formats="all")
    assert [p.name for p in paths] == ["mma.pdf", "mma.png", "mma.svg"]
    heads = [b"%PDF", b"\x89PNG", b"<?xml"]
    assert [p.read_bytes()[: len(h)] for p, h in zip(paths, heads, strict=True)] == heads


def test_cells_show_threads_and_registers(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    fragment = Fragment((2, 2), lambda i, j, rep: (i + 2 * rep, j), replicate=2)
    (path,) = plot_layout(fragment, tmp_path, formats="svg", verbose=True)
    pairs = [("T0,2", "R0"), ("T0,2", "R1"), ("T1,3", "R0"), ("T1,3", "R1")]
    assert labels(path) == [line for pair in pairs for line in pair]
    assert "(1, 0): T1,3" in capsys.readouterr().out


def test_views_and_grids(tmp_path):
    pytest.importorskip("matplotlib")
    layout = Layout((2, 3), lambda i, j: [j, i + 10])
    (path,) = plot_layout(layout, tmp_path, "input", formats=["svg"], grid_shape=(1, 6))
    assert labels(path) == ["10", "22", "34", "11", "23", "35"]
    layout = Layout((2, 3), lambda i, j: [j, i])
    (path,) = plot_layout(layout, tmp_path, "output", formats="svg", view="output")
    assert labels(path) == ["0,0", "0,1", "0,2", "1,0", "1,1", "1,2"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"formats": "gif"}, "wanted 'all' or some of"),
        ({"view": "side"}, "wanted one of input, output"),
        ({"grid_shape": (3, 3)}, r"wanted \(rows, columns\) with 64 cells"),
    ],
)
def test_arguments_that_mean_nothing(tmp_path, arguments, told):
    with pytest.raises(ValueError, match=told):
        plot_layout(make_gemm_fragment_8x8(), tmp_path, **arguments)


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'tilelang\[plot\]'"):
        plot_layout(make_gemm_fragment_8x8(), tmp_path)
