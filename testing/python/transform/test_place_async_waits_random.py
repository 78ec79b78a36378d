"""PlaceAsyncWaits: on no way through a random program does a statement meet a product in flight."""

import random
import re

import pytest

import tilelang.language as T

F16 = "float16"
FRAGMENTS, ACCUMULATORS = ("p", "q", "r"), ("c", "d", "e")


def drawn(rng, depth=0):
    """Statements of a program: products, copies, loops and branches."""
    found = []
    for _ in range(rng.randint(2, 5 - depth)):
        kind = rng.choices(
            ("load", "gemm", "store", "convert", "fill", "loop", "branch"),
            (28, 34, 6, 6, 6, 11 if depth < 3 else 0, 9 if depth < 3 else 0),
        )[0]
        fragment, accumulator = rng.choice(FRAGMENTS), rng.choice(ACCUMULATORS)
        if kind == "loop":
            found.append((kind, rng.randint(0, 1), drawn(rng, depth + 1)))
        elif kind == "branch":
            otherwise = drawn(rng, depth + 1) if rng.random() < 0.4 else []
            found.append((kind, drawn(rng, depth + 1), otherwise))
        elif kind == "gemm":
            found.append((kind, rng.choice((*FRAGMENTS, "a")), rng.randint(0, 1), accumulator))
        else:
            found.append((kind, fragment, accumulator, rng.randint(0, 1)))
    return found


@T.macro
def statements(nodes, tiles, C, A, n):
    for kind, first, second, third in ((*node, None, None)[:4] for node in nodes):
        if kind == "loop":
            for _ in T.serial(n if first else 3):
                statements(second, tiles, C, A, n)
        elif kind == "branch":
            if n > 4:
                statements(first, tiles, C, A, n)
            else:
                statements(second, tiles, C, A, n)
        elif kind == "gemm":
            operand = tiles["a"][1, :, :] if first == "a" else tiles[first]
            T.gemm(operand, tiles["b"][second, :, :], tiles[third])
        elif kind == "load":
            T.copy(tiles["a"][0, :, :], tiles[first])
        elif kind == "store":
            T.copy(tiles[second], C)
        elif kind == "convert":
            T.copy(tiles[second], tiles[first])
        elif third:
            T.copy(A, tiles["b"][1, :, :])
        else:
            T.clear(tiles[second])


def program(nodes):
    @T.prim_func
    def main(A: T.Tensor((64, 64), F16), C: T.Tensor((64, 64)), n: T.int32):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((2, 64, 64), F16)
            b = T.alloc_shared((2, 64, 64), F16)
            c = T.alloc_fragment((64, 64), "float32")
            d = T.alloc_fragment((64, 64), "float32")
            e = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), F16)
            q = T.alloc_fragment((64, 64), F16)
            r = T.alloc_fragment((64, 64), F16)
            tiles = {"a": a, "b": b, "c": c, "d": d, "e": e, "p": p, "q": q, "r": r}
            statements(nodes, tiles, C, A, n)

    return main


def tree(lines, first, indent):
    """Lines from the first one on that are indented so far, each with those inside of it."""
    nodes = []
    while first < len(lines) and len(lines[first]) - len(lines[first].lstrip()) >= indent:
        line = lines[first]
        inside = len(line) - len(line.lstrip()) + 1
        body, after = tree(lines, first + 1, inside)
        nodes.append((line.strip(), body))
        first = after
    return nodes, first


class Run:
    """A way through a program after the pass: products in flight, and accumulators whose wait has
    not named them."""

    def __init__(self, rng):
        self.rng, self.flying, self.unnamed = rng, [], set()

    def all(self, nodes):
        taken = True
        for line, body in nodes:
            if line.startswith("for "):
                loops = line.removeprefix("for ").partition(" in ")[0].count(",") + 1
                for _ in range(self.rng.randint(0, 3) if "(n)" in line else 3**loops):
                    self.all(body)
            elif line.startswith("if "):
                taken = self.rng.random() < 0.5
                self.all(body if taken else [])
            elif line.startswith("else"):
                self.all([] if taken else body)
            elif body:
                self.all(body)
            else:
                self.statement(line)

    def statement(self, line):
        name = re.match(r'T\.Call\("tl\.tileop\.(\w+)"|T\.tl\.(\w+)\(', line)
        if name is None:
            return
        kind = name[1] or name[2]
        regions = re.findall(r"\b([abcdepqrAC])\[(\d+)", line)
        tiles = [tile + number if tile in "ab" else tile for tile, number in regions]
        if kind == "wgmma_wait":
            pending = int(re.search(r"\((\d+)", line)[1])
            self.flying = self.flying[-pending:] if pending else []
            self.unnamed -= set(tiles)
        elif kind == "gemm":
            a, b, c = tiles
            assert all(a != out and c not in (left, right) for left, right, out in self.flying), (
                line
            )
            if '"wg_wait": -1' in line:
                self.flying.append((a, b, c))
                self.unnamed.add(c)
        else:
            written = tiles[-1]
            assert not self.unnamed & set(tiles), line
            for operands in self.flying:
                assert written not in operands, line
                assert operands[2] not in tiles, line


@pytest.mark.parametrize("seed", range(40))
def test_no_statement_meets_a_product_in_flight(tile_passes, seed):
    nodes = drawn(random.Random(seed))
    steps = ("PipelinePlanning", "InjectSoftwarePipeline", "Simplify", "PlaceAsyncWaits")
    lines = tile_passes(program(nodes), *steps, arch="sm_90a").script().splitlines()
    (first,) = [number for number, line in enumerate(lines) if "def main" in line]
    body, _ = tree([line for line in lines[first + 1 :] if line.strip()], 0, 1)
    for way in range(40):
        Run(random.Random(way)).all(body)
