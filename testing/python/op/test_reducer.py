"""Reducers, and scalars combined over a warp."""

import linecache
import textwrap

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(("m", "n", "threads"), [(8, 64, 128), (5, 33, 48), (1, 129, 17)])
def test_rows_of_a_product(m, n, threads):
    @T.prim_func
    def main(
        A: T.Tensor((m, n), "float32"),
        x: T.Tensor((n,), "float32"),
        y: T.Tensor((m,), "float32"),
        top: T.Tensor((1, 1), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            total = T.alloc_reducer(m, "float32")
            largest = T.alloc_reducer((1, 1), "float32", "max")
            row = T.alloc_fragment((m,), "float32")
            for k in T.serial(2):
                T.reducer_init(total, 2.0)
                T.reducer_init(largest)
                for i, j in T.Parallel(m, n):
                    T.reducer_update(total[i], A[i, j] * x[j])
                    if A[i, j] < 3 + k:
                        T.reducer_update(largest[0, 0], A[i, j])
                T.finalize_reducer(total, row)
                T.finalize_reducer(largest)
            T.copy(row, y)
            for i in T.Parallel(1):
                top[i, 0] = largest[0, 0]

    a, x = torch.randn(m, n, device=DEVICE), torch.randn(n, device=DEVICE)
    y, top = tilelang.compile(main, out_idx=[2, 3])(a, x)
    torch.testing.assert_close(y.double(), a.double() @ x.double() + 2, rtol=1e-5, atol=1e-5)
    assert float(top) == float(a[a < 4].max())


def test_bits_and_fragments_in_the_loop():
    @T.prim_func
    def main(A: T.Tensor((16, 64), "int32"), out: T.Tensor((3, 1), "int32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((16, 64), "int32")
            row = T.alloc_fragment((16,), "int32")
            any_bit = T.alloc_reducer((1,), "int32", "bitor")
            parity = T.alloc_reducer((1,), "int32", "bitxor")
            rows = T.alloc_reducer((1,), "int32", "sum")
            T.copy(A, tile)
            T.reduce_max(tile, row)
            for acc in (any_bit, parity, rows):
                T.reducer_init(acc)
            for i, j in T.Parallel(16, 64):
                T.reducer_update(any_bit[0], tile[i, j])
                T.reducer_update(parity[0], tile[i, j])
            for i in T.Parallel(16):  # each row's value is held by several threads
                T.reducer_update(rows[0], row[i])
            for k, acc in enumerate((any_bit, parity, rows)):
                T.finalize_reducer(acc, out[k, 0:1])

    x = torch.randint(-(2**20), 2**20, (16, 64), device=DEVICE, dtype=torch.int32)
    found = tilelang.compile(main, out_idx=-1)(x).flatten().tolist()
    bits, parity = 0, 0
    for value in x.flatten().tolist():
        bits, parity = bits | value, parity ^ value
    assert found == [bits, parity, int(x.amax(1).sum())]


def test_deprecated_form():
    with pytest.warns(DeprecationWarning, match="replication"):

        @T.prim_func
        def main(A: T.Tensor((4, 64), "float32"), y: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=64):
                total = T.alloc_reducer((4,), "float32", replication="all")
                T.clear(total)
                for i, j in T.Parallel(4, 64):
                    total[i] += A[i, j]
                T.finalize_reducer(total)
                T.copy(total, y)

    x = torch.randn(4, 64, device=DEVICE)
    found = tilelang.compile(main, out_idx=-1)(x)
    torch.testing.assert_close(found, x.sum(1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [-1, 0, 1, 2])
def test_it_ends_in_branches_of_the_body_that_it_begins_in(n):
    @T.prim_func
    def main(A: T.Tensor((3, 50), "int32"), out: T.Tensor((3,), "int32"), n: T.int32):
        with T.Kernel(1, threads=32):
            total = T.alloc_reducer((1,), "int32")
            for k in T.serial(3):
                if n >= 0:
                    T.reducer_init(total)
                    for i in T.Parallel(50):
                        T.reducer_update(total[0], A[k, i])
                    if n == 1:
                        T.finalize_reducer(total)
                        out[k] = total[0]
                    elif n == 2:
                        T.finalize_reducer(total)
                        out[k] = -total[0]

    a = torch.randint(-100, 100, (3, 50), device=DEVICE, dtype=torch.int32)
    out = torch.full((3,), 7, device=DEVICE, dtype=torch.int32)
    tilelang.compile(main)(a, out, n)
    sums = a.sum(1).tolist()
    assert out.tolist() == {1: sums, 2: [-s for s in sums]}.get(n, [7] * 3)


UPDATE = "for i in T.Parallel(8):\n    T.reducer_update(acc[0], A[i])\n"


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        (UPDATE, "an update that is not between"),
        ("T.reducer_init(acc)\nT.reducer_init(acc)", "a second initialisation"),
        ("T.reducer_init(acc)\nT.reducer_update(acc[0], A[0])", "outside of T.Parallel"),
        (f"T.reducer_init(acc)\n{UPDATE}", "without T.finalize_reducer"),
        ("T.finalize_reducer(acc)", "without an initialisation"),
        (
            "T.reducer_init(acc)\nfor k in T.serial(2):\n    T.finalize_reducer(acc)",
            "without an initialisation before it",
        ),
        (
            "if A[0] > 1:\n    T.reducer_init(acc)\nT.finalize_reducer(acc)",
            "reducer behind it",
        ),
        (
            "T.reducer_init(acc)\nif A[0] > 1:\n    T.finalize_reducer(acc)\nA[0] = acc[0]",
            "value read",
        ),
        (
            "T.reducer_init(acc)\nif A[0] > 1:\n    T.finalize_reducer(acc)\n"
            "T.finalize_reducer(acc)",
            "without an initialisation before it",
        ),
        (f"T.reducer_init(acc)\n{UPDATE}A[0] = acc[0]\nT.finalize_reducer(acc)", "value read"),
        (
            "T.reducer_init(acc)\nfor i in T.Parallel(8):\n    acc[0] = A[i]",
            "a store that does not combine",
        ),
        (
            "T.reducer_init(acc)\nfor i in T.Parallel(8):\n    acc[0] = T.max(acc[0], A[i])",
            "a store that does not combine",
        ),
        ("T.reducer_init(acc)\nT.copy(acc, A[0:1])\nT.finalize_reducer(acc)", "value read"),
    ],
)
def test_order(statements, told, tmp_path):
    text = (
        "@T.prim_func\ndef main(A: T.Tensor((8,), 'float32')):\n"
        "    with T.Kernel(1, threads=32):\n"
        "        acc = T.alloc_reducer((1,), 'float32')\n" + textwrap.indent(statements, " " * 8)
    )
    file = str(tmp_path / "kernel.py")
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names = {"T": T}
    exec(compile(text, file, "exec"), names)
    with pytest.raises(ValueError, match=rf"kernel\.py:\d+: \[Tilelang Semantic.*{told}"):
        tilelang.compile(names["main"])


def test_warp_reductions():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), x: T.Tensor((64,), "float64"), out: T.Tensor((6, 64))):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding()
            out[0, t] = T.warp_reduce_sum(x[t])
            out[1, t] = T.warp_reduce_max(x[t])
            out[2, t] = T.warp_reduce_min(A[t])
            bits = T.warp_reduce_bitand(A[t])
            out[3, t] = bits
            out[4, t] = T.warp_reduce_bitor(A[t])
            out[5, t] = T.warp_reduce_bitxor(A[t])

    a = torch.randint(0, 4, (64,), device=DEVICE, dtype=torch.int32) * 8 + 16
    x = torch.randn(64, device=DEVICE, dtype=torch.float64)
    found = tilelang.compile(main, out_idx=-1)(a, x)
    for warp in (slice(0, 32), slice(32, 64)):
        bits_and, bits_or, bits_xor = -1, 0, 0
        for v in a[warp].tolist():
            bits_and, bits_or, bits_xor = bits_and & v, bits_or | v, bits_xor ^ v
        wanted = [x[warp].sum(), x[warp].max(), a[warp].min(), bits_and, bits_or, bits_xor]
        torch.testing.assert_close(
            found[:, warp], torch.tensor(wanted, device=DEVICE)[:, None].float().expand(6, 32)
        )


def test_any_and_all():
    @T.prim_func
    def main(A: T.Tensor((8, 5), "int32"), out: T.Tensor((8, 3), "int32")):
        with T.Kernel(8, threads=32) as b:
            row = T.alloc_shared((1, 5), "int32")
            T.copy(A[b, 0], row)
            out[b, 0] = T.if_then_else(T.any_of(row), 1, 0)
            out[b, 1] = T.if_then_else(T.all_of(row[0, 1:5]), 1, 0)
            if T.any_of(A[b, 0] == 1, A[b, 1] == 1) and T.all_of(True, b < 7):
                T.fill(row, 9)  # all threads agree: there may be a barrier in here
                out[b, 2] = row[0, 4]
            else:
                out[b, 2] = 0

    x = torch.randint(0, 2, (8, 5), device=DEVICE, dtype=torch.int32)
    x[0], x[1], x[2, 1:] = 0, 1, 1
    found = tilelang.compile(main, out_idx=-1)(x).bool()
    last = (x[:, :2] == 1).any(1)
    last[7] = False
    assert torch.equal(found, torch.stack([x.any(1), x[:, 1:].all(1), last], dim=1))
