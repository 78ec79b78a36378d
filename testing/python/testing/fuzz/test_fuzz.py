"""The fuzzer: its programs, its interpreter, its way with what fails, and a dozen of its seeds."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import tilelang
from tilelang.emulator import current_schedule
from tilelang.testing.fuzz.check import check, difference, launch, tensors
from tilelang.testing.fuzz.coverage import FEATURES, features
from tilelang.testing.fuzz.emit import emit
from tilelang.testing.fuzz.generate import generate
from tilelang.testing.fuzz.interpret import arguments, interpret
from tilelang.testing.fuzz.operations import Values, apply, cast
from tilelang.testing.fuzz.program import (
    Atomic,
    Buffer,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Invalid,
    Jump,
    Kernel,
    Load,
    Num,
    Op,
    Parallel,
    Persistent,
    Program,
    Reduce,
    Ref,
    Scan,
    Schedule,
    Store,
    Tensor,
    Tile,
    While,
    walk,
)
from tilelang.testing.fuzz.run import listing, made_small, run
from tilelang.testing.fuzz.shrink import shrink
from tilelang.testing.fuzz.twins import TWINS, twins
from tilelang.testing.workers import Outcome


def program(tensors, buffers, *body, threads=32, grid=()):
    """A kernel of statements; tensors and buffers are (name, ..., shape, dtype)."""
    made = [Tensor(n, tuple(map(Num, s)), d, low, high) for n, s, d, low, high in tensors]
    memory = [Buffer(n, scope, tuple(map(Num, s)), d) for n, scope, s, d in buffers]
    kernel = Kernel(grid, (threads,), tuple(memory), body)
    return Program("test", (), tuple(made), (kernel,))


def test_a_dozen_programs_are_what_they_should_be():
    programs = [generate(0, number) for number in range(12)]
    outcomes = check(programs)
    assert [o for o in outcomes if o.status == "failed"] == []
    assert sum(o.status == "equal" for o in outcomes) >= 10


_ALONE = """
import sys, types
for name, folder in {folders}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from tilelang.testing.fuzz.generate import generate
print(repr(generate(5, 3)))
assert not sys.modules.keys() & {{"tvm", "torch", "tilelang.language"}}
"""


def test_a_seed_is_a_program_whatever_the_order_of_sets():
    """Another process has another hash of each text; neither generator nor interpreter need the
    compiler."""
    folder = pathlib.Path(tilelang.__file__).parent
    folders = [("tilelang", str(folder)), ("tilelang.testing", str(folder / "testing"))]
    code = _ALONE.format(folders=folders)
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.strip() == repr(generate(5, 3))


def test_twins_compute_the_same():
    seen = set()
    for number in range(12):
        original = generate(3, number)
        wanted = interpret(original)
        for name, twin in twins(original, len(TWINS)):
            seen.add(name)
            assert twin != original
            for tensor, values in interpret(twin).items():
                assert np.array_equal(values.value, wanted[tensor].value), name
    assert seen == set(TWINS)


def test_a_twin_of_another_vendor_runs_beside_its_program():
    """In a library of its own: its warps have another number of lanes."""
    original = generate(3, 0)
    others = [name for name in TWINS if name != "vendor"]
    ((name, twin),) = twins(original, 1, others)
    assert (name, twin.arch[:3]) == ("vendor", "gfx")
    assert [o.status for o in check([original, twin, original])] == ["equal"] * 3


def test_features_that_are_counted_exist():
    found = set().union(*(features(generate(4, number), False) for number in range(120)))
    missing = set(FEATURES) - found - {"rounded values"}
    assert len(missing) <= 12, missing


A = ("A", (4, 8), "float32", -4, 4)
S, F = Tile("S"), Tile("F")
ROW = Parallel(("i",), (Num(8),), (Store("S", (Ref("i"),), Num(1)),))
SHARED = [("S", "shared", (8,), "float32")]


def element(index):
    return Load("S", (index,))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ([Copy(S, Tile("C"))], "nothing was written to"),
        ([ROW, Parallel(("i",), (Num(9),), (Store("S", (Ref("i"),), Num(1)),))], "outside"),
        ([Parallel(("i",), (Num(8),), (Store("S", (Num(0),), Num(1)),))], "race: two writes"),
        (
            [
                ROW,
                Parallel(
                    ("i",),
                    (Num(7),),
                    (Store("S", (Ref("i"),), element(Op("add", (Ref("i"), Num(1))))),),
                ),
            ],
            "race",
        ),
        (
            [ROW, Parallel(("i",), (Num(8),), (Atomic("add", "S", (Num(0),), element(Num(0))),))],
            "race",
        ),
        ([Parallel(("i",), (Num(8),), (Store("I", (Ref("i"),), Num(200)),))], "int8 overflows"),
    ],
)
def test_programs_without_a_meaning(body, told):
    buffers = [*SHARED, ("I", "shared", (8,), "int8")]
    with pytest.raises(Invalid, match=told):
        interpret(program([("C", (8,), "float32", 1, 0)], buffers, *body))


def test_blocks_that_write_the_same_element():
    fill = Copy(Tile("A", (Num(0), Num(0))), S)
    buffers = [("S", "shared", (4, 8), "float32")]
    outputs = [A, ("C", (4, 8), "float32", 1, 0)]
    interpret(program(outputs, buffers, fill, Copy(S, Tile("C")), grid=(Num(1),)))
    with pytest.raises(Invalid, match="race"):
        interpret(program(outputs, buffers, fill, Copy(S, Tile("C")), grid=(Num(2),)))


def test_interpreter_of_operators():
    """Products, reductions and scans against numpy's, copies past the end of a tensor."""
    buffers = [
        ("F", "shared", (5, 8), "float16"),
        ("G", "fragment", (5, 5), "float32"),
        ("R", "fragment", (5,), "float32"),
    ]
    outputs = [A, ("C", (5, 5), "float32", 1, 0), ("D", (5,), "float32", 1, 0)]
    found = interpret(
        program(
            outputs,
            buffers,
            Copy(Tile("A", (Num(0), Num(0))), F),
            Gemm(F, F, Tile("G"), transpose_b=True, clear=Num(1)),
            Scan("cumsum", Tile("G"), None, 1, reverse=True),
            Reduce("absmax", Tile("G"), Tile("R"), 0),
            Copy(Tile("G"), Tile("C")),
            Copy(Tile("R"), Tile("D")),
        )
    )
    a = np.zeros((5, 8))
    a[:4] = arguments(program([A], []))["A"]
    product = np.cumsum((a @ a.T)[:, ::-1], 1)[:, ::-1]
    assert np.array_equal(found["C"].value.reshape(5, 5), product)
    assert np.array_equal(found["D"].value, np.abs(product).max(0))
    assert not np.any(found["C"].error)


K, V = Ref("k"), Ref("v")


def digits(*loops):
    """A program that writes the values of its variables into a number, digit by digit."""
    buffers = [("S", "shared", (1,), "int32"), ("v", "var", (), "int32")]
    body = (Fill(S, Num(0)), *loops, Copy(S, Tile("C")))
    return program([("C", (1,), "int32", 1, 0)], buffers, *body)


def digit(expr):
    value = Op("add", (Op("mul", (element(Num(0)), Num(10))), expr))
    return Parallel(("i",), (Num(1),), (Store("S", (Num(0),), value),))


def jump(kind, variable, value):
    return If(Op("eq", (variable, Num(value))), (Jump(kind),))


def test_loops_count_as_they_say():
    """Against numbers written here, and against the compiler."""
    step = Store("v", (), Op("add", (V, Num(1))))
    counting = While(Op("lt", (V, Num(9))), (step, jump("break", V, 4), digit(V)))
    programs = {
        13579: digits(For("serial", "k", Num(10), (digit(K),), start=Num(1), step=Num(2))),
        3210: digits(For("serial", "k", Num(-1), (digit(K),), start=Num(3), step=Num(-1))),
        567: digits(For("pipelined", "k", Num(8), (digit(K),), stages=2, start=Num(5))),
        1245: digits(For("serial", "k", Num(6), (jump("continue", K, 3), digit(K)))),
        12: digits(For("serial", "k", Num(6), (jump("break", K, 3), digit(K)))),
        123: digits(Store("v", (), Num(0)), counting),
    }
    for number, made in programs.items():
        assert interpret(made)["C"].value == number
    assert [o.status for o in check(list(programs.values()))] == ["equal"] * len(programs)


def test_tiles_of_a_domain_go_around_the_blocks():
    here = Store("C", (Ref("p"), Ref("q")), Ref("bx"))
    tiles = Persistent(("p", "q"), (Num(2), Num(3)), Num(2), Ref("bx"), 2, (here,))
    made = program([("C", (2, 3), "int32", 1, 0)], [], tiles, grid=(Num(2),))
    assert interpret(made)["C"].value.tolist() == [0, 1, 0, 0, 1, 0]
    assert check([made])[0].status == "equal"


@pytest.mark.parametrize(
    ("loop", "told"),
    [
        (While(Op("lt", (V, Num(1))), (digit(V),)), "without an end"),
        (jump("break", V, 0), "break outside of a loop"),
        (For("unroll", "k", Num(3), (jump("break", K, 1),)), "jump"),
    ],
)
def test_loops_without_a_meaning(loop, told):
    with pytest.raises(Invalid, match=told):
        interpret(digits(Store("v", (), Num(0)), loop))


def test_a_program_runs_under_its_schedule():
    class Spy:
        def run(self, position, given):
            self.schedule = current_schedule()

    chosen = dataclasses.replace(digits(), schedule=Schedule("adversarial", "early", 7, 2))
    spy = Spy()
    launch(spy, 0, [], chosen)
    assert dataclasses.asdict(spy.schedule) == dataclasses.asdict(chosen.schedule)
    assert str(chosen.schedule) in listing("1/2", chosen, Outcome("failed")).split('"""')[1]


def test_a_wrong_element_is_told():
    original = program([A, ("C", (4, 8), "float32", 1, 0)], [], Copy(Tile("A"), Tile("C")))
    given = tensors(original)
    given[1].copy_(given[0])
    assert difference(original, given, interpret(original)) == ""
    given[1][2, 5] += 1
    assert difference(original, given, interpret(original)).startswith("C[2, 5] is ")


def test_failures_become_small():
    """What fails is any program with a reduction: little else is left."""
    found = next(p for p in (generate(6, n) for n in range(99)) if _reductions(p))
    small = shrink(found, lambda programs: [bool(_reductions(p)) for p in programs], 60)
    statements = [n for k in small.kernels for n in walk(k.body) if dataclasses.is_dataclass(n)]
    assert len(_reductions(small)) == 1
    assert len([n for n in statements if not isinstance(n, Num | Ref | Tile | Op)]) <= 4
    assert sum(size.value for size in small.sizes) <= 8
    interpret(small)
    assert "T.reduce_" in emit(small)


def test_a_smaller_program_that_fails_otherwise_is_told():
    class Workers:
        def check(self, programs, batch):
            return [Outcome("failed", "one" if _reductions(p) else "another") for p in programs]

    found = next(p for p in (generate(6, n) for n in range(99)) if _reductions(p))
    said, saved = [], []
    failed = [("6/0", found, Outcome("failed", "one"))]
    failures = made_small(Workers(), failed, said.append, lambda name, text: saved.append(name))
    assert sorted(f.outcome.reason for f in failures) == ["another", "one"]
    assert len(said) == 1
    assert saved == ["6/0", "6/0 made smaller, 2"]


def _reductions(candidate):
    return [n for n in walk(candidate) if isinstance(n, Reduce)]


def test_a_run_counts():
    said = []
    report = run(0, 60, 1, limit=1, say=said.append)
    assert report.programs == 1
    assert report.equal + report.refused.total() == 1 + report.twins.total()
    assert not said
    assert "1 programs and 1 twins" in report.text()
    assert "0  operation" in report.text()


def test_integers_wrap_as_kernels_do():
    def values(dtype, *numbers):
        return Values(np.array(numbers), 0.0, dtype)

    def found(result):
        return result.dtype, result.value.tolist()

    assert found(cast("uint8", values("int32", -1, 300))) == ("uint8", [255, 44])
    assert found(cast("int32", values("uint32", 2**32 - 1))) == ("int32", [-1])
    assert found(apply("sub", [values("uint16", 0), values("uint16", 7)])) == ("uint16", [65529])
    assert found(apply("mul", [values("int8", 100), values("int8", 3)])) == ("int8", [44])
    with pytest.raises(Invalid, match="int32 overflows"):
        apply("add", [values("int32", 2**31 - 1), values("int32", 1)])
