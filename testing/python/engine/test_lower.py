"""`tilelang.lower` and the hooks on the source it generates."""

import re

import pytest
import torch
import tvm

import tilelang
import tilelang.language as T
from tilelang.engine import callback
from tilelang.engine.lower import lower
from tilelang.engine.param import KernelParam


@T.prim_func
def fill(A: T.Tensor((64,), "float32"), value: T.float32):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = value


@pytest.fixture
def hooks():
    """The registered hooks, which end with the test."""
    yield callback
    for register in (
        callback.register_cuda_postproc,
        callback.register_hip_postproc,
        callback.register_c_postproc,
    ):
        register(None)


def test_what_lowering_returns():
    artifact = tilelang.lower(fill, target="cuda -arch=sm_80", runtime_only=True)
    assert "fill_kernel" in artifact.kernel_source
    assert artifact.params == [
        KernelParam("float32", (64,)),
        KernelParam("float32", (), scalar=True),
    ]
    assert artifact.params[0].torch_dtype() is torch.float32
    assert isinstance(artifact.device_mod, tvm.IRModule)
    assert artifact.target.arch == "sm_80"
    assert (artifact.target_host, artifact.rt_mod) == (None, None)
    assert lower(tvm.IRModule({"fill": fill}), target_host="llvm").target_host.kind.name == "llvm"


def test_the_device_code_is_compiled_if_asked():
    artifact = lower(fill, target="cuda -arch=sm_90a", enable_device_compile=True)
    assert artifact.rt_mod.arch == "sm_90a"
    assert artifact.rt_mod.resource_usage["fill_kernel"].registers > 0
    with (
        tilelang.transform.PassContext(config={"tl.device_compile_flags": "--nonsense"}),
        pytest.raises(RuntimeError, match=r"options: .*--nonsense"),
    ):
        lower(fill, enable_device_compile=True)


def test_the_program_after_each_pass_is_written_if_asked(monkeypatch, tmp_path):
    monkeypatch.setenv("TL_LOWER_TRACE", "1")
    monkeypatch.setenv("TL_LOWER_TRACE_DIR", str(tmp_path / "trace"))
    lower(fill)
    files = sorted(path.name for path in (tmp_path / "trace" / "fill").iterdir())
    assert files[0] == "00_trace.py"
    assert files[-1].endswith("_SplitHostDevice.py")
    assert "def fill(A: T.Buffer((64,)" in (tmp_path / "trace" / "fill" / files[0]).read_text()


def test_the_time_of_each_pass_is_logged_if_asked(monkeypatch, capsys):
    monkeypatch.setenv("TILELANG_PASS_PROFILE", "1")
    lower(fill)
    lines = capsys.readouterr().err.splitlines()
    assert any(re.search(r"pass tl.LayoutInference took \d+\.\d\d ms$", line) for line in lines)
    monkeypatch.setenv("TILELANG_PASS_PROFILE_THRESHOLD_MS", "1e6")
    lower(fill)
    assert capsys.readouterr().err == ""


def test_several_functions_are_refused():
    module = tvm.IRModule({"a": fill, "b": fill})
    with pytest.raises(ValueError, match="a module of 2 functions, wanted one"):
        lower(module)
    with pytest.raises(TypeError, match="found int, wanted a PrimFunc"):
        lower(3)


def test_kinds_of_parameters():
    kinds = {
        "uint8": "is_unsigned",
        "float8_e4m3fn": "is_float8",
        "float4_e2m1fn": "is_float4",
        "bool": "is_boolean",
    }
    for dtype in kinds:
        param = KernelParam(dtype, (4,))
        assert [k for k, name in kinds.items() if getattr(param, name)()] == [dtype]
        assert not param.is_scalar()


@pytest.mark.usefixtures("tensors_on_device")
def test_a_hook_changes_the_source_that_runs(hooks):
    seen = []

    @hooks.register_cuda_postproc_callback
    def twice(code, target):
        seen.append(target.kind.name)
        return code.replace("= value;", "= value * 2;")

    kernel = tilelang.compile(fill)
    a = torch.zeros(64)
    kernel(a, 1.5)
    assert "= value * 2;" in kernel.get_kernel_source()
    assert a.tolist() == [3.0] * 64
    assert set(seen) == {"cuda"}


def test_a_hook_is_replaced_or_not(hooks):
    first = tilelang.register_cuda_postproc(lambda code, target: "first")
    with pytest.raises(ValueError, match="registered already"):
        hooks.register_cuda_postproc(lambda code, target: "second", override=False)
    assert lower(fill).kernel_source == first("", None) == "first"
    hooks.register_cuda_postproc_callback(override=True)(lambda code, target: None)
    with pytest.raises(TypeError, match="returned NoneType, wanted the source text"):
        lower(fill)
    hooks.register_cuda_postproc(None)
    tilelang.register_hip_postproc(lambda code, target: "hip")
    tilelang.register_c_postproc(lambda code, target: "c")
    assert "fill_kernel" in lower(fill).kernel_source
    assert hooks.postprocess("", tvm.target.Target("c")) == "c"
