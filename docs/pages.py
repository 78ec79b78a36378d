"""The pages as programs: their code blocks, and what these print.

* A block of ``python`` runs, in the order of the page, in one namespace.
* A block of ``output`` behind it is what it prints, or the class and text of the error that it
  raises. ``...`` stands for anything, and runs of blanks and line ends are equal.
* A block under a line ``<!-- not run: why -->`` does not run.

``python docs/pages.py PAGE ...`` runs pages and shows what each block prints.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
_FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[\w{}-]*)[^\n`]*\n(?P<text>.*?)^(?P=fence) *$", re.M | re.S
)
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>.+?) -->\n\Z", re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, its first line's number, and why it does not run."""

    language: str
    text: str
    line: int
    not_run: str = ""


@dataclass
class Page:
    """A page's path and blocks; `results` has what its programs printed, in their order."""

    path: Path
    blocks: list[Block]
    results: list[tuple[Block, str]] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> Page:
        """The blocks of a Markdown file."""
        text = path.read_text()
        blocks = []
        for found in _FENCE.finditer(text):
            why = _NOT_RUN.search(text, 0, found.start())
            line = text.count("\n", 0, found.start("text")) + 1
            blocks.append(Block(found["language"], found["text"], line, why["why"] if why else ""))
        return Page(path, blocks)

    @property
    def programs(self) -> list[Block]:
        """The blocks that run."""
        return [b for b in self.blocks if b.language == "python" and not b.not_run]

    def expected(self, block: Block) -> str | None:
        """The ``output`` right behind a block."""
        behind = self.blocks[self.blocks.index(block) + 1 :]
        return behind[0].text if behind and behind[0].language == "output" else None

    def run(self) -> None:
        """Runs the page in the current folder.

        Raises `AssertionError` where a block prints something else than the page says, and what a
        block raises unless the page shows that.
        """
        if str(DOCS) not in sys.path:
            sys.path.append(str(DOCS))  # for `import timeline`
        # Functions are traced from their source, which is read from the page.
        lines = [""] * (self.path.read_text().count("\n") + 1)
        for block in self.programs:
            source = block.text.splitlines()
            lines[block.line - 1 : block.line - 1 + len(source)] = source
        name = str(self.path)
        linecache.cache[name] = (1, None, [line + "\n" for line in lines], name)
        namespace: dict[str, Any] = {"__name__": self.path.stem, "__file__": name}
        for block in self.programs:
            expected = self.expected(block)
            printed = _run(block, name, namespace, raises=expected is not None)
            self.results.append((block, printed))
            if expected is not None and not matches(expected, printed):
                raise AssertionError(
                    f"{self.path}:{block.line}: the page says\n{expected}\nfound\n{printed}"
                )


def _run(block: Block, file: str, namespace: dict[str, Any], raises: bool) -> str:
    with captured() as text:
        try:
            code = compile("\n" * (block.line - 1) + block.text, file, "exec", dont_inherit=True)
            exec(code, namespace)
        except Exception as error:
            if not raises:
                raise
            print(f"{type(error).__name__}: {error}")
    return text[0]


@contextlib.contextmanager
def captured() -> Iterator[list[str]]:
    """What Python, and the emulator below it, print meanwhile: one text, when it is over."""
    text: list[str] = []
    with tempfile.TemporaryFile("w+") as file:
        sys.stdout.flush()
        before = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with open(os.dup(1), "w", buffering=1) as stream, contextlib.redirect_stdout(stream):
                yield text
        finally:
            os.dup2(before, 1)
            os.close(before)
            file.seek(0)
            text.append(file.read())


def matches(expected: str, printed: str) -> bool:
    """Whether a text is another one, but for blanks, and for what ``...`` stands for."""
    parts = [" ".join(part.split()) for part in expected.split("...")]
    pattern = ".*".join(re.escape(part) for part in parts)
    return re.fullmatch(rf" ?{pattern} ?", " ".join(printed.split())) is not None


def pages(root: Path = DOCS) -> list[Path]:
    """All Markdown pages below a folder."""
    return sorted(root.rglob("*.md"))


def pictures(path: Path) -> list[str]:
    """The pictures that a page draws itself, as it names them."""
    return re.findall(r"!\[[^\]]*\]\((pictures/[^)]+)\)", path.read_text())


if __name__ == "__main__":
    for path in sys.argv[1:]:
        page = Page.read(Path(path).resolve())
        try:
            page.run()
        finally:
            for block, printed in page.results:
                print(f"--- {path}:{block.line}\n{printed}", end="")
