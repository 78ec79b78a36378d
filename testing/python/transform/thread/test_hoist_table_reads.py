"""A producer reads tables of pages before it waits for the slots of tiles, and once."""

import pytest

import tilelang
import tilelang.language as T

SM90 = {"kind": "cuda", "arch": "sm_90a"}


def producer(program):
    """The body of the producer's loop, as CUDA."""
    source = tilelang.compile(program, target=SM90).get_kernel_source()
    return source.partition("reg_dealloc")[2].partition("for (int t")[2].partition("1 <= warp_")[0]


def paged(named=False, by_step=True):
    """Two tiles of a page in each step, multiplied."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "float16"),
        K: T.Tensor((32, 64, 128), "float16"),
        Table: T.Tensor((8,), "int32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            q = [T.alloc_shared((64, 64), "float16") for _ in range(2)]
            k = [T.alloc_shared((64, 64), "float16") for _ in range(2)]
            out = T.alloc_fragment((64, 64), "float32")
            for half in [0, 1]:
                T.copy(Q, q[half])
            T.clear(out)
            for t in T.Pipelined(8, num_stages=2):
                for half in [0, 1]:
                    columns = slice(half * 64, half * 64 + 64)
                    if named:
                        page = Table[t]
                        T.copy(K[page, :, columns], k[half])
                    else:
                        T.copy(K[Table[t if by_step else half], :, columns], k[half])
                    T.gemm(q[half], k[half], out, transpose_B=True)
            T.copy(out, C)

    return main


@pytest.mark.parametrize("named", [False, True])
def test_a_number_is_read_once_and_before_the_waits(named):
    loop = producer(paged(named))
    assert loop.count("Table[") == 1
    assert loop.index("Table[") < loop.index("mbarrier_wait") < loop.index("tma_load")
    assert loop.count("number") == 3, "its name is bound, and both loads have it"


def test_different_numbers_have_names_of_their_own():
    loop = producer(paged(by_step=False))
    assert loop.count("Table[") == 2
    assert loop.rindex("Table[") < loop.index("mbarrier_wait")
    assert "number_1" in loop


def test_a_tensor_of_integers_is_loaded_by_its_address():
    """Its elements are no coordinates."""

    @T.prim_func
    def main(
        Q: T.Tensor((64, 64), "int8"),
        K: T.Tensor((512, 64), "int8"),
        C: T.Tensor((64, 64), "int32"),
    ):
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((64, 64), "int8")
            k = T.alloc_shared((64, 64), "int8")
            out = T.alloc_fragment((64, 64), "int32")
            T.copy(Q, q)
            T.clear(out)
            for t in T.Pipelined(8, num_stages=2):
                T.copy(K[t * 64, 0], k)
                T.gemm(q, k, out, transpose_B=True)
            T.copy(out, C)

    loop = producer(main)
    assert "tma_load" in loop
    assert "number" not in loop
