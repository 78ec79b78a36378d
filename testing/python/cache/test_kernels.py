"""Which kernels are taken from the cache, and that they are the ones that compiling makes."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import tvm
import tvm_ffi

import tilelang
import tilelang.language as T
from tilelang.cache import __main__ as command
from tilelang.cache import cubins, memory, programs, versions
from tilelang.cuda import nvrtc
from tilelang.engine.callback import register_cuda_postproc
from tilelang.env import env
from tilelang.jit.kernel import JITKernel

ROOT = pathlib.Path(__file__).resolve().parents[3]
SM_90A = "cuda -arch=sm_90a"


def scale(factor=2.0, name="scale", stride=1, width=64):
    @T.prim_func
    def scale(A: T.Tensor((width,), "float32"), B: T.Tensor((width,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((width,), "float32")
            if stride > 1:
                T.annotate_layout({S: T.Layout((width,), lambda i: i * stride)})
            for i in T.Parallel(width):
                S[i] = A[i] * factor
            T.copy(S, B)

    return scale.with_attr("global_symbol", name)


def reads_what_is_undefined():
    @T.prim_func
    def undefined(B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            T.copy(S, B)

    return undefined


@pytest.fixture
def lowered(monkeypatch):
    """Names of the programs that are lowered during the test."""
    names = []
    lower = JITKernel._lower

    def counted(self):
        names.append(str(self.prim_func.attrs["global_symbol"]))
        return lower(self)

    monkeypatch.setattr(JITKernel, "_lower", counted)
    return names


@pytest.fixture
def compiled(monkeypatch):
    """Sources that NVRTC compiles during the test."""
    sources = []
    run = nvrtc._run

    def counted(source, *args):
        sources.append(source)
        return run(source, *args)

    monkeypatch.setattr(nvrtc, "_run", counted)
    return sources


def build(func, target=SM_90A, **options):
    """A kernel that was not in this process before."""
    memory.forget()
    return tilelang.compile(func, target=target, execution_backend="nvrtc", **options)


def test_a_kept_kernel_is_what_compiling_makes(root, lowered, compiled, said, tiled_gemm):
    first = build(tiled_gemm(128, 128, 128, (128, 128, 32)), out_idx=-1)
    fresh = (first.cubin, first.explain(), first.get_kernel_source(False), first.params)
    told = [line for line in said if "T.gemm" in line]
    said.clear()
    again = build(tiled_gemm(128, 128, 128, (128, 128, 32)), out_idx=-1)
    assert (again.cubin, again.explain(), again.get_kernel_source(False), again.params) == fresh
    assert (lowered, len(compiled)) == (["gemm"], 1)
    assert told == [line for line in said if "T.gemm" in line] != []
    assert not any("begins to compile" in line for line in said)
    assert again.emulated_source.count("#line") > 5
    assert again.artifact.kernel_source == first.kernel_source
    assert lowered == ["gemm"] * 2  # TVM's modules are made where somebody asks for them


def test_outputs_belong_to_the_call_and_not_to_the_entry(root, lowered):
    assert build(scale(), out_idx=-1).launch_plan.outputs == (1,)
    assert build(scale()).launch_plan.outputs == ()
    assert lowered == ["scale"]


def test_warnings_are_said_again(root, lowered, said):
    build(reads_what_is_undefined())
    warnings = [line for line in said if "test_kernels.py" in line]
    assert len(warnings) == 1
    said.clear()
    build(reads_what_is_undefined())
    assert [line for line in said if "test_kernels.py" in line] == warnings
    assert len(lowered) == 1


def test_deprecated_options_are_named_again(root):
    for _ in range(2):
        with pytest.warns(DeprecationWarning, match="tl.disable_tma_lower is deprecated"):
            build(scale(), pass_configs={"tl.disable_tma_lower": True})


def test_kernels_of_a_process_share_what_was_lowered(root, lowered):
    first = tilelang.compile(scale())
    tilelang.cache.store().clear()
    assert tilelang.compile(scale())._kept is first._kept
    assert len(lowered) == 1


# What decides about a program's entry, and about a binary's.

PROGRAMS = {
    "a constant": lambda: build(scale(factor=2 + 2**-22)),
    "the structure": lambda: build(scale(width=128)),
    "a name": lambda: build(scale(name="other")),
    "a layout": lambda: build(scale(stride=2)),
    "another layout": lambda: build(scale(stride=3)),
    "a pass configuration": lambda: build(scale(), pass_configs={"tl.disable_tma_lower": False}),
    "its value": lambda: build(scale(), pass_configs={"tl.disable_tma_lower": True}),
    "the architecture": lambda: build(scale(), target="cuda -arch=sm_80"),
}


@pytest.mark.filterwarnings("ignore:pass config:DeprecationWarning")
def test_each_part_of_a_program_changes_its_key(root, lowered):
    build(scale())
    for number, (what, make) in enumerate(PROGRAMS.items(), 2):
        make()
        assert len(lowered) == number, what
    for make in PROGRAMS.values():
        make()
    assert len(lowered) == len(PROGRAMS) + 1


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [
        (versions, "compiler_digest", lambda root: "another compiler"),
        (tvm, "__version__", "0.27.0"),
        (tvm_ffi, "__version__", "0.1"),
    ],
    ids=["tilelang", "tvm", "tvm_ffi"],
)
def test_who_lowers_is_part_of_the_key(root, lowered, monkeypatch, module, name, value):
    build(scale())
    monkeypatch.setattr(module, name, value)
    build(scale())
    assert len(lowered) == 2


def test_the_environment_is_part_of_the_key(root, lowered, monkeypatch):
    build(scale())
    monkeypatch.setenv("TILELANG_ENABLE_DATA_RACE_CHECK", "0")
    build(scale())
    assert len(lowered) == 2


def test_the_place_in_the_source_is_part_of_the_key_of_a_program_alone(root, lowered, compiled):
    """Reports and explanations name it; the binary has nothing of it."""
    text = "\n" * 3 + (
        "import tilelang.language as T\n"
        "@T.prim_func\n"
        "def f(A: T.Tensor((64,), 'float32')):\n"
        "    with T.Kernel(1, threads=64):\n"
        "        T.clear(A)\n"
    )
    for lines in (text, "\n" + text):
        path = root.parent / "program.py"
        path.write_text(lines)
        names: dict = {"__name__": "program"}
        exec(compile(lines, str(path), "exec"), names)
        _ = build(names["f"]).cubin
    assert (len(lowered), len(compiled)) == (2, 1)


def test_each_part_of_a_binary_changes_its_key(root, compiled, monkeypatch):
    def binary(**options):
        return build(scale(), **options).cubin

    plain = binary()
    changes = [
        {"compile_flags": "--maxrregcount=32"},
        {"pass_configs": {"tl.enable_fast_math": True}},
        {"pass_configs": {"tl.ptxas_register_usage_level": 3}},
        {"target": "cuda -arch=sm_100a"},  # of no binary that this machine runs
    ]
    for number, options in enumerate(changes, 2):
        binary(**options)
        assert len(compiled) == number, options
    monkeypatch.setattr(cubins, "headers_digest", lambda *args: "other headers")
    binary()
    monkeypatch.setattr(cubins, "nvrtc_version", lambda: "12.9")
    assert binary() == plain
    assert len(compiled) == len(changes) + 3
    binary()  # what another NVRTC than the named one has made is not kept
    assert len(compiled) == len(changes) + 4


@pytest.mark.parametrize(
    ("source", "options", "reads"),
    [
        ("#include <tl/common.h>\nint x;", [], False),
        ('#include <tl/common.h>\n#include "mine.h"\n', [], True),
        ("#inc\\\nlude MACRO\n", [], True),
        ("# /* now */ include <mine.h>\n", [], True),
        ('// include\nf("/usr/include/x.py:1");', [], False),
        ("", ["--maxrregcount=32", "-DA"], False),
        ("", ["-I/mine"], True),
        ("", ["--pre-include=mine.h"], True),
    ],
)
def test_what_reads_other_files_is_compiled_each_time(source, options, reads):
    assert cubins.reads_other_files(source, options) is reads


def test_a_hook_on_the_source_is_run_each_time(root, lowered, compiled):
    kept = build(scale()).kernel_source
    register_cuda_postproc(lambda code, target: f"// hooked\n{code}")
    try:
        for _ in range(2):
            kernel = build(scale())
            assert kernel.kernel_source == f"// hooked\n{kept}"
            _ = kernel.cubin
    finally:
        register_cuda_postproc(None)
    # The binary is kept by the text, whoever has written it.
    assert (len(lowered), sum("// hooked" in source for source in compiled)) == (3, 1)
    assert build(scale()).kernel_source == kept


def test_a_dump_is_of_a_real_compilation(root, lowered, tmp_path):
    configs = {"tl.enable_dump_ir": True, "tl.dump_ir_path": str(tmp_path)}
    for _ in range(2):
        build(scale(), pass_configs=configs)
        (dump,) = (tmp_path / "scale").glob("*LayoutInference.py")
        dump.unlink()
    assert len(lowered) == 2


def test_the_cache_can_be_switched_off_and_cleared(root, lowered, monkeypatch):
    monkeypatch.setitem(env.__dict__, "TILELANG_DISABLE_CACHE", None)
    tilelang.disable_cache()
    assert not tilelang.is_cache_enabled()
    build(scale())
    assert not root.exists()
    tilelang.enable_cache()
    assert tilelang.is_cache_enabled()
    build(scale())
    build(scale())
    assert len(lowered) == 2
    tilelang.clear_cache()
    build(scale())
    assert len(lowered) == 3


def test_a_damaged_entry_is_compiled_again_with_one_warning(root, lowered, said):
    build(scale())
    (plan,) = root.glob("program/*/plan.json")
    plan.write_text(plan.read_text().replace("64", "65"))
    said.clear()
    assert build(scale()).launch_plan.params[0].shape == (64,)
    assert ["is damaged" in line for line in said].count(True) == 1
    build(scale())
    assert len(lowered) == 2


def test_another_process_neither_lowers_nor_compiles(root):
    """The quickstart's GEMM: a process that may not compile runs what another one has compiled, and
    loads no compiler."""
    program = """
import sys, time
import torch
before = {*sys.modules}  # torch loads NVRTC's path finder itself
import tilelang
import tilelang.cuda.nvrtc, tilelang.engine.lower, tilelang.emulator.compiler as emulator
sys.path.insert(0, sys.argv[1])
import quickstart
if sys.argv[2] == "second":
    def refuse(*args, **kwargs):
        raise AssertionError("compiled again")
    tilelang.cuda.nvrtc._run = tilelang.engine.lower.lower = emulator._Build._run = refuse
a = torch.ones(128, 128, dtype=torch.float16)
start = time.process_time()
kernel = quickstart.matmul(128, 128, 128, 128, 128, 32)
kernel.build()
milliseconds = 1e3 * (time.process_time() - start)
assert torch.all(kernel(a, a) == 128)
size = len(kernel.cubin)
print(milliseconds, size, len(kernel.explain()))
if sys.argv[2] == "second":
    loaded = {"cuda.bindings.nvrtc", "tilelang.cuda.nvrtc_library", "tilelang.hip.compile"}
    assert not loaded & {*sys.modules} - before
"""
    words = [sys.executable, "-c", program, str(ROOT / "examples")]
    environment = {**os.environ, "TILELANG_EXECUTION_BACKEND": "emulate"}
    outputs = [
        subprocess.run([*words, turn], env=environment, capture_output=True, text=True)
        for turn in ("first", "second")
    ]
    assert [done.returncode for done in outputs] == [0, 0], outputs[-1].stderr
    first, second = (done.stdout.split() for done in outputs)
    assert first[1:] == second[1:]
    # About 45 by itself, of which the trace has 27.
    assert float(second[0]) < 150


def test_files_are_known_by_what_is_in_them(store, tmp_path, monkeypatch):
    monkeypatch.setattr(versions, "_SETTLED_NS", 0)
    monkeypatch.setattr(versions, "_remembered", {})
    file = tmp_path / "header.h"
    file.write_text("one")
    first = versions.digest_of([file], store)
    versions._remembered.clear()
    with monkeypatch.context() as context:
        context.setattr(versions, "_digest", lambda paths: "read again")
        assert versions.digest_of([file], store) == first
    before = file.stat().st_mtime_ns
    file.write_text("two")
    os.utime(file, ns=(before, before))
    assert versions.digest_of([file], store) != first


# python -m tilelang.cache


def test_the_command_lists_explains_and_prunes(root, capsys):
    build(scale())
    build(scale(factor=3.0), pass_configs={"tl.disable_shared_memory_reuse": True})
    assert command.main([]) == 0
    listed = capsys.readouterr().out.splitlines()
    keys = [line.split()[1] for line in listed if line.startswith("program")]
    assert len(keys) == 2
    assert command.main(["explain", keys[1]]) == 0
    told = capsys.readouterr().out
    assert "pass_configs.tl.disable_shared_memory_reuse: null there, true here" in told
    assert "+" in told
    assert "T.float32(3.0)" in told
    assert "target: " not in told.partition("What differs:")[2]
    assert command.main(["prune", "--max-size", "0"]) == 0
    assert tilelang.cache.store().entries() == []
    assert command.main(["explain", keys[1]]) == 1


def test_an_entry_is_text_and_json(root, tiled_gemm):
    build(tiled_gemm(128, 128, 128, (128, 128, 32)), out_idx=-1)
    (path,) = root.glob("program/*")
    entry = {file.name: file.read_bytes() for file in path.iterdir()}
    program = programs.LoweredProgram.of_files(entry)
    assert program.files() == {name: entry[name] for name in program.files()}
    assert json.loads(entry["manifest.json"])["parts"]["name"] == "gemm"
    assert program.explanation.notes
