"""The examples check themselves: here with the smallest sizes that take all their paths."""

import ast
import contextlib
import io
import pathlib
import re
import runpy
import sys

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.cuda.nvrtc import compile_cubin
from tilelang.utils.target import cuda_arch

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
# Those of distributed and cpp have tests of their own.
PATHS = [
    path
    for path in (*EXAMPLES.glob("*.py"), *EXAMPLES.glob("*/*.py"))
    if path.parent.name not in ("distributed", "cpp")
]
# As processes, which the README names: testing/python/packaging/test_programs.py.
PROGRAMS = {"quickstart", "eager", "softmax", "rms_norm"}
# The options of each, and how many checks it then prints.
RUNS = {
    "block_sparse_attention": ("--length 100", 1),
    "block_sparse_gemm": ("--size 130 72 136", 1),
    "chunk_scan": ("--length 70", 1),
    "chunk_scan_backward": ("--length 70", 1),
    "chunk_scan_roles": ("--length 70", 1),
    "convolution": ("--image 1 5 6 32", 3),
    "convolution_any_shape": ("--image 1 5 6 17", 3),
    "convolution_few_channels": ("--image 1 5 6 3", 3),
    "convolution_halo": ("--image 1 9 37 24", 3),
    "cross_entropy": ("--size 5 1003 1288", 2),
    "delta_rule": ("--length 70", 2),
    "delta_rule_backward": ("--length 70", 1),
    "delta_rule_backward_roles": ("--length 70", 1),
    "delta_rule_roles": ("--length 70", 1),
    "dequantize_gemm": ("--size 40 136 160", 4),
    "dequantize_gemv": ("--size 72 1000", 2),
    "dropout": ("--size 4104", 1),
    "elementwise": ("--size 70 77", 1),
    "flash_attention": ("--length 150 --dim 64 --key-heads 1", 3),
    "flash_attention_backward": ("--length 70 --dim 64", 2),
    "flash_attention_varlen": ("--lengths 130 1 40 --dim 64", 2),
    "flash_attention_windows": ("--length 130 --window 70", 1),
    "flash_attention_windows_backward": ("--length 130 --window 50", 1),
    "flash_attention_windows_forward": ("--length 130 --window 50", 1),
    "fp8_training": ("--size 144 80 208", 5),
    "fused_moe": ("--tokens 21 --size 72 72 --experts 5 2", 1),
    "gemm": ("--size 130 72 72", 4),
    "gemm_any_shape": ("--size 24 200 136", 2),
    "gemm_fp8": ("--size 130 80 144", 4),
    "gemm_mxfp": ("--size 130 80 256", 4),
    "gemm_sp": ("--size 130 72 128", 1),
    "gemm_few_rows": ("--size 2 13 71", 2),
    "gemm_odd_rows": ("--size 5 144 135", 2),
    "gemm_splitk": ("--size 40 100 200 --split 3", 1),
    "gemv": ("--size 10 1100", 2),
    "gqa_decode": ("--lengths 70 1 --splits 2", 3),
    "gqa_decode_fp8": ("--lengths 70 1 --splits 2", 1),
    "grouped_gemm": ("--rows 70 0 64 1 --size 72 80", 1),
    "grouped_gemm_experts": ("--rows 71 0 64 1 --size 136 136", 2),
    "grouped_gemm_masked": ("--counts 71 0 64 1 --most 72 --size 136 136", 2),
    "hadamard": ("--rows 3 --size 512", 1),
    "hyper_connections": ("--size 19 72", 1),
    "hyper_connections_clusters": ("--size 133 1024", 1),
    "int2_gemm": ("--size 40 136 160", 1),
    "kda": ("--length 70", 1),
    "kda_backward": ("--length 70", 1),
    "kda_backward_roles": ("--length 70", 1),
    "kda_roles": ("--length 70 --dim 64 64", 1),
    "lightning_indexer": ("--queries 5 --chosen 40", 1),
    "linear_attention": ("--length 70", 2),
    "linear_attention_backward": ("--length 70", 2),
    "mamba3": ("--length 70", 1),
    "mla_decode": ("--length 70 --split 1 2", 2),
    "mla_decode_paged": ("--lengths 70 1 --dim 128 64 --page 16", 2),
    "mla_decode_paged_pingpong": ("--lengths 150 1 0 --cluster 2", 1),
    "mla_decode_pingpong": ("--length 150 --cluster 2", 1),
    "native_sparse_attention": ("--length 80 --heads 2 1", 1),
    "norm_residual": ("--size 9 200", 2),
    "quantize": ("--size 10 300", 1),
    "quantize_tokens": ("--size 3 200", 4),
    "random_numbers": ("--size 4101", 2),
    "reduction": ("--size 700 100", 1),
    "rope_cache": ("--tokens 9", 1),
    "routing": ("--size 21 72", 2),
    "sparse_mla": ("--queries 1", 1),
    "sparse_mla_pingpong": ("--queries 1", 1),
    "sparse_mla_backward": ("--queries 1 --heads 48", 1),
    "sparse_mla_backward_roles": ("--queries 1", 1),
    "top_k_top_p": ("--size 3 300", 1),
    "vertical_slash": ("--length 150", 1),
    "ws_schedule": ("--size 200 72 136", 1),
}
# These have other instructions on sm_80, which is emulated where the GPU is another one.
ON_SM_80 = ["convolution", "flash_attention", "gemm_sp", "gemm_splitk"]
# What users' programs have most, with an example of each.
NAMES = {
    "Tensor": "gemm",
    "Kernel": "gemm",
    "copy": "gemm",
    "alloc_fragment": "gemm",
    "alloc_shared": "gemm",
    "ceildiv": "gemm",
    "float32": "gemm",
    "Pipelined": "gemm",
    "Parallel": "softmax",
    "gemm": "gemm",
    "clear": "gemm",
    "float16": "gemm",
    "prim_func": "gemm",
    "if_then_else": "flash_attention",
    "reduce_sum": "softmax",
    "exp2": "softmax",
    "empty": "eager",
    "const": "eager",
    "int32": "grouped_gemm",
    "fill": "flash_attention",
    "max": "quickstart",
    "reduce_max": "softmax",
    "infinity": "flash_attention",
    "bfloat16": "quantize",
    "serial": "rms_norm",
    "GemmWarpPolicy": "mla_decode",
    "min": "flash_attention",
    "use_swizzle": "quickstart",
    "log2": "flash_attention",
    "alloc_var": "grouped_gemm",
    "annotate_layout": "dequantize_gemm",
    "atomic_add": "gemm_splitk",
    "dynamic": "elementwise",
    "cast": "rms_norm",
    "float8_e4m3fn": "gemm_fp8",
    "macro": "elementwise",
    "gemm_sp": "gemm_sp",
    "im2col": "convolution",
    "view": "convolution",
    "reinterpret": "dequantize_gemm",
    "reduce_absmax": "quantize",
    "clamp": "quantize",
}


def path_of(name):
    """An example's file: their names differ, whatever their families."""
    (path,) = [path for path in PATHS if path.stem == name]
    return path


def run(name, options, target, monkeypatch):
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", target)
    monkeypatch.setattr(sys, "argv", [name, *options.split()])
    path = path_of(name)
    monkeypatch.syspath_prepend(path.parent)
    before = set(sys.modules)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            runpy.run_path(str(path), run_name="__main__")
    finally:
        # Kernels are kept by their arguments, whatever the default target was.
        for module in set(sys.modules) - before & set(RUNS):
            del sys.modules[module]
    return printed.getvalue().splitlines()


@pytest.mark.parametrize(
    ("name", "arch"),
    [*((name, "sm_90a") for name in RUNS), *((name, "sm_80") for name in ON_SM_80)],
)
def test_example_checks_itself(name, arch, monkeypatch):
    options, checks = RUNS[name]
    if arch != cuda_arch():
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    lines = run(name, options, f"cuda -arch={arch}", monkeypatch)
    assert len(lines) == checks, lines
    assert all(re.search(r"(relative error|roundings off|off)\b", line) for line in lines), lines


def test_every_example_runs_here():
    assert sorted(path.stem for path in PATHS) == sorted({*RUNS, *PROGRAMS})


@pytest.mark.parametrize("folder", sorted({path.parent for path in PATHS} - {EXAMPLES}))
def test_readme_of_a_family(folder):
    """Each file has its line, and the family has one in the README of all."""
    named = re.findall(
        r"^\| \[(\w+)\.py\]\(\1\.py\)", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert sorted(named) == sorted(path.stem for path in folder.glob("*.py"))
    assert f"[{folder.name}]({folder.name})" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize("name", NAMES)
def test_example_of_a_name(name):
    tree = ast.parse(path_of(NAMES[name]).read_text())
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "T"
    }
    assert name in used


@pytest.mark.parametrize(
    ("name", "program", "options"),
    [("gemm", "matmul", {"parts": 3}), ("mla_decode", "mla_decode", {"pieces": 3})],
)
def test_parts_divide_what_they_are_of(name, program, options):
    module = runpy.run_path(str(path_of(name)))
    with pytest.raises(ValueError, match="is 3, wanted a divisor of"):
        module[program].get_tir(1, 64, 64, **options)


@pytest.mark.parametrize(
    ("name", "program", "sizes"),
    [
        ("flash_attention", "flash_attention", (1, 6, 128, 64, False, 4)),
        ("flash_attention_varlen", "flash_attention_varlen", (6, 64, False, 4)),
        ("native_sparse_attention", "attend_to_means", (1, 6, 4, 256, 64, 4)),
        ("native_sparse_attention", "attend_to_blocks", (1, 6, 4, 256, 64, 4)),
        ("gqa_decode", "gqa_decode", (6, 4)),
        ("gqa_decode_fp8", "gqa_decode_fp8", (6, 4)),
    ],
)
def test_heads_without_a_head_of_keys_are_refused(name, program, sizes, monkeypatch):
    """Two of six heads would look for keys behind the fourth of four heads, and find zeros."""
    monkeypatch.syspath_prepend(path_of(name).parent)
    module = runpy.run_path(str(path_of(name)))
    with pytest.raises(ValueError, match="found 6 heads for 4 of keys, wanted a multiple of these"):
        module[program].get_tir(*sizes)


@pytest.mark.parametrize(
    ("name", "program", "sizes", "options", "wanted"),
    [
        ("flash_attention", "flash_attention", (1, 4, 64, 64, 0), {"out_parts": 3}, "a divisor of"),
        ("native_sparse_attention", "attend_to_means", (1, 48, 1, 256, 64, 4), {}, "a divisor of"),
        ("native_sparse_attention", "attend_to_blocks", (1, 96, 1, 256, 64, 4), {}, "a row for"),
        ("gqa_decode", "gqa_decode", (16, 1), {"block_H": 8}, "a column for each of 16 heads"),
        ("gqa_decode_fp8", "gqa_decode_fp8", (16, 1), {"block_H": 8}, "a column for each of 16"),
    ],
)
def test_tiles_that_leave_something_out_are_refused(
    name, program, sizes, options, wanted, monkeypatch
):
    monkeypatch.syspath_prepend(path_of(name).parent)
    module = runpy.run_path(str(path_of(name)))
    with pytest.raises(ValueError, match=f"wanted {wanted}"):
        module[program].get_tir(*sizes, **options)


SIZES = {"flash_attention": (2, 2, 4096, 128), "flash_attention_varlen": (2, 128)}


@pytest.mark.parametrize("name", SIZES)
def test_products_of_the_default_tiles_overlap(name, monkeypatch):
    """ptxas says where it lets the products of a kernel wait for each other, C7510 to C7515."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    monkeypatch.syspath_prepend(path_of(name).parent)
    program = runpy.run_path(str(path_of(name)))[name]
    source = program.get_kernel_source(*SIZES[name], causal=True)
    compiled = compile_cubin(source, "sm_90a", ["main_kernel"], ["--no-cache"], fast_math=True)
    assert "C75" not in compiled.log
    assert compiled.resource_usage["main_kernel"].spill_stores == 0


@pytest.mark.parametrize("name", ["delta_rule", "mla_decode_pingpong", "mla_decode_paged_pingpong"])
def test_registers_suffice(name, monkeypatch):
    """Tiles of the benchmark: ptxas neither serialises products nor spills."""
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    monkeypatch.syspath_prepend(path_of(name).parent)
    module = runpy.run_path(str(path_of(name)))
    if name == "delta_rule":
        program = module["delta_rule"](256, module["solve_by_blocks"], 64, 128, 128, 64)
        kernel = tilelang.compile(program, target="cuda -arch=sm_90a")
    elif name == "mla_decode_paged_pingpong":
        kernel = module["mla_decode_paged"](128, cluster=2)
    else:
        kernel = module["mla_decode"](T.dynamic("batch"), 128, T.dynamic("length"), cluster=2)
    (usage,) = kernel.resource_usage.values()
    assert usage.advisories == ()
    assert usage.spill_stores == 0


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("causal", [False, True])
def test_masks_stand_in_front_of_the_loop(name, causal, monkeypatch):
    """The loop has no branch, and what decides is computed in 32 bits."""
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", "cuda -arch=sm_90a")
    monkeypatch.setenv("TILELANG_EXECUTION_BACKEND", "emulate")
    monkeypatch.syspath_prepend(path_of(name).parent)
    program = runpy.run_path(str(path_of(name)))[name]
    source = program.get_kernel_source(*SIZES[name], causal, block_N=128)
    masks = [line for line in source.splitlines() if "-1.2676506e+30f" in line]
    # A length that is a multiple of the tile's needs no mask but a causal one.
    assert len(masks) == (1 if causal or name == "flash_attention_varlen" else 0)
    assert not any("int64" in line for line in masks)
