import pytest
import torch

from tilelang.engine.launch_plan import KernelLaunch, LaunchPlan, ScalarParam, TensorParam
from tilelang.engine.tensor_map import Im2col, TensorMap
from tilelang.runtime.adapter import cuda_adapter
from tilelang.runtime.adapter.cuda_module import check
from tilelang.runtime.adapter.tensor_maps import encode_for_driver
from tilelang.testing import requires_cuda

SOURCE = """
extern "C" __global__ void add(const float* A, float* C, int m, float s) {
  extern __shared__ float staged[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < m) { staged[threadIdx.x] = A[i]; C[i] = staged[threadIdx.x] + s; }
}
"""
M = ("var", "m")


def add(shared_bytes=512, block=(128, 1, 1), outputs=(1,), arch=None, **options):
    from tilelang.cuda.nvrtc import compile_cubin
    from tilelang.utils.target import cuda_arch

    params = (
        TensorParam("A", "float32", (M,)),
        TensorParam("C", "float32", (M,)),
        ScalarParam("s", "float32"),
    )
    args = (("param", "A"), ("param", "C"), ("value", M, "int32"), ("param", "s"))
    kernel = KernelLaunch("add", (("ceildiv", M, 128), 1, 1), block, shared_bytes, args, **options)
    plan = LaunchPlan("main", params, (kernel,), outputs, "add.py:3")
    return cuda_adapter(plan, compile_cubin(SOURCE, arch or cuda_arch(), ["add"]).cubin)


def test_what_the_driver_is_told_of_pixels(monkeypatch):
    from cuda.bindings import driver

    told = []

    def encode(*arguments):
        told.extend(arguments)
        return driver.CUresult.CUDA_SUCCESS, driver.CUtensorMap()

    monkeypatch.setattr(driver, "cuTensorMapEncodeIm2col", encode)
    described = TensorMap(
        "A",
        "float16",
        (64, 7, 9, 2),
        (64, 448, 4032),
        element_strides=(1, 2, 2, 1),
        swizzle=64,
        im2col=Im2col((-1, -2), (-3, -4), channels=32, pixels=100),
    )
    assert len(encode_for_driver(described, 1 << 20)) == 128
    numbers = [[int(n) for n in x] if isinstance(x, list) else int(x) for x in told]
    none, swizzle_64, promotion_128 = 0, 2, 2
    assert numbers == [
        *(6, 4, 1 << 20, [64, 7, 9, 2], [128, 896, 8064]),
        *([-1, -2], [-3, -4], 32, 100, [1, 2, 2, 1]),
        *(none, swizzle_64, promotion_128, none),
    ]


def test_a_driver_error_has_its_name_and_call(monkeypatch):
    from cuda.bindings import driver

    monkeypatch.setattr(driver, "cuGetErrorString", lambda status: (0, b"out of memory"))
    with pytest.raises(RuntimeError, match=r"cuX failed: CUDA_ERROR_OUT_OF_MEMORY \(out of mem"):
        check((driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY,), "cuX")
    assert check((driver.CUresult.CUDA_SUCCESS, 5), "cuX") == 5


@requires_cuda
@pytest.mark.parametrize("shared_bytes", [512, 90000, ("+", 90000, ("*", 0, M))])
def test_it_runs_on_every_device_whichever_is_current(shared_bytes):
    launcher = add(shared_bytes)
    for device in range(torch.cuda.device_count()):
        a = torch.randn(1000, device=f"cuda:{device}")
        assert torch.equal(launcher(a, 2.0), a + 2)
    assert torch.cuda.current_device() == 0


@requires_cuda
def test_it_runs_on_the_current_stream():
    launcher, stream = add(), torch.cuda.Stream()
    a = torch.randn(1 << 26, device="cuda")
    with torch.cuda.stream(stream):
        for _ in range(20):
            a = a * 1.0001
        c = launcher(a, 1.0)
    stream.synchronize()
    assert torch.equal(c, a + 1)


@requires_cuda
def test_a_cuda_graph_captures_it():
    launcher, graph = add(), torch.cuda.CUDAGraph()
    a = torch.zeros(1000, device="cuda")
    with torch.cuda.graph(graph):
        c = launcher(a, 1.0)
    a.fill_(1)
    graph.replay()
    assert c.tolist() == [2] * 1000


@requires_cuda
def test_a_tensor_on_another_device_is_refused():
    with pytest.raises(ValueError, match="`A`: device mismatch: expected cuda, got cpu"):
        add()(torch.zeros(4), 1.0)


@requires_cuda
def test_a_failed_launch_says_with_what():
    with pytest.raises(
        RuntimeError, match=r"add.py:3.*`add` with grid \(1, 1, 1\), block \(1024, 2"
    ):
        add(block=(1024, 2, 1))(torch.zeros(4, device="cuda"), 1.0)


@requires_cuda
def test_a_binary_for_another_gpu_is_refused():
    other = "sm_120a" if torch.cuda.get_device_capability()[0] != 12 else "sm_100a"
    with pytest.raises(RuntimeError, match=r"add.py:3.*CUDA_ERROR_NO_BINARY_FOR_GPU.*for this GPU"):
        add(arch=other)


CLUSTERS = """#include <tl/common.h>
#include <tl/grid.h>
extern "C" __global__ void ranks(int* out) {
  int* s = (int*)tl::static_shared<16>();
  s[0] = blockIdx.x;
  tl::cluster_sync();
  const int peer = tl::cluster_size() - 1 - tl::block_rank_in_cluster();
  out[blockIdx.x] = *tl::map_shared_rank(s, peer);
  tl::cluster_sync();
}
"""
TURNS = """#include <tl/common.h>
#include <tl/grid.h>
extern "C" __global__ void turns(int* out) {
  for (int i = 0; i < 50; ++i) {
    if (blockIdx.x == i % gridDim.x && threadIdx.x == 0) out[(i + 1) % 50] = out[i] + 1;
    tl::sync_grid();
  }
}
"""


def int_kernel(source, name, grid, cluster=(1, 1, 1), cooperative=False):
    from tilelang.cuda.nvrtc import compile_cubin
    from tilelang.utils.target import cuda_arch

    args = (("param", "C"),)
    kernel = KernelLaunch(name, (grid, 1, 1), (64, 1, 1), 0, args, cluster, cooperative)
    plan = LaunchPlan("main", (TensorParam("C", "int32", (50,)),), (kernel,), (), "add.py:3")
    return cuda_adapter(plan, compile_cubin(source, cuda_arch(), [name]).cubin)


@requires_cuda
@pytest.mark.parametrize("size", [2, 8, 16])
def test_clusters_reach_the_gpu(size):
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("no clusters before sm_90")
    out = torch.zeros(50, dtype=torch.int32, device="cuda")
    int_kernel(CLUSTERS, "ranks", 32, (size, 1, 1))(out)
    blocks = torch.arange(32, dtype=torch.int32)
    assert torch.equal(out[:32].cpu(), blocks // size * size + size - 1 - blocks % size)


@requires_cuda
def test_a_window_of_persisting_accesses_changes_no_result():
    launcher = add(l2_hit_ratio=("A", 0.5))
    a = torch.randn(1 << 20, device="cuda")
    for _ in range(3):
        assert torch.equal(launcher(a, 2.0), a + 2)


@requires_cuda
def test_a_cooperative_launch_reaches_the_gpu():
    out = torch.zeros(50, dtype=torch.int32, device="cuda")
    int_kernel(TURNS, "turns", 7, cooperative=True)(out)
    assert out.tolist() == [50, *range(1, 50)]
