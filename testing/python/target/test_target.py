"""Targets as objects: what each architecture has."""

import pytest

from tilelang._ffi import get_function


def describe(arch):
    return get_function("target.Describe")("cuda", arch)


@pytest.mark.parametrize(
    ("sm", "kibibytes", "cp_async"),
    [(75, 64, False), (80, 163, True), (86, 99, True), (90, 227, True), (120, 99, True)],
)
def test_shared_memory_and_features(sm, kibibytes, cp_async):
    found = describe(f"sm_{sm}")
    assert found["shared_bytes_per_block"] == kibibytes * 1024
    features = list(found["features"])
    assert "ldmatrix" in features
    assert ("cp.async" in features) == cp_async
    for of_hopper in ("stmatrix", "TMA", "mbarrier", "clusters"):
        assert (of_hopper in features) == (sm >= 90)


@pytest.mark.parametrize(
    ("arch", "has"),
    [("sm_90", False), ("sm_90a", True), ("sm_100", False), ("sm_100a", False), ("sm_100f", False)],
)
def test_features_of_one_architecture_alone(arch, has):
    features = list(describe(arch)["features"])
    assert ("wgmma" in features, "setmaxnreg" in features) == (has, has)
    assert "TMA" in features


@pytest.mark.parametrize(
    ("sm", "kibibytes", "threads", "blocks"),
    [(75, 64, 1024, 16), (80, 164, 2048, 32), (86, 100, 1536, 16), (90, 228, 2048, 32)],
)
def test_a_multiprocessor(sm, kibibytes, threads, blocks):
    found = describe(f"sm_{sm}")
    assert found["shared_bytes_per_sm"] == kibibytes * 1024
    assert (found["threads_per_sm"], found["blocks_per_sm"]) == (threads, blocks)
    assert found["warp_threads"] == 32


def test_unknown_architecture():
    with pytest.raises(
        ValueError, match=r"found target arch sm_70, wanted one of sm_75, sm_80,.*nearest"
    ):
        describe("sm_70")


def test_another_kind():
    with pytest.raises(ValueError, match="found a target of kind hip, wanted cuda"):
        get_function("target.Describe")("hip", "gfx942")


def test_no_architecture():
    with pytest.raises(ValueError, match=r"found target arch \"90a\", wanted a name such as sm_80"):
        describe("90a")
