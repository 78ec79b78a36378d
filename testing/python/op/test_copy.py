"""T.copy in every scope and form, against torch."""

import pytest
import torch

import tilelang
import tilelang.language as T


def random(shape, dtype, device="cpu"):
    torch_dtype = getattr(torch, dtype)
    if torch_dtype.is_floating_point:
        return torch.randn(shape, dtype=torch.float64).to(torch_dtype).to(device)
    return torch.randint(0, 2 if dtype == "bool" else 100, shape).to(torch_dtype).to(device)


@pytest.mark.parametrize(
    ("m", "n", "threads", "dtype"),
    [
        (1, 1, 32, "float16"),
        (17, 60, 64, "float16"),
        (3, 129, 96, "float32"),
        (100, 17, 256, "int8"),
        (64, 64, 128, "bfloat16"),
        (5, 8, 32, "float64"),
        (16, 32, 128, "bool"),
        (33, 6, 128, "int16"),
        (8, 24, 48, "uint8"),
        (16, 33, 32, "uint16"),
        (15, 32, 160, "uint32"),
        (7, 100, 64, "int64"),
    ],
)
def test_through_every_scope(compiled, device, m, n, threads, dtype):
    @T.prim_func
    def func(A: T.Tensor((m, n), dtype), B: T.Tensor((m, n), dtype), C: T.Tensor((n, m), dtype)):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((m, n), dtype)
            F = T.alloc_fragment((m, n), dtype)
            R = T.alloc_shared((m, n), dtype)
            T.copy(A, S)
            T.copy(S, F)
            T.copy(F, R)
            T.copy(R, B)
            for j, i in T.Parallel(n, m):
                C[j, i] = R[i, j]

    a = random((m, n), dtype, device)
    b, c = torch.zeros_like(a), torch.zeros_like(a.T.contiguous())
    compiled(func)(a, b, c)
    assert torch.equal(a, b)
    assert torch.equal(a.T, c)


def test_regions_on_both_sides(compiled, device):
    @T.prim_func
    def func(A: T.Tensor((4, 40, 48), "float16"), B: T.Tensor((4, 40, 48), "float16")):
        with T.Kernel(4, threads=64) as b:
            S = T.alloc_shared((2, 20, 48), "float16")
            F = T.alloc_fragment((20, 24), "float16")
            T.copy(A[b, 0:20, :], S[0, :, :])
            T.copy(A[b, 20, 0], S[1, :, :])
            T.copy(S[1, :, 0:24], F)
            T.copy(F, B[b, 0, 0])
            T.copy(S[0, 0:20, 24:48], B[b, 20:40, 24:48])

    a = random((4, 40, 48), "float16", device)
    b = torch.zeros_like(a)
    compiled(func)(a, b)
    wanted = torch.zeros_like(a)
    wanted[:, 0:20, 0:24] = a[:, 20:40, 0:24]
    wanted[:, 20:40, 24:] = a[:, 0:20, 24:]
    assert torch.equal(b, wanted)


def test_strided_tensors(compiled, device):
    @T.prim_func
    def func(
        A: T.StridedTensor((17, 24), (40, 1), "float16"),
        B: T.StridedTensor((17, 24), (1, 17), "float16"),
    ):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((17, 24), "float16")
            T.copy(A, S)
            T.copy(S, B)

    a = random((17, 40), "float16", device)[:, :24]
    b = torch.zeros(24, 17, dtype=torch.float16, device=device).T
    compiled(func)(a, b)
    assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        *(("float32", "float16"), ("float16", "float32"), ("bfloat16", "float32")),
        *(("int8", "float32"), ("float32", "int8"), ("float64", "float16"), ("uint8", "int32")),
        *(("bool", "float32"), ("float32", "bool"), ("int16", "uint16"), ("bool", "int8")),
    ],
)
def test_dtypes_are_cast(compiled, device, source, target):
    @T.prim_func
    def func(A: T.Tensor((100,), source), B: T.Tensor((100,), target)):
        with T.Kernel(1, threads=32):
            F = T.alloc_fragment((100,), target)
            T.copy(A, F)
            T.copy(F, B)

    a = random((100,), source, device)
    b = torch.zeros(100, dtype=getattr(torch, target), device=device)
    compiled(func)(a, b)
    assert torch.equal(b, a.to(b.dtype))


def test_the_tail_of_an_array_is_scalar_and_the_rest_vectors(compiled, device):
    n = T.dynamic("n")

    @T.prim_func
    def func(A: T.Tensor((n,), "float16"), B: T.Tensor((n,), "float16")):
        with T.Kernel(T.ceildiv(n, 1024), threads=128) as bx:
            S = T.alloc_shared((1024,), "float16")
            T.copy(A[bx * 1024], S)
            T.copy(S, B[bx * 1024])

    source = tilelang.lower(func, target="cuda -arch=sm_80").kernel_source
    assert source.count("tl::load<half_t, 8>") == 2
    kernel = compiled(func)
    for size in (1, 17, 1000, 1024, 3001):
        a = random((size,), "float16", device)
        b = torch.zeros_like(a)
        kernel(a, b)
        assert torch.equal(a, b), size


@pytest.mark.parametrize(("n", "dtype"), [(1, "float32"), (129, "float16"), (1001, "int8")])
def test_tails_of_constant_extents(compiled, device, n, dtype):
    @T.prim_func
    def func(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                B[i] = A[i] + A[i]

    a = random((n,), dtype, device)
    b = torch.zeros_like(a)
    compiled(func)(a, b)
    assert torch.equal(b, a + a)


def test_conversions_have_full_accesses_on_both_sides():
    @T.prim_func
    def func(A: T.Tensor((64, 128), "float32"), B: T.Tensor((64, 128), "float16")):
        with T.Kernel(1, threads=128):
            T.copy(A, B)

    assert "tl::cast<half_t>(tl::load<float, 8>(A + " in tilelang.lower(func).kernel_source


def lines_of(source, text):
    return [line.strip() for line in source.splitlines() if text in line]


def test_coalesced_width_narrows_vectors():
    def make(width):
        @T.prim_func
        def func(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
            with T.Kernel(1, threads=128):
                T.copy(A, B, coalesced_width=width)

        return func

    assert "tl::load<half_t, 2>" in tilelang.lower(make(2)).kernel_source
    with pytest.raises(
        ValueError, match=r"py:\d+: coalesced_width: found 3, wanted a divisor of 8"
    ):
        tilelang.lower(make(3))


# --- cp.async


def async_program(n, dtype="float16", target="float16", threads=64):
    @T.prim_func
    def func(A: T.Tensor((2, n, n), dtype), B: T.Tensor((2, n, n), target)):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((2, n, n), target)
            T.async_copy(A[0, :, :], S[0, :, :])
            T.async_copy(A[1, :, :], S[1, :, :])
            T.ptx_wait_group(1)
            T.copy(S[0, :, :], B[0, :, :])
            T.ptx_wait_group(0)
            T.copy(S[1, :, :], B[1, :, :])

    return func


@pytest.mark.parametrize(("n", "threads"), [(24, 64), (100, 128)])
def test_async_copies_are_groups_that_the_user_waits_for(compiled, device, n, threads):
    kernel = compiled(async_program(n, threads=threads))
    source = kernel.get_kernel_source()
    assert source.count("tl::cp_async_commit();") == 2
    assert lines_of(source, "cp_async_wait") == [
        "tl::cp_async_wait<1>();",
        "tl::cp_async_wait<0>();",
    ]
    assert source.count("__syncthreads();") == 2
    a = random((2, n, n), "float16", device)
    b = torch.zeros_like(a)
    kernel(a, b)
    assert torch.equal(a, b)


def preferred(instruction, stages=0):
    @T.prim_func
    def func(A: T.Tensor((128, 64), "float16"), B: T.Tensor((128, 64), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((16, 64), "float16")
            for i in T.Pipelined(8, num_stages=stages):
                T.copy(A[i * 16, 0], S, prefer_instruction=instruction)
                T.copy(S, B[i * 16, 0])

    return func


@pytest.mark.parametrize("stages", [0, 1, 2, 3])
@pytest.mark.parametrize("instruction", ["cp_async", "sync", None])
def test_a_preferred_instruction_is_used_at_any_depth(compiled, device, instruction, stages):
    kernel = compiled(preferred(instruction, stages))
    source = kernel.get_kernel_source()
    used = instruction == "cp_async" or (instruction is None and stages > 0)
    assert ("tl::cp_async_gs" in source) == used
    a = random((128, 64), "float16", device)
    b = torch.zeros_like(a)
    kernel(a, b)
    assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("func", "target", "config", "message"),
    [
        (async_program(24, "float32"), "sm_80", {}, "found a value that is computed or cast"),
        (async_program(17), "sm_80", {}, "found 16 bits at a time"),
        (async_program(24), "sm_75", {}, "found target sm_75"),
        (preferred("cp_async"), "sm_75", {}, "found target sm_75"),
        (
            preferred("cp_async"),
            "sm_80",
            {"tl.enable_async_copy": False},
            "enable_async_copy=False",
        ),
        (preferred("tma"), "sm_80", {}, "found a target without TMA"),
    ],
)
def test_demands_that_cannot_be_met_are_refused(func, target, config, message):
    with (
        tilelang.transform.PassContext(config=config),
        pytest.raises(ValueError, match=rf"test_copy.py:\d+: .*{message}"),
    ):
        tilelang.lower(func, target=f"cuda -arch={target}")


def test_a_pipeline_waits_for_its_own_copies_only():
    @T.prim_func
    def func(A: T.Tensor((128, 64), "float16"), B: T.Tensor((128, 64), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((16, 64), "float16")
            for i in T.Pipelined(8, num_stages=2):
                T.async_copy(A[i * 16, 0], S)
                T.copy(S, B[i * 16, 0])

    with pytest.raises(ValueError, match=r"py:\d+: found T.async_copy in a T.Pipelined loop"):
        tilelang.lower(func, target="cuda -arch=sm_80")


# --- large tensors


def test_far_elements_have_64_bit_indices_and_near_ones_do_not(compiled):
    far = 2**31 + 64

    @T.prim_func
    def func(A: T.StridedTensor((2, 64), (far, 1), "int8"), B: T.Tensor((2, 64), "int8")):
        with T.Kernel(1, threads=32):
            T.copy(A, B)

    kernel = tilelang.compile(func, execution_backend="emulate")
    (line,) = lines_of(kernel.get_kernel_source(), "tl::store(")
    assert line.startswith("tl::store(B + tx * 4, tl::load<int8_t, 4>(A + int64_t(tx) / 16 * ")
    # Only two pages of these 2 GiB are ever touched.
    a = torch.empty(far + 64, dtype=torch.int8).as_strided((2, 64), (far, 1))
    a.copy_(random((2, 64), "int8"))
    b = torch.zeros(2, 64, dtype=torch.int8)
    kernel(a, b)
    assert torch.equal(a, b)


def test_bounds_of_a_large_tensor_are_compared_in_64_bits():
    n = 3 * 2**30 + 5

    @T.prim_func
    def func(A: T.Tensor((n,), "int8")):
        with T.Kernel(T.ceildiv(n, 1000), threads=128) as bx:
            for i in T.Parallel(1000):
                A[bx * 1000 + i] = T.int8(1)

    lines = lines_of(tilelang.lower(func).kernel_source, "000 +")
    assert len(lines) > 2, "the bounds and the stores of a block, which has the work of several"
    assert all("int64_t(bx) * " in line for line in lines)


def test_the_index_width_can_be_demanded():
    @T.prim_func
    def func(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(64, threads=32) as bx:
            for i in T.Parallel(64):
                A[bx, i] = T.float16(1)

    assert "int64_t(" not in tilelang.lower(func).kernel_source
    with tilelang.transform.PassContext(config={"tl.config_index_bitwidth": 64}):
        assert "A + int64_t(bx) * 64 + " in tilelang.lower(func).kernel_source


def test_a_barrier_between_two_equal_conditions(compiled, device):
    @T.prim_func
    def func(A: T.Tensor((10,), "float32"), B: T.Tensor((10,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((10,), "float32")
            T.copy(A, S)
            for i in T.Parallel(10):
                B[i] = S[9 - i]

    a = random((10,), "float32", device)
    b = torch.zeros_like(a)
    compiled(func)(a, b)
    assert torch.equal(b, a.flip(0))


@pytest.mark.parametrize(
    ("kind", "asynchronous"), [("copy", True), ("computed", False), ("read", False), ("off", False)]
)
def test_a_parallel_loop_that_may_be_asynchronous(compiled, device, kind, asynchronous):
    """What is read or computed in the loop itself is stored as always."""

    @T.prim_func
    def main(A: T.Tensor((60, 64), "float16"), C: T.Tensor((60, 64), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64, 64), "float16")
            for i, j in T.Parallel(64, 64, prefer_async=kind != "off"):
                S[i, j] = A[i, j] * 2 if kind == "computed" else A[i, j]
                if kind == "read":
                    S[i, j] = S[i, j] * 2
            for i, j in T.Parallel(60, 64):
                C[i, j] = S[i, j]

    kernel = compiled(main, out_idx=-1)
    a = torch.randn(60, 64).half()
    factor = 2 if kind in ("computed", "read") else 1
    assert torch.equal(kernel(a.to(device)).cpu(), a * factor)
    source = kernel.get_kernel_source()
    assert ("cp_async_gs_conditional<16>" in source) is asynchronous
    assert ("cp_async_wait<0>" in source) is asynchronous


def in_async_scope(dtype, per_thread):
    """Stores of two tiles in scopes of their own; the program waits for them."""

    @T.prim_func
    def func(A: T.Tensor((2, 64, 32), dtype), B: T.Tensor((2, 64, 32), dtype), n: T.int32):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            S = T.alloc_shared((2, 64, 32), dtype)
            for k in T.serial(2):
                with T.attr(0, "async_scope", 1):
                    for j in T.serial(n // per_thread):
                        for v in T.vectorized(per_thread):
                            S[k, tx, j * per_thread + v] = A[k, tx, j * per_thread + v]
                T.ptx_commit_group()
            T.ptx_wait_group(1)
            T.copy(S[0, :, :], B[0, :, :])
            T.ptx_wait_group(0)
            T.copy(S[1, :, :], B[1, :, :])

    return func


@pytest.mark.parametrize(
    ("dtype", "per_thread", "instruction"),
    [
        ("float16", 8, "tl::cp_async_gs<16>"),
        ("float32", 1, "tl::cp_async_gs<4>"),
        ("float16", 1, None),  # no cp.async has two bytes (PTX ISA)
    ],
)
def test_stores_in_an_async_scope_are_cp_async(compiled, device, dtype, per_thread, instruction):
    kernel = compiled(in_async_scope(dtype, per_thread))
    source = kernel.get_kernel_source()
    assert ("cp_async" in source) == (instruction is not None)
    if instruction:
        assert instruction in source or instruction.replace("gs<", "gs_conditional<") in source
        assert source.count("tl::cp_async_commit();") == 1
        assert [line.strip() for line in lines_of(source, "cp_async_wait")] == [
            "tl::cp_async_wait<1>();",
            "tl::cp_async_wait<0>();",
        ]
        assert source.count("__syncthreads();") >= 2
    a = random((2, 64, 32), dtype, device)
    b = torch.zeros_like(a)
    kernel(a, b, 32)
    assert torch.equal(a, b)


def test_an_async_scope_of_another_value_is_refused():
    def func(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64), T.attr(0, "async_scope", 2):
            A[0] = 1.0

    with pytest.raises(ValueError, match="found async_scope of value 2, wanted 1"):
        T.prim_func(func)
