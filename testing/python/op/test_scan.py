"""T.cumsum and T.cummax against torch."""

import pytest
import torch

import tilelang
import tilelang.language as T

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def scan(op, m, n, dim, threads, reverse, dtype, alloc):
    @T.prim_func
    def main(A: T.Tensor((m, n), dtype), B: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=threads):
            tile = alloc((m, n), dtype)
            T.copy(A, tile)
            op(tile, dim=dim, reverse=reverse)
            T.copy(tile, B)

    return tilelang.compile(main, out_idx=-1)


def expected(op, x, dim, reverse):
    x = x.flip(dim) if reverse else x
    y = x.cumsum(dim) if op is T.cumsum else x.cummax(dim).values
    return y.flip(dim) if reverse else y


@pytest.mark.parametrize(
    ("op", "m", "n", "dim", "threads", "reverse"),
    [
        (T.cumsum, 1, 1000, 1, 128, False),
        (T.cumsum, 4, 100, 1, 48, True),
        (T.cummax, 5, 129, -1, 64, True),
        (T.cumsum, 100, 60, 0, 128, False),
        (T.cummax, 200, 3, 1, 96, True),
        (T.cumsum, 3, 17, 0, 17, True),
        (T.cumsum, 1, 1, 0, 32, False),
    ],
)
@pytest.mark.parametrize("alloc", [T.alloc_shared, T.alloc_fragment])
def test_in_place(op, m, n, dim, threads, reverse, alloc):
    x = torch.randn(m, n, device=DEVICE)
    found = scan(op, m, n, dim, threads, reverse, "float32", alloc)(x)
    wanted = expected(op, x.double(), dim, reverse)
    assert (found.double() - wanted).abs().max() <= 1e-6 * n**0.5 * wanted.abs().max()


@pytest.mark.parametrize("dtype", ["int32", "int8", "float64"])
def test_dtypes(dtype):
    x = torch.randint(-9, 9, (7, 40), device=DEVICE).to(getattr(torch, dtype))
    found = scan(T.cumsum, 7, 40, 1, 64, False, dtype, T.alloc_shared)(x)
    assert torch.equal(found, x.cumsum(1).to(x.dtype))


def test_to_a_second_tile():
    @T.prim_func
    def main(A: T.Tensor((2, 6, 40), "float16"), B: T.Tensor((3, 6, 40), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((2, 6, 40), "float16")
            fragment = T.alloc_fragment((6, 40), "float16")
            line = T.alloc_shared((1, 6, 40), "float32")
            shared = T.alloc_shared((6, 40), "float32")
            result = T.alloc_fragment((6, 40), "float32")
            T.copy(A, tile)
            T.cumsum(tile[1, 0:6, 0:40], line, dim=2)
            T.copy(line, B[0:1, 0:6, 0:40])
            T.copy(A[0, 0:6, 0:40], fragment)
            T.cummax(fragment, shared, dim=1)
            T.copy(shared, B[1, 0:6, 0:40])
            T.cumsum(fragment, result, dim=1, reverse=True)
            T.copy(result, B[2, 0:6, 0:40])

    x = torch.randint(-9, 9, (2, 6, 40), device=DEVICE).half()
    found = tilelang.compile(main, out_idx=-1)(x)
    wanted = [
        expected(T.cumsum, x[1].float(), 1, False),
        expected(T.cummax, x[0].float(), 1, False),
        expected(T.cumsum, x[0].float(), 1, True),
    ]
    assert torch.equal(found, torch.stack(wanted))


def test_a_scan_in_a_loop_is_ordered():
    @T.prim_func
    def main(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64,), "int32")
            T.copy(A, tile)
            for _ in T.serial(3):
                T.cumsum(tile)
            T.copy(tile, B)

    x = torch.randint(-9, 9, (64,), device=DEVICE, dtype=torch.int32)
    wanted = x.cumsum(0).cumsum(0).cumsum(0).int()
    assert torch.equal(tilelang.compile(main, out_idx=-1)(x), wanted)


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_part_at_places_of_a_table(dim):
    """Of fewer lines than threads: no barrier could stand among them."""

    @T.prim_func
    def main(
        A: T.Tensor((3, 16, 8), "int32"),
        at: T.Tensor((2,), "int32"),
        B: T.Tensor((3, 16, 8), "int32"),
    ):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((3, 16, 8), "int32")
            T.copy(A, tile)
            T.cumsum(tile[0:3, at[0] : at[0] + 8, at[1] : at[1] + 4], dim=dim)
            T.copy(tile, B)

    x = torch.randint(-9, 9, (3, 16, 8), dtype=torch.int32, device=DEVICE)
    wanted = x.clone()
    wanted[:, 5:13, 3:7] = x[:, 5:13, 3:7].cumsum(dim)
    kernel = tilelang.compile(main, out_idx=-1)
    assert torch.equal(kernel(x, torch.tensor([5, 3], dtype=torch.int32, device=DEVICE)), wanted)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("in_place", [False, True])
def test_in_a_pipeline(dim, in_place):
    """The source has versions, the result has none; in place both are one."""

    @T.prim_func
    def main(A: T.Tensor((8, 60), "int32"), B: T.Tensor((8, 60), "int32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((8, 20), "int32")
            result = T.alloc_fragment((8, 20), "int32")
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[0, k * 20], tile)
                if in_place:
                    T.cumsum(tile, dim=dim)
                    T.copy(tile, result)
                else:
                    T.cumsum(tile, result, dim=dim)
                T.copy(result, B[0, k * 20])

    x = torch.randint(-9, 9, (8, 60), dtype=torch.int32, device=DEVICE)
    found = tilelang.compile(main, out_idx=-1)(x)
    wanted = x.view(8, 3, 20).cumsum(0 if dim == 0 else 2).to(torch.int32).view(8, 60)
    assert torch.equal(found, wanted)


def test_lines_side_by_side_are_a_thread_each():
    # A warp that took a column would read elements that are all in one bank.
    source = scan(T.cumsum, 100, 60, 0, 128, False, "float32", T.alloc_shared).get_kernel_source()
    assert "warp_scan" not in source
    source = scan(T.cumsum, 100, 20, 0, 128, False, "float32", T.alloc_shared).get_kernel_source()
    assert "warp_scan" in source


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(("dim", "reverse"), [(0, True), (1, False)])
def test_a_part_begins_where_a_tensor_says(named, dim, reverse):
    """Threads that have a line of their own need no barrier, wherever the part begins. That is
    shown of tiles without a swizzle, such as TMA asks for: there the part is refused."""

    @T.prim_func
    def main(
        W: T.Tensor((2,), "int32"), A: T.Tensor((16, 24), "int32"), B: T.Tensor((16, 24), "int32")
    ):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((16, 24), "int32")
            T.copy(A, S)
            if named:
                row, column = W[0] % 15, W[1] % 22
                T.cumsum(S[row : row + 2, column : column + 3], dim=dim, reverse=reverse)
            else:
                T.cumsum(S[W[0] : W[0] + 2, W[1] : W[1] + 3], dim=dim, reverse=reverse)
            T.copy(S, B, disable_tma=True)

    a = torch.randint(-9, 9, (16, 24), dtype=torch.int32, device=DEVICE)
    b = torch.zeros_like(a)
    tilelang.compile(main)(torch.tensor([5, 20], dtype=torch.int32, device=DEVICE), a, b)
    part, wanted = a[5:7, 20:23], a.clone()
    flipped = part.flip(dim).cumsum(dim).flip(dim) if reverse else part.cumsum(dim)
    wanted[5:7, 20:23] = flipped.int()
    assert torch.equal(b, wanted)


@pytest.mark.parametrize("dim", [0, 1])
def test_from_one_part_of_a_tile_to_another(dim):
    @T.prim_func
    def main(
        A: T.Tensor((48, 40), "int32"), L: T.Tensor((1,), "int32"), B: T.Tensor((48, 40), "int32")
    ):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((48, 40), "int32")
            T.copy(A, tile)
            T.cumsum(tile[0:16, :], tile[16:32, :], dim=dim)
            for k in T.serial(2):
                T.cumsum(tile[L[0] + k * 8 : L[0] + k * 8 + 8, :], tile[k * 8 : k * 8 + 8, :], dim)
            T.copy(tile, B)

    x = torch.randint(-9, 9, (48, 40), dtype=torch.int32, device=DEVICE)
    found = torch.empty_like(x)
    tilelang.compile(main)(x, torch.tensor([32], dtype=torch.int32, device=DEVICE), found)
    wanted = x.clone()
    wanted[16:32] = x[:16].cumsum(dim)
    wanted[:16] = x[32:].view(2, 8, 40).cumsum(dim + 1).view(16, 40)
    assert torch.equal(found, wanted)


def test_a_lane_takes_as_many_elements_as_an_access_has():
    """An eighth of the warp's scans for eight elements of 16 bits, a quarter for float32."""
    for dtype, elements in (("float32", 4), ("float16", 8)):
        program = scan(T.cumsum, 2, 1024, 1, 64, False, dtype, T.alloc_shared)
        text = program.get_kernel_source()
        kind = "float" if dtype == "float32" else "half_t"
        assert f"for (int p = 0; p < {1024 // 32 // elements}; ++p)" in text
        assert f"tl::load<{kind}, {elements}>(tile" in text
        assert text.count("warp_scan") == 1
