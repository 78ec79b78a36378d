import re
import sys
from pathlib import Path

import pytest
import torch

import tilelang
import tilelang.cuda.nvrtc
from tilelang.cuda import disassembler
from tilelang.jit import JITKernel


@pytest.fixture(scope="module")
def kernel(double):
    return JITKernel(double(), out_idx=-1, execution_backend="emulate")


def test_a_call_returns_the_output(kernel):
    a = torch.randn(256)
    assert torch.equal(kernel(a), a * 2)
    assert kernel.adapter is kernel.torch_function


def test_without_outputs_a_call_writes_its_arguments(double):
    a, b = torch.randn(256), torch.empty(256)
    assert JITKernel(double(), execution_backend="emulate")(a, b) is None
    assert torch.equal(b, a * 2)


def test_a_bad_call_names_the_line_of_the_kernel(kernel):
    with pytest.raises(
        ValueError, match=r"`double` \(.*conftest.py:\d+\): .* expected 256 .*got 255"
    ):
        kernel(torch.zeros(255))


def test_what_was_compiled_can_be_read(kernel, double):
    assert kernel.out_idx == [1]
    assert [(p.dtype, p.shape) for p in kernel.params] == [("float32", (256,))] * 2
    assert kernel.prim_func.attrs["global_symbol"] == "double"
    assert kernel.artifact.device_mod is not None
    assert (kernel.latency, kernel.config, kernel.ref_latency) == (None, None, None)


def test_sources(kernel, tmp_path, capsys):
    assert "__global__" in kernel.get_kernel_source()
    assert "B = empty((256,), float32)" in kernel.get_host_source()
    both = kernel.get_kernel_source(kernel_only=False)
    assert both.startswith(kernel.kernel_source)
    assert both.endswith(kernel.host_source)
    kernel.show_source("host")
    assert capsys.readouterr().out == kernel.host_source
    kernel.export_sources(tmp_path / "k.cu", tmp_path / "h.txt")
    assert (tmp_path / "k.cu").read_text() == kernel.kernel_source
    assert (tmp_path / "h.txt").read_text() == kernel.host_source


def test_bad_requests_for_sources_are_refused(kernel):
    with pytest.raises(ValueError, match="which='ptx': expected one of kernel, host, both"):
        kernel.show_source("ptx")
    with pytest.raises(ValueError, match="got neither"):
        kernel.export_sources()


def test_ptx_and_sass_are_compiled_without_a_gpu(double, tmp_path, capsys):
    kernel = JITKernel(double(), target="cuda -arch=sm_90a", execution_backend="emulate")
    kernel.show_ptx()
    assert ".target sm_90a" in capsys.readouterr().out
    kernel.export_ptx(tmp_path / "k.ptx")
    assert ".visible .entry double_kernel(" in (tmp_path / "k.ptx").read_text()
    try:
        disassembler.find_nvdisasm()
    except RuntimeError:
        pytest.skip("needs nvdisasm")
    kernel.show_sass()
    assert "LDG.E" in capsys.readouterr().out
    kernel.export_sass(tmp_path / "k.sass")
    assert ".text.double_kernel" in (tmp_path / "k.sass").read_text()


def test_sass_needs_nvdisasm_and_says_so(kernel, monkeypatch, tmp_path):
    monkeypatch.setattr(disassembler.importlib.metadata, "files", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match="pip install nvidia-cuda-nvdisasm, or set CUDA_HOME"):
        kernel.show_sass()
    program = tmp_path / "bin" / "nvdisasm"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"nvdisasm --print-code .* failed:\nbroken"):
        kernel.show_sass()


def test_old_name_of_the_source_methods(kernel, capsys, tmp_path):
    kernel.print_source_code()
    assert capsys.readouterr().out == kernel.kernel_source
    kernel.print_source_code("host", tmp_path / "host")
    kernel.print_source_code(file=tmp_path / "kernel")
    assert (tmp_path / "host").read_text() == kernel.host_source
    assert (tmp_path / "kernel").read_text() == kernel.kernel_source


def test_results_of_tuning(double):
    kernel = JITKernel.from_tilelang_function(double(), execution_backend="emulate")
    with pytest.raises(ValueError, match="`double` was not tuned"):
        kernel.get_tuner_result()
    assert kernel.update_tuner_result(0.5, {"block": 64}, None) is kernel
    assert kernel.get_tuner_result() == {
        "latency": 0.5,
        "config": {"block": 64},
        "ref_latency": None,
    }
    assert kernel.n_max_threads is None


def test_resources_are_known_without_a_gpu(double):
    kernel = JITKernel(double(), target="cuda -arch=sm_90a", execution_backend="emulate")
    (usage,) = kernel.resource_usage.values()
    assert kernel.n_regs == usage.registers > 0
    assert kernel.n_spills == 0
    assert kernel.cubin.startswith(b"\x7fELF")


@pytest.mark.emulator_alone
def test_the_emulator_does_not_compile_for_the_gpu(double, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("NVRTC was called")

    monkeypatch.setattr(tilelang.cuda.nvrtc, "compile_cubin", refuse)
    kernel = JITKernel(double(), out_idx=1, execution_backend="emulate")
    assert torch.equal(kernel(torch.ones(256)), torch.full((256,), 2.0))
    with pytest.raises(AssertionError, match="NVRTC was called"):
        _ = kernel.n_regs


def test_options_reach_nvrtc(double, monkeypatch):
    seen = {}
    monkeypatch.setattr(
        tilelang.cuda.nvrtc, "compile_cubin", lambda *args, **kwargs: seen.update(kwargs) or seen
    )
    configs = {
        tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True,
        "tl.device_compile_flags": "-DB",
        "tl.ptxas_register_usage_level": 5,
    }
    options = {"pass_configs": configs, "compile_flags": "-DA -DC"}
    kernel = JITKernel(double(), execution_backend="emulate", **options)
    assert kernel._binary is seen
    assert seen["fast_math"] is True
    assert seen["options"] == ["-DA", "-DC", "-DB", "--ptxas-options=--register-usage-level=5"]


def test_lines_of_the_source_are_those_of_the_program(double, tmp_path):
    """Profilers and debuggers show the Python of an instruction."""
    plain, lined = (
        tilelang.compile(
            double(), execution_backend="nvrtc", pass_configs={"tl.emit_line_directives": lines}
        )
        for lines in (False, True)
    )
    assert "#line" not in plain.get_kernel_source()
    place = re.search(r'#line (\d+) "(.*conftest\.py)"\n.*= .*A', lined.get_kernel_source())
    assert place is not None
    line, file = int(place[1]), place[2]
    assert "B[bx * 64 + i] = A[bx * 64 + i] * 2" in Path(file).read_text().splitlines()[line - 1]
    assert lined.cubin.startswith(b"\x7fELF")
    lined.export_ptx(tmp_path / "lined.ptx")
    ptx = (tmp_path / "lined.ptx").read_text()
    # PTX has other characters than ASCII's as octal numbers.
    name = "".join(chr(b) if b < 128 else f"\\{b:03o}" for b in file.encode())
    number = re.search(rf'\.file\s+(\d+) "{re.escape(name)}"', ptx)
    assert number is not None
    assert re.search(rf"\.loc\s+{number[1]} {line} ", ptx)


def test_a_gpu_backend_without_a_gpu_compiles_and_does_not_run(double, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    kernel = JITKernel(double(), execution_backend="cython")
    assert "__global__" in kernel.get_kernel_source()
    with pytest.raises(RuntimeError, match=r"conftest.py.*'cython' needs a CUDA device.*'emulate'"):
        kernel(torch.zeros(256), torch.zeros(256))


@pytest.fixture
def gpu_of(monkeypatch):
    """Pretends that there is one GPU, of a compute capability."""

    def pretend(capability):
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index=0: capability)

    return pretend


@pytest.mark.parametrize(("arch", "gpu"), [("sm_86", (8, 0)), ("sm_90a", (8, 0))])
def test_a_gpu_that_does_not_run_the_architecture(double, gpu_of, arch, gpu):
    gpu_of(gpu)
    kernel = JITKernel(double(), target=f"cuda -arch={arch}")
    kernel.build()
    assert kernel.n_regs > 0
    told = rf"conftest.py.*compiled for {arch}, and the GPU here is sm_{gpu[0]}0, .*'emulate'"
    with pytest.raises(RuntimeError, match=told):
        kernel(torch.zeros(256), torch.zeros(256))


def test_a_later_gpu_gets_a_binary_of_the_same_source(double, gpu_of, monkeypatch):
    """A cubin for sm_80 does not run on sm_90, its source does; `cubin` is the target's."""
    gpu_of((9, 0))
    loaded = []
    module = sys.modules[JITKernel.__module__]  # `tilelang.jit` is a function
    monkeypatch.setattr(module, "cuda_adapter", lambda plan, cubin, _: loaded.append(cubin) or plan)
    kernel = JITKernel(double(), target="cuda -arch=sm_80")
    kernel.build()
    later, own = (
        tilelang.cuda.nvrtc.compile_cubin(kernel.kernel_source, arch, ["double_kernel"]).cubin
        for arch in ("sm_90", "sm_80")
    )
    assert loaded == [later]
    assert kernel.cubin == own != later


def messages(capsys, program, **options):
    JITKernel(program, execution_backend="emulate", **options)
    return [line.split("): ")[1] for line in capsys.readouterr().err.splitlines()]


def test_compilation_is_logged(double, capsys, monkeypatch):
    monkeypatch.setenv("TILELANG_PRINT_ON_COMPILATION", "1")
    assert messages(capsys, double(), out_idx=[-1]) == [
        "TileLang begins to compile kernel `double` with `out_idx=[-1]`",
        "TileLang completes to compile kernel `double`",
    ]


def test_the_log_can_be_turned_off_and_up(double, capsys, monkeypatch):
    monkeypatch.setenv("TILELANG_PRINT_ON_COMPILATION", "0")
    assert messages(capsys, double()) == []
    (line,) = messages(capsys, double(), verbose=True)
    assert line.startswith("lowered `double` for sm_")


def test_a_profiler_runs_checks_and_times_it(kernel):
    profiler = kernel.get_profiler()
    profiler.assert_allclose(lambda a: a * 2)
    with pytest.raises(AssertionError, match="not close"):
        profiler.assert_allclose(lambda a: a * 3)
    assert profiler.do_bench(n_warmup=1, n_repeat=1) > 0
    assert kernel.run_once().shape == (256,)
