"""Vector widths: the widest legal one, and each rule that makes a width illegal."""

import pytest
import tvm
from tvm.script import tirx as T


@pytest.fixture
def vectorize(statements):
    return lambda func: statements("VectorizeLoop", func)


def copy_of(dtype, extent, offset=0):
    """B[e] = A[e + offset] for e < extent."""
    size = max(extent + offset, 64)

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((size,), dtype), B: T.Buffer((size,), dtype)):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(extent):
                B[e] = A[e + offset]

    return func


@pytest.mark.parametrize(
    ("dtype", "extent", "lanes"),
    [
        ("float32", 4, 4),
        ("float16", 8, 8),
        ("int8", 16, 16),
        ("float64", 2, 2),
        ("float16", 4, 4),
        ("float16", 2, 2),
    ],
)
def test_whole_loop_is_one_vector(vectorize, dtype, extent, lanes):
    assert vectorize(copy_of(dtype, extent)) == f"B[0:{lanes}] = A[T.Ramp(0, 1, {lanes})]"


def test_registers_of_4_bits_may_lie_apart_and_others_may_not(vectorize):
    def strided(dtype, offset):
        @T.prim_func(s_tir=True)
        def func(B: T.Buffer((64,), "float16")):
            T.launch_thread("threadIdx.x", 32)
            with T.sblock("tilelang_root"):
                R = T.sblock_alloc_buffer((64,), dtype, scope="local")
                for e in T.vectorized(2):
                    B[e] = T.cast(R[e * 4 + offset], "float16")

        return func

    assert vectorize(strided("int4", 1)).endswith("[T.Ramp(1, 4, 2)])")
    assert "T.unroll(2)" in vectorize(strided("int8", 0))


@pytest.mark.parametrize(
    ("dtype", "extent", "lanes"),
    [("float32", 16, 4), ("float16", 12, 4), ("float16", 6, 2), ("int8", 32, 16)],
)
def test_longer_loop_is_unrolled_around_vectors(vectorize, dtype, extent, lanes):
    assert vectorize(copy_of(dtype, extent)) == (
        f"for e in T.unroll({extent // lanes}):\n"
        f"    B[e * {lanes}:e * {lanes} + {lanes}] = A[T.Ramp(e * {lanes}, 1, {lanes})]"
    )


def test_odd_extent_is_unrolled(vectorize):
    assert vectorize(copy_of("float16", 7)) == "for e in T.unroll(7):\n    B[e] = A[e]"


def test_extent_one_is_the_body(vectorize):
    assert vectorize(copy_of("float16", 1)) == "B[0] = A[0]"


@pytest.mark.parametrize(("offset", "lanes"), [(8, 8), (4, 4), (2, 2), (6, 2)])
def test_start_decides_the_width(vectorize, offset, lanes):
    assert f"1, {lanes})" in vectorize(copy_of("float16", 8, offset))


def test_misaligned_start_is_scalar(vectorize):
    assert vectorize(copy_of("float16", 8, 1)) == "for e in T.unroll(8):\n    B[e] = A[e + 1]"


def test_extent_that_is_not_constant_is_serial(vectorize):
    @T.prim_func(s_tir=True)
    def func(B: T.Buffer((64,), "float32"), n: T.int32):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(n):
                B[e] = T.float32(0)

    assert vectorize(func) == "for e in range(n):\n    B[e] = T.float32(0.0)"


def test_row_and_column_of_a_flat_index(vectorize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((128, 128), "float16")):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((2, 128), "float16", scope="shared.dyn")
            for e in T.vectorized(8):
                S[(tx * 8 + e) // 128, (tx * 8 + e) % 128] = A[0, tx % 8 * 8 + e]

    assert vectorize(func) == (
        "S[tx // 16, tx % 16 * 8:tx % 16 * 8 + 8] = A[0, T.Ramp(tx % 8 * 8, 1, 8)]"
    )


def test_symbolic_stride_is_aligned_if_it_is_a_multiple(vectorize):
    @T.prim_func(s_tir=True)
    def func(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (64, n * 8), "float16")
        B = T.match_buffer(b, (64, n), "float16")
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            L = T.sblock_alloc_buffer((8,), "float16", scope="local")
            for e in T.vectorized(8):
                L[e] = A[tx, e]
            for e in T.vectorized(8):
                L[e] = B[tx, e]

    assert vectorize(func) == (
        "L[0:8] = A[tx, T.Ramp(0, 1, 8)]\nfor e in T.unroll(8):\n    L[e] = B[tx, e]"
    )


def test_swizzled_index(vectorize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64, 64), "float16")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64, 64), "float16", scope="shared.dyn")
            for j in T.unroll(8):
                for e in T.vectorized(8):
                    S[tx, e + 8 * ((j * 8 + e) // 8 ^ tx % 8)] = A[tx, j * 8 + e]

    assert "A[tx, T.Ramp(j * 8, 1, 8)]" in vectorize(func)


def test_lane_in_the_swizzle_is_scalar(vectorize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64, 64), "float16")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((64, 64), "float16", scope="shared.dyn")
            for e in T.vectorized(8):
                S[tx, e ^ tx % 8] = A[tx, e]

    assert vectorize(func).startswith("for e in T.unroll(8):")


@pytest.mark.parametrize("narrow", ["float16", "int8"])
@pytest.mark.parametrize("widens", [True, False])
def test_a_conversion_has_16_bytes_or_a_sector(statements, narrow, widens):
    source, target = (narrow, "float32") if widens else ("float32", narrow)

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), source), B: T.Buffer((64,), target)):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(16):
                B[e] = T.Cast(target, A[e])

    assert statements("VectorizeLoop", func) == (
        "for e in T.unroll(2):\n"
        f'    B[e * 8:e * 8 + 8] = T.Cast("{target}x8", A[T.Ramp(e * 8, 1, 8)])'
    )
    limited = statements("VectorizeLoop", func, {"tl.disable_vectorize_256": True})
    assert limited.startswith("for e in T.unroll(4):")


def test_registers_wait_for_the_narrow_side(vectorize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int8")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            L = T.sblock_alloc_buffer((16,), "float32", scope="local")
            for e in T.vectorized(16):
                L[e] = T.Cast("float32", A[e])

    assert vectorize(func) == 'L[0:16] = T.Cast("float32x16", A[T.Ramp(0, 1, 16)])'


def test_no_vectors_where_they_are_disabled(statements):
    text = statements("VectorizeLoop", copy_of("float16", 8), {"tir.disable_vectorize": True})
    assert text == "for e in T.unroll(8):\n    B[e] = A[e]"


def test_invariant_operands_are_broadcast(vectorize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), s: T.float32):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            L = T.sblock_alloc_buffer((4,), "float32", scope="local")
            for e in T.vectorized(4):
                L[e] = T.exp(L[e] * s) + T.max(A[tx], T.Cast("float32", e))

    assert vectorize(func) == (
        "L[0:4] = T.exp(L[T.Ramp(0, 1, 4)] * T.Broadcast(s, 4)) + "
        'T.max(T.Broadcast(A[tx], 4), T.Cast("float32x4", T.Ramp(0, 1, 4)))'
    )


def guarded(bound_scale, alignment):
    """A load under `c * alignment + e < n * bound_scale`."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((4096,), "float16"), n: T.int32):
        c = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            L = T.sblock_alloc_buffer((8,), "float16", scope="local")
            for e in T.vectorized(8):
                L[e] = T.if_then_else(
                    c * alignment + e < n * bound_scale, A[c * 8 + e], T.float16(0)
                )

    return func


def test_condition_uniform_by_alignment(vectorize):
    assert vectorize(guarded(8, 8)) == (
        "L[0:8] = T.if_then_else(c * 8 < n * 8, A[T.Ramp(c * 8, 1, 8)], "
        "T.Broadcast(T.float16(0.0), 8))"
    )


def test_condition_that_cuts_a_vector_leaves_a_scalar_tail(vectorize):
    assert vectorize(guarded(1, 8)) == (
        "if c * 8 + 7 < n:\n"
        "    L[0:8] = A[T.Ramp(c * 8, 1, 8)]\n"
        "else:\n"
        "    for e_lane in T.unroll(8):\n"
        "        L[e_lane] = T.if_then_else(c * 8 + e_lane < n, A[c * 8 + e_lane], T.float16(0.0))"
    )


@pytest.mark.parametrize(("scale", "alignment", "lanes"), [(4, 8, 4), (8, 2, 2), (6, 8, 2)])
def test_tail_has_the_vectors_that_its_condition_does_not_cut(vectorize, scale, alignment, lanes):
    assert vectorize(guarded(scale, alignment)) == (
        f"if c * {alignment} + 7 < n * {scale}:\n"
        "    L[0:8] = A[T.Ramp(c * 8, 1, 8)]\n"
        "else:\n"
        f"    for e_lane in T.unroll({8 // lanes}):\n"
        f"        L[e_lane * {lanes}:e_lane * {lanes} + {lanes}] = "
        f"T.if_then_else(c * {alignment} + e_lane * {lanes} < n * {scale}, "
        f"A[T.Ramp(c * 8 + e_lane * {lanes}, 1, {lanes})], "
        f"T.Broadcast(T.float16(0.0), {lanes}))"
    )


def test_registers_are_selected_without_a_branch(vectorize):
    """The mask of an attention kernel: no wide access is gained by a branch."""

    @T.prim_func(s_tir=True)
    def func(n: T.int32):
        c = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            L = T.sblock_alloc_buffer((8,), "float16", scope="local")
            for e in T.vectorized(8):
                L[e] = T.if_then_else(c * 8 + e < n, L[e], T.float16(0))

    assert vectorize(func) == (
        "for e in T.unroll(8):\n    L[e] = T.if_then_else(c * 8 + e < n, L[e], T.float16(0.0))"
    )


def registers(dtype, statement):
    """L[e] = statement(L[e]) for the four elements of a local buffer."""

    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            L = T.sblock_alloc_buffer((4,), dtype, scope="local")
            for e in T.vectorized(4):
                L[e] = statement(L[e])

    return func


@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_registers_that_hold_one_element_make_no_vectors(vectorize, dtype):
    text = vectorize(registers(dtype, lambda x: x * x))
    assert text == "for e in T.unroll(4):\n    L[e] = L[e] * L[e]"


def test_registers_that_hold_several_elements_make_vectors(vectorize):
    text = vectorize(registers("float16", lambda x: x + x))
    assert text == "L[0:4] = L[T.Ramp(0, 1, 4)] + L[T.Ramp(0, 1, 4)]"
    assert vectorize(registers("bool", lambda x: x)) == "L[0:4] = L[T.Ramp(0, 1, 4)]"


def test_rounding_in_registers_is_of_vectors(vectorize):
    def rounded(x):
        return T.Cast("float32", T.Cast("float16", x))

    assert vectorize(registers("float32", rounded)) == (
        'L[0:4] = T.Cast("float32x4", T.Cast("float16x4", L[T.Ramp(0, 1, 4)]))'
    )


def test_a_branch_over_registers_is_asked_once(vectorize):
    @T.prim_func(s_tir=True)
    def func(n: T.int32):
        T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            L = T.sblock_alloc_buffer((4,), "float32", scope="local")
            for e in T.vectorized(4):
                if n > 0:
                    L[e] = L[e] * T.float32(2)

    assert vectorize(func) == (
        "if n > 0:\n    L[0:4] = L[T.Ramp(0, 1, 4)] * T.Broadcast(T.float32(2.0), 4)"
    )


@pytest.mark.parametrize(
    ("make", "assumption"),
    [
        (lambda x, n: x >= n, "c * 8 >= n"),
        (lambda x, n: n > x, "n > c * 8 + 7"),
        (lambda x, n: n - x >= 0, "n - c * 8 - 7 >= 0"),
        (lambda x, n: n - x <= 0, "n - c * 8 <= 0"),
        (lambda x, n: tvm.tirx.And(x >= 3, x < n), "c * 8 >= 3 and c * 8 + 7 < n"),
    ],
)
def test_the_lane_that_decides(vectorize, make, assumption):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((4096,), "float16"), n: T.int32):
        c = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(8):
                if make(c * 8 + e, n):
                    A[c * 8 + e] = T.float16(1)

    first, vector, *_ = vectorize(func).splitlines()
    assert first == f"if {assumption}:"
    assert vector == "    A[c * 8:c * 8 + 8] = T.Broadcast(T.float16(1.0), 8)"


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda x, n, m: tvm.tirx.Or(x < n, n == 3), "int8"),
        (lambda x, n, m: x < m, "int8"),
        (lambda x, n, m: x < n, "int4"),
    ],
)
def test_conditions_that_no_lane_decides_are_scalar(vectorize, make, dtype):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((4096,), dtype), B: T.Buffer((8,), "int32"), n: T.int32):
        c = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(8):
                m = T.bind(B[0])
                if make(c * 8 + e, n, m):
                    A[c * 8 + e] = T.Cast(dtype, 1)

    assert vectorize(func).startswith("for e in T.unroll(8):")


@pytest.mark.parametrize(
    ("make", "uniform"),
    [
        (lambda x, n: x < n * 8, True),
        (lambda x, n: x >= n * 8, True),
        (lambda x, n: x <= n * 8, False),
        (lambda x, n: x > n * 8, False),
        (lambda x, n: x <= n * 8 + 7, True),
        (lambda x, n: n * 8 > x, True),
        (lambda x, n: n * 8 <= x, True),
        (lambda x, n: n * 8 < x, False),
        (lambda x, n: n * 8 + 7 >= x, True),
        (lambda x, n: n * 8 - x > 0, True),
        (lambda x, n: n * 8 - x >= 0, False),
        (lambda x, n: x // 8 == n, True),
        (lambda x, n: tvm.tirx.Not(x < n * 8), True),
        (lambda x, n: tvm.tirx.Or(x < n * 8, n == 3), True),
        (lambda x, n: tvm.tirx.Or(x < n, n == 3), False),
        (lambda x, n: tvm.tirx.Not(x < n), False),
    ],
)
def test_comparisons(vectorize, make, uniform):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((4096,), "float16"), n: T.int32):
        c = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(8):
                if make(c * 8 + e, n):
                    A[c * 8 + e] = T.float16(1)

    assert ("_lane" not in vectorize(func) and "T.unroll" not in vectorize(func)) == uniform


def test_if_statement_gets_a_scalar_condition(vectorize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((4096,), "float16"), n: T.int32):
        c = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(8):
                if c * 8 + e < n * 8:
                    A[c * 8 + e] = T.float16(1)

    assert vectorize(func) == (
        "if c * 8 < n * 8:\n    A[c * 8:c * 8 + 8] = T.Broadcast(T.float16(1.0), 8)"
    )


def test_reduction_is_scalar(vectorize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            L = T.sblock_alloc_buffer((1,), "float32", scope="local")
            for e in T.vectorized(4):
                L[0] = L[0] + A[e]

    assert vectorize(func) == "for e in T.unroll(4):\n    L[0] = L[0] + A[e]"


@pytest.mark.parametrize(("shift", "lanes"), [(2, 2), (4, 4)])
def test_lanes_that_see_each_other_limit_the_width(vectorize, shift, lanes):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(4):
                A[e + shift] = A[e]

    assert f", 1, {lanes})" in vectorize(func)


def test_terms_of_a_sum_are_vectors(vectorize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8, 64), "float32"), W: T.Buffer((8,), "float32"), n: T.int32):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            total = T.sblock_alloc_buffer((4,), scope="local")
            for e in T.vectorized(4):
                total[e] = T.float32(0)
                for i in T.serial(n):
                    total[e] = total[e] + W[i] * A[i, e]

    text = vectorize(func)
    assert "for i in range(n):" in text
    assert "T.Broadcast(W[i], 4) * A[i, T.Ramp(0, 1, 4)]" in text


@pytest.mark.parametrize("rows", ["lane", "neighbour"])
def test_loops_in_which_lanes_differ_are_scalar(vectorize, rows):
    @T.prim_func(s_tir=True)
    def lane(A: T.Buffer((64,), "float32"), W: T.Buffer((64,), "float32")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(4):
                for _ in T.serial(e):
                    A[e] = A[e] + W[e]

    @T.prim_func(s_tir=True)
    def neighbour(A: T.Buffer((64,), "float32"), W: T.Buffer((64,), "float32")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(4):
                for i in T.serial(3):
                    A[i * 4 + e] = A[i * 4 + e] + W[e]

    assert vectorize({"lane": lane, "neighbour": neighbour}[rows]).startswith(
        "for e in T.unroll(4):"
    )


@pytest.mark.parametrize("what", ["loop", "call"])
def test_loops_and_opaque_calls_are_scalar(vectorize, what):
    @T.prim_func(s_tir=True)
    def loop(A: T.Buffer((64,), "float32")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(4):
                for i in T.serial(2):
                    A[i * 4 + e] = T.float32(0)

    @T.prim_func(s_tir=True)
    def call(A: T.Buffer((64,), "float32")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(4):
                A[e] = T.call_extern("float32", "f", e)

    text = vectorize({"loop": loop, "call": call}[what])
    assert text.startswith("for e in T.unroll(4):")
    assert "Ramp" not in text


def test_bound_values_are_substituted_or_become_vectors(vectorize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 16)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(4):
                at = T.bind(tx * 4 + e)
                x = T.bind(A[at])
                A[at] = T.float32(0)
                B[at] = x * x

    assert vectorize(func) == (
        "x: T.let[T.float32x4] = A[T.Ramp(tx * 4, 1, 4)]\n"
        "A[tx * 4:tx * 4 + 4] = T.Broadcast(T.float32(0.0), 4)\n"
        "B[tx * 4:tx * 4 + 4] = x * x"
    )


@pytest.mark.parametrize("place", ["load", "run", "store"])
def test_names_of_vectors_are_no_indices(vectorize, place):
    """`A[x % 64]` was one element, at a name that had no value any more: the kernel wanted it from
    its caller."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "int32"), B: T.Buffer((64,), "int32")):
        tx = T.launch_thread("threadIdx.x", 16)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(4):
                x = T.bind(A[tx * 4 + e])
                if place == "load":
                    B[tx * 4 + e] = A[x % 64]
                elif place == "run":
                    B[tx * 4 + e] = A[x % 16 * 4 + e]
                else:
                    B[x % 16 * 4 + e] = x

    text = vectorize(func)
    assert text.startswith("for e in T.unroll(4):")
    assert "Ramp" not in text


def test_select_is_elementwise(vectorize):
    @T.prim_func(s_tir=True)
    def func():
        T.launch_thread("threadIdx.x", 16)
        with T.sblock("tilelang_root"):
            L = T.sblock_alloc_buffer((4,), "float16", scope="local")
            for e in T.vectorized(4):
                L[e] = T.Select(L[e] < T.float16(0), T.float16(0), L[e])

    assert vectorize(func) == (
        "L[0:4] = T.Select(L[T.Ramp(0, 1, 4)] < T.Broadcast(T.float16(0.0), 4), "
        "T.Broadcast(T.float16(0.0), 4), L[T.Ramp(0, 1, 4)])"
    )


def lane_address(place):
    """B[place(thread, lane)] = A[2 * thread + lane] for two lanes."""

    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), B: T.Buffer((4096,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(2):
                B[place(tx, e)] = A[tx * 2 + e]

    return func


@pytest.mark.parametrize(
    ("place", "is_vector"),
    [
        (lambda t, e: (t % 4 * 2 + e) // 64 * 512 + (t % 4 * 2 + e) % 64, True),
        (lambda t, e: ((t * 2 + e) // 8 ^ t // 4) * 8 + (t * 2 + e) % 8, True),
        (lambda t, e: (t * 2 + e) ^ (t // 4 * 4), True),
        (lambda t, e: (t * 6 + e) % 10 + t * 16, True),
        # Lanes cross a multiple of the divisor, or an xor turns them around.
        (lambda t, e: (t + e) // 8 * 512 + (t + e) % 8, False),
        (lambda t, e: (t * 2 + e) ^ (t // 4), False),
        (lambda t, e: (t * 3 + e) % 10 + t * 16, False),
        (lambda t, e: ((t * 2 + e) // 8 ^ t // 4) * 8 + (t * 2 + e) % 8 + 1, False),
    ],
)
def test_lanes_are_followed_through_divisions_and_xors(vectorize, place, is_vector):
    text = vectorize(lane_address(place))
    assert ("T.unroll(2)" not in text) == is_vector
    assert ("T.Ramp" in text or "]:" in text) == is_vector


def test_an_assumption_does_not_keep_a_loop_scalar(vectorize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32"), n: T.int32):
        tx = T.launch_thread("threadIdx.x", 16)
        with T.sblock("tilelang_root"):
            for e in T.vectorized(4):
                T.assume(tx * 4 + e < n)
                A[tx * 4 + e] = T.float32(0)

    assert "A[tx * 4:tx * 4 + 4] = T.Broadcast(T.float32(0.0), 4)" in vectorize(func)
