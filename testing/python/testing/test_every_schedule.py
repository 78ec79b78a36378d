"""Launches repeated under random schedules, as ``pytest --seeds N`` has them."""

from types import SimpleNamespace

import torch

from tilelang.emulator import schedule
from tilelang.emulator.machine import current_schedule
from tilelang.engine.launch_plan import PointerParam
from tilelang.testing.every_schedule import EverySchedule


class Launcher:
    """Adds one to its argument, and keeps who called."""

    def __init__(self, *params):
        self.plan = SimpleNamespace(inputs=range(len(params)), params=params)
        self.schedules = []

    def __call__(self, *args):
        self.schedules.append(current_schedule())
        if isinstance(args[0], torch.Tensor):
            args[0].add_(1)
        return args


def test_seeds_run_on_copies_and_then_the_launch_itself():
    launcher = Launcher(None, None)
    base = torch.zeros(6)
    strided, other = base[::2], base[1:]
    result = EverySchedule(launcher, 3)(strided, other)
    assert [s.seed for s in launcher.schedules] == [1, 2, 3, 0]
    assert [s.order for s in launcher.schedules] == ["random"] * 3 + ["round_robin"]
    assert result[0] is strided
    assert result[1] is other
    assert base.tolist() == [1, 0, 1, 0, 1, 0]


def test_what_overlaps_overlaps_in_the_copies():
    seen = []
    launcher = Launcher(None, None)
    base = torch.zeros(6)
    wrapped = EverySchedule(lambda *args: seen.append(args), 1)
    wrapped._launcher.plan = launcher.plan
    wrapped(base[::2], base[2:])
    (even, rest), _ = seen
    assert even.stride() == (2,)
    assert even.data_ptr() + 2 * 4 == rest.data_ptr()
    assert even.data_ptr() != base.data_ptr()


def test_a_chosen_schedule_and_addresses_are_left_alone():
    launcher = Launcher(PointerParam("p", None))
    EverySchedule(launcher, 3)(4096)
    with schedule(seed=5):
        EverySchedule(launcher, 3)(torch.zeros(1))
    assert [s.seed for s in launcher.schedules] == [0, 5]
