"""Warp specialisation of tile programs: the plan as text, and the program it becomes."""

import itertools
import re
import textwrap

import pytest
import torch
import tvm
import tvm_ffi
from tvm import s_tir

import tilelang
import tilelang.language as T
from tilelang.engine.explain_roles import roles_text

PASSES = ("HoistViews", "ProducerConsumerWarpSpecialized")


@pytest.fixture
def plan(tile_passes):
    """The lines of the plan, without the places of statements."""

    def run(func, arch="sm_90a", config=None):
        mod = tile_passes(func, *PASSES, arch=arch, config=config)
        (entry,) = mod["main"].attrs["tl.warp_roles"]
        return [line.strip() for line in roles_text(entry)]

    return run


@pytest.fixture
def why(plan):
    """Why a program stays as it is: place and reason."""

    def run(func, **kwargs):
        (line,) = plan(func, **kwargs)
        assert line.startswith("not warp specialised: ")
        return line.removeprefix("not warp specialised: ")

    return run


@pytest.fixture
def program(statements):
    def run(func, *passes, **kwargs):
        return statements(func, *PASSES, *passes, arch="sm_90a", **kwargs)

    return run


def role(text, name):
    """The statements of one role."""
    mark = f'T.attr("{name}", "tl.warp_role", 1)'
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.strip() == mark)
    indent = " " * lines[first].index("T.attr")
    body = itertools.takewhile(lambda line: line.startswith(indent), lines[first + 1 :])
    program = textwrap.dedent("\n".join(body))
    for found, short in _SHORT:
        program = re.sub(found, short, program)
    return program


# What the printer adds: numbers to memory of the roles that has one name, keywords, whole tiles.
_SHORT = (
    (r"\b(\w+_fills|mask)_1\[", r"\1["),
    (r'T\.serial\((.*), annotations=\{"pragma_unroll_factor": 1\}\)', r"range(\1)"),
    (r'T\.Call\("tl\.tileop\.(\w+)", \[(.*)\], attrs=\{.*\}, ret_ty="void"\)', r"T.tl.\1(\2)"),
    (r", 0:64, 0:(64|128)\]", "]"),
    (r", T\.bool\(False\), T\.bool\(False\), 0, T\.bool\(False\)\)", ")"),
)


def channels(lines):
    return [line for line in lines if line.startswith("channel ")]


def test_plan_of_a_gemm(plan, gemm):
    lines = plan(gemm(3, 4, 64))
    assert lines[0] == "warp specialised: threads 0 to 127 produce, 128 to 255 consume"
    assert [line.partition(": ")[2] for line in lines[1:4]] == [
        "producer, by TMA, channel 0",
        "producer, by TMA, channel 0",
        "consumer",
    ]
    assert channels(lines) == [
        "channel 0: S, W, 3 versions, 16384 bytes by TMA, fill number k; "
        "full after 1, empty after 4 arrivals"
    ]


def test_program_of_a_gemm(program, gemm):
    text = program(gemm(2, 4, 64))
    assert role(text, "producer") == textwrap.dedent(
        """
        if T.tl.shuffle_elect(128):
            for k in range(4):
                T.tl.acquire(S_empty[k % 2], k // 2 & 1 ^ 1, S[k % 2], W[k % 2])
                T.tl.mbarrier_arrive_expect_tx(T.address_of(S_full[k % 2]), 16384)
                T.tl.tma_copy(A[0:64, k * 64:k * 64 + 64], S[k % 2], S_full[k % 2])
                T.tl.tma_copy(B[k * 64:k * 64 + 64, 0:64], W[k % 2], S_full[k % 2])
        """
    ).strip("\n")
    assert role(text, "consumer") == textwrap.dedent(
        """
        T.tl.fill(F[0:64, 0:64], T.float32(0.0))
        for k in range(4):
            T.tl.acquire(S_full[k % 2], k // 2 & 1, S[k % 2], W[k % 2])
            T.tl.gemm(S[k % 2], W[k % 2], F[0:64, 0:64])
            T.tl.release(S_empty[(k + 1) % 2], 0 < k, S[(k + 1) % 2], W[(k + 1) % 2])
        T.tl.release(S_empty[1], T.bool(True), S[1], W[1])
        T.tl.copy(F[0:64, 0:64], C[0:64, 0:64])
        """
    ).strip("\n")


def test_the_function_says_that_it_is_specialised(tile_passes, gemm):
    mod = tile_passes(gemm(2, 4, 64), *PASSES, arch="sm_90a")
    assert int(mod["main"].attrs["tl_tiled_ws_applied"]) == 1
    mod = tile_passes(gemm(2, 4, 64), *PASSES, arch="sm_80")
    assert not {"tl_tiled_ws_applied", "tl.warp_roles"} & set(mod["main"].attrs.keys())


def test_a_stage_is_enough(plan, gemm, program):
    assert channels(plan(gemm(1, 4, 64))) == [
        "channel 0: S, W, 1 version, 16384 bytes by TMA, fill number k; "
        "full after 1, empty after 4 arrivals"
    ]
    text = program(gemm(1, 4, 64))
    assert "T.tl.acquire(S_empty[0], k & 1 ^ 1, S[0:64, 0:64], W[0:64, 0:64])" in text


@pytest.mark.parametrize("threads", [128, 256, 384])
def test_the_consumer_has_the_threads_of_the_kernel(plan, gemm, threads):
    lines = plan(gemm(2, 4, 64, threads=threads))
    assert f"128 to {127 + threads} consume" in lines[0]
    assert lines[-1].endswith(f"empty after {threads // 32} arrivals")


def test_consumer_sees_its_threads_from_0(program):
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), C: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            tx = T.get_thread_binding(0)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], S)
                T.copy(S, F)
            C[tx] = T.float32(1)

    assert "C[tx - 128] = T.float32(1.0)" in role(program(main), "consumer")


def rows(columns=64, before=False, after=False, apart=False, bound=False):
    """A tile and a number for each of its rows, or for more; used within the tile's use."""

    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float16"),
        B: T.Tensor((256, 64), "float16"),
        L: T.Tensor((4 * columns,), "float32"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            scales = T.alloc_shared((columns,), "float32")
            F = T.alloc_fragment((64, 64), "float32")
            G = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            T.clear(G)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64, 0], S)
                if apart:
                    T.copy(B[k * 64, 0], W)
                if bound:
                    at = k * columns
                    T.copy(L[at], scales)
                else:
                    T.copy(L[k * columns], scales)
                if not apart:
                    T.copy(B[k * 64, 0], W)
                if before:
                    for i, j in T.Parallel(64, 64):
                        G[i, j] += scales[i]
                T.gemm(S, S, F)
                if not after:
                    for i, j in T.Parallel(64, 64):
                        G[i, j] += scales[i]
                T.gemm(S, W, F)
                if after:
                    for i, j in T.Parallel(64, 64):
                        G[i, j] += scales[i]
            for i, j in T.Parallel(64, 64):
                F[i, j] += G[i, j]
            T.copy(F, C)

    return main


def test_a_few_bytes_come_with_the_tile_that_they_are_used_with(plan):
    assert [line.partition(", 2 versions")[0] for line in channels(plan(rows()))] == [
        "channel 0: S, scales",
        "channel 1: W",
    ]


@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ({"columns": 512}, ["S", "W", "scales"]),
        ({"before": True}, ["S, scales", "W"]),
        ({"after": True}, ["S", "scales, W"]),
        ({"apart": True}, ["S", "W, scales"]),
        ({"apart": True, "bound": True}, ["S", "W, scales"]),
    ],
)
def test_what_is_loaded_behind_a_tile_and_used_earlier_comes_with_it(plan, what, wanted):
    names = [line.split(": ")[1].split(", 2 versions")[0] for line in channels(plan(rows(**what)))]
    assert sorted(names) == wanted


# --- numbers of fills


def attention(body, n=4):
    """Q before the loop, K and V in it."""

    @T.prim_func
    def main(
        Q: T.Tensor((4, 64, 64), "float16"),
        K: T.Tensor((256, 64), "float16"),
        V: T.Tensor((256, 64), "float16"),
        M: T.Tensor((4, 4), "int32"),
        length: T.int32,
        out: T.Tensor((4, 64, 64), "float32"),
    ):
        with T.Kernel(2, threads=128) as bx:
            Qs = T.alloc_shared((64, 64), "float16")
            Ks = T.alloc_shared((64, 64), "float16")
            Vs = T.alloc_shared((64, 64), "float16")
            S = T.alloc_fragment((64, 64), "float32")
            P = T.alloc_fragment((64, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            body(Q, K, V, M, length, out, bx, Qs, Ks, Vs, S, P, acc)

    return main


@T.macro
def scores(Qs, Ks, S, P):
    T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True)
    for i, j in T.Parallel(64, 64):
        P[i, j] = S[i, j]


@T.macro
def one_tile(Q, K, V, M, length, out, bx, Qs, Ks, Vs, S, P, acc):
    T.copy(Q[bx, 0, 0], Qs)
    T.clear(acc)
    for k in T.Pipelined(4, num_stages=2):
        T.copy(K[k * 64, 0], Ks)
        scores(Qs, Ks, S, P)
        T.copy(V[k * 64, 0], Vs)
        T.gemm(P, Vs, acc)
    T.copy(acc, out[bx, 0, 0])


def test_load_in_front_of_the_loop_is_awaited_once(plan, program):
    lines = plan(attention(one_tile))
    assert channels(lines) == [
        "channel 0: Qs, 1 version, 8192 bytes by TMA, filled once; "
        "full after 1 arrivals, never refilled",
        "channel 1: Ks, 2 versions, 8192 bytes by TMA, fill number k; "
        "full after 1, empty after 4 arrivals",
        "channel 2: Vs, 2 versions, 8192 bytes by TMA, fill number k; "
        "full after 1, empty after 4 arrivals",
    ]
    text = program(attention(one_tile))
    assert "Qs_empty" not in text
    assert role(text, "consumer").index("T.tl.acquire(Qs_full[0], 0") < role(
        text, "consumer"
    ).index("for k in")


@T.macro
def two_tiles(Q, K, V, M, length, out, bx, Qs, Ks, Vs, S, P, acc):
    for w in T.serial(2):
        T.copy(Q[bx * 2 + w, 0, 0], Qs)
        T.clear(acc)
        for k in T.Pipelined(length, num_stages=2):
            T.copy(K[k * 64, 0], Ks)
            scores(Qs, Ks, S, P)
            T.copy(V[k * 64, 0], Vs)
            T.gemm(P, Vs, acc)
        T.copy(acc, out[bx * 2 + w, 0, 0])


def test_loop_in_a_loop_counts_on(plan, program):
    lines = channels(plan(attention(two_tiles)))
    assert "Qs, 1 version, 8192 bytes by TMA, fill number w" in lines[0]
    assert "Ks, 2 versions, 8192 bytes by TMA, fill number a running count" in lines[1]
    text = program(attention(two_tiles))
    for name in ("producer", "consumer"):
        body = role(text, name)
        assert 'Ks_fills[0] = Ks_fills[0] + T.Cast("uint32", T.max(length, 0))' in body
        assert '(Ks_fills[0] + T.Cast("uint32", k)) % T.uint32(2)' in body
    assert "T.tl.release(Qs_empty[0], Qs[0:64, 0:64])" in role(text, "consumer")


@T.macro
def masked(Q, K, V, M, length, out, bx, Qs, Ks, Vs, S, P, acc):
    mask = T.alloc_local((4,), "int32")
    T.copy(Q[bx, 0, 0], Qs)
    T.clear(acc)
    for i in T.serial(4):
        mask[i] = M[bx, i]
    for k in T.Pipelined(4, num_stages=2):
        if mask[k] != 0:
            row = M[k, 0] * 64
            T.copy(K[row, 0], Ks)
            scores(Qs, Ks, S, P)
            T.copy(V[row, 0], Vs)
            T.gemm(P, Vs, acc)
    T.copy(acc, out[bx, 0, 0])


def test_conditional_body_counts_what_it_loads(program):
    text = program(attention(masked))
    lines = role(text, "producer").splitlines()
    assert lines[4:9] == [
        "    for i in range(4):",
        "        mask[i] = M[bx, i]",
        "    for k in range(4):",
        "        if mask[k] != 0:",
        "            row: T.let[T.int32] = M[k, 0] * 64",
    ]
    slot = 'T.Cast("int32", Ks_fills[0] % T.uint32(2))'
    assert lines[9].startswith(f"            T.tl.acquire(Ks_empty[{slot}], ")
    assert lines[9].endswith(f", Ks[{slot}])")
    for name in ("producer", "consumer"):
        assert role(text, name).count("Ks_fills[0] = Ks_fills[0] + T.uint32(1)") == 1


@T.macro
def two_loops(Q, K, V, M, length, out, bx, Qs, Ks, Vs, S, P, acc):
    T.copy(Q[bx, 0, 0], Qs)
    T.clear(acc)
    for k in T.Pipelined(length, num_stages=2):
        T.copy(K[k * 64, 0], Ks)
        T.gemm(Qs, Ks, acc, transpose_B=True)
    for k in T.Pipelined(2, num_stages=3):
        T.copy(V[k * 64, 0], Ks)
        T.gemm(Qs, Ks, acc, transpose_B=True)
    T.copy(acc, out[bx, 0, 0])


def test_two_loops_over_one_buffer_share_its_slots(plan, program):
    lines = channels(plan(attention(two_loops)))
    assert "Ks, 3 versions, 8192 bytes by TMA, fill number a running count" in lines[1]
    body = role(program(attention(two_loops)), "consumer")
    first = body.index('Ks_fills[0] + T.Cast("uint32", T.max(length, 0))')
    assert first < body.index("Ks_fills[0] + T.uint32(2)")


# --- who loads


def mixed(copy_scale, scale_shape=(1024, 128), scale_dtype="float32"):
    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        X: T.Tensor(scale_shape, scale_dtype),
        C: T.Tensor((64, 64), "float32"),
        n: T.int32,
    ):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 128), scale_dtype)
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], S)
                copy_scale(X, W, k)
                for i, j in T.Parallel(64, 64):
                    F[i, j] += S[i, j] * W[i, j]
            T.copy(F, C)

    return main


@T.macro
def copy_rows_elsewhere(X, W, k):
    T.copy(X[k * 64, 0], W, disable_tma=True)


@T.macro
def copy_by_threads(X, W, k):
    T.copy(X[k * 64, 0], W, prefer_instruction="sync")


@T.macro
def copy_elements(X, W, k):
    for i, j in T.Parallel(64, 128):
        W[i, j] = X[k * 64 + i, j] * 2


def test_cp_async_joins_the_producer(plan, program):
    lines = plan(mixed(copy_rows_elsewhere))
    assert lines[0] == "warp specialised: threads 0 to 255 produce, 256 to 511 consume"
    assert lines[2].endswith("producer, by cp.async, channel 0, not TMA: disable_tma=True")
    assert "full after 256, empty after 8 arrivals" in lines[-1]
    assert role(program(mixed(copy_rows_elsewhere)), "producer") == textwrap.dedent(
        """
        for k in range(4):
            T.tl.acquire(S_empty[k % 2], k // 2 & 1 ^ 1, S[k % 2], W[k % 2])
            if T.tl.shuffle_elect(256):
                T.tl.mbarrier_expect_tx(T.address_of(S_full[k % 2]), 8192)
                T.tl.tma_copy(A[0:64, k * 64:k * 64 + 64], S[k % 2], S_full[k % 2])
            with T.attr("", "async_copy", T.bool(True)):
                T.tl.copy(X[k * 64:k * 64 + 64, 0:128], W[k % 2])
            T.tl.cp_async_mbarrier_arrive_noinc(T.address_of(S_full[k % 2]))
        """
    ).strip("\n")


@pytest.mark.parametrize("copy", [copy_by_threads, copy_elements])
def test_stores_of_threads_join_the_producer(plan, program, copy):
    lines = plan(mixed(copy))
    assert "producer, by stores of all its threads, channel 0, not TMA: " in lines[2]
    assert "full after 8, empty after 8 arrivals" in lines[-1]
    body = role(program(mixed(copy)), "producer")
    assert "T.tl.release(S_full[k % 2], S[k % 2], W[k % 2])" in body
    assert "cp_async" not in body


# --- schedules, views, layouts


@T.macro
def scheduled(Q, K, V, M, length, out, bx, Qs, Ks, Vs, S, P, acc):
    T.copy(Q[bx, 0, 0], Qs)
    T.clear(acc)
    for k in T.Pipelined(length, num_stages=2, order=[0, 3, 4, 1, 2], stage=[0, 0, 0, 0, 1]):
        T.copy(K[k * 64, 0], Ks)
        T.gemm(Qs, Ks, S, transpose_B=True, clear_accum=True)
        for i, j in T.Parallel(64, 64):
            P[i, j] = S[i, j]
        T.copy(V[k * 64, 0], Vs)
        T.gemm(P, Vs, acc)
    T.copy(acc, out[bx, 0, 0])


def test_schedule_of_the_user_stays_on_the_consumer(program):
    text = program(attention(scheduled))
    assert "tl_pipeline" not in role(text, "producer")
    loop = next(line for line in role(text, "consumer").splitlines() if "for k in" in line)
    # acquire K, gemm, release K, release V, softmax, acquire V, gemm
    assert '"tl_pipeline_order": [2, 3, 4, 5, 6, 0, 1]' in loop
    assert '"tl_pipeline_stage": [0, 0, 0, 1, 0, 1, 1]' in loop


@T.macro
def viewed(Q, K, V, M, length, out, bx, Qs, Ks, Vs, S, P, acc):
    flat = T.reshape(Ks, (4096,))
    turned = T.view(Vs, (64, 32), "float32")
    T.clear(acc)
    for k in T.Pipelined(length, num_stages=2):
        T.copy(K[k * 64, 0], Ks)
        T.copy(V[k * 64, 0], Vs)
        for i, j in T.Parallel(64, 64):
            acc[i, j] += flat[i * 64 + j] * turned[i, j // 2]
    T.copy(acc, out[bx, 0, 0])


def test_views_have_the_versions_of_their_buffer(program):
    body = role(program(attention(viewed)), "consumer")
    assert "flat[k % 2, i * 64 + j]" in body
    assert "turned[k % 2, i, j // 2]" in body


def annotated(layout):
    @T.macro
    def body(Q, K, V, M, length, out, bx, Qs, Ks, Vs, S, P, acc):
        T.annotate_layout({Ks: layout(Ks)})
        T.copy(Q[bx, 0, 0], Qs)
        T.clear(acc)
        for k in T.Pipelined(4, num_stages=2):
            T.copy(K[k * 64, 0], Ks)
            T.gemm(Qs, Ks, acc, transpose_B=True)
        T.copy(acc, out[bx, 0, 0])

    return attention(body)


def test_swizzle_of_the_user_gets_the_versions(tile_passes, plan):
    func = annotated(tilelang.layout.make_full_bank_swizzled_layout)
    assert "producer, by TMA" in "".join(plan(func))
    layouts = []
    mod = tile_passes(func, *PASSES, arch="sm_90a")
    tvm_ffi.structural_walk(
        mod["main"], [(s_tir.SBlock, lambda b: layouts.append(b.annotations.get("layout_map")))]
    )
    (layout,) = dict(layouts[0]).values()
    assert [int(e) for e in layout.get_input_shape()] == [2, 64, 64]


# --- programs that stay as they are


def test_swizzle_of_64_bit_operands_that_tma_cannot_write(why):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float64"), C: T.Tensor((64, 64), "float64")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 16), "float64")
            F = T.alloc_fragment((64, 64), "float64")
            T.clear(F)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 16], S)
                T.gemm(S, S, F, transpose_B=True)
            T.copy(F, C)

    assert "TMA makes no copy of a pipelined loop: a layout of S that is" in why(main)


def test_layout_that_tma_cannot_write(why):
    padded = lambda buffer: T.Layout((64, 64), lambda i, j: i * 72 + j)  # noqa: E731
    assert "TMA makes no copy of a pipelined loop" in why(annotated(padded))


@pytest.mark.parametrize(
    ("kwargs", "reason"),
    [
        ({"config": {"tl.disable_warp_specialized": True}}, "tl.disable_warp_specialized"),
        ({"config": {"tl.disable_tma_lower": True}}, "tl.disable_tma_lower"),
    ],
)
def test_not_asked_for(why, gemm, kwargs, reason):
    assert why(gemm(2, 4, 64), **kwargs).endswith(reason)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"num_stages": 0}, "no loop is pipelined"),
        ({"threads": 64}, "its 64 threads are not whole warp groups"),
        ({"threads": 1024}, "with its producer it would have 1152 threads"),
    ],
)
def test_kernels_without_a_plan(why, gemm, options, reason):
    assert why(gemm(**options)).endswith(reason)


def body_with(statement):
    """A pipelined loop with one more statement behind its loads."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        rows: T.Tensor((8,), "int32"),
        C: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            X = T.alloc_shared((8,), "int32")
            F = T.alloc_fragment((64, 64), "float16")
            n = T.alloc_local((1,), "int32")
            tx = T.get_thread_binding(0)
            T.copy(rows, X)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], S)
                T.copy(S, F)
                statement(A, rows, C, S, W, X, F, n, tx, k)

    return main


@T.macro
def barrier(A, rows, C, S, W, X, F, n, tx, k):
    T.sync_threads()


@T.macro
def store_to_source(A, rows, C, S, W, X, F, n, tx, k):
    T.copy(F, A[0:64, 0:64])


@T.macro
def load_at_shared_index(A, rows, C, S, W, X, F, n, tx, k):
    T.copy(A[0, X[k] * 64], W)
    T.copy(W, F)
    T.fill(X, 1)


@T.macro
def load_before_index(A, rows, C, S, W, X, F, n, tx, k):
    Y = T.alloc_shared((8,), "int32")
    T.copy(A[0, Y[k] * 64], W)
    T.copy(W, F)
    T.copy(rows, Y)


@T.macro
def ask_an_element(A, rows, C, S, W, X, F, n, tx, k):
    Y = T.alloc_fragment((8,), "int32")
    T.copy(X, Y)
    if Y[k] != 0:
        T.copy(A[0, 0], W)
        T.copy(W, F)


@T.macro
def load_by_thread(A, rows, C, S, W, X, F, n, tx, k):
    if tx < 64:
        for i in T.serial(64):
            W[tx, i] = A[tx, i]
    if tx < 64:
        T.copy(A[0, 0], W)
        T.copy(W, F)


@T.macro
def load_nobody_reads(A, rows, C, S, W, X, F, n, tx, k):
    T.copy(A[0, 0], W)


@T.macro
def read_before_load(A, rows, C, S, W, X, F, n, tx, k):
    T.copy(W, F)
    T.copy(A[0, 0], W)


@T.macro
def leave_early(A, rows, C, S, W, X, F, n, tx, k):
    if rows[k] > 3:
        T.loop_break()


@T.macro
def index_of_a_tile(A, rows, C, S, W, X, F, n, tx, k):
    T.copy(A[0, n[0] * 64], W)
    T.copy(W, F)
    n[0] = T.cast(W[0, 0], "int32")


NOT_KNOWN = " and is not one statement's copy of memory that the kernel leaves alone"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        (barrier, "it synchronises threads itself (tirx.tvm_storage_sync)"),
        (store_to_source, "it reads A, which the kernel writes"),
        (load_at_shared_index, "what it loads depends on memory that the consumer writes"),
        (load_before_index, "what it loads depends on memory that the consumer writes"),
        (ask_an_element, "it depends on Y, which the consumer has" + NOT_KNOWN),
        (load_by_thread, "it depends on the thread's number"),
        (load_nobody_reads, "nothing after it in the same body uses W"),
        (read_before_load, "it uses W, which a later statement loads"),
        (leave_early, "it leaves a body that loads tiles"),
        (index_of_a_tile, "it depends on W in shared memory" + NOT_KNOWN),
    ],
)
def test_statements_that_are_not_understood(why, tile_passes, statement, reason):
    func = body_with(statement)
    place, _, found = why(func).partition(": ")
    assert found == reason
    assert place.startswith(__file__)
    before = tile_passes(func, "HoistViews", "SelectInstructions", arch="sm_90a")["main"]
    after = tile_passes(func, *PASSES, arch="sm_90a")["main"]
    tvm.ir.assert_structural_equal(before.body, after.body)


@T.macro
def load_at_known_index(A, rows, C, S, W, X, F, n, tx, k):
    T.copy(A[0, X[k] * 64], W)
    T.copy(W, F)


@T.macro
def load_if_known(A, rows, C, S, W, X, F, n, tx, k):
    seen = T.alloc_fragment((8,), "bool")
    for i in T.Parallel(8):
        seen[i] = rows[7 - i] > k
    if seen[k + 1]:
        T.copy(A[0, 0], W)
        T.copy(W, F)


@T.macro
def load_if_named(A, rows, C, S, W, X, F, n, tx, k):
    seen = T.alloc_fragment((8,), "bool")
    for i in T.Parallel(8):
        row = rows[7 - i]
        seen[i] = row > k
    if seen[k + 1]:
        T.copy(A[0, 0], W)
        T.copy(W, F)


@pytest.mark.parametrize(
    ("statement", "known", "loaded"),
    [
        (load_at_known_index, "X[k]", "rows[k] * 64"),
        (load_if_known, "seen[", "rows[7 - (k + 1)] > k"),
        (load_if_named, "seen[", "rows[7 - (k + 1)] > k"),
    ],
)
def test_the_producer_computes_elements_of_tiles_that_are_copies(
    plan, program, statement, known, loaded
):
    """What a condition or a place asks of a tile is in global memory, too."""
    func = body_with(statement)
    again = [line for line in plan(func) if "the producer reads elements of it" in line]
    assert len(again) == 1
    text = program(func)
    producer, consumer = role(text, "producer"), role(text, "consumer")
    assert loaded in producer
    assert known not in producer
    if statement is not load_at_known_index:
        assert known in consumer


def meets_after_pipeline(condition):
    """Threads pass values on in global memory behind a pipelined loop, at a barrier of their own
    that stands under `condition` of the thread's number."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        W: T.Tensor((128,), "float32"),
        C: T.Tensor((128,), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float16")
            total = T.alloc_fragment((64, 64), "float32")
            row = T.alloc_fragment((64,), "float32")
            tx = T.get_thread_binding(0)
            T.clear(total)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], S)
                T.copy(S, F)
                for i, j in T.Parallel(64, 64):
                    total[i, j] += F[i, j]
            T.reduce_sum(total, row, dim=1)
            for i in T.Parallel(64):
                T.atomic_add(W[i], row[i])
            if condition(tx):
                T.sync_threads()
            C[tx] = T.atomic_load(W[127 - tx])

    return main


def test_a_barrier_behind_a_pipeline_is_the_consumers(device):
    """It left the kernel without roles."""
    kernel = tilelang.compile(
        meets_after_pipeline(lambda tx: True), target={"kind": "cuda", "arch": "sm_90a"}
    )
    assert "warp specialised: threads 0 to 127 produce" in str(kernel.explain())
    source = kernel.get_kernel_source()
    assert source.count("__syncthreads()") == 1
    assert source.index("tl::sync_threads_partial(3, 128)") > source.index("mbarrier_wait")
    a = torch.randn(64, 256, device=device).half()
    w, c = (torch.zeros(128, device=device) for _ in range(2))
    kernel(a, w, c)
    torch.testing.assert_close(c[64:].flip(0), a.float().sum(dim=1), rtol=1e-4, atol=1e-3)


def test_a_barrier_that_not_all_consumers_reach_is_refused():
    with pytest.raises(ValueError, match="found a barrier in a region"):
        tilelang.lower(
            meets_after_pipeline(lambda tx: tx < 64), target={"kind": "cuda", "arch": "sm_90a"}
        )
