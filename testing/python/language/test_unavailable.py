"""Names that are refused, and what is said."""

import inspect

import pytest

import tilelang.language as T
from tilelang.language import unavailable


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alloc_tcgen05_smem_desc", r"tcgen05\.mma, which needs sm_100.*use T\.gemm"),
        ("alloc_tcgen05_instr_desc", r"sm_100.*use T\.gemm"),
        ("alloc_tcgen05_instruction_desc", r"sm_100.*use T\.gemm"),
        ("initialize_tcgen05_descriptor", r"sm_100.*use T\.gemm"),
        ("ptx_tcgen05_mma_ss", r"sm_100.*use T\.gemm"),
        ("ptx_tcgen05_mma_ts", r"sm_100.*use T\.gemm"),
        ("ptx_tcgen05_mma_blockscaled_ss", r"sm_100 or sm_120.*scale the operands"),
        ("tcgen05_gemm", r"sm_100.*use T\.gemm"),
        ("tcgen05_mma", r"sm_100.*use T\.gemm"),
        ("tcgen05_gemm_sp", r"sm_100.*use T\.gemm"),
        ("tcgen05_gemm_blockscaled", r"sm_100 or sm_120.*scale the operands"),
        ("tcgen05_mma_blockscaled", r"sm_100 or sm_120.*scale the operands"),
        ("mma_gemm_blockscaled", r"sm_100 or sm_120.*scale the operands"),
        ("ptx_mma_block_scale", r"sm_100 or sm_120.*scale the operands"),
        ("make_blockscaled_gemm_layout", r"sm_100 or sm_120.*scale the operands"),
        ("tcgen05_mma_arrive", r"sm_100.*use T\.gemm"),
        ("tcgen05_before_thread_sync", r"sm_100.*use T\.gemm"),
        ("tcgen05_after_thread_sync", r"sm_100.*use T\.gemm"),
        ("alloc_tmem", r"tensor memory.*sm_100.*T\.alloc_fragment"),
        ("deallocate_tmem", r"tensor memory.*sm_100.*T\.alloc_fragment"),
        ("tcgen05_cp_warpx4", r"tensor memory.*sm_100.*T\.alloc_fragment"),
        ("tcgen05_sf_warp_transpose", r"tensor memory.*sm_100.*T\.alloc_fragment"),
        ("tma_gather4", r"four rows.*sm_100.*T\.tma_copy or T\.copy"),
        ("tma_scatter4", r"four rows.*sm_100.*T\.tma_copy or T\.copy"),
        ("tma_gather4_bytes", r"four rows.*sm_100.*T\.tma_copy or T\.copy"),
        ("tma_load_2sm", r"two blocks.*sm_100.*use T\.tma_load"),
        ("ptx_mma_sm70", r"mma\.m8n8k4.*sm_70.*wanted mma\.m16n8k16.*use T\.gemm"),
        ("clc_try_cancel", r"sm_100.*T\.PersistentTileScheduler"),
        ("clc_try_cancel_multicast", r"sm_100.*T\.PersistentTileScheduler"),
        ("clc_is_canceled", r"sm_100.*T\.PersistentTileScheduler"),
        ("clc_get_first_ctaid_x", r"sm_100.*T\.PersistentTileScheduler"),
        ("clc_get_first_ctaid_y", r"sm_100.*T\.PersistentTileScheduler"),
        ("clc_get_first_ctaid_z", r"sm_100.*T\.PersistentTileScheduler"),
        ("sync_global", r"between kernels.*T\.sync_grid"),
    ],
)
def test_it_says_what_is_missing_and_what_to_do(name, message):
    function = getattr(T, name)
    assert function.__name__ in inspect.getdoc(function)
    with pytest.raises(NotImplementedError, match=rf"T\.{function.__name__} is not.*{message}"):
        function()


def test_the_list_is_all_of_them():
    listed = test_it_says_what_is_missing_and_what_to_do.pytestmark[0].args[1]
    assert sorted(name for name, _ in listed) == unavailable.__all__


def test_kinds_of_descriptors_of_other_chips():
    for kind in ("tcgen05_smem", "tcgen05_instr"):
        with pytest.raises(NotImplementedError, match=r"sm_100.*use T\.gemm"):
            T.alloc_descriptor(kind)


def test_in_a_kernel_it_has_its_place(trace):
    with pytest.raises(NotImplementedError, match=r"T\.alloc_tmem is not[\s\S]*--> "):
        trace("C = T.alloc_tmem((128, 128), 'float32')")


def test_unpacked_floats_of_four_bits():
    for name in ("float4_e2m1_unpacked", "float4_e2m1_unpackedx2"):
        assert not hasattr(T, name)
        with pytest.raises(AttributeError, match=rf"T\.{name}: .*sm_100.*T\.float4_e2m1fn has two"):
            getattr(T, name)
        with pytest.raises(ValueError, match=rf"{name}: .*sm_100"):
            T.dtype(name)
    with pytest.raises(AttributeError, match="has no attribute 'flaot16'"):
        _ = T.flaot16
