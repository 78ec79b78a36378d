"""Compiling to a cubin, and what ptxas says about it."""

import re

import pytest

import tilelang
import tilelang.language as T
from tilelang.cuda import nvrtc_library
from tilelang.cuda.nvrtc import compile_cubin, parse_resource_usage
from tilelang.engine.resource_usage import Advisory, ResourceUsage

SOURCE = """#include <tl/common.h>
extern "C" __global__ void add_kernel(const float* a, float* b) { b[0] += a[threadIdx.x]; }
extern "C" __global__ void div_kernel(float* a) {
  __shared__ float s[64];
  s[threadIdx.x] = a[threadIdx.x];
  tl::sync_threads();
  a[threadIdx.x] = a[1] / s[63 - threadIdx.x];
}
extern "C" __global__ void stack_kernel(int* a) {
  volatile int local[100];
  for (int i = 0; i < 100; ++i) local[i] = a[i];
  a[0] = local[a[1]];
}
"""


def test_resource_usage():
    compiled = compile_cubin(SOURCE, "sm_90a", ["add_kernel", "div_kernel", "stack_kernel"])
    usage = compiled.resource_usage
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.arch == "sm_90a"
    assert 4 <= usage["add_kernel"].registers <= 32
    assert usage["add_kernel"].static_shared == 0
    assert usage["div_kernel"].static_shared == 256
    assert usage["stack_kernel"].stack == 400


def test_spills_are_read():
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a_kernel' for 'sm_80'
ptxas info    : Function properties for helper
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Function properties for a_kernel
    96 bytes stack frame, 52 bytes spill stores, 60 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 49152 bytes smem, 380 bytes cmem[0]
"""
    assert parse_resource_usage(log) == {"a_kernel": ResourceUsage(255, 52, 60, 96, 49152)}


def test_advisories_are_read():
    """Each belongs to the function that it names, in front of that function or behind it."""
    about = "wgmma.mma_async instructions are serialized due to"
    few = f"{about} insufficient register resources"
    log = f"""ptxas info    : (C7514) Potential Performance Loss: {about} reading of  a wgmma in the function 'b' in line 0
ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : (C7511) Potential Performance Loss: {few} for the wgmma pipeline in the function 'a' in line 12
ptxas info    : Used 168 registers, used 1 barriers
ptxas info    : Compiling entry function 'b' for 'sm_90a'
ptxas info    : (C7512) Potential Performance Loss: {few} for the function 'b'
ptxas info    : Used 168 registers, used 1 barriers
"""  # noqa: E501
    found = parse_resource_usage(log)
    assert found["a"].advisories == (Advisory("C7511", f"{few} for the wgmma pipeline"),)
    assert found["b"].advisories == (
        Advisory("C7514", f"{about} reading of a wgmma"),
        Advisory("C7512", few),
    )


def test_an_advisory_of_no_function_is_of_the_one_behind_it():
    log = """ptxas info    : (C7507) Potential Performance Loss: 'setmaxnreg' ignored to maintain minimum register requirements.
ptxas info    : 64 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_90a'
ptxas info    : Used 122 registers, used 1 barriers
"""  # noqa: E501
    text = "'setmaxnreg' ignored to maintain minimum register requirements."
    assert parse_resource_usage(log)["a"].advisories == (Advisory("C7507", text),)


def test_options_reach_the_compiler():
    spilling = "".join(f"  float x{i} = a[{i}];\n" for i in range(64))
    total = " + ".join(f"x{i} * x{63 - i}" for i in range(64))
    stores = "".join(f"  a[{i}] = x{i} + total;\n" for i in range(64))
    source = (
        f'extern "C" __global__ void k(float* a) {{\n{spilling} float total = {total};\n{stores}}}'
    )
    free = compile_cubin(source, "sm_80", ["k"]).resource_usage["k"]
    bound = compile_cubin(source, "sm_80", ["k"], ["--maxrregcount=32"]).resource_usage["k"]
    assert free.spill_stores == 0
    assert bound.registers <= 32
    assert bound.spill_stores > 0
    assert bound.spill_loads > 0


def test_fast_math_changes_the_code():
    exact = compile_cubin(SOURCE, "sm_80", ["div_kernel"])
    fast = compile_cubin(SOURCE, "sm_80", ["div_kernel"], fast_math=True)
    assert len(fast.cubin) < len(exact.cubin)


def test_an_error_has_the_line_and_the_options():
    source = '#line 7 "user.py"\nextern "C" __global__ void k() { undefined(); }\n'
    with pytest.raises(RuntimeError) as error:
        compile_cubin(source, "sm_80", ["k"], ["--maxrregcount=40"])
    for text in [
        'user.py(7): error: identifier "undefined"',
        "--maxrregcount=40",
        "architecture=sm_80",
    ]:
        assert text in str(error.value)


@T.prim_func
def product(
    A: T.Tensor((64, 64), "float16"),
    B: T.Tensor((64, 256), "float16"),
    C: T.Tensor((64, 256), "float32"),
):
    with T.Kernel(1, threads=128):
        T.annotate_min_blocks_per_sm(5)
        A_shared = T.alloc_shared((64, 64), "float16")
        B_shared = T.alloc_shared((64, 256), "float16")
        C_local = T.alloc_fragment((64, 256), "float32")
        T.copy(A, A_shared)
        T.copy(B, B_shared)
        T.gemm(A_shared, B_shared, C_local, clear_accum=True)
        T.copy(C_local, C)


def test_too_few_registers():
    target = {"kind": "cuda", "arch": "sm_90a"}
    kernel = tilelang.compile(product, target=target, execution_backend="emulate")
    where = re.escape(f"{__file__}:{kernel.artifact.launch_plan.location.split(':')[-1]}")
    wanted = (
        rf"{where}: product_kernel: found an instruction that takes 1\d\d registers of a thread or "
        "more, wanted at most the 96 that each has; compute a smaller tile in it, or let fewer "
        r"threads and blocks share a multiprocessor\nNVRTC \S+: NVRTC_ERROR_COMPILATION\n"
        r"options: --gpu-architecture=sm_90a[^\0]* Insufficient registers[^\0]*"
    )
    for read in (lambda: kernel.cubin, lambda: kernel.resource_usage):
        with pytest.raises(RuntimeError) as error:
            read()
        assert re.fullmatch(wanted, str(error.value))


def test_too_much_static_shared_memory():
    source = """extern "C" __global__ void k(int* a) {
  __shared__ int s[60000];
  s[threadIdx.x] = a[0];
  __syncthreads();
  a[1] = s[a[2]];
}"""
    with pytest.raises(RuntimeError) as error:
        compile_cubin(source, "sm_90a", ["k"], location="user.py:3")
    assert str(error.value).startswith(
        "user.py:3: k: found 240000 bytes of static shared memory, wanted at most 232448; "
        'allocate tiles in scope "shared.dyn", or smaller ones\n'
    )


def test_too_many_bytes_of_arguments():
    source = """struct Numbers { int x[20000]; };
extern "C" __global__ void k(int* a, Numbers numbers) { a[0] = numbers.x[a[1]]; }"""
    with pytest.raises(RuntimeError) as error:
        compile_cubin(source, "sm_90a", ["k"])
    assert str(error.value).startswith(
        "k: found 80008 bytes of arguments, wanted at most 32764; pass a tensor of them\n"
    )


@pytest.mark.parametrize(
    ("body", "options", "found"),
    [
        ('asm("bar.sync 17;");', [], "Barrier number '17' out of range, expected to be in"),
        ("undefined();", [], 'identifier "undefined" is undefined`'),
        ("", ["--bogus"], "unrecognized option --bogus found`"),
    ],
)
def test_an_error_names_what_was_found(body, options, found):
    source = f'extern "C" __global__ void k() {{ {body} }}'
    with pytest.raises(RuntimeError) as error:
        compile_cubin(source, "sm_80", ["k"], options, location="user.py:3")
    first = str(error.value).splitlines()[0]
    assert first.startswith(f"user.py:3: found `{found}")
    assert "wanted source and options that NVRTC 1" in first


def test_an_unknown_architecture_is_an_error():
    with pytest.raises(RuntimeError, match="sm_1"):
        compile_cubin(SOURCE, "sm_1", ["add_kernel"])


def test_a_missing_kernel_is_an_error():
    compiled = compile_cubin(SOURCE, "sm_80", ["main_kernel"])
    with pytest.raises(RuntimeError, match=r"no kernel main_kernel; it has .*add_kernel"):
        _ = compiled.resource_usage


@pytest.mark.parametrize(
    ("text", "options", "minimal"),
    [
        ("", [], True),
        ("__device__ cudaTextureObject_t pictures;", [], False),
        ("__device__ HELD pictures;", ["-DHELD=cudaTextureObject_t"], False),
        ("__device__ cudaError_t error = cudaSuccess;", [], False),
    ],
)
def test_what_nvrtc_leaves_out_is_there_for_texts_that_use_it(monkeypatch, text, options, minimal):
    seen, run = [], nvrtc_library.run
    monkeypatch.setattr(nvrtc_library, "run", lambda *given: seen.append(given[1]) or run(*given))
    source = f"#include <tl/common.h>\n{text}\n" + 'extern "C" __global__ void k() {}'
    found = compile_cubin(source, "sm_90a", ["k"], options)
    assert found.cubin.startswith(b"\x7fELF")
    assert [("--minimal" in flags) for flags in seen] == [minimal]
