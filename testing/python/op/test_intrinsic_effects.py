"""Effects of intrinsics: what passes ask of a call, instead of knowing names."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang._ffi import get_function
from tilelang.cuda.nvrtc import compile_cubin

effects = get_function("op.IntrinsicEffects")


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("syncthreads_or", "meets", "block"),
        ("syncthreads_or", "orders", True),
        ("syncthreads_or", "result", "block"),
        ("cluster_arrive", "orders", False),
        ("cluster_arrive", "tells", "cluster"),
        ("sync_grid", "meets", "grid"),
        ("mbarrier_arrive", "tells", "block"),
        ("mbarrier_wait", "tells", "thread"),
        ("mbarrier_arrive_remote", "tells", "cluster"),
        ("mbarrier_arrive_remote_cta", "tells", "block"),
        ("atomic_add", "tells", "grid"),
        ("fetch_inc", "tells", "thread"),
        ("fetch_add", "result", "thread"),
        ("shfl_xor_sync", "meets", "lanes"),
        ("ptx_ldmatrix_x4_trans", "row_bytes", 16),
        ("ds_read_tr8", "row_bytes", 8),
        ("cp_async_gs", "queue", "cp.async"),
        ("warpgroup_wait", "step", "wait"),
        ("tma_store", "step", "issue"),
        ("tma_load", "schedules", True),
        ("load_read_only", "schedules", False),
    ],
)
def test_effects(name, column, value):
    assert effects(f"tl.{name}")[column] == value


def test_other_ops_have_none():
    assert effects("tirx.exp") is None


@pytest.mark.usefixtures("tensors_on_device")
def test_threads_take_a_loop_together_whose_condition_is_a_vote():
    """A barrier may stand in the loop, because all threads of the block have one result."""

    @T.prim_func
    def program(C: T.Tensor((128,), T.int32)):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            S = T.alloc_shared((128,), T.int32)
            left = T.alloc_var(T.int32, init=tx)
            steps = T.alloc_var(T.int32, init=0)
            while T.syncthreads_or(left > 0) != 0:
                S[tx] = left
                T.sync_threads()
                left = S[127 - tx] - 1
                steps += 1
                T.sync_threads()
            C[tx] = steps

    steps = torch.full((128,), -1, dtype=torch.int32)
    tilelang.compile(program, execution_backend="auto")(steps)
    assert steps.eq(127).all()


ROTATE = """
template <int by>
static __device__ int test_rotate(int value) {
  return tl::shfl_sync(0xffffffffu, value, (int(threadIdx.x) + by) % 32, 32);
}
"""


@pytest.mark.usefixtures("tensors_on_device")
@pytest.mark.parametrize("meets", ["lanes", "block"])
def test_an_intrinsic_is_a_row_and_a_function(meets):
    """What the row says decides: where the block meets, no thread may have left."""
    name = f"tl.test_rotate_{meets}"
    get_function("op.AddIntrinsic")(
        name, "test_rotate", "tl/warp.h", 1, [""], meets, "thread", "", ""
    )
    assert effects(name)["meets"] == meets

    @T.prim_func
    def rotate(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32"), n: T.int32):
        with T.Kernel(1, threads=64):
            T.import_source(ROTATE)
            thread = T.get_thread_binding()
            if thread >= n:
                T.thread_return()
            B[thread] = T.call_intrin("int32", name, 3, A[thread])

    if meets == "block":
        with pytest.raises(ValueError, match="after some of its threads may have left"):
            tilelang.compile(rotate, out_idx=1)
        return
    A = torch.arange(64, dtype=torch.int32)
    assert torch.equal(tilelang.compile(rotate, out_idx=1)(A, 32)[:32], A[:32].roll(-3))


# A body for the GPU's compiler, and one for the emulator.
EXCHANGE = """
#ifdef __CUDACC_RTC__
template <int lanes>
static __device__ int test_exchange(int value) {
  int found;
  asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;"
               : "=r"(found) : "r"(value), "n"(lanes));
  return found;
}
#else
template <int lanes>
static TL_DEVICE int test_exchange(int value) {
  return tl::shfl_xor_sync(0xffffffffu, value, lanes, 32);
}
#endif
"""


def test_an_intrinsic_is_one_row_and_two_functions():
    """Both compilers take the call that the row prints; the emulator runs it."""
    get_function("op.AddIntrinsic")(
        "tl.test_exchange", "test_exchange", "tl/warp.h", 1, [""], "lanes", "thread", "", ""
    )

    @T.prim_func
    def exchange(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            T.import_source(EXCHANGE)
            thread = T.get_thread_binding()
            B[thread] = T.call_intrin("int32", "tl.test_exchange", 4, A[thread])

    artifact = tilelang.lower(exchange, target="cuda -arch=sm_90a")
    assert "test_exchange<4>(A[" in artifact.kernel_source
    names = [kernel.name for kernel in artifact.launch_plan.kernels]
    assert compile_cubin(artifact.kernel_source, "sm_90a", names).resource_usage[names[0]].registers
    A = torch.arange(64, dtype=torch.int32)
    kernel = tilelang.compile(exchange, out_idx=1, execution_backend="emulate")
    assert torch.equal(kernel(A), A ^ 4)
