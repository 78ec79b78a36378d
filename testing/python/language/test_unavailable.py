"""Names that are refused, and what is said."""

import pytest

import tilelang.language as T


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: T.alloc_descriptor("wgmma"), r"\(sm_90a\) by hand.*pass the tile to T\.gemm"),
        (lambda: T.alloc_wgmma_desc(), r"\(sm_90a\) by hand.*pass the tile to T\.gemm"),
        (lambda: T.alloc_descriptor("tcgen05_smem"), r"sm_100.*use T\.gemm"),
        (lambda: T.alloc_tcgen05_smem_desc(), r"sm_100.*use T\.gemm"),
        (lambda: T.alloc_tcgen05_instr_desc(), r"sm_100.*use T\.gemm"),
        (lambda: T.alloc_tcgen05_instruction_desc(), r"sm_100.*use T\.gemm"),
        (lambda: T.clc_try_cancel(0, 0), r"sm_100.*T\.PersistentTileScheduler"),
        (lambda: T.clc_try_cancel_multicast(0, 0), r"sm_100.*T\.PersistentTileScheduler"),
        (lambda: T.clc_is_canceled(0), r"sm_100.*T\.PersistentTileScheduler"),
        (lambda: T.clc_get_first_ctaid_x(0), r"_x is not.*sm_100"),
        (lambda: T.clc_get_first_ctaid_y(0), r"_y is not.*sm_100"),
        (lambda: T.clc_get_first_ctaid_z(0), r"_z is not.*sm_100"),
        (lambda: T.thread_return(), r"ends before the others.*into an `if`"),
    ],
)
def test_it_says_what_is_missing_and_what_to_do(call, message):
    with pytest.raises(NotImplementedError, match=message):
        call()


def test_a_descriptor_of_no_kind():
    with pytest.raises(
        ValueError, match=r"kind of T\.alloc_descriptor is 'mma', wanted one of wgmma"
    ):
        T.alloc_descriptor("mma")


def test_in_a_kernel_it_has_its_place(trace):
    with pytest.raises(NotImplementedError, match=r"T\.thread_return is not[\s\S]*--> "):
        trace("if tx > 3: T.thread_return()")


def test_unpacked_floats_of_four_bits():
    for name in ("float4_e2m1_unpacked", "float4_e2m1_unpackedx2"):
        assert not hasattr(T, name)
        with pytest.raises(AttributeError, match=rf"T\.{name}: .*sm_100.*T\.float4_e2m1fn has two"):
            getattr(T, name)
        with pytest.raises(ValueError, match=rf"{name}: .*sm_100"):
            T.dtype(name)
    with pytest.raises(AttributeError, match="has no attribute 'flaot16'"):
        _ = T.flaot16
