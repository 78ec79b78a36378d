"""Threads that make syntax trees at the same time."""

import gc
import threading
import time

from tilelang.language.syntax_trees import parse

TEXT = "def f(a, b):\n" + "".join(
    f"    x{i} = a[{i}] + b * ({i} + a[b[{i}]])\n" for i in range(100)
)


def test_threads_may_make_trees_at_the_same_time():
    """Garbage is collected all the time here, and each collection lets other threads run."""

    def let_others_run(phase, info):
        time.sleep(1e-4)

    failed = []

    def work():
        try:
            for _ in range(3):
                assert len(parse(TEXT).body) == 1
        except SystemError as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    before = gc.get_threshold()
    gc.callbacks.append(let_others_run)
    gc.set_threshold(50, 5, 5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(let_others_run)
    assert not failed
