import pytest
import torch
from tvm.target import Target

from tilelang.utils.target import (
    FALLBACK_ARCH,
    HIP_FALLBACK_ARCH,
    arch_of,
    compiled_for,
    cuda_arch,
    determine_target,
    kind_of,
    runs_on,
)


def arch(target):
    return determine_target(target, return_object=True).arch


@pytest.fixture
def capability(monkeypatch):
    def pretend(major, minor):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (major, minor))

    return pretend


@pytest.mark.parametrize(
    ("major", "minor", "expected"),
    [(8, 0, "sm_80"), (8, 9, "sm_89"), (9, 0, "sm_90a"), (10, 0, "sm_100a"), (12, 0, "sm_120a")],
)
def test_the_gpu_gives_the_architecture(capability, major, minor, expected):
    capability(major, minor)
    assert arch("auto") == arch("cuda") == arch({"kind": "cuda"}) == expected


def test_without_a_gpu_the_fallback_is_taken(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    unknown = Target({"kind": "cuda", "arch": "sm_50"})
    assert cuda_arch() == arch("auto") == arch(unknown) == FALLBACK_ARCH


@pytest.mark.parametrize(
    "target",
    [
        "cuda -arch=sm_90a",
        '{"kind": "cuda", "arch": "sm_90a"}',
        {"kind": "cuda", "arch": "sm_90a"},
        Target({"kind": "cuda", "arch": "sm_90a"}),
    ],
)
def test_every_spelling_of_an_architecture(target):
    assert arch(target) == "sm_90a"


@pytest.mark.parametrize(
    "target",
    [
        "hip -mcpu=gfx950",
        '{"kind": "hip", "mcpu": "gfx950"}',
        {"kind": "hip", "mcpu": "gfx950"},
        {"kind": "rocm", "mcpu": "gfx950"},
        Target({"kind": "rocm", "mcpu": "gfx950"}),
    ],
)
def test_every_spelling_of_a_hip_target(target):
    found = determine_target(target, return_object=True)
    assert (kind_of(found), arch_of(found)) == ("hip", "gfx950")
    assert arch_of(determine_target(str(found), return_object=True)) == "gfx950"


def test_texts_of_a_hip_target_say_hip_and_what_a_block_has():
    found = determine_target("hip -mcpu=gfx1100", return_object=True)
    assert '"hip"' in str(found)
    assert found.attrs["thread_warp_size"] == 32
    assert found.attrs["max_num_threads"] == 1024


def test_a_build_of_torch_for_rocm_gives_the_architecture(monkeypatch):
    class Properties:
        gcnArchName = "gfx90a:sramecc+:xnack-"

    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    for spelling in ("auto", "hip", {"kind": "hip"}, Target({"kind": "rocm", "mcpu": "gfx900"})):
        found = determine_target(spelling, return_object=True)
        assert (kind_of(found), arch_of(found)) == ("hip", "gfx90a")
    assert cuda_arch() == FALLBACK_ARCH


def test_hip_without_a_gpu_is_the_fallback():
    assert arch_of(determine_target("hip", return_object=True)) == HIP_FALLBACK_ARCH


def test_an_architecture_of_amd_without_a_row_is_refused():
    message = "found target arch gfx906, wanted one of gfx90a.*its own architecture alone.*emulate"
    with pytest.raises(ValueError, match=message):
        determine_target("hip -mcpu=gfx906")


@pytest.mark.parametrize("target", ["hip -arch=gfx942", {"kind": "hip", "arch": "gfx942"}])
def test_an_architecture_of_amd_under_cudas_name_is_refused(target):
    with pytest.raises(ValueError, match=r"found arch 'gfx942' .* wanted it as mcpu.*hip -mcpu="):
        determine_target(target)


@pytest.mark.parametrize(
    ("arch", "runs", "not_on"),
    [
        ("sm_80", [(8, 0), (8, 6), (8, 9)], [(7, 5), (9, 0), (10, 0)]),
        ("sm_86", [(8, 6), (8, 9)], [(8, 0)]),
        ("sm_90", [(9, 0)], [(8, 9), (10, 0)]),
        ("sm_90a", [(9, 0)], [(8, 9), (10, 0)]),
        ("sm_100a", [(10, 0)], [(10, 3), (12, 0)]),
        ("sm_100f", [(10, 0), (10, 3)], [(9, 0), (12, 0)]),
        ("sm_121", [(12, 1)], [(12, 0)]),
    ],
)
def test_gpus_that_run_an_architecture(arch, runs, not_on):
    assert all(runs_on(arch, gpu) for gpu in runs)
    assert not any(runs_on(arch, gpu) for gpu in not_on)


@pytest.mark.parametrize(
    ("arch", "gpu", "compiled"),
    [
        ("sm_80", (8, 6), "sm_80"),
        ("sm_80", (9, 0), "sm_90"),
        ("sm_86", (12, 0), "sm_120"),
        ("sm_89", (8, 6), None),
        ("sm_90a", (9, 0), "sm_90a"),
        ("sm_90a", (10, 0), None),
        ("sm_100f", (10, 3), "sm_100f"),
        ("sm_100f", (12, 0), None),
    ],
)
def test_source_for_an_architecture_on_a_later_gpu(arch, gpu, compiled):
    assert compiled_for(arch, gpu) == compiled


def test_the_name_of_an_architecture_is_read():
    with pytest.raises(ValueError, match="'compute_90': expected a name such as sm_90a"):
        runs_on("compute_90", (9, 0))


def test_text_gives_the_target_back():
    text = determine_target("cuda -arch=sm_86 -max_num_threads=512")
    assert arch(text) == "sm_86"
    assert Target(text).attrs["max_num_threads"] == 512


def test_auto_is_the_target_scope():
    with Target({"kind": "cuda", "arch": "sm_120a"}):
        assert arch("auto") == "sm_120a"


@pytest.mark.parametrize(
    "target", ["", "cupid", {"arch": "sm_80"}, "{kind: cuda}", "cuda arch=sm_80", "cuda -g", 5]
)
def test_what_is_no_target_is_refused(target):
    with pytest.raises(ValueError, match="target"):
        determine_target(target)
