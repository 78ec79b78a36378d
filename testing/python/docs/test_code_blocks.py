"""Every code block of the pages runs, in the emulator, and prints what the page says."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
_spec = importlib.util.spec_from_file_location("docs_pages", ROOT / "docs" / "pages.py")
pages = importlib.util.module_from_spec(_spec)
sys.modules["docs_pages"] = pages  # dataclasses look their module up
_spec.loader.exec_module(pages)

# testing/python/tools/test_docs.py runs it, and looks at the files that it leaves.
ELSEWHERE = ("tools.md",)
PAGES = [p for p in pages.pages() if pages.Page.read(p).programs and p.name not in ELSEWHERE]


@pytest.fixture(autouse=True)
def emulated(monkeypatch, tmp_path):
    """Pages write files and name no device, so that they say the same everywhere."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT / "docs")))
def test_page_runs(path, tmp_path):
    page = pages.Page.read(path)
    page.run()
    missing = [p for p in pages.pictures(path) if not (tmp_path / p).is_file()]
    assert missing == [], "the page's code has to draw them"


@pytest.mark.parametrize("path", pages.pages(), ids=lambda p: str(p.relative_to(ROOT / "docs")))
def test_what_does_not_run_says_why(path):
    assert all(len(b.not_run.split()) > 2 for b in pages.Page.read(path).blocks if b.not_run)


def test_a_block_that_prints_something_else_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1)\n```\n\n```output\n2\n```\n")
    with pytest.raises(AssertionError, match="the page says"):
        pages.Page.read(page).run()


def test_an_error_that_the_page_does_not_show_is_raised(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError):
        pages.Page.read(page).run()


def test_output_is_compared_but_for_blanks_and_dots():
    assert pages.matches("a ... d\n", "a b c   d")
    assert not pages.matches("a ... d\n", "a b c d e")
    assert not pages.matches("", "a")
