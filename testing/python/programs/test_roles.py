"""A product whose roles and pipeline are the program's own, by mbarriers: a warp group asks TMA for
the tiles of several steps ahead, and others multiply, each half of a tile's rows, with the product
of a step still under way while the next one begins."""

import torch

import tilelang
import tilelang.language as T


def roles_gemm(m, n, k, rows=128, columns=128, step=64, stages=3):
    """C = A B, A (m, k) and B (k, n)."""
    steps = -(-k // step)

    @T.prim_func
    def main(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((k, n), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(T.ceildiv(n, columns), T.ceildiv(m, rows), threads=384) as (bx, by):
            # Blocks that run beside each other share rows of A and columns of B in L2.
            T.use_swizzle(8)
            tx = T.get_thread_binding()
            a = T.alloc_shared((stages, rows, step), "float16")
            b = T.alloc_shared((stages, step, columns), "float16")
            c = T.alloc_shared((rows, columns), "float16")
            acc = [T.alloc_fragment((rows // 2, columns), "float32") for _ in range(2)]
            full, empty = T.alloc_barrier([1] * stages), T.alloc_barrier([256] * stages)
            with T.ws(0):
                T.dec_max_nreg(24)
                for t in T.serial(steps):
                    T.barrier_wait(empty[t % stages], (t // stages + 1) % 2)
                    T.tma_copy(
                        A[by * rows, t * step], a[t % stages, :, :], barrier=full[t % stages]
                    )
                    T.tma_copy(
                        B[t * step, bx * columns], b[t % stages, :, :], barrier=full[t % stages]
                    )
                    if tx == 0:
                        T.barrier_arrive(full[t % stages])
            for g in T.unroll(2, explicit=True):
                with T.ws(1 + g):
                    T.inc_max_nreg(240)
                    half = slice(g * rows // 2, (g + 1) * rows // 2)
                    T.clear(acc[g])
                    for t in T.serial(steps):
                        T.barrier_wait(full[t % stages], t // stages % 2)
                        T.wgmma_gemm(a[t % stages, half, :], b[t % stages, :, :], acc[g])
                        T.wait_wgmma(1)
                        if t > 0:
                            T.barrier_arrive(empty[(t - 1) % stages])
                    T.wait_wgmma(0)
                    T.copy(acc[g], c[half, :])
                    T.copy(c[half, :], C[by * rows + g * rows // 2, bx * columns])

    return main


def test_results(device):
    m, n, k = 200, 136, 456
    kernel = tilelang.compile(
        roles_gemm(m, n, k), execution_backend="auto", target="cuda -arch=sm_90a"
    )
    a, b = torch.randn(m, k).half().to(device), torch.randn(k, n).half().to(device)
    c = torch.full((m, n), torch.nan, dtype=torch.float16, device=device)
    kernel(a, b, c)
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=2e-3, atol=2e-2)
