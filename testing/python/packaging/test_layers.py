"""The folders of the compiler are layers: each includes itself and what stands in front of it."""

import re
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[3] / "src"

# tvm: the IR, its visitors and the keys of attributes. layout: facts about tiles. target: facts
# about chips, among them the fragments of their matrix instructions. op: tile operators and
# intrinsics. analysis: what several passes ask. codegen: text from flat programs.
LAYERS = ["tvm", "layout", "target", "op", "analysis", "transform", "codegen"]
OUTSIDE = {"device", "runtime"}
"""Compiled by others: NVRTC and the emulator, users of the C header."""


def includes(layer):
    for path in sorted((SOURCES / layer).rglob("*")):
        if path.suffix not in (".cc", ".h"):
            continue
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            found = (path.parent / name).resolve().relative_to(SOURCES.resolve())
            yield path.relative_to(SOURCES), found


def test_every_folder_is_a_layer():
    assert {path.name for path in SOURCES.iterdir() if path.is_dir()} == {*LAYERS, *OUTSIDE}


@pytest.mark.parametrize("layer", LAYERS)
def test_layer_includes_nothing_above_it(layer):
    below = LAYERS[: LAYERS.index(layer) + 1]
    wrong = [f"{path}: {found}" for path, found in includes(layer) if found.parts[0] not in below]
    assert not wrong


def test_codegen_does_not_know_transform():
    assert not [path for path, found in includes("codegen") if found.parts[0] == "transform"]
