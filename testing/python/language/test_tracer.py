"""Errors outside of traces, spans on and off, threads."""

import threading

import pytest

import tilelang.language as T
from tilelang.jit.exceptions import JITNoBuilderError


@pytest.mark.parametrize(
    "use",
    [
        lambda: T.copy(None, None),
        lambda: T.clear(None),
        lambda: T.gemm(None, None, None),
        lambda: T.alloc_shared(4, "float32"),
        lambda: T.Parallel(4),
        lambda: T.serial(4),
        lambda: T.use_swizzle(4),
        T.get_thread_binding,
    ],
)
def test_outside_of_a_trace(use):
    with pytest.raises(JITNoBuilderError, match="only defined while a function is being traced"):
        use()


def test_an_error_in_a_macro_names_the_macros_line(trace, define):
    put = define("@T.macro\ndef put(A):\n    A[0] = 1")["put"]
    with pytest.raises(IndexError, match=r"--> <kernel \d+>:3:5\n   \|     A\[0\] = 1"):
        trace("put(A)", put=put)


def test_an_error_in_a_helper_names_the_kernels_line_once(trace):
    def helper():
        raise KeyError("nothing here")

    with pytest.raises(KeyError) as raised:
        trace("A[0, 0] = 1\nhelper()", helper=helper)
    assert raised.value.args[0].count("--> ") == 1
    assert ":6:9" in raised.value.args[0]


def test_a_failed_trace_leaves_nothing_open(trace):
    with pytest.raises(IndexError):
        trace("for i in range(4):\n    A[0] = i")
    with pytest.raises(JITNoBuilderError):
        T.Kernel(1)
    assert "A[0, 0]" in trace("A[0, 0] = 1").script()


def test_spans_can_be_turned_off(trace, monkeypatch):
    monkeypatch.setenv("TILELANG_ENABLE_IR_SPAN", "0")
    with pytest.raises(IndexError) as raised:
        trace("A[0] = 1")
    assert "-->" not in str(raised.value)


def test_threads_trace_independently(trace):
    scripts = {}

    def work(value):
        scripts[value] = trace(f"for i in range(8):\n    A[i, 0] = {value}").script()

    threads = [threading.Thread(target=work, args=(v,)) for v in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(f"A[i, 0] = T.float32({v}.0)" in scripts[v] for v in range(4))


def test_frames_of_tvm_work_in_with(traced):
    from tvm.tirx.script.builder import ir as builder

    text = traced("with attr(0, 'key', 1):\n    A[0, 0] = 1", attr=builder.attr)
    assert text.startswith("T.attr({'key': 1})".replace("'", '"')) or 'T.attr(0, "key", 1)' in text
