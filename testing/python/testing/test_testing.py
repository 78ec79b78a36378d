import random
import sys

import pytest
import torch

import tilelang.testing as testing


def test_a_seed_repeats_every_generator():
    testing.set_random_seed(1)
    first = random.random(), torch.rand(1).item()
    testing.set_random_seed(1)
    assert (random.random(), torch.rand(1).item()) == first


@pytest.mark.parametrize(
    ("mode", "met"), [("ge", True), ("gt", False), ("le", True), ("lt", False), ("eq", True)]
)
def test_compute_versions_are_compared(monkeypatch, mode, met):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    mark = getattr(testing, f"requires_cuda_compute_version_{mode}")(9).mark
    assert mark.args == (not met,)


def test_a_bad_mode_is_refused():
    with pytest.raises(ValueError, match="mode 'about'"):
        testing.requires_cuda_compute_version(9, mode="about")


def test_packages_are_looked_for():
    assert testing.requires_package("torch").mark.args == (False,)
    assert testing.requires_package("no_such_package").mark.args == (True,)


def test_a_test_for_cuda_is_skipped_without_it(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    @testing.requires_cuda
    def on_a_gpu():
        pass

    assert [mark.args for mark in on_a_gpu.pytestmark] == [(True,)]


def test_main_runs_the_file_that_calls_it(monkeypatch):
    seen = []
    monkeypatch.setattr(pytest, "main", lambda arguments: seen.append(arguments) or 3)
    monkeypatch.setattr(sys, "argv", ["a_test.py", "-x"])
    with pytest.raises(SystemExit) as caught:
        testing.main()
    assert seen == [[__file__, "-x"]]
    assert caught.value.code == 3
