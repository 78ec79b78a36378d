"""Links of the pages lead to files of the tree and to headings of pages."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    ROOT / "examples" / "README.md",
    ROOT / "3rdparty" / "README.md",
]


def without_code(text):
    return re.sub(r"^(`{3,}).*?^\1$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page):
    """The names that GitHub and MyST give to headings."""
    for heading in re.findall(r"^#+ (.*)$", without_code_blocks(page.read_text()), re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def without_code_blocks(text):
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


def broken(page):
    for target in re.findall(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"https?:|mailto:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (page.parent / name) if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert list(broken(page)) == []


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A b\n[x](none.md) [y](#a-b) [z](#c) `[w](v)`\n")
    assert list(broken(page)) == ["none.md", "#c"]


def test_every_page_is_in_a_table_of_contents():
    listed = set()
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", page.read_text(), re.DOTALL):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {(page.parent / f"{name}.md").resolve() for name in names}
    made = {ROOT / "docs" / "language" / "functions.md"}  # by `make docs`
    found = set((ROOT / "docs").rglob("*.md")) - {ROOT / "docs" / "index.md"}
    assert found | made == listed
