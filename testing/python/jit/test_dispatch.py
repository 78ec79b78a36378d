"""Calls that the adapter finds the kernel of, and calls that it has to leave to Python."""

import dataclasses
import enum
import os
import threading
import types
from typing import Any

import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang.jit.impl import JITImpl
from tilelang.runtime.adapter.cython._adapter import ABSENT, Snapshot, Snapshots, Watched


@pytest.fixture
def by_python(monkeypatch):
    """The arguments of each call that the adapter does not find."""
    if torch.cuda.is_available():
        torch.cuda.init()  # which the first kernel would do
    found = []
    dispatch = JITImpl._dispatch

    def counted(self, args, kwargs):
        found.append((args, kwargs))
        return dispatch(self, args, kwargs)

    monkeypatch.setattr(JITImpl, "_dispatch", counted)
    return found


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    block: int
    pair: tuple = (1, 2)


@dataclasses.dataclass
class Mutable:
    block: int = 1


class Plain:
    def __init__(self):
        self.block = 1


@pytest.fixture
def factory():
    """A factory of one program for any option, and the options that it was traced with."""
    traces = []

    @tilelang.jit(out_idx=-1)
    def filled(n, option=None, *, other=0):
        traces.append(option)

        @T.prim_func
        def filled(C: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=64):
                for i in T.Parallel(n):
                    C[i] = 1

        return filled

    return filled, traces


@tilelang.jit
def add(A, B, bias=0, n: T.int32 = 1, block: int = 64):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B: T.Tensor[[N], T.float32]
    C = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=64) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] + B[bx * block + i] * n + T.float32(bias)
    return C


def helper(x):
    return x


FOUND = {
    "int": 3,
    "large int": 1 << 40,
    "bool": True,
    "text": "float16",
    "float": 0.5,
    "minus zero": -0.0,
    "nan": float("nan"),
    "dtype": T.float16,
    "torch": torch.float16,
    "tuple": (1, "a", (2.5, None)),
    "list": [1, [2, 3]],
    "dict": {"m": 64, "n": [1]},
    "enum": Color.RED,
    "class": Plain,
    "function": helper,
    "object": Plain(),
    "frozen": Frozen(64),
}


@pytest.mark.parametrize("option", FOUND.values(), ids=FOUND)
def test_the_same_argument_is_found(factory, by_python, option):
    filled, traces = factory
    kernel = filled(64, option)
    for _ in range(2):
        assert filled(64, option) is kernel
    assert len(by_python) == len(traces) == 1


EQUAL = [
    ("64", lambda: "".join(["6", "4"])),
    ("int", lambda: int("1234567")),
    ("float", lambda: float("1.5")),
    ("tuple", lambda: (int("1234567"), [1])),
    ("list", lambda: [1, 2]),
    ("dict", lambda: {"m": 64}),
    ("dtype", lambda: T.dtype("float16")),
]


@pytest.mark.parametrize("make", [make for _, make in EQUAL], ids=[name for name, _ in EQUAL])
def test_an_equal_argument_is_found(factory, by_python, make):
    filled, _ = factory
    assert filled(64, make()) is filled(64, make())
    assert len(by_python) == 1


def test_arguments_that_a_trace_tells_apart_are_others(factory, by_python):
    filled, traces = factory
    options = [1, 1.0, True, 0.0, -0.0, (1,), (True,), [1], [1.0], "1", {"a": 1, "b": 2}]
    options += [{"b": 2, "a": 1}, {"a": 1}, (0.0,), (-0.0,), Plain(), Plain(), T.int8, "int8"]
    for _ in range(3):
        assert len({id(filled(64, option)) for option in options}) == len(options)
    assert [repr(o) for o in traces] == [repr(o) for o in options]
    assert len(by_python) == len(options)


def test_what_changes_in_place_is_another_argument(factory):
    filled, traces = factory
    nested = ([1], {"a": [2]})
    kernels = [filled(64, nested)]
    nested[0][0] = 3
    kernels.append(filled(64, nested))
    nested[1]["a"].append(4)
    kernels.append(filled(64, nested))
    assert len({*map(id, kernels)}) == len(traces) == 3
    assert filled(64, ([1], {"a": [2]})) is kernels[0]


def test_objects_that_are_equal_by_their_fields_are_left_to_python(factory, by_python):
    filled, _ = factory
    option = Mutable()
    kernel = filled(64, option)
    assert filled(64, option) is kernel
    option.block = 2
    assert filled(64, option) is not kernel
    assert len(by_python) == 3


def test_lists_in_themselves_are_refused_and_deep_ones_left_to_python(factory, by_python):
    filled, _ = factory
    option = []
    option.append(option)
    for _ in range(2):
        with pytest.raises(RecursionError):
            filled(64, option)
    deep = 1
    for _ in range(20):
        deep = [deep]
    assert filled(64, deep) is filled(64, deep)
    assert len(by_python) == 4


def test_a_default_that_changes_is_seen():
    table = [1.0]

    @tilelang.jit(out_idx=-1)
    def filled(n, table=table):
        @T.prim_func
        def filled(C: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=64):
                for i in T.Parallel(n):
                    C[i] = table[0]

        return filled

    before = filled(64)
    assert filled(64) is before
    table[0] = 2.0
    assert filled(64) is not before


def test_every_spelling_is_found(factory, by_python):
    filled, traces = factory
    spellings = [
        lambda: filled(64),
        lambda: filled(n=64),
        lambda: filled(64, None),
        lambda: filled(64, option=None, other=0),
        lambda: filled(64, other=0, option=None),
        lambda: filled(other=0, n=64),
        lambda: filled(**{"".join(["ot", "her"]): 0, "n": 64}),
    ]
    kernels = [spelling() for spelling in spellings]
    assert len({*map(id, kernels)}) == len(traces) == 1
    del by_python[:]
    assert [spelling() for spelling in spellings] == kernels
    assert by_python == []


def test_wrong_arguments_are_errors_behind_right_ones(factory):
    filled, _ = factory
    filled(64)
    for _ in range(2):
        with pytest.raises(TypeError, match="missing a required argument: 'n'"):
            filled()
        with pytest.raises(TypeError, match="unexpected keyword argument 'm'"):
            filled(64, m=1)
        with pytest.raises(TypeError, match="multiple values for argument 'n'"):
            filled(64, n=64)
        with pytest.raises(TypeError, match="too many positional arguments"):
            filled(64, None, *range(40))


def test_many_configurations_are_found(factory, by_python, monkeypatch):
    filled, _ = factory
    kernels = {}
    monkeypatch.setattr(JITImpl, "_compile", lambda self, target, func: types.SimpleNamespace())
    for i in range(150):
        kernels[i] = filled(64, i)
    for i in reversed(range(150)):
        assert filled(64, i) is kernels[i]
    assert len(by_python) == 150


@pytest.mark.usefixtures("tensors_on_device")
def test_an_eager_call_is_found(by_python):
    a, b = torch.randn(64), torch.randn(64)
    calls = [
        (lambda: add(a, b), a + b),
        (lambda: add(B=b, A=a), a + b),
        (lambda: add(a, b, 2, block=32), a + b + 2),
        (lambda: add(a, b, n=3), a + 3 * b),
        (lambda: add(a[:32], b[:32]), (a + b)[:32]),
        (lambda: add(a, b, N=64), a + b),
    ]
    for call, wanted in calls * 2:
        torch.testing.assert_close(call(), wanted)
    del by_python[:]
    for call, wanted in calls:
        torch.testing.assert_close(call(), wanted)
    assert by_python == []
    torch.testing.assert_close(add(a, b, n=4), a + 4 * b)  # a number of the run
    assert by_python == []


@pytest.mark.usefixtures("tensors_on_device")
def test_eager_errors_behind_a_call_that_was_found(by_python):
    a = torch.zeros(64)
    for _ in range(3):
        add(a, a)
    assert len(by_python) <= 1
    for _ in range(2):
        with pytest.raises(ValueError, match="`A`: rank mismatch: expected 1 dimensions, got 2"):
            add(torch.zeros(64, 1), a)
        with pytest.raises(TypeError, match=r"`A`: expected a torch.Tensor, got list"):
            add([1.0] * 64, a)
        with pytest.raises(ValueError, match="parameter `A`: dtype mismatch: expected float32"):
            add(a.int(), a)
        with pytest.raises(ValueError, match=r"test_dispatch.py:\d+\): parameter `B`: shape"):
            add(a, torch.zeros(65))
        with pytest.raises(ValueError, match="parameter `A`"):
            add(torch.empty(64, device="meta"), a)
        with pytest.raises(TypeError, match="blok='x': expected an int"):
            add(a, a, blok="x")


@pytest.mark.usefixtures("tensors_on_device")
def test_dtypes_and_strides_of_tensors_are_other_kernels(by_python):
    @tilelang.jit
    def same(A):
        M, N, lda = T.const("M, N, lda")
        A: T.StridedTensor[[M, N], [lda, 1], T.float32]
        C = T.empty((M, N), T.float32)
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(M, N):
                C[i, j] = A[i, j]
        return C

    @tilelang.jit
    def bits(A: T.Tensor[[int], Any]):
        C = T.empty((1,), T.int32)
        with T.Kernel(1, threads=64):
            C[0] = T.dtype(A.dtype).bits
        return C

    a = torch.randn(8, 32)
    for _ in range(3):
        for given in (a, a[:, :16], a[:4], a[:, :16].contiguous()):
            assert torch.equal(same(given), given)
        for dtype, wanted in ((torch.float16, 16), (torch.bfloat16, 16), (torch.int8, 8)):
            assert bits(torch.zeros(4, dtype=dtype)) == wanted
    assert len(by_python) == 7
    assert (
        len({id(bits.compile(torch.zeros(4, dtype=d))) for d in (torch.half, torch.bfloat16)}) == 2
    )


@pytest.mark.usefixtures("tensors_on_device")
def test_a_list_that_changes_is_seen_in_eager_style():
    @tilelang.jit
    def shifted(A, by=(0,)):
        N = T.const("N")
        A: T.Tensor[[N], T.float32]
        C = T.empty((N,), T.float32)
        with T.Kernel(1, threads=64):
            for i in T.Parallel(N):
                C[i] = A[i] + by[0]
        return C

    a, by = torch.zeros(64), [1]
    assert shifted(a, by).sum() == shifted(a, by).sum() == 64
    by[0] = 2
    assert shifted(a, by).sum() == 128


CHANGES = {
    "target": lambda patch: patch.setenv("TILELANG_EMULATE_CHECKS", "bounds"),
    "unset": lambda patch: patch.setenv("TILELANG_ENABLE_DATA_RACE_CHECK", "0"),
    "another mapping": lambda patch: patch.setattr(
        os, "environ", {**os.environ, "TILELANG_ENABLE_DATA_RACE_CHECK": "0"}
    ),
}


@pytest.mark.usefixtures("tensors_on_device")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_eager_call_sees_a_change_and_that_it_is_gone(by_python, monkeypatch, change):
    a = torch.randn(64)
    for _ in range(2):
        add(a, a)
    kernels = add.compile(a, a)
    del by_python[:]
    with monkeypatch.context() as patch:
        change(patch)
        assert add.compile(a, a) is not kernels
        for _ in range(3):
            torch.testing.assert_close(add(a, a), a + a)
    assert add.compile(a, a) is kernels
    add(a, a)
    assert len(by_python) <= 1


def test_a_target_scope_is_found_in_its_thread_alone(factory, by_python):
    filled, _ = factory
    outside = filled(64)
    scope = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    found = []
    with scope:
        inside = filled(64)
        assert inside is not outside
        del by_python[:]
        assert filled(64) is inside
        thread = threading.Thread(target=lambda: found.append(filled(64)))
        thread.start()
        thread.join()
    assert found == [outside]
    assert filled(64) is outside
    assert by_python == []


def test_threads_see_what_is_read_as_it_is():
    scale = 0

    @tilelang.jit(out_idx=-1)
    def filled(value):
        @T.prim_func
        def filled(C: T.Tensor((scale + 1,), "float32")):
            with T.Kernel(1, threads=1):
                C[0] = value

        return filled

    kernels = {}
    for scale in (0, 1):
        for value in range(4):
            kernels[value, scale] = filled(value)
    assert len({*map(id, kernels.values())}) == 8
    stop, wrong = threading.Event(), []

    def call(value):
        mine = {id(kernels[value, s]): s for s in (0, 1)}
        while not stop.is_set():
            if id(filled(value)) not in mine:
                wrong.append(value)

    threads = [threading.Thread(target=call, args=(value,)) for value in range(4)]
    for thread in threads:
        thread.start()
    for i in range(2000):
        scale = i % 2
        # What this thread has set is what its own calls see.
        assert filled(i % 4) is kernels[i % 4, scale]
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_forked_process_finds_kernels(factory):
    filled, _ = factory
    kernel = filled(64)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if filled(64) is kernel else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_a_snapshot_compares_what_it_was_given():
    class Holder:
        x = 1

    values, table, space = [1, 2], {"a": 1}, types.SimpleNamespace(x=1)

    def enclosing():
        variable = 1

        def get():
            return variable

        def set(value):
            nonlocal variable
            variable = value

        return get, set

    get, set_ = enclosing()
    cases = [
        (lambda s: s.item(table, "a", 1), lambda: table.update(a=2)),
        (lambda s: s.item(table, "b", ABSENT), lambda: table.update(b=2)),
        (lambda s: s.item(vars(Holder), "x", 1), lambda: setattr(Holder, "x", 2)),
        (lambda s: s.item(vars(Holder), "y", ABSENT), lambda: setattr(Holder, "y", 2)),
        (lambda s: s.attribute(space, "x", 1), lambda: setattr(space, "x", 2)),
        (lambda s: s.attribute(space, "y", ABSENT), lambda: setattr(space, "y", 2)),
        (lambda s: s.cell(get.__closure__[0], 1), lambda: set_(2)),
        (lambda s: s.elements(values, (1, 2)), lambda: values.append(3)),
        (lambda s: s.elements(values, (1, 2, 3)), lambda: values.reverse()),
        (lambda s: s.length(table), lambda: table.update(c=2)),
        (lambda s: s.option(table, "a", 2), lambda: table.update(a=2.0)),
        (lambda s: s.call(len, (values,), 3), lambda: values.clear()),
    ]
    for add_to, change in cases:
        snapshot = Snapshot()
        add_to(snapshot)
        assert snapshot.unchanged()
        change()
        assert not snapshot.unchanged()


def test_attributes_count_as_changed_where_any_is_set():
    class Kept(Watched):
        def __init__(self):
            self.x = 1

    kept, snapshot = Kept(), Snapshot()
    snapshot.attributes(kept)
    assert snapshot.unchanged()
    kept.y = 2
    assert (kept.x, kept.y) == (1, 2)
    assert not snapshot.unchanged()


def test_an_error_of_a_check_is_raised():
    snapshot = Snapshot()
    snapshot.call(lambda: 1 // 0, (), 0)
    with pytest.raises(ZeroDivisionError):
        snapshot.unchanged()


def test_the_last_snapshots_are_kept():
    snapshots, table = Snapshots(), {"a": 0}
    values = [object() for _ in range(6)]
    for i, value in enumerate(values):
        snapshot = Snapshot()
        snapshot.item(table, "a", i)
        snapshots.keep(snapshot, value)
    found = []
    for i in range(6):
        table["a"] = i
        found.append(snapshots.current())
    assert found == [None, None, *values[2:]]
