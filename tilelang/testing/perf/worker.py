"""The process of one side: runs cases under the package of its commit and answers on a pipe.

Each request is a line of JSON and has one line as its answer. The process imports everything and
compiles nothing: a request is answered by a fork of it, so that every compilation is a cold one,
and a case that crashes has lost nothing but itself.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import cases
from .costs import kernel_costs

BENCH = "tilelang_bench"
"""The module `tilelang.profiler.bench` of the package that runs the command."""

_REP = 30.0
"""Milliseconds of calls of a turn."""

_LINES = 6


class Worker:
    """Answers requests; see `answer`.

    Args:
        found: the cases.
        uses_gpu: whether kernels are compiled for this machine's GPU and timed there.
        replies: where answers are written.
    """

    def __init__(self, found: list[cases.Case], uses_gpu: bool, replies: Any):
        self._cases = {case.name: case for case in found}
        self._uses_gpu = uses_gpu
        self._replies = replies
        self._call: Callable[[], Any] | None = None

    def serve(self) -> None:
        """Answers until there are no more requests. ``open`` leaves the next ones, until
        ``close``, to the process that has the kernel."""
        for line in iter(sys.stdin.readline, ""):
            request = json.loads(line)
            pid = os.fork()
            if not pid:
                self._serve_forked(request)
            _, status = os.waitpid(pid, 0)
            if status:
                code = os.waitstatus_to_exitcode(status)
                self._reply({"failed": f"the process ended with {code}"})

    def _serve_forked(self, request: dict[str, Any]) -> None:
        """Ends the process."""
        status = 1
        try:
            self._reply(self.answer(request))
            if request["job"] == "open":
                for line in iter(sys.stdin.readline, ""):
                    request = json.loads(line)
                    self._reply(self.answer(request))
                    if request["job"] == "close":
                        break
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a request asks for, or why it failed.

        ``list``: the cases' ``names``. ``compile``: ``seconds`` of the processor from the Python
        function to the binary, and with ``costs`` what the kernel costs. ``open``: makes the case
        ready to be timed. ``turn``: ``milliseconds`` of a call. ``close``: nothing.
        """
        try:
            if request["job"] == "list":
                return {"names": list(self._cases)}
            if request["job"] == "compile":
                return self._compile(self._cases[request["case"]], bool(request.get("costs")))
            if request["job"] == "open":
                self._call = ready_call(self._cases[request["case"]])
            if request["job"] == "turn":
                return {"milliseconds": self._turn()}
            return {}
        except Exception as error:  # noqa: BLE001 (the other side reports it)
            lines = f"{type(error).__name__}: {error}".splitlines()
            return {"failed": "\n".join(lines[:_LINES])}

    def _compile(self, case: cases.Case, with_costs: bool) -> dict[str, Any]:
        if self._uses_gpu:
            import torch

            torch.cuda.init()  # a process pays for it once
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TILELANG_CACHE_DIR"] = cache
            start = time.process_time()
            kernel, _ = case.make()
            if kernel is None:
                return {"seconds": None, "costs": {}}
            _ = kernel.cubin
            seconds = time.process_time() - start
            return {"seconds": seconds, "costs": kernel_costs(kernel) if with_costs else {}}

    def _turn(self) -> float:
        assert self._call is not None
        return timed(self._call)

    def _reply(self, reply: dict[str, Any]) -> None:
        print(json.dumps(reply), file=self._replies, flush=True)


def ready_call(case: cases.Case) -> Callable[[], Any]:
    """A call of the case on the GPU, which has run once. A case that times itself returns
    milliseconds."""
    import torch

    torch.manual_seed(0)
    _, prepare = case.make()
    call = prepare("cuda")
    call()
    torch.cuda.synchronize()
    return call


def timed(call: Callable[[], Any]) -> float:
    """Milliseconds of a call: what it says itself, or the median of some."""
    from tilelang.profiler import do_bench

    said = call()
    if isinstance(said, int | float):
        return float(said)
    found = do_bench(call, rep=_REP, return_mode="median")
    assert isinstance(found, float)
    return found


def summary(case: cases.Case, uses_gpu: bool) -> str:
    """What a case takes here, in words."""
    if uses_gpu:
        return f"{timed(ready_call(case)):.4f} ms"
    kernel, prepare = case.make()
    if kernel is None:
        return f"{timed(prepare('cpu')):.4f} ms"
    return ", ".join(f"{key} {value}" for key, value in kernel_costs(kernel).items())


def main() -> None:
    """Arguments: the side's worktree, the folder of cases, ``cuda`` or ``emulator``, a regular
    expression that names of cases contain."""
    tree, folder, device, only = sys.argv[1:]
    # What the cases print goes where errors go.
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import tilelang
    import tilelang.profiler
    import tilelang.testing

    if Path(tilelang.__file__).resolve().parents[1] != Path(tree).resolve():
        raise SystemExit(f"found tilelang in {tilelang.__file__}, wanted that of {tree}")
    # What measures is the same on both sides; the commit may have others, or none.
    tilelang.testing.process_func = cases.process_func
    tilelang.testing.regression = cases.regression
    tilelang.profiler.do_bench = importlib.import_module(BENCH).do_bench
    found = [c for c in cases.discover(Path(folder)) if re.search(only, c.name)]
    if device == "cuda":
        import torch

        if torch.cuda.is_initialized():
            raise SystemExit(
                "found a GPU in use after the cases were imported, which their forks cannot use; "
                "let the functions that are given to process_func be the first to use it"
            )
    gc.freeze()
    Worker(found, device == "cuda", replies).serve()


if __name__ == "__main__":
    main()
