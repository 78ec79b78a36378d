"""Pages in a real browser: headless Chromium, as Debian's package installs it."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A running browser; without one the test is skipped, which says what to install."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="pages are not shown: pip install 'tilelang[browser]'"
    )
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("pages are not shown, there is no chromium (on Debian: apt install chromium)")
    with playwright.sync_playwright() as started:
        # The sandbox refuses to run as root; the pages are our own.
        running = started.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def shown(browser: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable]:
    """Opens a page in light or dark. It must load nothing, raise nothing and be no wider than the
    window; a picture of it goes to ``--screenshots``."""
    folder = request.config.getoption("--screenshots")
    with contextlib.ExitStack() as opened:

        def open_page(path: Path, name: str, scheme: str = "light") -> Any:
            page = browser.new_page(viewport={"width": 1300, "height": 900}, color_scheme=scheme)
            opened.callback(page.close)
            wrong: list[str] = []
            page.on("pageerror", lambda error: wrong.append(str(error)))
            page.on("console", lambda said: wrong.append(said.text))
            page.on("request", lambda asked: wrong.append(asked.url) if asked.url != url else None)
            url = path.resolve().as_uri()
            page.goto(url)
            picture = Path(folder or tmp_path) / f"{name}-{scheme}.png"
            page.screenshot(path=picture, full_page=True)
            assert picture.stat().st_size > 1000
            assert wrong == []
            assert page.evaluate("document.documentElement.scrollWidth") <= 1300
            return page

        yield open_page


@pytest.fixture(scope="session")
def pipelined_gemm(tiled_gemm: Any) -> Any:
    """A product with three stages, whose blocks have 128 threads before specialisation."""
    options = {"num_stages": 3, "out_dtype": "float16", "blocks": 4}
    return tiled_gemm(64, 64, 256, (64, 64, 64), **options)
