"""What the language refuses: each text says what is wanted, or what to do."""

import importlib.util
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[3] / "docs"
_spec = importlib.util.spec_from_file_location("refusals", DOCS / "refusals.py")
refusals = importlib.util.module_from_spec(_spec)
sys.modules["refusals"] = refusals  # dataclasses look their module up
_spec.loader.exec_module(refusals)

# Texts that are put together from parts, of which the source shows one.
PARTS = {
    ("src/transform/tile/check_semantics.cc", "[Tilelang Semantic Check]"),
    ("src/transform/tile/pipeline_hazards.cc", "T.Pipelined: found … (…) … before it is …,"),
    ("src/transform/tile/pipeline_user_schedule.cc", "T.Pipelined:"),
    ("src/op/copy_cluster.cc", "a target without clusters (…)"),
    ("src/op/parallel_operator.cc", "held as …, asked for at … this loop runs as"),
    ("src/codegen/expr_printer.cc", "found …, which has no form in CUDA C++ here."),
}


def test_each_says_what_is_wanted_or_what_to_do():
    found = refusals.refusals()
    assert len(found) > 500
    assert {(r.path, r.text) for r in found if not r.has_repair} == PARTS


@pytest.mark.parametrize(
    ("path", "error", "text"),
    [
        ("tilelang/language/ws_roles.py", "ValueError", "wanted one of its own: …"),
        ("src/transform/tile/scheduled_roles.cc", "ValueError", "found no loop with the name …"),
        ("src/transform/tile/layout_inference.cc", "ValueError", "found fragment … used outside"),
    ],
)
def test_sources_are_read(path, error, text):
    assert [
        r for r in refusals.refusals() if r.path == path and r.error == error and text in r.text
    ]


def test_a_text_without_a_repair_is_found():
    assert not refusals.Refusal("a.py", "ValueError", "x is …").has_repair
    assert refusals.Refusal("a.py", "ValueError", "x is …, wanted …").has_repair
