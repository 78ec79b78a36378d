import pytest
import torch
from tvm.target import Target

from tilelang.jit import backend

CUDA = Target({"kind": "cuda", "arch": "sm_80"})


def has_gpu(monkeypatch, answer):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: answer)


def test_auto_is_the_gpu_where_there_is_one(monkeypatch):
    has_gpu(monkeypatch, True)
    assert backend.resolve_backend("auto", CUDA) == "tvm_ffi"
    assert backend.resolve_backend("emulate", CUDA) == "emulate"


def test_auto_is_the_emulator_otherwise_and_says_so_once(monkeypatch, capsys):
    has_gpu(monkeypatch, False)
    backend._say_emulated.cache_clear()
    assert backend.resolve_backend("auto", CUDA) == "emulate"
    assert backend.resolve_backend("auto", CUDA) == "emulate"
    text = "torch finds no CUDA device: kernels run in the emulator, on CPU tensors\n"
    assert capsys.readouterr().err.split("): ")[1:] == [text]


@pytest.mark.parametrize("name", ["tvm_ffi", "cython", "nvrtc"])
def test_names_for_the_gpu_do_not_need_one(monkeypatch, name):
    has_gpu(monkeypatch, False)
    assert backend.resolve_backend(name, CUDA) == name


def test_other_names_and_targets_are_refused():
    with pytest.raises(ValueError, match="'torch' is unknown: expected one of auto, tvm_ffi"):
        backend.resolve_backend("torch", CUDA)
    with pytest.raises(ValueError, match="target llvm has no execution backend"):
        backend.resolve_backend("auto", Target("llvm"))


@pytest.mark.parametrize(
    ("out_idx", "expected"), [(None, []), (0, [0]), (-1, [2]), ([-1, 0], [2, 0]), ((1,), [1])]
)
def test_out_idx_is_normalized(out_idx, expected):
    assert backend.normalize_out_idx(out_idx, 3) == expected


@pytest.mark.parametrize(("out_idx", "text"), [(3, "expected -3 to 2"), ([0, -3], "twice")])
def test_a_bad_out_idx_is_refused(out_idx, text):
    with pytest.raises(ValueError, match=text):
        backend.normalize_out_idx(out_idx, 3)
    with pytest.raises(TypeError, match="out_idx is 'C', expected an int"):
        backend.normalize_out_idx("C", 3)
