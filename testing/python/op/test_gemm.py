"""T.gemm against float64 and exact integers: types, memories of the operands, sizes, threads."""

import itertools

import pytest
import torch
import tvm
import tvm_ffi
from tvm import s_tir

import tilelang
import tilelang.language as T
import tilelang.layout
from tilelang.utils.target import cuda_arch, determine_target

# Relative error of the result: sums in float32, or in the accumulator's type.
ERROR = {"float16": 2e-3, "bfloat16": 8e-3, "float32": 3e-6, "float64": 1e-14, "int32": 0.0}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def gemm(tile, dtype, accum, form, threads=128, other=None, **options):
    """A kernel of one gemm. `form` has a letter for each of A and B: s(hared) or f(ragment), in
    upper case where the operand is stored transposed. B has the type `other`, or A's.
    """
    m, n, k = tile
    other = other or dtype
    trans_a, trans_b = (letter.isupper() for letter in form)
    shape_a, shape_b = (k, m) if trans_a else (m, k), (n, k) if trans_b else (k, n)

    @T.prim_func
    def main(A: T.Tensor(shape_a, dtype), B: T.Tensor(shape_b, other), C: T.Tensor((m, n), accum)):
        with T.Kernel(1, threads=threads):
            a_s = T.alloc_shared(shape_a, dtype)
            b_s = T.alloc_shared(shape_b, other)
            a_f = T.alloc_fragment(shape_a, dtype)
            b_f = T.alloc_fragment(shape_b, other)
            c_f = T.alloc_fragment((m, n), accum)
            T.copy(A, a_s)
            T.copy(B, b_s)
            if form[0] in "fF":
                T.copy(a_s, a_f)
            if form[1] in "fF":
                T.copy(b_s, b_f)
            T.fill(c_f, 1)
            a, b = (a_f if form[0] in "fF" else a_s), (b_f if form[1] in "fF" else b_s)
            T.gemm(a, b, c_f, trans_a, trans_b, **options)
            T.copy(c_f, C)

    return main


def data(dtype, *shape):
    torch_dtype = T.dtype(dtype).as_torch()
    if torch_dtype.is_floating_point:
        return torch.randn(*shape, dtype=torch.float64).to(torch_dtype)
    low = 0 if dtype.startswith("u") else -128
    return torch.randint(low, 128, shape).to(torch_dtype)


def build(func, arch=None):
    """The kernel, and where its tensors are: an architecture that is asked for is emulated."""
    if arch is None:
        return tilelang.compile(func, out_idx=-1, execution_backend="auto"), DEVICE
    target = f"cuda -arch={arch}"
    return tilelang.compile(func, out_idx=-1, target=target, execution_backend="emulate"), "cpu"


def check(tile, dtype, accum, form="ss", threads=128, arch=None, error=None, **options):
    """Runs the kernel of `gemm`, compares, and returns its source."""
    m, n, k = tile
    kernel, device = build(gemm(tile, dtype, accum, form, threads, **options), arch)
    a = data(dtype, *((k, m) if form[0].isupper() else (m, k)))
    b = data(options.get("other") or dtype, *((n, k) if form[1].isupper() else (k, n)))
    x = a.double().T if form[0].isupper() else a.double()
    y = b.double().T if form[1].isupper() else b.double()
    wanted = x @ y + (0 if options.get("clear_accum") else 1)
    found = kernel(a.to(device), b.to(device)).cpu().double()
    limit = (ERROR[accum] if error is None else error) * float(wanted.norm())
    assert float((found - wanted).norm()) <= limit
    return kernel.get_kernel_source()


def notes(func, arch="sm_80"):
    """What lowering says about the gemms of a function, without their lines."""
    target = determine_target(f"cuda -arch={arch}", return_object=True)
    mod = tilelang.engine.phase.LowerAndLegalize(tvm.IRModule({"main": func}), target)
    return [str(note).partition("T.gemm ")[2] for note in mod["main"].attrs["tl.notes"]]


@pytest.mark.parametrize("form", ["ss", "Ss", "sS", "SS", "fs", "Fs", "fS", "sf", "SF", "ff"])
def test_memories_and_transposes(form):
    source = check((64, 32, 48), "float16", "float32", form)
    wgmma = cuda_arch() == "sm_90a" and form[1] in "sS"
    assert ("tl::wgmma" in source) is wgmma
    assert ("mma_sync<16, 8, 16, half_t, half_t, float>" in source) is not wgmma
    # What a fragment holds is not moved again.
    assert "f_shared" not in source


@pytest.mark.parametrize("form", ["ss", "Ss", "sS", "fF"])
@pytest.mark.parametrize(
    ("dtype", "accum", "tile", "mma"),
    [
        ("bfloat16", "float32", (32, 48, 16), "16, 8, 16, bfloat16_t, bfloat16_t, float"),
        ("float16", "float16", (32, 64, 24), "16, 8, 8, half_t, half_t, half_t"),
        ("float64", "float64", (24, 32, 20), "8, 8, 4, double, double, double"),
        ("int8", "int32", (32, 32, 64), "16, 8, 32, int8_t, int8_t, int"),
        ("uint8", "int32", (24, 64, 48), "8, 8, 16, uint8_t, uint8_t, int"),
    ],
)
def test_types(dtype, accum, tile, mma, form):
    assert f"mma_sync<{mma}>" in check(tile, dtype, accum, form, threads=64)


@pytest.mark.parametrize("form", ["ss", "SS", "fS"])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8(dtype, form):
    """Tensor cores have 8-bit floats from sm_89 on; sums of e5m2 span more than float32 holds."""
    for arch, uses_mma in (("sm_89", True), ("sm_80", False)):
        source = check((32, 32, 64), dtype, "float32", form, 64, arch, error=1e-5)
        assert ("mma_sync" in source) is uses_mma


@pytest.mark.parametrize(
    ("arch", "tile", "call"),
    [
        ("sm_90a", (64, 32, 64), "wgmma_ss<64, 32, 32, {}, {}, float"),
        ("sm_89", (32, 24, 64), "mma_sync<16, 8, 32, {}, {}, float>"),
        ("sm_80", (32, 24, 64), "float("),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_two_types_of_float8(arch, tile, call, swapped):
    """PTX ISA, mma and wgmma: one operand may be e4m3, the other one e5m2."""
    types = ("float8_e5m2", "float8_e4m3fn") if swapped else ("float8_e4m3fn", "float8_e5m2")
    source = check(tile, types[0], "float32", "sS", 128, arch, error=1e-5, other=types[1])
    names = {"float8_e4m3fn": "fp8_e4_t", "float8_e5m2": "fp8_e5_t"}
    assert call.format(*(names[t] for t in types)) in source


def test_tf32_is_asked_for():
    tile = (32, 32, 28)
    assert "mma_sync" not in check(tile, "float32", "float32", "ss")
    source = check(tile, "float32", "float32", "sS", annotations={"allow_tf32": True}, error=1e-3)
    assert "mma_sync<16, 8, 8, tfloat32_t" in source
    assert "mma_sync<16, 8, 4, tfloat32_t" in source


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_turing(dtype):
    accum = "int32" if dtype == "int8" else "float32"
    source = check((32, 32, 32), dtype, accum, "sS", arch="sm_75")
    assert ("mma_sync<8, 8, 16" if dtype == "int8" else "mma_sync<16, 8, 8") in source
    assert "cp_async" not in source


@pytest.mark.parametrize("threads", [32, 64, 96, 100, 256])
def test_threads(threads):
    """Warps that the tile has no work for wait; what is not a whole warp does, too."""
    source = check((48, 32, 16), "float16", "float32", "sS", threads)
    assert ("if (tx < " in source) is (threads in (100, 256))


@pytest.mark.parametrize(
    ("tile", "dtype", "accum", "form", "threads"),
    [
        ((17, 3, 5), "float16", "float32", "ss", 32),
        ((1, 1, 1), "float32", "float32", "SS", 128),
        ((60, 100, 33), "float32", "float32", "Ss", 96),
        ((129, 17, 3), "float64", "float64", "sS", 100),
        ((16, 8, 64), "float16", "float16", "ff", 16),
        ((31, 33, 24), "bfloat16", "bfloat16", "fs", 128),
        ((33, 60, 17), "int16", "int32", "sF", 256),
        ((7, 129, 40), "int8", "int32", "FS", 64),
        ((20, 20, 20), "float16", "float64", "ss", 64),
        ((20, 20, 20), "uint8", "float32", "ss", 64),
    ],
)
def test_what_no_instruction_does(tile, dtype, accum, form, threads):
    assert "mma_sync" not in check(tile, dtype, accum, form, threads)


@pytest.mark.parametrize(
    ("k", "form", "steps"),
    [(20, "ss", [16]), (60, "SS", [16, 8]), (60, "fs", [16, 8]), (27, "sF", [16, 8])],
)
def test_rest_of_k(k, form, steps):
    source = check((64, 32, k), "float16", "float32", form)
    assert [s for s in (16, 8) if f"mma_sync<16, 8, {s}, " in source] == steps
    assert "for (int k = " in source


@pytest.mark.parametrize(
    ("policy", "warps"),
    [
        (T.GemmWarpPolicy.Square, "2x2"),
        (T.GemmWarpPolicy.FullRow, "4x1"),
        (T.GemmWarpPolicy.FullCol, "1x4"),
    ],
)
def test_policies(policy, warps):
    """The block's threads may have two dimensions."""
    told = notes(gemm((64, 64, 16), "float16", "float32", "fF", (32, 4), policy=policy))
    assert told[0].endswith(f"{warps} warps")
    check((64, 64, 16), "float16", "float32", "fF", (32, 4), policy=policy)


@pytest.mark.parametrize("clear", [False, True])
@pytest.mark.parametrize("tile", [(32, 32, 36), (9, 9, 9)])
def test_clear_accum(tile, clear):
    check(tile, "float16", "float16", clear_accum=clear)


@pytest.mark.parametrize(("block_k", "threads"), [(32, 160), (20, 128), (7, 96)])
def test_in_a_pipeline(block_k, threads):
    m, n, k = 48, 33 if block_k == 7 else 64, 100

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n))):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((m, block_k), "float16")
            b = T.alloc_shared((block_k, n), "float16")
            c = T.alloc_fragment((m, n), "float32")
            for ko in T.Pipelined(T.ceildiv(k, block_k), num_stages=3):
                T.copy(A[0, ko * block_k], a)
                T.copy(B[ko * block_k, 0], b)
                T.gemm(a, b, c, clear_accum=ko == 0)
            T.copy(c, C)

    x, y = data("float16", m, k), data("float16", k, n)
    wanted = x.double() @ y.double()
    kernel, device = build(main)
    found = kernel(x.to(device), y.to(device)).cpu().double()
    assert float((found - wanted).norm()) <= 3e-6 * float(wanted.norm())


def attention(m, n, d, policy, scores="float32", dtype="float16"):
    """Both products of attention, the first one's sums being the second one's A."""

    @T.prim_func
    def main(
        Q: T.Tensor((m, d), dtype), K: T.Tensor((n, d), dtype), V: T.Tensor((n, d), dtype),
        Out: T.Tensor((m, d)),
    ):  # fmt: skip
        with T.Kernel(1, threads=128):
            q = T.alloc_shared((m, d), dtype)
            k = T.alloc_shared((n, d), dtype)
            v = T.alloc_shared((n, d), dtype)
            s = T.alloc_fragment((m, n), scores)
            p = T.alloc_fragment((m, n), dtype)
            o = T.alloc_fragment((m, d), "float32")
            T.copy(Q, q)
            T.copy(K, k)
            T.copy(V, v)
            T.gemm(q, k, s, transpose_B=True, policy=policy, clear_accum=True)
            if scores != dtype:
                for i, j in T.Parallel(m, n):
                    p[i, j] = s[i, j] * 0.125
            T.gemm(s if scores == dtype else p, v, o, policy=policy, clear_accum=True)
            T.copy(o, Out)

    return main


@pytest.mark.parametrize(
    ("tile", "policy", "scores", "dtype", "stays"),
    [
        ((64, 64, 64), T.GemmWarpPolicy.FullRow, "float32", "float16", True),
        ((128, 32, 32), T.GemmWarpPolicy.FullRow, "float32", "bfloat16", True),
        ((128, 64, 32), T.GemmWarpPolicy.FullRow, "float16", "float16", True),
        ((64, 64, 64), T.GemmWarpPolicy.Square, "float32", "float16", False),
        ((64, 64, 32), T.GemmWarpPolicy.FullRow, "float32", "float8_e4m3", False),
        ((17, 33, 20), T.GemmWarpPolicy.FullRow, "float32", "float16", False),
    ],
)
def test_sums_as_an_operand(tile, policy, scores, dtype, stays):
    """They stay in registers where the threads that hold them are those that want them: with
    wgmma, which has one arrangement of warps, for every policy.
    """
    m, n, d = tile
    arch = "sm_89" if "float8" in dtype and DEVICE == "cpu" else None
    arch = "sm_80" if policy == T.GemmWarpPolicy.Square else arch
    kernel, device = build(attention(m, n, d, policy, scores, dtype), arch)
    q, k, v = data(dtype, m, d), data(dtype, n, d), data(dtype, n, d)
    found = kernel(q.to(device), k.to(device), v.to(device)).cpu().double()
    s = q.double() @ k.double().T
    p = (s if scores == dtype else s.float() * 0.125).to(q.dtype).double()
    wanted = p @ v.double()
    error = 2e-2 if "float8" in dtype else 2e-3
    assert float((found - wanted).norm()) <= error * float(wanted.norm())
    assert ("p_shared" not in kernel.get_kernel_source()) is stays


@pytest.mark.parametrize("offset", [16, 5])
@pytest.mark.parametrize("scope", ["shared.dyn", "local.fragment"])
def test_regions(scope, offset):
    """Parts of K: by number of the version, by a constant and by a loop; C with a leading 1."""

    @T.prim_func
    def main(
        A: T.Tensor((32, 64), "float16"), B: T.Tensor((64, 32), "float16"), C: T.Tensor((32, 32))
    ):
        with T.Kernel(1, threads=64):
            a_s = T.alloc_shared((2, 32, 64), "float16")
            a_f = T.alloc_fragment((32, 64), "float16")
            b = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((1, 32, 32), "float32")
            T.copy(A, a_s[1, :, :])
            T.copy(a_s[1, :, :], a_f)
            T.copy(B, b)
            T.clear(c)
            for k in T.serial(3):
                if scope == "shared.dyn":
                    T.gemm(a_s[1, :, k * 16 : k * 16 + 16], b[k * 16 : k * 16 + 16, :], c[0, :, :])
                else:
                    T.gemm(a_f[:, k * 16 : k * 16 + 16], b[k * 16 : k * 16 + 16, :], c[0, :, :])
            if scope == "shared.dyn":
                T.gemm(a_s[1, :, offset : offset + 16], b[offset : offset + 16, :], c[0, :, :])
            else:
                T.gemm(a_f[:, offset : offset + 16], b[offset : offset + 16, :], c[0, :, :])
            for i, j in T.Parallel(32, 32):
                C[i, j] = c[0, i, j]

    x, y = data("float16", 32, 64), data("float16", 64, 32)
    part = slice(offset, offset + 16)
    wanted = x[:, :48].double() @ y[:48].double() + x[:, part].double() @ y[part].double()
    kernel, device = build(main)
    found = kernel(x.to(device), y.to(device)).cpu().double()
    assert float((found - wanted).norm()) <= 3e-6 * float(wanted.norm())


def test_two_instructions_on_one_accumulator():
    """The one that no tensor core does follows the layout of the other."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 19), "float16"), B: T.Tensor((19, 32), "float16"), C: T.Tensor((64, 32))
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 19), "float16")
            b = T.alloc_shared((19, 32), "float16")
            c = T.alloc_fragment((64, 32), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a[:, 0:3], b[0:3, :], c, clear_accum=True)
            T.gemm(a[:, 3:19], b[3:19, :], c)
            T.copy(c, C)

    x, y = data("float16", 64, 19), data("float16", 19, 32)
    wanted = x.double() @ y.double()
    kernel, device = build(main)
    found = kernel(x.to(device), y.to(device)).cpu().double()
    assert float((found - wanted).norm()) <= 3e-6 * float(wanted.norm())


@pytest.mark.parametrize(
    ("tile", "dtype", "accum", "threads", "told"),
    [
        (
            (64, 64, 64), "float16", "float32", 128,
            "64x64x64: 4 x mma.m16n8k16 (float16 x float16 -> float32) along K, 2x2 warps",
        ),
        (
            (64, 64, 60), "float16", "float32", 128,
            "64x64x60: 3 x mma.m16n8k16 (float16 x float16 -> float32) along K, 1 x mma.m16n8k8 "
            "(float16 x float16 -> float32) along K, 2x2 warps, multiply-add from K=56 on "
            "(mma.m16n8k16 (float16 x float16 -> float32): K must be at least 16, found 4; "
            "mma.m16n8k8 (float16 x float16 -> float32): K must be at least 8, found 4)",
        ),
        (
            (24, 64, 8), "bfloat16", "float32", 16,
            "24x64x8: multiply-add from K=0 on (mma.m16n8k16 (bfloat16 x bfloat16 -> float32): "
            "needs a warp of 32 threads, found 16; mma.m16n8k8 (bfloat16 x bfloat16 -> float32): "
            "needs a warp of 32 threads, found 16)",
        ),
        (
            (64, 64, 64), "int16", "int32", 128,
            "64x64x64: multiply-add from K=0 on (no instruction for int16 x int16 -> int32)",
        ),
        (
            (64, 64, 32), "float8_e5m2", "float32", 128,
            "64x64x32: multiply-add from K=0 on (mma.m16n8k32 (float8_e5m2 x float8_e5m2 -> "
            "float32): needs sm_89, found sm_80)",
        ),
    ],
)  # fmt: skip
def test_the_choice_is_told(tile, dtype, accum, threads, told):
    assert notes(gemm(tile, dtype, accum, "ss", threads)) == [told]


@pytest.mark.parametrize(
    ("dtype", "accum", "rows", "pack", "depth"),
    [
        ("float16", "float32", 16, 2, 16),
        ("int8", "int32", 16, 4, 32),
        ("float64", "float64", 8, 1, 4),
    ],
)
def test_operands_in_registers(dtype, accum, rows, pack, depth):
    """PTX ISA, Matrix Fragments for mma; four warps as two rows of two."""
    m, n, k = 64, 64, 64
    target = determine_target("cuda -arch=sm_80", return_object=True)
    mod = tvm.IRModule({"main": gemm((m, n, k), dtype, accum, "fF")})
    for name in ("BindTarget", "MaterializeKernelLaunch", "SelectInstructions", "LayoutInference"):
        step = getattr(tilelang.transform, name)
        mod = (step(target) if name == "BindTarget" else step())(mod)
    placed = {}

    def block(node):
        placed.update({b.name: f for b, f in dict(node.annotations.get("layout_map", {})).items()})

    tvm_ffi.structural_walk(mod["main"], [(s_tir.SBlock, block)])
    for name, unit, is_a in (("a_f", rows, True), ("b_f", 8, False)):
        threads, registers = placed[name].thread_table(), placed[name].table()
        tiles = 64 // (2 * unit)
        for r, x in itertools.product(range(64), range(k)):
            fragment, in_row, in_k = r // unit, r % unit, x % depth
            lane = in_row % 8 * 4 + in_k // pack % 4
            block_number = in_row // 8 + in_k // (4 * pack) * (unit // 8)
            tile = x // depth * tiles + fragment // 2
            register = (tile * (unit * depth // 32)) + block_number * pack + in_k % pack
            warps = [fragment % 2 + 2 * c if is_a else c + 2 * (fragment % 2) for c in range(2)]
            at = r * k + x
            assert registers[at] == (register,)
            assert threads[2 * at : 2 * at + 2] == [32 * w + lane for w in warps]


@pytest.mark.parametrize(
    ("dtype", "accum"), [("float16", "int32"), ("uint8", "bool"), ("float4_e2m1fn", "float32")]
)
def test_types_without_arithmetic(dtype, accum):
    @T.prim_func
    def main(C: T.Tensor((32, 32), accum)):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((32, 32), dtype)
            c = T.alloc_fragment((32, 32), accum)
            T.gemm(a, a, c)
            T.copy(c, C)

    with pytest.raises(ValueError, match=rf"\.py:\d+: T\.gemm: found {dtype} x .*; cast the op"):
        tilelang.lower(main, target="cuda -arch=sm_90a")


def test_a_slice_of_the_accumulator():
    @T.prim_func
    def main(C: T.Tensor((32, 32))):
        with T.Kernel(1, threads=32):
            a = T.alloc_shared((16, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.gemm(a, b, c[0:16, :])
            T.copy(c, C)

    with pytest.raises(ValueError, match=r"found C a slice of c, wanted the whole fragment"):
        tilelang.lower(main, target="cuda -arch=sm_80")


@pytest.mark.parametrize(
    ("dtype", "form", "tile"),
    [
        ("int4", "sS", (32, 24, 128)),
        ("uint4", "ss", (16, 16, 64)),
        ("int4", "Ss", (16, 8, 64)),
        ("uint4", "fF", (48, 16, 64)),
    ],
)
def test_sub_byte(dtype, form, tile, unpacked):
    m, n, k = tile
    kernel, device = build(gemm(tile, dtype, "int32", form, 64))
    stored = [(k, m) if form[0].isupper() else (m, k), (n, k) if form[1].isupper() else (k, n)]
    a, b = (
        torch.randint(-128, 128, (rows, columns // 2), dtype=torch.int8) for rows, columns in stored
    )
    found = kernel(a.to(device), b.to(device)).cpu().double()
    x, y = unpacked(a, dtype), unpacked(b, dtype)
    wanted = (x.T if form[0].isupper() else x) @ (y.T if form[1].isupper() else y) + 1
    assert torch.equal(found, wanted)
    assert "mma_sync<16, 8, 64, " in kernel.get_kernel_source()


def test_sub_byte_that_no_instruction_takes():
    func = gemm((32, 24, 96), "int4", "int32", "sS")
    with pytest.raises(ValueError, match=r"K must be a multiple of 64, found 96.*cast .* to int8"):
        tilelang.lower(func, target="cuda -arch=sm_80")
