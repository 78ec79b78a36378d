"""Kernels that are CUDA C++ text, and text that kernels call."""

import pathlib

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

SCALE = """
__global__ void __launch_bounds__(64) scale(const float* A, float* B) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  B[i] = FACTOR * A[i];
}
"""


def scaled(source, **options):
    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        T.CUDASourceCodeKernel(4, threads=64, source_code_or_path=source, **options)

    return main


@pytest.mark.parametrize("as_given", [str, pathlib.Path])
def test_a_kernel_of_text_between_others(tmp_path, as_given):
    path = tmp_path / "scale.cu"
    path.write_text(SCALE)

    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.CUDASourceCodeKernel(
            4,
            threads=64,
            source_code_or_path=as_given(path),
            entry_name="scale",
            prelude="#define FACTOR 3",
        ):
            pass
        with T.Kernel(2, threads=128) as bx:
            B[bx * 128 + T.get_thread_binding()] += 1.0

    kernel = tilelang.compile(main, target="cuda -arch=sm_80" if DEVICE == "cpu" else "auto")
    assert [k.name for k in kernel.artifact.launch_plan.kernels] == ["scale", "main_kernel_1"]
    a, b = torch.randn(256, device=DEVICE), torch.empty(256, device=DEVICE)
    kernel(a, b)
    assert torch.equal(b, 3 * a + 1)
    assert kernel.resource_usage["scale"].registers > 0


def test_text_with_linkage_of_its_own():
    source = 'extern "C" {\n' + SCALE.replace("FACTOR", "2") + "}"
    kernel = tilelang.compile(scaled(source, entry_name="scale"), out_idx=-1)
    a = torch.randn(256, device=DEVICE)
    assert torch.equal(kernel(a), 2 * a)


@pytest.mark.parametrize(
    ("source", "options", "error", "message"),
    [
        (SCALE, {}, ValueError, "no __global__ function main_kernel"),
        ("", {}, ValueError, "is '', wanted CUDA C"),
        ("no/such/file.cu", {}, FileNotFoundError, "there is no such file"),
        (SCALE, {"entry_name": "scale", "cluster_dims": 0}, ValueError, "cluster_dims"),
    ],
)
def test_errors(source, options, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        scaled(source, **options)


def test_two_kernels_of_one_name_are_refused():
    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        T.CUDASourceCodeKernel(4, source_code_or_path=SCALE, entry_name="scale")
        T.CUDASourceCodeKernel(2, source_code_or_path=SCALE, entry_name="scale")

    with pytest.raises(ValueError, match="found two kernels named scale, wanted a name for each"):
        tilelang.compile(main)


def test_imported_text_is_called():
    text = "__device__ float twice(float x) { return x + x; }"

    @T.prim_func
    def main(A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=128, prelude="#define THREE 3"):
            T.import_source(text)
            T.import_source(None)
            T.import_source(text)
            T.import_source("__device__ float thrice(const float* x) { return THREE * *x; }")
            for i in T.Parallel(256):
                B[i] = T.call_extern("float32", "twice", A[i]) + T.call_extern(
                    "float32", "thrice", T.address_of(A[i])
                )

    kernel = tilelang.compile(main, out_idx=-1)
    assert kernel.get_kernel_source().count("float twice(float x)") == 1
    a = torch.randn(256, device=DEVICE)
    torch.testing.assert_close(kernel(a), 5 * a)


def taking(types, body=""):
    """A program with scalars and sizes of the run, for a kernel with these parameters."""
    n, m = T.dynamic("n, m")
    source = f"__global__ void taken({types}) {{ {body} }}"

    @T.prim_func
    def main(
        A: T.Tensor((n,), "float32"),
        k: T.int32,
        B: T.Tensor((n, m), "float32"),
        x: T.float32,
    ):
        T.CUDASourceCodeKernel(1, threads=32, source_code_or_path=source, entry_name="taken")

    return tilelang.compile(main)


@pytest.mark.parametrize(
    ("types", "value", "wanted"),
    [
        ("const float* A, float* B", "1", 1),
        ("const float* A, float* B, int k", "k", 7),
        ("const float* A, float* B, int k, float x", "k + x", 7.5),
        ("const float* A, float* B, int k, float x, int n, int m", "k + x + n + 10 * m", 61.5),
    ],
)
def test_a_kernel_takes_tensors_then_scalars_then_sizes(types, value, wanted):
    a, b = torch.zeros(4, device=DEVICE), torch.zeros(4, 5, device=DEVICE)
    body = f"if (threadIdx.x < 4) B[threadIdx.x] = A[threadIdx.x] + {value};"
    taking(types, body)(a, 7, b, 0.5)
    assert torch.equal(b.flatten()[:4], torch.full((4,), wanted, device=DEVICE))


@pytest.mark.parametrize(
    ("types", "found"),
    [
        ("float* A", "declares 1 parameters of 8 bytes"),
        ("", "declares 0 parameters of no bytes"),
        ("float* A, float* B, float* C", "declares 3 parameters of 8, 8, 8 bytes"),
        ("float* A, float* B, long k", "declares 3 parameters of 8, 8, 8 bytes"),
        ("int A, float* B", "declares 2 parameters of 4, 8 bytes"),
        ("float* A, float* B, int k, float x, int n, int m, int o", "declares 7 parameters"),
    ],
)
def test_other_parameters_are_refused_before_the_launch(types, found):
    a, b = torch.zeros(4, device=DEVICE), torch.zeros(4, 5, device=DEVICE)
    with pytest.raises(
        ValueError,
        match=rf"`main` \(.*\): the text of kernel `taken` {found}.*wanted A \(a pointer\), "
        r"B \(a pointer\), k \(int32\), x \(float32\), n \(int32\), m \(int32\)",
    ):
        taking(types)(a, 7, b, 0.5)
