"""Warnings of buffers that are read before anything is written to them."""

import logging

import pytest

import tilelang.language as T


@pytest.fixture
def warned(tile_passes):
    """The warnings of a program, without the place."""

    def run(func, **kwargs):
        records = []
        handler = logging.Handler()
        handler.emit = records.append
        logger = logging.getLogger("tilelang")
        logger.addHandler(handler)
        try:
            tile_passes(func, "VerifyBufferInit", **kwargs)
        finally:
            logger.removeHandler(handler)
        assert all(r.levelno == logging.WARNING for r in records)
        messages = [r.getMessage().partition(": found a read of ") for r in records]
        assert all("test_verify_buffer_init.py:" in place for place, _, _ in messages)
        return [text.split()[0] for _, _, text in messages]

    return run


def gemm(clear, clear_accum=lambda k: False):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 32), "float16")
            W = T.alloc_shared((32, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            if clear:
                T.clear(F)
            for k in T.Pipelined(2, num_stages=2):
                T.copy(A[0, k * 32], S)
                T.copy(A[k * 32, 0], W)
                T.gemm(S, W, F, clear_accum=clear_accum(k))
            T.copy(F, C)

    return main


def test_an_accumulator_that_nobody_cleared(warned):
    assert warned(gemm(True)) == []
    assert warned(gemm(False)) == ["F"]
    assert warned(gemm(False, lambda k: k == 0)) == []
    assert warned(gemm(False), config={"tl.disable_buffer_init_check": True}) == []


def test_every_scope_once(warned):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            L = T.alloc_local((2,), "float32")
            v = T.alloc_var("float32", init=1.0)
            for i in T.Parallel(64):
                A[i] = S[i] + L[0] + S[63 - i] + v

    assert warned(main) == ["S", "L"]


def test_what_an_earlier_iteration_may_have_written(warned):
    def carried(guarded):
        @T.prim_func
        def main(A: T.Tensor((64,), "float32")):
            with T.Kernel(1, threads=64):
                S = T.alloc_shared((64,), "float32")
                for k in T.serial(4):
                    if guarded:
                        if A[k] > 0:
                            T.copy(S, A)
                    else:
                        T.copy(S, A)
                    T.copy(A, S)

        return main

    assert warned(carried(True)) == []
    assert warned(carried(False)) == ["S"]


def test_functions_may_write_what_they_get_the_address_of(warned):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            T.call_extern("void", "load", T.address_of(S[0]))
            T.copy(S, A)

    assert warned(main) == []


@pytest.mark.parametrize(("writers", "wanted"), [((0,), ["F"]), ((1,), []), ((0, 1), [])])
def test_registers_of_other_warp_groups(warned, writers, wanted):
    """What some threads write to their registers others do not have; shared memory all have."""

    @T.prim_func
    def main(C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((64,), "float32")
            F = T.alloc_fragment((64,), "float32")
            for group in writers:
                with T.ws(group):
                    T.clear(F)
                    T.clear(S)
            with T.ws(1):
                T.copy(F, C)
                T.copy(S, C)

    assert warned(main) == wanted


@pytest.mark.parametrize(("writer", "wanted"), [(1, []), (0, ["S"])])
def test_roles_run_at_the_same_time(warned, writer, wanted):
    """What another role writes may be there, wherever it stands; what the own one writes is not."""

    @T.prim_func
    def main(C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((64,), "float32")
            V = T.view(S, (64,))
            with T.ws(0):
                T.copy(S, C)
            with T.ws(writer):
                T.clear(V)

    assert warned(main) == wanted


@pytest.mark.parametrize(("is_written", "wanted"), [(True, []), (False, ["rows"])])
def test_the_place_of_a_copy_is_read(warned, is_written, wanted):
    """An element of a buffer says which rows a copy takes."""

    @T.prim_func
    def main(A: T.Tensor((256, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            rows = T.alloc_shared((1,), "int32")
            S = T.alloc_shared((64, 64), "float32")
            if is_written:
                rows[0] = 64
            T.copy(A[rows[0], 0], S)
            T.copy(S, C)

    assert warned(main) == wanted
