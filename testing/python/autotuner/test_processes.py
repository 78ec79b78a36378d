import math
import os
import subprocess
import sys
import threading
import time

import pytest

from tilelang.autotuner.processes import (
    FORK_SAFE,
    CallFailed,
    Child,
    ProcessLost,
    call_apart,
    close_idle,
)


@pytest.fixture
def child():
    found = Child()
    yield found
    found.close()


def test_a_function_runs_in_another_process_with_the_environment_of_now(child, monkeypatch):
    assert child.call(math.sqrt, 4.0) == 2.0
    assert child.call(os.getpid) == child.pid != os.getpid()
    monkeypatch.setenv("TILELANG_TEST", "now")
    assert call_apart(os.getenv, "TILELANG_TEST") == "now"
    close_idle()


def test_what_a_function_raises_arrives(child):
    with pytest.raises(CallFailed, match="ValueError: math domain error") as caught:
        child.call(math.sqrt, -1.0)
    assert caught.value.kind == "ValueError"
    assert child.call(math.sqrt, 4.0) == 2.0


def test_a_crash_and_a_hang_cost_their_process(child):
    with pytest.raises(ProcessLost, match="has ended"):
        child.call(os.abort)
    slow = Child()
    start = time.monotonic()
    with pytest.raises(ProcessLost, match=r"more than 0\.2 s"):
        slow.call(time.sleep, 60, seconds=0.2)
    assert time.monotonic() - start < 10
    assert ended(slow.pid)
    assert call_apart(math.sqrt, 4.0, seconds=60) == 2.0
    close_idle()


def test_calls_of_threads_run_side_by_side():
    meet = threading.Barrier(2, timeout=60)
    pids = []

    def call():
        meet.wait()
        call_apart(time.sleep, 0.3)
        pids.append(call_apart(os.getpid))

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(pids)) == 2
    close_idle()
    assert all(map(ended, pids))


SCRIPT = """
import time
print("the script runs")
from tilelang.autotuner.processes import Child
child = Child()
print(child.pid, flush=True)
child.call(time.sleep, 600)
"""


def test_a_script_without_a_guard_runs_once_and_leaves_no_process(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "the script runs\n"
    pid = int(process.stdout.readline())
    assert not ended(pid, seconds=0)
    process.kill()
    process.wait()
    assert ended(pid)


ASKS = """
import torch
def refuse(*_):
    raise SystemExit("a GPU was looked for")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda.init = refuse
import tilelang.autotuner.session
"""


def test_what_children_are_forked_from_has_not_touched_a_gpu():
    """CUDA does not work in a fork of a process that has looked for a device."""
    done = subprocess.run(
        [sys.executable, "-c", ASKS],
        capture_output=True,
        text=True,
        env={**os.environ, **FORK_SAFE},
    )
    assert done.returncode == 0, done.stderr


def ended(pid: int, seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
