"""Guards of global accesses: exactly the bounds that are not proved."""

import pytest
import torch
import tvm
from tvm.script import tirx as T

import tilelang
import tilelang.language as TL


@pytest.fixture
def legalize(statements):
    return lambda func, **kw: statements("LegalizeSafeMemoryAccess", func, **kw)


@T.prim_func(s_tir=True)
def tail(A: T.Buffer((100,), "float32"), B: T.Buffer((128,), "float32")):
    bx = T.launch_thread("blockIdx.x", 4)
    tx = T.launch_thread("threadIdx.x", 32)
    with T.sblock("tilelang_root"):
        B[bx * 32 + tx] = A[bx * 32 + tx]


def test_only_what_is_not_proved_is_guarded(legalize):
    assert legalize(tail) == (
        "B[bx * 32 + tx] = T.if_then_else(bx * 32 + tx < 100, A[bx * 32 + tx], T.float32(0.0))"
    )


def test_pass_config_turns_it_off(legalize):
    off = {"tl.disable_safe_memory_legalize": True}
    assert legalize(tail, config=off) == "B[bx * 32 + tx] = A[bx * 32 + tx]"


def test_store_guard_also_covers_the_loads_of_its_value(legalize):
    @T.prim_func(s_tir=True)
    def func(a: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,), "float16")
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            A[tx] = A[tx] + A[tx + 1]

    assert legalize(func) == (
        "if tx < n:\n    A[tx] = A[tx] + T.if_then_else(tx + 1 < n, A[tx + 1], T.float16(0.0))"
    )


def test_both_sides_are_guarded_and_nothing_twice(legalize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64, 64), "int8"), L: T.Buffer((1,), "int8"), s: T.int32):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            L[0] = A[s, s]

    assert legalize(func) == "L[0] = T.if_then_else(s >= 0 and s < 64, A[s, s], T.int8(0))"


def test_enclosing_conditions_prove(legalize):
    @T.prim_func(s_tir=True)
    def func(a: T.handle, B: T.Buffer((64,), "float32")):
        n = T.int32()
        A = T.match_buffer(a, (n,), "float32")
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            if tx * 2 < n:
                B[tx] = A[tx * 2]
            else:
                B[tx] = T.if_then_else(tx < n, A[tx], T.float32(1))

    assert legalize(func).count("if_then_else") == 1


def test_bound_values_prove(legalize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((64,), "float32")):
        tx = T.launch_thread("threadIdx.x", 64)
        with T.sblock("tilelang_root"):
            half = T.bind(tx // 2)
            A[half * 2] = T.float32(0)

    assert "if" not in legalize(func)


def test_loads_in_indices_are_guarded_themselves(legalize):
    @T.prim_func(s_tir=True)
    def func(
        A: T.Buffer((8,), "float32"), J: T.Buffer((8,), "int32"), B: T.Buffer((32,), "float32")
    ):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            B[tx] = A[J[tx]]

    index = "T.if_then_else(tx < 8, J[tx], 0)"
    assert legalize(func) == (
        f"B[tx] = T.if_then_else({index} >= 0 and {index} < 8, A[{index}], T.float32(0.0))"
    )


def test_condition_on_memory_that_the_kernel_writes_proves_nothing(legalize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            if A[0] >= 0 and A[0] < 8:
                A[0] = 100
                B[A[0]] = 1

    assert "if A[0] >= 0 and A[0] < 8:\n        B[A[0]] = 1" in legalize(func)


def test_addresses_are_left_alone(legalize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "float32")):
        tx = T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            T.evaluate(T.call_extern("void", "f", T.address_of(A[tx])))

    assert legalize(func) == 'T.call_extern("void", "f", T.address_of(A[tx]))'


def test_shared_and_local_are_left_alone(legalize):
    @T.prim_func(s_tir=True)
    def func(s: T.int32):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((8,), "float32", scope="shared.dyn")
            L = T.sblock_alloc_buffer((8,), "float32", scope="local")
            S[s] = L[s]

    assert legalize(func) == "S[s] = L[s]"


def test_vector_index_is_refused(legalize):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((8,), "float32")):
        T.launch_thread("threadIdx.x", 32)
        with T.sblock("tilelang_root"):
            A[T.Ramp(0, 1, 4)] = T.Broadcast(T.float32(0), 4)

    with pytest.raises(ValueError, match="found a vector index of A"):
        legalize(func)


def test_spans_stay(legalize):
    from tilelang._ffi import get_function

    span = tvm.ir.Span(tvm.ir.SourceName("kernel.py"), 7, 7, 1, 2)
    A = tvm.tirx.decl_buffer((8,), "float32", name="A")
    i = tvm.tirx.Var("i", "int32")
    store = tvm.tirx.BufferStore(A, tvm.tirx.FloatImm("float32", 0.0), [i], span=span)
    mod = tvm.IRModule({"main": tvm.tirx.PrimFunc([A, i], store)})
    body = get_function("transform.LegalizeSafeMemoryAccess")()(mod)["main"].body
    assert (body.span.line, body.then_case.span.line) == (7, 7)


def run_of_64(statement, B_shape, A, device):
    """What the threads of a block leave in B."""

    @TL.prim_func
    def main(A: TL.Tensor(A.shape, "int32"), B: TL.Tensor((B_shape,), "int32")):
        with TL.Kernel(1, threads=64):
            statement(A, B, TL.get_thread_binding())

    B = torch.full((B_shape,), -1, dtype=torch.int32, device=device)
    tilelang.compile(main)(A, B)
    return B.tolist()


@TL.macro
def store_shuffled(A, B, tx):
    B[tx] = TL.shfl_xor(tx // 48, 16)


@TL.macro
def add_shuffled(A, B, tx):
    TL.atomic_add(B[tx], TL.shfl_xor(tx // 48, 16) + 1)


@TL.macro
def store_count(A, B, tx):
    B[tx] = TL.syncthreads_count(tx // 48 == 1) // 16


@pytest.mark.parametrize("statement", [store_shuffled, add_shuffled, store_count])
def test_guarded_threads_take_part_in_joint_calls(device, statement):
    """Threads 48 to 63 store nothing, but give values to the others; what the guard says of a
    thread that stores is not known of them."""
    A = torch.zeros(1, dtype=torch.int32, device=device)
    wanted = [int(statement is store_count or i >= 32) for i in range(48)]
    assert run_of_64(statement, 48, A, device) == wanted


def test_guards_of_a_shuffled_index_take_it_once(device):
    """`0 <= i and i < n` asks the second time in some lanes alone."""

    @TL.macro
    def load_shuffled(A, B, tx):
        B[tx] = A[TL.shfl_xor(tx - 8, 16)]

    A = torch.arange(1, 17, dtype=torch.int32, device=device)
    wanted = [A.tolist()[i] if 0 <= (i := (tx ^ 16) - 8) < 16 else 0 for tx in range(64)]
    assert run_of_64(load_shuffled, 64, A, device) == wanted


def test_condition_with_a_shuffled_index(device):
    @TL.macro
    def store_where(A, B, tx):
        if A[TL.shfl_xor(tx - 8, 16)] > 8:
            B[tx] = 1

    A = torch.arange(1, 17, dtype=torch.int32, device=device)
    wanted = [1 if 8 <= (tx ^ 16) - 8 < 16 else -1 for tx in range(64)]
    assert run_of_64(store_where, 64, A, device) == wanted


@pytest.mark.parametrize("n", [0, 1, 2])
def test_shuffled_indices_under_conditions_of_the_program(device, n):
    """What decides is the same in all lanes; guards of the loads are not."""

    @TL.prim_func
    def main(
        A: TL.Tensor((40,), "int32"), B: TL.Tensor((2, 32), "int32"), n: TL.int32, first: TL.int32
    ):
        with TL.Kernel(1, threads=32):
            tx = TL.get_thread_binding()
            B[0, tx] = A[TL.shfl_xor(tx * 2, 16)] if n > 1 else A[TL.shfl_xor(tx + 20, 16)]
            if n == 0 or (n == first and A[TL.shfl_xor(tx * 2, 16)] > 50):
                B[1, tx] = 1

    A = torch.arange(40, 80, dtype=torch.int32, device=device)
    B = torch.zeros(2, 32, dtype=torch.int32, device=device)
    tilelang.compile(main)(A, B, n, 1)

    def at(i):
        return 40 + i if i < 40 else 0

    lanes = range(32)
    assert B.tolist() == [
        [at(2 * (x ^ 16)) if n > 1 else at((x ^ 16) + 20) for x in lanes],
        [int(n == 0 or (n == 1 and at(2 * (x ^ 16)) > 50)) for x in lanes],
    ]


def test_condition_of_a_while_with_a_shuffled_index(device):
    """Half of the lanes look at elements that do not exist, and take part in the next shuffle."""

    @TL.macro
    def count(A, B, tx):
        i = TL.alloc_var("int32", init=0)
        while TL.any_sync(A[TL.shfl_xor(tx % 32 - 8 + i, 16)] > 8) and i < 9:
            i += 1
            if i != 3:
                B[tx] += i

    A = torch.arange(1, 17, dtype=torch.int32, device=device)
    assert run_of_64(count, 64, A, device) == [sum(range(10)) - 3 - 1] * 64


@pytest.mark.parametrize(
    ("lanes", "operand", "load"),
    [
        (32, lambda tx: tx % 8, "A[i]"),
        (8, lambda tx: tx, "0 <= i && i < 8 ? A[i] : 0"),
    ],
)
def test_bounds_of_shuffles(lanes, operand, load):
    """What the operand's form says holds in all lanes, what a branch says in its own alone."""

    @TL.prim_func
    def main(A: TL.Tensor((8,), "int32"), B: TL.Tensor((64,), "int32")):
        with TL.Kernel(1, threads=64):
            tx = TL.get_thread_binding()
            if tx < lanes:
                i = TL.shfl_xor(operand(tx), 4, mask=(1 << lanes) - 1)
                B[tx] = A[i]

    source = tilelang.compile(main, execution_backend="emulate").get_kernel_source()
    assert f"B[tx] = {load};" in source
