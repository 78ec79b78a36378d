"""A tile that is filled in pieces, written out or in a loop, is pipelined as one that is not."""

import logging
import re

import pytest
import torch

import tilelang
import tilelang.language as T

HEADS, LENGTH, WIDTH, PAGE = 2, 256, 64, 16


def paged(form, num_stages=3, tile=64):
    """Products with keys in pages of a table."""
    pages = LENGTH // PAGE

    @T.prim_func
    def main(
        Q: T.Tensor((64, WIDTH), "float16"),
        K: T.Tensor((40, PAGE, WIDTH), "float16"),
        table: T.Tensor((HEADS, pages), "int32"),
        C: T.Tensor((HEADS, 64, LENGTH), "float32"),
    ):
        with T.Kernel(HEADS, threads=128) as h:
            q = T.alloc_shared((64, WIDTH), "float16")
            ks = T.alloc_shared((tile, WIDTH), "float16")
            acc = T.alloc_fragment((64, tile), "float32")
            T.copy(Q, q)
            for k in T.Pipelined(LENGTH // tile, num_stages=num_stages):
                if form == "serial":
                    for g in T.serial(4):
                        page = table[h, 4 * k + g]
                        T.copy(K[page, :, :], ks[16 * g : 16 * g + 16, :])
                elif form == "one":
                    for g in T.serial(tile // PAGE):
                        T.copy(K[table[h, k + g], :, :], ks[16 * g : 16 * g + 16, :])
                elif form == "unroll":
                    for g in T.unroll(4):
                        T.copy(K[table[h, 4 * k + g], :, :], ks[16 * g : 16 * g + 16, :])
                elif form == "parallel":
                    for g, i, j in T.Parallel(4, 16, WIDTH):
                        ks[16 * g + i, j] = K[table[h, 4 * k + g], i, j]
                elif form == "nested":
                    for g, e in T.grid(2, 2):
                        T.copy(
                            K[table[h, 4 * k + 2 * g + e], :, :],
                            ks[32 * g + 16 * e : 32 * g + 16 * e + 16, :],
                        )
                elif form == "overlapping":
                    for g in T.serial(3):
                        T.copy(K[table[h, 4 * k + g], :, :], ks[16 * g : 16 * g + 16, :])
                    T.copy(K[table[h, 4 * k + 2], :, :], ks[40:56, :])
                    T.copy(K[table[h, 4 * k + 3], :, :], ks[48:64, :])
                    T.copy(K[table[h, 4 * k + 2], :, :], ks[32:48, :])
                else:
                    T.copy(K[table[h, 4 * k], :, :], ks[0:16, :])
                    T.copy(K[table[h, 4 * k + 1], :, :], ks[16:32, :])
                    T.copy(K[table[h, 4 * k + 2], :, :], ks[32:48, :])
                    T.copy(K[table[h, 4 * k + 3], :, :], ks[48:64, :])
                T.gemm(q, ks, acc, transpose_B=True, clear_accum=True)
                T.copy(acc, C[h, :, k * tile : (k + 1) * tile])

    return main


def check(kernel, device):
    q = torch.randint(-3, 4, (64, WIDTH)).half().to(device)
    pages = torch.randint(-3, 4, (40, PAGE, WIDTH)).half().to(device)
    table = torch.randperm(40)[: HEADS * LENGTH // PAGE].reshape(HEADS, -1).int().to(device)
    c = torch.zeros(HEADS, 64, LENGTH, device=device)
    kernel(q, pages, table, c)
    keys = pages[table.long()].reshape(HEADS, LENGTH, WIDTH)
    assert torch.equal(c, torch.einsum("qd,hld->hql", q.float(), keys.float()))


@pytest.mark.parametrize("form", ["written out", "serial", "unroll", "nested", "parallel"])
def test_by_cp_async(device, form):
    kernel = tilelang.compile(paged(form), execution_backend="auto", target="cuda -arch=sm_80")
    assert "versions of buffers: ks 3" in str(kernel.explain())
    check(kernel, device)


@pytest.mark.parametrize("form", ["written out", "serial", "unroll", "nested"])
def test_by_tma(on_sm_90a, device, form):
    kernel = tilelang.compile(paged(form), execution_backend="auto", target="cuda -arch=sm_90a")
    text = str(kernel.explain())
    assert re.search("ks, [3-8] versions, 8192 bytes by TMA", text)
    assert text.count("producer, by TMA, channel 1") == 4
    check(kernel, device)


def test_a_loop_of_one_piece(on_sm_90a, device):
    """Its variable is a constant, so that the piece does not name it."""
    kernel = tilelang.compile(
        paged("one", tile=PAGE), execution_backend="auto", target="cuda -arch=sm_90a"
    )
    assert re.search("ks, [3-8] versions, 2048 bytes by TMA", str(kernel.explain()))
    check(kernel, device)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_pieces_that_overlap_have_one_version(device, arch):
    """Their order counts; on sm_80 nothing runs ahead, and the log says so."""
    if device == "cuda" and arch == "sm_90a" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the GPU is not sm_90a")
    kernel = tilelang.compile(
        paged("overlapping"), execution_backend="auto", target=f"cuda -arch={arch}"
    )
    assert "ks 3" not in str(kernel.explain())
    check(kernel, device)


@pytest.mark.parametrize(("form", "is_warned_of"), [("overlapping", True), ("serial", False)])
def test_stages_for_nothing_are_warned_of(tile_passes, form, is_warned_of):
    records = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = records.append
    logger = logging.getLogger("tilelang")
    logger.addHandler(handler)
    try:
        tile_passes(paged(form), "UnrollCopies", "PipelinePlanning")
    finally:
        logger.removeHandler(handler)
    messages = [r.getMessage() for r in records]
    assert len(messages) == int(is_warned_of)
    assert all("found num_stages=3, but no copy runs ahead" in text for text in messages)
    assert all("another statement writes ks" in text for text in messages)
