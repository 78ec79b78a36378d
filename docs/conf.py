"""Sphinx's configuration: ``make docs`` builds the pages into build/docs."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path.append(str(DOCS))
import functions  # noqa: E402
import pages  # noqa: E402

project = "tilelang"
version = release = (DOCS.parent / "VERSION").read_text().strip()
copyright = "the authors of tilelang"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
add_module_names = False
autodoc_typehints = "none"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"tilelang {version}"
html_copy_source = False
# Text of the compiler and of kernels: no language that is highlighted.
suppress_warnings = ["misc.highlighting_failure"]

PICTURED = ("layouts.md", "pipelines.md")
"""Pages whose code makes their pictures."""


def draw(_app: object) -> None:
    """Makes what is not kept: docs/pictures, by the pages' own code, and the page of functions."""
    functions.write(DOCS / "language")
    before = Path.cwd()
    os.environ.setdefault("TILELANG_EXECUTION_BACKEND", "emulate")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for page in PICTURED:
                pages.Page.read(DOCS / page).run()
        finally:
            os.chdir(before)
        shutil.copytree(Path(folder) / "pictures", DOCS / "pictures", dirs_exist_ok=True)


def link(_app: object, name: str, source: list[str]) -> None:
    """Links to Markdown files and folders outside of docs, which are no pages, become text."""

    def replace(found: re.Match[str]) -> str:
        text, target = found.groups()
        path = (DOCS / name).parent.joinpath(target).resolve()
        if path == DOCS.parent / "CHANGELOG.md":
            return f"[{text}]({os.path.relpath(DOCS / 'changelog.md', (DOCS / name).parent)})"
        if path.is_relative_to(DOCS) or (path.is_file() and path.suffix != ".md"):
            return found[0]
        shown = f"`{path.relative_to(DOCS.parent)}`"
        return shown if text.strip("`") in shown else f"{text} ({shown})"

    source[0] = re.sub(r"(?<!!)\[([^\]\n]*)\]\((\.\./[^)#\s]+)\)", replace, source[0])


def setup(app: object) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", draw)  # type: ignore[attr-defined]
    app.connect("source-read", link)  # type: ignore[attr-defined]
