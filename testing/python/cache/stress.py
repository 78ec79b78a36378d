"""Processes that write and read the same entries at once, and are killed at random moments.

``python testing/python/cache/stress.py`` runs 64 writers with 200 kills. What a writer was told is
kept has to be there at the end, and what anybody reads has to be what was written.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tilelang.cache.store import Store

ENTRIES = 24


def files_of(number: int) -> dict[str, bytes]:
    """What entry `number` has: a text that decides about the others."""
    content = hashlib.sha256(str(number).encode()).digest() * (200 * (1 + number % 5))
    return {"kernel.cubin": content, "log.txt": str(number).encode()}


@dataclass
class Found:
    """What a run has found: what was wrong, how many entries were lost, and whole at the end."""

    wrong: list[str] = field(default_factory=list)
    lost: int = 0
    whole: int = 0
    killed: int = 0


def work(root: Path, seed: int) -> None:
    """Writes and reads for ever. What it has put it notes in a file; what is wrong, in another."""
    chosen = random.Random(seed)
    store = Store(root / "cache")
    notes = os.open(root / f"put-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        time.sleep(0.001)
        number = chosen.randrange(ENTRIES)
        parts = {"name": number}
        entry = store.get("cubin", parts)
        if entry is not None and entry.files != files_of(number):
            (root / f"wrong-{os.getpid()}").write_text(str(entry))
        if entry is None and store.put("cubin", parts, files_of(number)):
            os.write(notes, f"{number}\n".encode())


def fork(root: Path, seed: int) -> int:
    child = os.fork()
    if child == 0:
        try:
            os.nice(10)  # who kills has to come to it
            # A warning is of something damaged, which there must not be.
            with open(root / f"said-{os.getpid()}", "w") as said:
                os.dup2(said.fileno(), 2)
                work(root, seed)
        finally:
            os._exit(1)
    return child


def stress(writers: int, kills: int, seconds: float) -> Found:
    """Runs `writers` processes and kills one every `seconds` at the most, `kills` times, which
    another one follows. The store is emptied now and then, so that there is something to write."""
    chosen, found = random.Random(0), Found()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        store = Store(root / "cache")
        children = [fork(root, seed) for seed in range(writers)]
        for number in range(kills):
            time.sleep(chosen.uniform(0, seconds))
            victim = children.pop(chosen.randrange(len(children)))
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)
            found.killed += 1
            if number < kills // 2:
                # As an eviction does; from the middle on, what is put has to stay.
                store.prune(0)
                for note in root.glob("put-*"):
                    os.truncate(note, 0)
            children.append(fork(root, writers + number))
        time.sleep(2 * seconds)
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        put = {int(n) for note in root.glob("put-*") for n in note.read_text().split()}
        for number in range(ENTRIES):
            entry = store.get("cubin", {"name": number})
            found.whole += entry is not None
            found.lost += entry is None and number in put
            if entry is not None and entry.files != files_of(number):
                found.wrong.append(str(number))
        for note in (*root.glob("wrong-*"), *root.glob("said-*")):
            found.wrong += note.read_text().splitlines()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=64)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.2, help="between two kills")
    given = parser.parse_args()
    result = stress(given.writers, given.kills, given.seconds)
    print(result)
    sys.exit(bool(result.wrong or result.lost))
