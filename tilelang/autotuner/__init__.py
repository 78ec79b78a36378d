"""The fastest configuration of a kernel, found by trying: docs/autotuning.md.

`decorator` and `tuner` are what users call. `search` runs a tuning: `candidate` has what is
compiled as plain data, `bench` times it in a process (`processes`, `session`) that may be lost.
"""

from tilelang.autotuner.decorator import AutoTuneImpl, autotune
from tilelang.autotuner.executors import RayExecutor
from tilelang.autotuner.inputs import set_autotune_inputs
from tilelang.autotuner.result import AutotuneResult, Trial
from tilelang.autotuner.tuner import AutoTuner

__all__ = [
    "AutoTuneImpl",
    "AutoTuner",
    "AutotuneResult",
    "RayExecutor",
    "Trial",
    "autotune",
    "set_autotune_inputs",
]
