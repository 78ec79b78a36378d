"""Copies between fragments and shared memory by ldmatrix and stmatrix: which, and that they are
right."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T


def integers(*shape, dtype=torch.float16):
    return torch.randint(-2, 3, shape).to(dtype)


def accumulate(m, n, threads, dtype):
    """C += A @ B with C in shared memory on the way in and out."""

    @T.prim_func
    def func(A: T.Tensor((m, 16), dtype), B: T.Tensor((16, n), dtype), C: T.Tensor((m, n), dtype)):
        with T.Kernel(1, threads=threads):
            As = T.alloc_shared((m, 16), dtype)
            Bs = T.alloc_shared((16, n), dtype)
            Cs = T.alloc_shared((m, n), dtype)
            F = T.alloc_fragment((m, n), dtype)
            T.copy(A, As)
            T.copy(B, Bs)
            T.copy(C, Cs)
            T.copy(Cs, F)
            T.gemm(As, Bs, F)
            T.copy(F, Cs)
            T.copy(Cs, C)

    return func


def emulated(func, arch="sm_90a"):
    return tilelang.compile(func, target=f"cuda -arch={arch}", execution_backend="emulate")


def copies(source, kind):
    """How many matrices each ldmatrix or stmatrix moves, but for the operands of gemm."""
    lines = [line for line in source.splitlines() if f"ptx_{kind}" in line and "_frag" not in line]
    return [re.search(rf"ptx_{kind}_(x\d(_trans)?)", line)[1] for line in lines]


@pytest.mark.parametrize(
    ("dtype", "instruction_k"), [("float8_e4m3fn", 32), ("int8", 32), ("tfloat32", 8)]
)
def test_a_first_operand_of_other_bits_moves_by_matrices(device, dtype, instruction_k):
    """Four bytes of a row are a lane's, whatever the elements are."""
    accum = "int32" if dtype == "int8" else "float32"
    shape = (64, 2 * instruction_k)

    @T.prim_func
    def func(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype), C: T.Tensor((64, 64), accum)):
        with T.Kernel(1, threads=128):
            As, Bs = [T.alloc_shared(shape, dtype) for _ in range(2)]
            rows = T.alloc_fragment(shape, dtype)
            out = T.alloc_fragment((64, 64), accum)
            T.copy(A, As)
            T.copy(B, Bs)
            T.copy(As, rows)
            T.gemm(rows, Bs, out, transpose_B=True, clear_accum=True)
            T.copy(out, C)

    kernel = tilelang.compile(func, target="cuda -arch=sm_90a", out_idx=-1)
    assert copies(kernel.get_kernel_source(), "ldmatrix") == ["x4"]
    kind = T.dtype(dtype).as_torch()
    a, b = (integers(*shape, dtype=torch.float32).to(kind).to(device) for _ in range(2))
    assert torch.equal(kernel(a, b).double(), a.double() @ b.double().T)


@pytest.mark.parametrize(
    ("m", "n", "threads", "widths"),
    [
        (64, 64, 128, ["x4"]),
        (16, 8, 32, ["x2"]),
        (16, 24, 32, ["x4", "x2"]),
        (32, 48, 64, ["x4"]),
    ],
)
def test_an_accumulator_moves_by_matrices(m, n, threads, widths):
    kernel = emulated(accumulate(m, n, threads, "float16"))
    source = kernel.get_kernel_source()
    assert copies(source, "ldmatrix") == widths
    assert copies(source, "stmatrix") == widths
    a, b, c = integers(m, 16), integers(16, n), integers(m, n)
    wanted = c.double() + a.double() @ b.double()
    kernel(a, b, c)
    assert torch.equal(c.double(), wanted)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_registers_of_another_type_are_converted_on_the_way(dtype):
    @T.prim_func
    def func(
        A: T.Tensor((64, 16), dtype), B: T.Tensor((16, 24), dtype), C: T.Tensor((64, 24), dtype)
    ):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 16), dtype)
            Bs = T.alloc_shared((16, 24), dtype)
            Cs = T.alloc_shared((64, 24), dtype)
            F = T.alloc_fragment((64, 24), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.copy(C, Cs)
            T.copy(Cs, F)
            T.gemm(As, Bs, F)
            T.copy(F, Cs)
            T.copy(Cs, C)

    kernel = emulated(func)
    source = kernel.get_kernel_source()
    assert copies(source, "ldmatrix") == ["x4", "x2"]
    assert copies(source, "stmatrix") == ["x4", "x2"]
    a, b, c = (integers(*s, dtype=getattr(torch, dtype)) for s in ((64, 16), (16, 24), (64, 24)))
    wanted = c.double() + a.double() @ b.double()
    kernel(a, b, c)
    assert torch.equal(c.double(), wanted)


def test_rows_of_matrices_need_no_barrier_between_each_other():
    source = emulated(accumulate(64, 64, 128, "float16")).get_kernel_source()
    stores = source.partition("wgmma_ss<")[2]
    # The warp that stores a row is the one that has loaded it; another one reads it at the end.
    assert stores.count("__syncthreads();") == 1
    assert "  __syncthreads();\n    tl::ptx_stmatrix" not in stores


def test_stmatrix_needs_sm_90():
    source = emulated(accumulate(64, 64, 128, "float16"), "sm_80").get_kernel_source()
    assert copies(source, "ldmatrix") == ["x4"]
    assert copies(source, "stmatrix") == []


def reordered(m, n, load, column):
    """An accumulator of 16 x 16 is read as `load` says and stored from column `column` on."""
    dtype = "float16"

    @T.prim_func
    def func(A: T.Tensor((16, 16), dtype), C: T.Tensor((m, n + 16), dtype)):
        with T.Kernel(1, threads=32):
            As = T.alloc_shared((16, 16), dtype)
            F = T.alloc_fragment((16, 16), dtype)
            G = T.alloc_fragment((m, n), dtype)
            Cs = T.alloc_shared((m, n + 16), dtype)
            T.copy(A, As)
            T.clear(F)
            T.gemm(As, As, F)
            for i, j in T.Parallel(m, n):
                G[i, j] = load(F, i, j)
            T.clear(Cs)
            T.copy(G, Cs[0:m, column : column + n])
            T.copy(Cs, C)

    return func


@pytest.mark.parametrize(
    ("m", "n", "load", "column", "widths"),
    [
        (16, 16, lambda f, i, j: f[i, j], 0, ["x4"]),
        (16, 16, lambda f, i, j: f[j, i], 8, ["x4_trans"]),
        (8, 8, lambda f, i, j: f[i, j], 16, ["x1"]),
        (8, 16, lambda f, i, j: f[j, i], 0, ["x2_trans"]),
        (16, 16, lambda f, i, j: f[i, j], 4, []),
        (16, 4, lambda f, i, j: f[i, j], 0, []),
    ],
)
def test_the_table_decides(m, n, load, column, widths):
    kernel = emulated(reordered(m, n, load, column))
    assert copies(kernel.get_kernel_source(), "stmatrix") == widths
    a, c = integers(16, 16), torch.zeros(m, n + 16, dtype=torch.float16)
    kernel(a, c)
    product = a.double() @ a.double()
    wanted = torch.zeros(m, n + 16, dtype=torch.float64)
    for i in range(m):
        for j in range(n):
            wanted[i, column + j] = load(product, i, j)
    assert torch.equal(c.double(), wanted)


def sliced(rows, columns, threads=128, policy=T.GemmWarpPolicy.FullRow):
    """C = A @ B, of which `rows` and `columns`, two slices, go through shared memory."""
    m, n = rows.stop - rows.start, columns.stop - columns.start

    @T.prim_func
    def func(
        A: T.Tensor((64, 16), "float16"),
        B: T.Tensor((16, 64), "float16"),
        C: T.Tensor((m, n), "float16"),
    ):
        with T.Kernel(1, threads=threads):
            As = T.alloc_shared((64, 16), "float16")
            Bs = T.alloc_shared((16, 64), "float16")
            Cs = T.alloc_shared((m, n), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.copy(B, Bs)
            T.clear(F)
            T.gemm(As, Bs, F, policy=policy)
            T.copy(F[rows.start : rows.stop, columns.start : columns.stop], Cs)
            T.copy(Cs, C)

    return func


@pytest.mark.parametrize(
    ("rows", "columns", "widths"),
    [
        (slice(0, 64), slice(0, 32), ["x4"]),
        (slice(0, 64), slice(24, 48), ["x4", "x2"]),
        # Rows of one warp alone, and matrices of which a part is wanted.
        (slice(16, 32), slice(0, 64), []),
        (slice(0, 64), slice(0, 28), []),
    ],
)
def test_a_part_of_a_fragment_moves_by_its_matrices(rows, columns, widths):
    kernel = emulated(sliced(rows, columns))
    assert copies(kernel.get_kernel_source(), "stmatrix") == widths
    a, b = integers(64, 16), integers(16, 64)
    c = torch.zeros(rows.stop - rows.start, columns.stop - columns.start, dtype=torch.float16)
    kernel(a, b, c)
    assert torch.equal(c.double(), (a.double() @ b.double())[rows, columns])


def test_rows_of_a_matrix_are_in_banks_of_their_own():
    """A tile that nobody else places, though elements of it are read one by one."""

    @T.prim_func
    def func(A: T.Tensor((64, 16), "float16"), C: T.Tensor((64, 64), "float16"), rows: T.int32):
        with T.Kernel(1, threads=128):
            As = T.alloc_shared((64, 16), "float16")
            Cs = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.copy(A, As)
            T.gemm(As, As, F, transpose_B=True, clear_accum=True)
            T.copy(F, Cs)
            for i, j in T.Parallel(64, 64):
                if i < rows:
                    C[i, j] = Cs[i, j]

    kernel = emulated(func)
    (store,) = [s for s in kernel.kernel_source.splitlines() if "ptx_stmatrix_x4" in s]
    assert "^ (tx % 8)) * 8" in store
    a, c = integers(64, 16), torch.zeros(64, 64).half()
    kernel(a, c, 50)
    assert torch.equal(c[:50], (a @ a.T)[:50])
    assert not c[50:].any()


@pytest.mark.parametrize(
    ("columns", "swizzle", "box"),
    [(64, 128, 64), (32, 64, 32), (96, 64, 32), (160, 64, 32), (112, 0, 112), (208, 0, 208)],
)
def test_rows_that_are_no_whole_lines_are_stored_in_one_box(columns, swizzle, box):
    """But where four of eight would lie in the same banks."""

    @T.prim_func
    def func(A: T.Tensor((64, 16), "float16"), C: T.Tensor((64, 256), "float16")):
        with T.Kernel(1, threads=128):
            As, Bs = T.alloc_shared((64, 16), "float16"), T.alloc_shared((16, columns), "float16")
            Cs = T.alloc_shared((64, columns), "float16")
            F = T.alloc_fragment((64, columns), "float32")
            T.copy(A, As)
            T.fill(Bs, 1)
            T.gemm(As, Bs, F, clear_accum=True)
            T.copy(F, Cs)
            T.copy(Cs, C[0:64, 0:columns])

    kernel = emulated(func)
    store = kernel.artifact.launch_plan.descriptors[-1]
    assert (store.swizzle, max(store.box)) == (swizzle, max(box, 64))
    a, c = integers(64, 16), integers(64, 256)
    kernel(a, c)
    wanted = a.double().sum(1, keepdim=True).expand(64, columns)
    assert torch.equal(c[:, :columns].double(), wanted)
