"""Software pipelines as they run: schedules written by hand, any number of iterations, refusals."""

import pytest
import torch

import tilelang
import tilelang.language as T

TARGET = {"kind": "cuda", "arch": "sm_90a"}
BLOCK = 16


def compiled(func, **kwargs):
    return tilelang.compile(func, target=TARGET, execution_backend="emulate", **kwargs)


def attention(length, num_stages, **schedule):
    """Online softmax over blocks of keys; statements 0 to 12 of the loop's body are numbered."""

    @T.prim_func
    def main(
        Q: T.Tensor((16, 16), "float16"),
        K: T.Tensor((length, 16), "float16"),
        V: T.Tensor((length, 16), "float16"),
        O: T.Tensor((16, 16), "float32"),
        L: T.Tensor((16,), "float32"),
    ):
        with T.Kernel(1, threads=32):
            Q_shared = T.alloc_shared((16, 16), "float16")
            K_shared = T.alloc_shared((BLOCK, 16), "float16")
            V_shared = T.alloc_shared((BLOCK, 16), "float16")
            S = T.alloc_fragment((16, BLOCK), "float32")
            P = T.alloc_fragment((16, BLOCK), "float16")
            acc = T.alloc_fragment((16, 16), "float32")
            largest = T.alloc_fragment((16,), "float32")
            before = T.alloc_fragment((16,), "float32")
            scale = T.alloc_fragment((16,), "float32")
            row = T.alloc_fragment((16,), "float32")
            total = T.alloc_fragment((16,), "float32")
            T.copy(Q, Q_shared)
            T.clear(acc)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(length, BLOCK), num_stages=num_stages, **schedule):
                T.copy(K[k * BLOCK, 0], K_shared)
                T.clear(S)
                T.gemm(Q_shared, K_shared, S, transpose_B=True)
                T.copy(largest, before)
                T.reduce_max(S, largest, dim=1, clear=False)
                for i in T.Parallel(16):
                    scale[i] = T.exp(before[i] - largest[i])
                for i, j in T.Parallel(16, BLOCK):
                    S[i, j] = T.exp(S[i, j] - largest[i])
                T.reduce_sum(S, row, dim=1)
                for i in T.Parallel(16):
                    total[i] = total[i] * scale[i] + row[i]
                T.copy(S, P)
                for i, j in T.Parallel(16, 16):
                    acc[i, j] *= scale[i]
                T.copy(V[k * BLOCK, 0], V_shared)
                T.gemm(P, V_shared, acc)
            T.copy(acc, O)
            T.copy(total, L)

    return main


# S of the next iteration is issued, then O of this one, then the next softmax.
OVERLAPPED = {
    "group": [[0], [1, 2], [3, 4, 5, 6, 7, 8, 9], [10], [11], [12]],
    "order": [-1, 0, 3, 1, -1, 2],
    "stage": [-1, 0, 0, 1, -1, 1],
}
# The same, statement by statement.
EACH_STATEMENT = {
    "order": [0, 2, 3, 6, 7, 8, 9, 10, 11, 12, 4, 1, 5],
    "stage": [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 1, 2],
}


def check_attention(kernel, length):
    q, k, v = (torch.randn(n, 16).half() for n in (16, length, length))
    out, total = torch.empty(16, 16), torch.empty(16)
    kernel(q, k, v, out, total)
    if length == 0:
        assert not out.any() and not total.any()
        return
    scores = q.double() @ k.double().T
    weights = (scores - scores.amax(1, keepdim=True)).exp()
    torch.testing.assert_close(total.double(), weights.sum(1), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(out.double(), weights @ v.double(), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    ("num_stages", "schedule"),
    [(2, OVERLAPPED), (1, OVERLAPPED), (3, OVERLAPPED), (2, EACH_STATEMENT)],
)
def test_attention_of_any_length(num_stages, schedule):
    kernel = compiled(attention(T.dynamic("length"), num_stages, **schedule))
    for iterations in (0, 1, 2, 3, 250):
        check_attention(kernel, BLOCK * iterations)


@pytest.mark.parametrize("iterations", [1, 2])
def test_attention_of_a_constant_length(iterations):
    kernel = compiled(attention(BLOCK * iterations, 2, **OVERLAPPED))
    check_attention(kernel, BLOCK * iterations)
