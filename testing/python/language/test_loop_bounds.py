"""Bounds of loops that read memory."""

import torch

import tilelang
import tilelang.language as T


def test_bounds_are_evaluated_once(device):
    """As those of Python's range: the body may change what they were made of."""

    @T.prim_func
    def main(n: T.Tensor((1,), "int32"), C: T.Tensor((5,), "int32")):
        with T.Kernel(1, threads=32):
            end = T.alloc_var("int32")
            runs = T.alloc_var("int32")
            end = n[0]
            runs = 0
            for _ in T.serial(end):
                end = end - 1
                runs = runs + 1
            C[0] = runs
            C[1] = end
            end = n[0]
            for i in range(0, end, 2):
                end = end + 2
                C[2] = i
            C[3] = end
            end = 3
            runs = 0
            for _, _ in T.grid(2, end):
                end = 5
                runs = runs + 1
            C[4] = runs

    kernel = tilelang.compile(main, execution_backend="auto")
    c = torch.zeros(5, dtype=torch.int32, device=device)
    kernel(torch.tensor([10], dtype=torch.int32, device=device), c)
    assert c.tolist() == [10, 0, 8, 20, 6]


def test_bounds_in_variables_are_those_of_a_pipeline_with_roles():
    """Whose two products overlap over iterations: slots are counted by the loop's variable."""

    @T.prim_func
    def main(
        Q: T.Tensor((128, 64), "float16"),
        K: T.Tensor((512, 64), "float16"),
        n: T.Tensor((2,), "int32"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            Q_shared = T.alloc_shared((128, 64), "float16")
            K_shared = T.alloc_shared((64, 64), "float16")
            S = T.alloc_fragment((128, 64), "float32")
            P = T.alloc_fragment((128, 64), "float16")
            acc = T.alloc_fragment((128, 64), "float32")
            begin = T.alloc_var("int32")
            end = T.alloc_var("int32")
            T.copy(Q, Q_shared)
            T.clear(acc)
            begin = n[0] // 64
            end = n[1] // 64
            for k in T.Pipelined(begin, end, num_stages=2):
                T.copy(K[k * 64, 0], K_shared)
                T.gemm(Q_shared, K_shared, S, transpose_B=True, clear_accum=True)
                T.copy(S, P)
                T.gemm(P, K_shared, acc)
            T.copy(acc, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    assert "tma_load" in kernel.get_kernel_source()
    q, k = torch.randint(-2, 3, (128, 64)).half(), torch.randint(-1, 2, (512, 64)).half()
    for begin, end in ((0, 512), (128, 200), (64, 64)):
        c = torch.full((128, 64), torch.nan)
        kernel(q, k, torch.tensor([begin, end], dtype=torch.int32), c)
        rows = k[begin // 64 * 64 : end // 64 * 64].double()
        assert torch.equal(c.double(), (q.double() @ rows.T) @ rows)
