"""Stores by TMA that the program awaits itself (T.tma_copy), beside roles."""

import torch

import tilelang
import tilelang.language as T
from tilelang.engine.explain_roles import roles_text


def stores_after_pipeline(loaded):
    """Sums of tiles that leave by a store by TMA that the program awaits itself; with `loaded` it
    stores the last tile that it has loaded, not a copy."""

    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), C: T.Tensor((3, 64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            out = T.alloc_shared((64, 64), "float16")
            total = T.alloc_fragment((64, 64), "float16")
            for tile in T.serial(3):
                T.clear(total)
                for k in T.Pipelined(4, num_stages=2):
                    T.copy(A[0, k * 64], S)
                    for i, j in T.Parallel(64, 64):
                        total[i, j] += S[i, j]
                if loaded:
                    T.copy(A[0, 0], S)
                T.tma_store_wait(0)
                T.sync_threads()
                T.copy(total, out)
                T.tma_copy(S if loaded else out, C[tile, 0, 0])
            T.tma_store_wait(0, False)

    return main


def test_a_store_by_tma_behind_a_pipeline_is_the_consumers(device):
    """It left the kernel without roles."""
    kernel = tilelang.compile(
        stores_after_pipeline(loaded=False), target={"kind": "cuda", "arch": "sm_90a"}
    )
    assert "warp specialised: threads 0 to 127 produce" in str(kernel.explain())
    source = kernel.get_kernel_source()
    stored = source.index("tl::tma_store<")
    assert source.rindex("if (tl::shuffle_elect<128>())", 0, stored)
    assert source.index("tl::tma_store_wait<0, true>()") < stored
    a = torch.randn(64, 256, device=device).half()
    c = torch.zeros(3, 64, 64, device=device).half()
    kernel(a, c)
    wanted = a.view(64, 4, 64).sum(dim=1).expand(3, 64, 64)
    torch.testing.assert_close(c, wanted, rtol=1e-2, atol=1e-2)


def test_a_loaded_tile_that_the_program_stores_by_tma_itself_leaves_no_roles(tile_passes):
    """The slot would be released before the store has read it."""
    passes = "HoistViews", "ProducerConsumerWarpSpecialized"
    mod = tile_passes(stores_after_pipeline(loaded=True), *passes, arch="sm_90a")
    (entry,) = mod["main"].attrs["tl.warp_roles"]
    (line,) = roles_text(entry)
    assert line.strip().startswith("not warp specialised: ")
    assert line.endswith("the program awaits the end of its store of S")
