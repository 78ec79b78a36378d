"""The pages that docs/generate.py writes say what the code says."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
_spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
generate = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(generate)


@pytest.mark.parametrize("page", generate.PAGES)
def test_page_is_what_the_code_says(page):
    assert (DOCS / page).read_text() == generate.PAGES[page](), "run python docs/generate.py"


def test_every_pass_of_ours_has_a_contract():
    files = generate.pass_files()
    order = [name for name in generate.pass_order() if name in files]
    assert len(order) > 25
    for name in order:
        text = generate.contract(files[name])
        assert text.startswith(name), name
        assert "**In.**" in text, name
        assert "**Out.**" in text, name
