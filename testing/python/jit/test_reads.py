"""What a trace has read is part of a kernel's key: a change is seen by the next call, of compiled
sizes as of new ones, and what does not matter compiles nothing."""

import importlib.util
import itertools
import sys
import textwrap
import time
import types

import pytest
import torch

import tilelang
from tilelang.jit.reads import Reads

PROGRAM = """
import collections
import contextvars
import dataclasses
import functools
import types

import numpy as np
import tilelang
import tilelang.language as T
import torch
import tvm_ffi
from tvm import tirx

SCALE = 2.0
TABLE = [1.0, 2.0, 3.0]
WEIGHTS = {"a": 1.0, "b": [2.0]}
ARRAY = np.array([1.0, 2.0])
DTYPE = T.float32
CALLS = 0
LOG = []
UNUSED = 0
settings = types.SimpleNamespace(bias=1.0, inner=types.SimpleNamespace(depth=1.0))


class Config:
    LIMIT = 5.0
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k

    @property
    def twice(self):
        return 2 * self.k * SCALE


class Plain:
    def __init__(self, k):
        self.k = k
        self.other = 0

    def half(self):
        return self.k / 2

    @classmethod
    def limit(cls):
        return cls.LIMIT

    LIMIT = 5.0


config, plain = Config(3.0), Plain(4.0)
Sizes = collections.namedtuple("Sizes", "k")
sizes, queue, layers = Sizes(3.0), collections.deque([3.0]), collections.ChainMap({"a": 3.0})
tensor, raw = torch.tensor([1.0, 2.0]), bytearray([3])
context = contextvars.ContextVar("context", default=3.0)


class Options(dict):
    pass


@dataclasses.dataclass(frozen=True)
class Sized:
    k: object


@dataclasses.dataclass(frozen=True)
class Frozen:
    k: float = dataclasses.field(compare=False)


@dataclasses.dataclass
class Hidden:
    k: float = dataclasses.field(repr=False)


class Equal:
    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return True

    __hash__ = None


class Texts(str):
    def __new__(cls, k):
        made = str.__new__(cls, "text")
        made.k = k
        return made


class Known(type):
    @property
    def k(cls):
        return SCALE


class Class(metaclass=Known):
    pass


class Times:
    def __get__(self, value, kind):
        return value.base * SCALE


class Scaled:
    times = Times()
    base = 1.5


options, scaled = Options(k=3.0), Scaled()
lookup = options.get


def counted():
    return counted.k


counted.k = 3.0


@T.macro
def inner(x):
    return x * SCALE


@T.macro
def act(x):
    return inner(x) + 1


@T.inline
def inlined(x):
    return x - SCALE


def helper(n=TABLE):
    global CALLS
    CALLS += 1
    LOG.append("called")
    return deeper() + n[0]


def deeper():
    return SCALE


def wraps(f):
    def wrapper(*args):
        return f(*args) + SCALE

    return wrapper


@wraps
def wrapped():
    return 1.0


def closed():
    value = 3.0

    def get():
        return value

    def set(v):
        nonlocal value
        value = v

    return get, set


get, set = closed()
partial = functools.partial(lambda a, b: a + b[0], 1.0, [2.0])


def whole(c):
    return c.k


def stored(kernel):
    # The constant that a program writes.
    found = []
    visit = [(tirx.BufferStore, lambda node: found.append(node.value.value))]
    tvm_ffi.structural_walk(kernel.prim_func, visit)
    return found[0]


EXPRESSION
"""

EAGER = """
@tilelang.jit
def f(A, option=None):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    with T.Kernel(1, threads=32):
        for i in T.Parallel(N):
            C[i] = {}
    return C


def run(n, *option):
    return stored(f.compile(None, *option, N=n))
"""

LAZY = """
@tilelang.jit(out_idx=-1)
def f(N, option=None):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                C[i] = {}

    return main


def run(n, *option):
    return stored(f(n, *option))
"""

# What the program computes, a change of its module `m`, the results before and after.
CHANGES = [
    ("SCALE", "m.SCALE = 7.0", 2, 7),
    ("act(act(1.0)) * 0 + act(1.0)", "m.SCALE = 7.0", 3, 8),
    ("act(1.0)", "m.inner = m.T.macro(m.deeper_macro)", 3, 101),
    ("act(1.0)", "m.act = m.inner", 3, 2),
    ("inlined(1.0)", "m.SCALE = 7.0", -1, -6),
    ("helper()", "m.SCALE = 7.0", 3, 8),
    ("helper()", "m.TABLE[0] = 5.0", 3, 7),
    ("helper()", "m.deeper = lambda: 9.0", 3, 10),
    ("wrapped()", "m.SCALE = 7.0", 3, 8),
    ("get()", "m.set(8.0)", 3, 8),
    ("partial()", "m.partial.args[1][0] = 4.0", 3, 5),
    ("sum(TABLE)", "m.TABLE.append(4.0)", 6, 10),
    ("sum(TABLE)", "m.TABLE[:] = [9.0]", 6, 9),
    ("WEIGHTS['b'][0]", "m.WEIGHTS['b'][0] = 4.0", 2, 4),
    ("WEIGHTS.get('c', 0.0)", "m.WEIGHTS['c'] = 4.0", 0, 4),
    ("float(ARRAY[1])", "m.ARRAY[1] = 4.0", 2, 4),
    ("settings.bias", "m.settings.bias = 4.0", 1, 4),
    ("settings.inner.depth", "m.settings.inner.depth = 4.0", 1, 4),
    ("settings.inner.depth", "m.settings.inner = m.types.SimpleNamespace(depth=4.0)", 1, 4),
    ("config.k", "m.config.k = 4.0", 3, 4),
    ("config.twice", "m.config.k = 4.0", 12, 16),
    ("config.twice", "m.SCALE = 3.0", 12, 18),
    ("config.LIMIT", "m.Config.LIMIT = 4.0", 5, 4),
    ("Config.LIMIT", "m.Config.LIMIT = 4.0", 5, 4),
    ("whole(config)", "m.config.k = 4.0", 3, 4),
    ("whole(plain)", "m.plain.k = 5.0", 4, 5),
    ("plain.half()", "m.plain.k = 5.0", 2, 2.5),
    ("plain.half()", "m.Plain.half = lambda self: 8.0", 2, 8),
    ("len(str(DTYPE)) * 1.0", "m.DTYPE = m.T.int8", 7, 4),
    ("min([3.0])", "m.min = lambda v: 5.0", 3, 5),
    ("sum(v * SCALE for v in TABLE)", "m.SCALE = 1.0", 12, 6),
    ("(lambda: SCALE)()", "m.SCALE = 1.0", 2, 1),
    ("sizes.k", "m.sizes = m.Sizes(4.0)", 3, 4),
    ("queue[0]", "m.queue[0] = 4.0", 3, 4),
    ("layers['a']", "m.layers['a'] = 4.0", 3, 4),
    ("float(tensor[1])", "m.tensor[1] = 4.0", 2, 4),
    ("float(raw[0])", "m.raw[0] = 4", 3, 4),
    ("context.get()", "m.context.set(4.0)", 3, 4),
    ("plain.__dict__['k']", "m.plain.k = 5.0", 4, 5),
    ("options.get('k')", "m.options['k'] = 4.0", 3, 4),
    ("lookup('k')", "m.options['k'] = 4.0", 3, 4),
    ("Class.k", "m.SCALE = 4.0", 2, 4),
    ("scaled.times", "m.SCALE = 4.0", 3, 6),
    ("scaled.times", "m.scaled.base = 4.0", 3, 8),
    ("plain.limit()", "m.Plain.LIMIT = 4.0", 5, 4),
    ("Plain.limit()", "m.Plain.LIMIT = 4.0", 5, 4),
    ("counted()", "m.counted.k = 4.0", 3, 4),
    ("deeper()", "m.deeper.__code__ = (lambda: 9.0).__code__", 2, 9),
]
STYLES = {"eager": EAGER, "lazy": LAZY}
numbers = itertools.count()


@pytest.fixture
def loaded(tmp_path):
    """A function that imports a text as a module, which others may import by its name."""
    names = []

    def load(text):
        names.append(f"reads_{next(numbers)}")
        path = tmp_path / f"{names[-1]}.py"
        path.write_text(textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(names[-1], path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[names[-1]] = module
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        del sys.modules[name]


def program(style, expression):
    extra = "def deeper_macro(x):\n    return x + 99\n"
    return PROGRAM.replace("EXPRESSION", extra + STYLES[style].replace("{}", expression))


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("expression", "change", "before", "after"), CHANGES)
def test_a_change_is_seen_by_a_compiled_size(loaded, style, expression, change, before, after):
    m = loaded(program(style, expression))
    assert m.run(64) == pytest.approx(before)
    exec(change, {"m": m})
    assert m.run(64) == pytest.approx(after)
    assert m.run(32) == pytest.approx(after)


@pytest.mark.parametrize("style", STYLES)
def test_a_configuration_object_is_an_argument(loaded, style):
    m = loaded(program(style, "option.k + option.half()"))
    first, second = m.Plain(2.0), m.Plain(4.0)
    assert [m.run(64, first), m.run(64, second)] == [3, 6]
    first.k = 6.0
    assert [m.run(64, first), m.run(64, second)] == [9, 6]
    m.Plain.half = lambda self: 0.0
    assert m.run(64, first) == 6


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("kind", ["Frozen", "Hidden", "Equal", "Texts"])
def test_arguments_that_their_class_takes_for_equal(loaded, style, kind):
    """They differ in what a trace reads, and other calls keep the objects of before."""
    m = loaded(program(style, "option.k * 1.0"))
    make = getattr(m, kind)
    kept = [make(3.0), make(4.0), make(5.0)]
    assert [m.run(64, option) for option in (*kept, make(4.0), kept[0])] == [3, 4, 5, 4, 3]


@pytest.mark.parametrize("style", STYLES)
def test_numbers_in_a_frozen_object_count_by_their_type(loaded, style):
    m = loaded(program(style, "{int: 1.0, float: 2.0, bool: 3.0}[type(option.k)]"))
    assert [m.run(64, m.Sized(k)) for k in (1, 1.0, True, 1)] == [1, 2, 3, 1]


@pytest.mark.parametrize("style", STYLES)
def test_functions_and_lists_of_objects_are_arguments(loaded, style):
    m = loaded(program(style, "option[0](option[1].k)"))
    given = [lambda k: k * m.SCALE, m.Plain(3.0)]
    assert m.run(64, given) == 6
    m.SCALE = 1.0
    assert m.run(64, given) == 3
    given[1].k = 5.0
    assert m.run(64, [*given]) == 5


@pytest.mark.parametrize("style", STYLES)
def test_attributes_of_imported_modules(loaded, style):
    other = loaded("BLOCK = 3.0\ndef f(): return BLOCK")
    m = loaded(program(style, "other.BLOCK + other.f()"))
    m.other = other
    assert m.run(64) == 6
    other.BLOCK = 5.0
    assert m.run(64) == 10


@pytest.fixture
def compilations(monkeypatch):
    """Everything that is lowered."""
    found = []
    kernel = importlib.import_module("tilelang.jit.kernel").JITKernel
    lower = kernel._lower
    monkeypatch.setattr(kernel, "_lower", lambda self: found.append(self) or lower(self))
    return found


UNCHANGED = [
    "m.UNUSED = 1",
    "m.SCALE = float('2')",
    "m.plain.other = 1",
    "m.settings.inner.more = 1",
    "m.TABLE = [1.0, 2.0, 3.0]",
    "m.CALLS = 0",
    "m.LOG.append(1)",
    "m.new = 1",
]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("change", UNCHANGED)
def test_what_does_not_matter_compiles_nothing(loaded, compilations, style, change):
    m = loaded(program(style, "helper() + plain.k + settings.inner.depth + act(1.0)"))
    before = m.run(64), m.run(32), m.run(64), m.run(32)
    assert len(compilations) == 2
    exec(change, {"m": m})
    assert (m.run(64), m.run(32)) == before[:2]
    assert len(compilations) == 2


@pytest.mark.parametrize("style", STYLES)
def test_a_former_state_has_its_kernels_still(loaded, compilations, style):
    m = loaded(program(style, "SCALE"))
    assert m.run(64) == 2
    for _ in range(3):
        m.SCALE = 3.0
        assert m.run(64) == 3
        m.SCALE = 2.0
        assert m.run(64) == 2
    assert len(compilations) == 2


@pytest.mark.parametrize("style", STYLES)
def test_tables_that_a_trace_fills_are_stable(loaded, compilations, style):
    m = loaded(program(style, "fill(16)"))
    m.TABLES = {}

    def fill(n):
        if n not in m.TABLES:
            m.TABLES[n] = float(n)
        return m.TABLES[n]

    m.fill = fill
    assert [m.run(64) for _ in range(3)] == [16, 16, 16]
    assert len(compilations) == 1


def test_calls_see_a_change(loaded, tensors_on_device):
    m = loaded(program("eager", "A[i] * SCALE"))
    a = torch.ones(64)
    assert m.f(a).sum() == 128
    m.SCALE = 3.0
    assert [m.f(a).sum(), m.f(a[:32]).sum()] == [192, 96]


def test_keys_have_what_was_read(loaded):
    m = loaded(program("eager", "SCALE + plain.k"))
    jitted = tilelang.jit(m.f.func)
    a = torch.ones(64)
    key = jitted.parse_cache_key(a)
    assert jitted.parse_cache_key(a) == key
    m.plain.k = 9.0
    assert jitted.parse_cache_key(a) != key


def test_cycles_and_large_objects_end(loaded):
    m = loaded(program("eager", "whole(plain)"))
    m.plain.itself = m.plain
    m.plain.many = [[i] for i in range(50_000)]
    reads = Reads(m.f.func, {})
    assert reads.unchanged()
    m.plain.k = 8.0
    assert not reads.unchanged()


class Token(tuple):
    """A node of a tree that its parents and children are attributes of, equal to others of its
    text."""


def test_members_of_sets_are_not_followed_for_their_keys():
    """A key of each token had all of the others."""
    tokens = {Token((i,)) for i in range(1000)}
    for token in tokens:
        token.others = tokens

    def function():
        return tokens

    start = time.process_time()
    assert Reads(function, {}).unchanged()
    assert time.process_time() - start < 1


def test_declarations_are_read_too(loaded, tensors_on_device):
    m = loaded("""
        import tilelang
        import tilelang.language as T

        ROWS = 2

        @tilelang.jit
        def f(A):
            N = T.const("N")
            A: T.Tensor[[ROWS, N], T.float32]
            C = T.empty((N,), T.float32)
            with T.Kernel(1, threads=32):
                for i in T.Parallel(N):
                    C[i] = A[ROWS - 1, i]
            return C
    """)
    assert m.f(torch.ones(2, 32)).sum() == 32
    m.ROWS = 3
    assert m.f(torch.ones(3, 32)).sum() == 32
    with pytest.raises(ValueError, match="expected 3 at index 0"):
        m.f(torch.ones(2, 32))


def test_annotations_of_variables_and_text_annotations_are_read(loaded):
    m = loaded("""
        from __future__ import annotations
        import tilelang
        import tilelang.language as T

        DTYPE = T.float32

        @tilelang.jit(out_idx=-1)
        def f(N):
            @T.prim_func
            def main(A: T.Tensor((N,), DTYPE), C: T.Tensor((N,), DTYPE)):
                with T.Kernel(1, threads=32):
                    for i in T.Parallel(N):
                        C[i] = A[i]
            return main
    """)
    assert m.f(32).params[0].dtype == "float32"
    m.DTYPE = m.T.float16
    assert m.f(32).params[0].dtype == "float16"


def test_modules_of_libraries_are_not_searched():
    def function():
        return torch.nn.functional.relu(types.SimpleNamespace)

    reads = Reads(function, {})
    assert len(reads.snapshot) < 10
