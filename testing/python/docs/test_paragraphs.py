"""The pages that are written by hand: short paragraphs, and contracts apart from measurements."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GENERATED = ("passes.md", "life-of-a-kernel.md")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in GENERATED),
]


def paragraphs(text):
    """Paragraphs and items of lists; no code, tables or headings."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for block in re.split(r"\n\s*\n|\n(?=[*-] |\d+\. )", text):
        yield " ".join(line for line in block.splitlines() if not line.startswith(("|", "#")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_paragraph_has_less_than_150_words(page):
    long = [p[:60] for p in paragraphs(page.read_text()) if len(p.split()) >= 150]
    assert not long, "split the paragraph, or say less"


def test_the_design_has_contracts_only():
    text = (ROOT / "docs" / "design.md").read_text()
    assert not re.findall(r"H[12]00|TFLOP|\d+ %|CUDA \d+\.\d", text), "say it in measurements.md"
