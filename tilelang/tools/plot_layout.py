"""Pictures of layouts. Needs matplotlib, which nothing else does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilelang.layout import Fragment, Layout

_FORMATS = ("pdf", "png", "svg")
_VIEWS = ("input", "output")
_CELL_INCHES = 0.6
# More cells take minutes to letter, and nobody reads them: they have colours alone.
_MOST_WORDS = 1024
_BARE_CELL_INCHES = 0.08


class _Cell(NamedTuple):
    row: int
    column: int
    color: int
    text: str


def plot_layout(
    layout: Layout,
    save_directory: str | Path = "./tmp",
    name: str = "layout",
    colormap: str | None = None,
    verbose: bool = False,
    formats: str | Sequence[str] = "pdf",
    view: str = "input",
    grid_shape: Sequence[int] | None = None,
) -> list[Path]:
    """Draw a layout as a grid of cells and save it.

    A cell of a fragment shows the threads that hold the element and its register, ``T3 R1``, and
    has the first thread's colour; a cell of another layout shows the element's address and has its
    colour. Of more than 1024 cells only the colours are drawn.

    Parameters
    ----------
    save_directory, name
        The files are ``<save_directory>/<name>.<format>``; the directory is made.
    colormap
        Name of a matplotlib colour map; by default ``tab20`` for fragments, ``viridis`` for others.
    verbose
        Print the table as text, too.
    formats
        ``pdf``, ``png``, ``svg``, several of them, or ``all``.
    view
        ``input``: cells are elements. ``output``: cells are places, (thread, register) or
        coordinates, and show the element's indices.
    grid_shape
        Rows and columns of the picture; by default the last dimension is a row. Cells are taken in
        row-major order.

    Returns
    -------
    The paths of the files.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If there is no such format or view; if ``grid_shape`` has another number of cells.

    Example
    -------
    ``plot_layout(make_gemm_fragment_8x8(), name="mma", formats="svg")``
    """
    wanted = _formats(formats)
    if view not in _VIEWS:
        raise ValueError(f"view of plot_layout is {view!r}, wanted one of {', '.join(_VIEWS)}")
    shape = layout.get_input_shape() if view == "input" else _place_shape(layout)
    rows, columns = _grid(shape, grid_shape)
    cells = _element_cells(layout, columns) if view == "input" else _place_cells(layout, columns)
    if verbose:
        print(layout)
        for cell in cells:
            print(f"({cell.row}, {cell.column}): {cell.text}")
    figure = _draw(layout, cells, rows, columns, colormap)
    directory = Path(save_directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / f"{name}.{suffix}" for suffix in wanted]
    for path in paths:
        figure.savefig(path, bbox_inches="tight")
    return paths


def _formats(formats: str | Sequence[str]) -> list[str]:
    given = formats.split(",") if isinstance(formats, str) else list(formats)
    names = [f.strip().lower() for f in given]
    if names == ["all"]:
        return list(_FORMATS)
    if not names or any(f not in _FORMATS for f in names):
        raise ValueError(
            f"formats of plot_layout is {formats!r}, wanted 'all' or some of {', '.join(_FORMATS)}"
        )
    return names


def _place_shape(layout: Layout) -> list[int]:
    if isinstance(layout, Fragment):
        return [layout.get_thread_size(), *layout.get_output_shape()]
    return layout.get_output_shape()


def _grid(shape: Sequence[int], grid_shape: Sequence[int] | None) -> tuple[int, int]:
    cells = math.prod(shape)
    if grid_shape is None:
        return cells // shape[-1], shape[-1]
    if len(grid_shape) != 2 or math.prod(grid_shape) != cells:
        raise ValueError(
            f"grid_shape of plot_layout is {tuple(grid_shape)}, wanted (rows, columns) with "
            f"{cells} cells"
        )
    return int(grid_shape[0]), int(grid_shape[1])


def _holders(layout: Fragment) -> list[list[int]]:
    """The threads of each element, in row-major order of the elements."""
    threads, copies = layout.thread_table(), int(layout.num_replicas)
    return [sorted(set(threads[k : k + copies])) for k in range(0, len(threads), copies)]


def _element_cells(layout: Layout, columns: int) -> list[_Cell]:
    if not isinstance(layout, Fragment):
        return [
            _Cell(*divmod(k, columns), address, str(address))
            for k, address in enumerate(layout.addresses())
        ]
    cells = []
    for k, (threads, (register,)) in enumerate(zip(_holders(layout), layout.table(), strict=True)):
        text = ",".join(map(str, threads[:4])) + (",..." if len(threads) > 4 else "")
        cells.append(_Cell(*divmod(k, columns), threads[0], f"T{text}\nR{register}"))
    return cells


def _place_cells(layout: Layout, columns: int) -> list[_Cell]:
    elements = list(_points(layout.get_input_shape()))
    if isinstance(layout, Fragment):
        registers = layout.get_output_shape()[0]
        places = [
            (thread * registers + register, element)
            for threads, (register,), element in zip(
                _holders(layout), layout.table(), elements, strict=True
            )
            for thread in threads
        ]
    else:
        places = list(zip(layout.addresses(), elements, strict=True))
    color = {element: k for k, element in enumerate(elements)}
    return [
        _Cell(*divmod(place, columns), color[element], ",".join(map(str, element)))
        for place, element in places
    ]


def _points(shape: Sequence[int]) -> Any:
    return (
        ((),) if not shape else ((i, *rest) for i in range(shape[0]) for rest in _points(shape[1:]))
    )


def _draw(
    layout: Layout, cells: Sequence[_Cell], rows: int, columns: int, colormap: str | None
) -> Any:
    try:
        # The figure is drawn without pyplot: no display, no state that outlives the call.
        from matplotlib import colormaps
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
    except ImportError as error:
        raise ImportError(
            "plot_layout needs matplotlib, which is not installed; pip install 'tilelang[plot]'"
        ) from error
    is_fragment = isinstance(layout, Fragment)
    colors = colormaps[colormap or ("tab20" if is_fragment else "viridis")]
    highest = max(cell.color for cell in cells) or 1
    has_words = len(cells) <= _MOST_WORDS
    inches = _CELL_INCHES if has_words else _BARE_CELL_INCHES
    figure = Figure(figsize=(columns * inches, rows * inches))
    axes = figure.add_subplot()
    faces = [
        colors(cell.color % colors.N if is_fragment else cell.color / highest) for cell in cells
    ]
    if not has_words:
        image = np.ones((rows, columns, 4))
        for cell, face in zip(cells, faces, strict=True):
            image[cell.row, cell.column] = face
        axes.imshow(image, interpolation="nearest")
        return figure
    for cell, face in zip(cells, faces, strict=True):
        axes.add_patch(
            Rectangle(
                (cell.column, cell.row), 1, 1, facecolor=face, edgecolor="black", linewidth=0.5
            )
        )
        bright = 0.299 * face[0] + 0.587 * face[1] + 0.114 * face[2] > 0.5
        axes.text(
            cell.column + 0.5,
            cell.row + 0.5,
            cell.text,
            ha="center",
            va="center",
            fontsize=7,
            color="black" if bright else "white",
        )
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal")
    axes.set_xticks([c + 0.5 for c in range(columns)], [str(c) for c in range(columns)], fontsize=7)
    axes.set_yticks([r + 0.5 for r in range(rows)], [str(r) for r in range(rows)], fontsize=7)
    axes.tick_params(length=0)
    return figure
