"""Timelines of a block: who waits, who lets whom go on, what engines do meanwhile."""

import ctypes
import json

import numpy as np
import pytest

from tilelang.emulator import EmulationError, schedule, timeline
from tilelang.emulator.compiler import build_emulated

# Both warps load a tile, warp 0 waits for warp 1 at an mbarrier, and all meet at the end.
SOURCE = """#include <tl/common.h>
#include <tl/copy.h>
#include <tl/mbarrier.h>
extern "C" __global__ void kernel(const float* from, float* to) {
  unsigned char* buf_dyn_shmem = tl::dynamic_shared();
  auto S = tl::shared<float, 64>(buf_dyn_shmem + 0);
  auto full = tl::shared<uint64_t, 1>(buf_dyn_shmem + 256);
  const int tx = threadIdx.x;
#line 1 "k.py"
  if (tx == 0) tl::mbarrier_init(&full[0], 32);
  __syncthreads();
  tl::cp_async_gs<4>(&S[tx], from + tx);
  tl::cp_async_commit();
  if (tx >= 32) {
    tl::cp_async_wait<0>();
    tl::mbarrier_arrive(&full[0]);
  } else {
    tl::mbarrier_wait(&full[0], 0);
    tl::cp_async_wait<0>();
  }
  __syncthreads();
  to[blockIdx.x * 64 + tx] = S[tx];
}
"""


@pytest.fixture(scope="module")
def module():
    return build_emulated(SOURCE, ["kernel"])


def launch(module, blocks=1):
    values, out = np.arange(64, dtype=np.float32), np.zeros(64 * blocks, np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (values, out)]
    module.launch("kernel", (blocks, 1, 1), (64, 1, 1), 264, pointers)
    assert out.tolist() == values.tolist() * blocks


@pytest.fixture(scope="module")
def recorded(module):
    with timeline() as t:
        launch(module)
    (kernel,) = t.kernels
    return t, kernel


def test_events_come_in_the_order_of_the_schedule(recorded):
    t, kernel = recorded
    assert (kernel.kernel, kernel.threads, kernel.warps, t.left_out) == ("kernel", 64, 2, 0)
    turns = [event.turn for event in kernel.events]
    assert turns == sorted(turns)
    of_thread_7 = [e.kind for e in kernel.events if e.thread == 7]
    wait = ["wait", "go on"]
    # What it has copied is done when it asks, behind its wait at the mbarrier.
    assert of_thread_7 == [*wait, "issue", *wait, "done", *wait, "exit"]
    assert [e.kind for e in kernel.events if e.thread == 40][2:5] == ["issue", "done", "arrive"]


def test_who_waits_for_whom(recorded):
    _, kernel = recorded
    at_mbarrier = [w for w in kernel.waits() if "full" in w.words]
    (wait,) = at_mbarrier
    assert (wait.warp, wait.lanes, wait.place) == (0, 32, "k.py:9")
    assert wait.words.startswith("the end of phase 0 (parity 0) of full[0]: ")
    assert (wait.released_by, wait.released_at) == (62, "k.py:7")
    assert wait.begin < wait.release < wait.end
    barriers = [w for w in kernel.waits() if w.words.startswith("barrier 0")]
    assert {w.place for w in barriers} == {"k.py:2", "k.py:12"}
    assert {w.warp for w in barriers} == {0, 1}


def test_what_engines_do(recorded):
    _, kernel = recorded
    copies = kernel.operations()
    assert {(o.words, o.warp, o.place, o.is_done) for o in copies} == {
        ("cp.async of 4 bytes to S", warp, "k.py:3", True) for warp in (0, 1)
    }
    assert sum(o.count for o in copies) == 64
    assert all(o.begin <= o.end for o in copies)
    # Copies of warp 0 are in flight while it waits.
    wait = next(w for w in kernel.waits() if "full" in w.words)
    assert max(o.end for o in copies if o.warp == 0) >= wait.end


def test_early_copies_are_done_where_they_are_issued(module):
    with timeline() as t, schedule(asynchronous="early"):
        launch(module)
    assert {o.begin == o.end for o in t.kernels[0].operations()} == {True}


def test_turns_of_the_warps_do_not_overlap(recorded):
    _, kernel = recorded
    turns = sorted(
        turn for runs in kernel.runs().values() for a, b, _ in runs for turn in range(a, b + 1)
    )
    assert turns == list(range(kernel.turns))


def test_another_block_and_none(module):
    with timeline((2,)) as t:
        launch(module, blocks=3)
        launch(module)
    assert len(t.kernels) == 1
    assert t.kernels[0].events


def test_room_is_bounded(module, recorded):
    with timeline(events=50) as t:
        launch(module)
    whole = len(recorded[1].events) + 1
    assert len(t.kernels[0].events) == 49
    assert t.left_out == whole - 50
    t.kernels[0].waits()  # of those that are known


def test_a_deadlock_is_seen_up_to_its_end():
    source = SOURCE.replace("mbarrier_init(&full[0], 32)", "mbarrier_init(&full[0], 33)")
    stuck = build_emulated(source, ["kernel"])
    with timeline() as t, pytest.raises(EmulationError, match="deadlock"):
        launch(stuck)
    left = [w for w in t.kernels[0].waits() if w.released_by is None]
    assert {(w.warp, w.place, w.lanes) for w in left} == {(0, "k.py:9", 32), (1, "k.py:12", 32)}
    # Nothing is noted behind it.
    with timeline() as after:
        pass
    assert after.kernels == []


def test_chrome_s_format(recorded, tmp_path):
    t, kernel = recorded
    found = json.loads(t.save(tmp_path / "t.json").read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert names == {0: "warp 0", 1: "warp 1", 2: "cp.async"}
    spans = [e for e in found if e["ph"] == "X"]
    assert all(e["dur"] > 0 and 0 <= e["ts"] <= kernel.turns for e in spans)
    starts, ends = ([e for e in found if e["ph"] == kind] for kind in "sf")
    assert {e["id"] for e in starts} == {e["id"] for e in ends}
    assert any((s["tid"], e["tid"]) == (1, 0) for s, e in zip(starts, ends, strict=True))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"block": (0, -1)}, r"found \(0, -1\) of rank 0, wanted up to three numbers"),
        ({"block": ()}, "wanted up to three numbers"),
        ({"events": 0}, "found 0, wanted 1 or more"),
    ],
)
def test_what_cannot_be(arguments, told):
    with pytest.raises(ValueError, match=told), timeline(**arguments):
        pass
