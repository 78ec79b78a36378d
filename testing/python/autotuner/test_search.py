"""A search as on GPUs: real cubins, on chips that are made up."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tvm.target import Target

import tilelang.language as T
from tilelang.autotuner import AutoTuner, tuner
from tilelang.autotuner.bench import Rules
from tilelang.autotuner.candidate import lower
from tilelang.autotuner.inputs import ProfileArgs
from tilelang.autotuner.search import Executors, Search, compile_workers

N = 1024
CHIPS = '''
"""Two GPUs: the time of a call goes with its blocks; the second GPU is a little faster."""

from tilelang.engine.launch_plan import LaunchPlan


class Chip:
    name = "cpu"

    def __init__(self, number=0, backend="event"):
        self.speed = 1.0 - 0.05 * number

    def load(self, candidate):
        assert candidate.cubin[:4] == b"\\x7fELF"
        assert candidate.lowered.emulated_source is None
        return lambda a: a + 1

    def wait(self):
        pass

    def milliseconds(self, candidate, call, inputs, runs):
        call()
        (launch,) = LaunchPlan.from_json(candidate.lowered.plan).kernels
        return launch.grid[0] * self.speed
'''


def adder(block):
    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(N // block, threads=32) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + 1

    return main


@pytest.fixture
def search(tmp_path, monkeypatch):
    (tmp_path / "made_up_chips.py").write_text(CHIPS)
    monkeypatch.syspath_prepend(tmp_path)

    def make(blocks, executors=None, factor=None, pipelined=True, **profile):
        return Search(
            [{"block": block} for block in blocks],
            lambda config: adder(**config),
            lambda program, config: lower(
                program, Target({"kind": "cuda", "arch": "sm_90a"}), -1, {}, None, False
            ),
            lambda names: None,
            ProfileArgs(ref_prog=lambda a: a + 1, **profile),
            Rules("made_up_chips:Chip", factor=factor, seconds=60),
            "cpu",
            executors or Executors(),
            pipelined,
        )

    return make


def test_binaries_are_timed_and_what_ptxas_says_is_known(search, said):
    found = search([64, 128])
    trials = found.run()
    assert [trial.latency for trial in trials] == [16.0, 8.0]
    assert all(trial.registers and trial.spills == 0 for trial in trials)
    assert [line for line in said if "Tuned Latency 8.0 with config {'block': 128}" in line]
    assert found.reference_latency() is None


def test_the_fastest_of_two_gpus_are_timed_again_on_one(search):
    """Four tiles of 1024, the last two on the faster GPU: 8.4 and 8 there, and the truth."""
    executors = Executors(devices=(0, 1))
    found = search([128, 32, 64, 128], executors, pipelined=False)
    trials = found.run()
    assert found._batches == 3
    assert [trial.latency for trial in trials if trial.config["block"] == 128] == [8.0, 8.0]
    others = {t.config["block"]: t.latency for t in trials if t.config["block"] < 128}
    assert others[32] in (32.0, pytest.approx(30.4))


def test_clear_losers_are_given_up(search):
    trials = search([256, 32, 128], factor=3.0, pipelined=False).run()
    assert sum(trial.stopped for trial in trials) >= 1
    assert trials[0].latency == 4.0


def test_what_does_not_lower_costs_itself(search):
    trials = search([0, 64]).run()
    assert "ZeroDivisionError" in trials[0].failure
    assert trials[1].counts


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({"CPU_COUNTS": "3"}, 3),
        ({"CPU_COUNTS": "3", "MAX_CPU_COUNT": "2"}, 2),
        ({"CPU_UTILITIES": "0.0001"}, 1),
    ],
)
def test_how_many_are_compiled_at_a_time(monkeypatch, variables, wanted):
    for name, value in variables.items():
        monkeypatch.setenv(f"TILELANG_AUTO_TUNING_{name}", value)
    assert compile_workers() == wanted


def test_inputs_differ_where_parameters_do(search):
    found = search([64])
    found.run()
    (prepared,) = found.prepared.values()
    assert [t.shape for t in prepared.inputs] == [(N,)]
    assert torch.equal(prepared.expected[0], prepared.inputs[0] + 1)


def test_a_machine_without_a_gpu_tunes_for_those_of_an_executor(search, monkeypatch):
    """All but the times is as there."""
    monkeypatch.setattr(tuner, "rules_of", lambda *_: Rules("made_up_chips:Chip", seconds=60))
    with ThreadPoolExecutor(1) as executor:
        found = (
            AutoTuner.from_kernel(adder, {"block": [64, 128]})
            .set_compile_args(out_idx=-1, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
            .set_profile_args(ref_prog=lambda a: a + 1, timeout=60)
            .set_executors(timing=executor)
            .run()
        )
    assert (found.config, found.latency) == ({"block": 128}, 8.0)
    assert found.kernel.cubin[:4] == b"\x7fELF"


def test_where_times_are_from():
    made = AutoTuner.from_kernel(adder, {"block": [64]})
    assert made._device(emulated=True) == "emulator"
    made.set_executors(timing=object())
    assert made._device(emulated=True) == "of an executor"
