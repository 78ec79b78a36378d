"""Targets as objects: what each architecture has."""

import pytest

from tilelang._ffi import get_function


def describe(arch, kind="cuda"):
    return get_function("target.Describe")(kind, arch)


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
    with pytest.raises(ValueError, match="found a target of kind metal, wanted cuda or hip"):
        describe("m1", "metal")


@pytest.mark.parametrize(
    ("arch", "lanes", "kibibytes", "registers"),
    [
        ("gfx90a", 64, 64, 512),
        ("gfx942", 64, 64, 512),
        ("gfx950", 64, 160, 512),
        ("gfx1100", 32, 64, 256),
    ],
)
def test_architectures_of_amd(arch, lanes, kibibytes, registers):
    found = describe(arch, "hip")
    assert (found["kind"], found["arch"], found["warp_threads"]) == ("hip", arch, lanes)
    assert found["shared_bytes_per_block"] == kibibytes * 1024
    assert found["registers_per_thread"] == registers
    assert ("MFMA" in list(found["features"])) == (lanes == 64)


def test_blocks_of_amd_that_fit():
    def blocks(arch, threads, kibibytes):
        return get_function("target.BlocksThatFit")("hip", arch, threads, kibibytes * 1024)

    assert blocks("gfx942", 256, 64) == 1
    assert blocks("gfx942", 256, 16) == 4
    assert blocks("gfx950", 256, 64) == 2
    assert blocks("gfx1100", 1024, 64) == 2
    assert blocks("gfx942", 1024, 0) == 2


@pytest.mark.parametrize(
    ("arch", "text"),
    [
        ("gfx908", "found target arch gfx908, wanted one of gfx90a, gfx942, gfx950, gfx1100"),
        ("sm_90a", r'found target arch "sm_90a", wanted a name such as gfx942 or gfx1100'),
    ],
)
def test_other_architectures_of_amd_are_refused(arch, text):
    with pytest.raises(ValueError, match=text):
        describe(arch, "hip")


def test_no_architecture():
    with pytest.raises(ValueError, match=r"found target arch \"90a\", wanted a name such as sm_80"):
        describe("90a")
