"""PlaceAsyncWaits: how long a store by TMA may go on."""

import pytest
import torch
import tvm_ffi
from tvm import ir, tirx

import tilelang
import tilelang.language as T

SM90 = {"kind": "cuda", "arch": "sm_90a"}
# What waits for all stores: until their tiles have been read, and until the tensors are written.
READ, WRITTEN = "wait 0 read", "wait 0 written"

CALLS = {
    "tl.tma_store": "store",
    "tl.tma_reduce": "add",
    "tl.atomic_add": "signal",
    "tirx.tvm_storage_sync": "barrier",
    "tl.wgmma_ss": "MMA",
    "tl.ptx_stmatrix_x4": "stmatrix",
}


def events(func):
    """What the thread program does, in order: stores of tiles and waits for them, with the number
    of groups that stay in flight; writes to the tiles S and U, barriers, loops over w, and branches
    that some blocks take."""
    kernel = tilelang.compile(func, target=SM90, execution_backend="emulate")
    found = []

    def call(node):
        if node.op.name == "tl.tma_store_wait":
            groups, only_read = node.args
            until = {"true": "read", "false": "written"}[only_read.value]
            found.append(f"wait {groups} {until}")
        elif node.op.name in CALLS:
            found.append(CALLS[node.op.name])

    def fill(node):
        if node.buffer.name in ("S", "U"):
            found.append(f"fill {node.buffer.name}")

    def loop(node):
        if node.loop_var.name == "w":
            found.append("loop")

    def branch(node):
        if "bx" in (condition := str(node.condition)):
            found.append(f"if {condition}")

    (function,) = kernel.artifact.device_mod.functions.values()
    callbacks = [
        (ir.Call, call), (tirx.BufferStore, fill), (tirx.For, loop), (tirx.IfThenElse, branch),
    ]  # fmt: skip
    tvm_ffi.structural_walk(function.body, callbacks, order="pre")
    return kernel, found


def test_the_store_of_an_iteration_runs_beside_the_next_one():
    @T.prim_func
    def main(A: T.Tensor((6, 64, 64), "float16"), C: T.Tensor((6, 64, 64), "float16")):
        with T.Kernel(2, threads=128) as b:
            S = T.alloc_shared((64, 64), "float16")
            U = T.alloc_shared((64, 64), "float16")
            for w in T.serial(4):
                if w * 2 + b < 6:
                    T.copy(A[w * 2 + b, :, :], S)
                    for i, j in T.Parallel(64, 64):
                        U[i, j] = S[i, j] + 1
                    T.copy(U, C[w * 2 + b, :, :])

    kernel, found = events(main)
    # Each iteration stores to other elements: only the tile is waited for.
    between = ["fill S", READ, "barrier", "fill U", "barrier", "store"]
    assert found == ["loop", *between, READ]
    a, c = torch.randn(6, 64, 64).half(), torch.zeros(6, 64, 64, dtype=torch.float16)
    kernel(a, c)
    assert torch.equal(c, a + 1)


def two_stores(between, second=True):
    """A tile goes to C, then `between`, then another one goes to D."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 64), "float16"),
        C: T.Tensor((64, 64), "float16"),
        D: T.Tensor((64, 64), "float16"),
        flag: T.Tensor((1,), "int32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            U = T.alloc_shared((64, 64), "float16")
            T.fill(S, 1)
            if second:
                T.fill(U, 2)
            T.copy(S, C)
            between(S, U, flag)
            if second:
                T.copy(U, D)

    return main


@T.macro
def nothing(S, U, flag):
    pass


@T.macro
def refill(S, U, flag):
    T.fill(S, 3)


@T.macro
def fill_other(S, U, flag):
    T.fill(U, 3)


@T.macro
def signal(S, U, flag):
    T.atomic_add(flag[0], 1, memory_order="release")


@T.macro
def count(S, U, flag):
    T.atomic_add(flag[0], 1)


@pytest.mark.parametrize(
    ("between", "second", "wanted"),
    [
        (nothing, True, ["store", "store", READ]),
        (refill, True, ["store", READ, "barrier", "fill S", "store", READ]),
        (signal, True, ["store", WRITTEN, "signal", "store", READ]),
        # A relaxed operation is no release: nobody may count on the tile.
        (count, True, ["store", "signal", "store", READ]),
        # The second tile may have the bytes of the first.
        (fill_other, False, ["store", READ, "barrier", "fill U"]),
    ],
)
def test_who_waits(between, second, wanted):
    kernel, found = events(two_stores(between, second))
    assert found[found.index("store") :] == wanted
    c, d = (torch.zeros(64, 64, dtype=torch.float16) for _ in range(2))
    kernel(torch.zeros_like(c), c, d, torch.zeros(1, dtype=torch.int32))
    assert c.eq(1).all()
    assert d.eq(2 if second else 0).all()


def test_a_branch_waits_in_the_branch_that_writes():
    @T.prim_func
    def main(C: T.Tensor((64, 64), "float16"), D: T.Tensor((64, 64), "float16")):
        with T.Kernel(2, threads=128) as b:
            S = T.alloc_shared((64, 64), "float16")
            T.fill(S, 1)
            T.copy(S, C)
            if b == 1:
                T.fill(S, 2)
                T.copy(S, D)

    _, found = events(main)
    wanted = ["store", "if bx == 1", READ, "barrier", "fill S", "barrier", "store", READ]
    assert found[found.index("store") :] == wanted


def test_a_jump_waits():
    @T.prim_func
    def main(C: T.Tensor((8, 64, 64), "float16")):
        with T.Kernel(2, threads=128) as b:
            S = T.alloc_shared((64, 64), "float16")
            T.fill(S, 1)
            for w in T.serial(8):
                T.copy(S, C[w, :, :])
                if w == b:
                    T.loop_break()

    kernel, found = events(main)
    assert found[found.index("loop") :] == ["loop", "store", "if w == bx", WRITTEN, READ]
    c = torch.zeros(8, 64, 64, dtype=torch.float16)
    kernel(c)
    assert c[:2].eq(1).all()
    assert c[2:].eq(0).all()


@pytest.mark.parametrize(
    ("places", "wanted"),
    # The tile has to be read. A store to what the one before has written waits for that.
    [(4, ["store", READ]), (1, [WRITTEN, "store", READ])],
)
def test_tiles_of_several_ranges_are_waited_for_at_once(places, wanted):
    @T.prim_func
    def main(C: T.Tensor((4, 64, 64), "float16")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((64, 64), "float16")
            full, free = T.alloc_barrier(128), T.alloc_barrier(128)
            with T.ws(0):
                for w in T.serial(4):
                    T.mbarrier_wait_parity(free, (w + 1) % 2)
                    T.fill(S, w)
                    T.fence_proxy_async()
                    T.mbarrier_arrive(full)
            with T.ws(1):
                for w in T.serial(4):
                    T.mbarrier_wait_parity(full, w % 2)
                    T.copy(S, C[w % places, :, :])
                    T.mbarrier_arrive(free)

    kernel, found = events(main)
    own = found[len(found) - found[::-1].index("loop") :]
    assert own[: len(wanted)] == wanted
    c = torch.zeros(4, 64, 64, dtype=torch.float16)
    kernel(c)
    last = torch.arange(4) if places == 4 else torch.tensor([3, 0, 0, 0])
    assert torch.equal(c, last.reshape(4, 1, 1).expand(4, 64, 64).half())


@pytest.mark.parametrize(
    ("order", "end"), [(None, READ), ("relaxed", READ), ("release", WRITTEN), ("seq_cst", WRITTEN)]
)
def test_the_end_of_a_range_waits_for_what_others_may_count_on(order, end):
    @T.prim_func
    def main(C: T.Tensor((4, 64, 64), "float16"), flag: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((64, 64), "float16")
            with T.ws(1):
                for w in T.serial(4):
                    T.fill(S, w)
                    T.copy(S, C[w, :, :])
            if order is not None:
                T.sync_threads()
                T.atomic_add(flag[0], 1, memory_order=order)

    kernel, found = events(main)
    body = found[found.index("loop") :]
    assert body[: body.index("store") + 2] == ["loop", READ, "fill S", "store", end]
    c = torch.zeros(4, 64, 64, dtype=torch.float16)
    kernel(c, torch.zeros(1, dtype=torch.int32))
    assert torch.equal(c, torch.arange(4).reshape(4, 1, 1).expand(4, 64, 64).half())


def test_the_epilogue_of_a_persistent_gemm_runs_beside_the_next_tile():
    @T.prim_func
    def main(
        A: T.Tensor((256, 64), "float16"),
        B: T.Tensor((64, 64), "float16"),
        C: T.Tensor((256, 64), "float16"),
    ):
        with T.Kernel(2, threads=128) as b:
            a = T.alloc_shared((64, 32), "float16")
            w = T.alloc_shared((32, 64), "float16")
            out = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for t in T.serial(2):
                T.clear(c)
                for k in T.Pipelined(2, num_stages=2):
                    T.copy(A[(t * 2 + b) * 64, k * 32], a)
                    T.copy(B[k * 32, 0], w)
                    T.gemm(a, w, c)
                T.copy(c, out)
                T.copy(out, C[(t * 2 + b) * 64, 0])

    kernel, found = events(main)
    assert [e for e in found if e != "barrier"] == ["MMA", READ, "stmatrix", "store", READ]
    a, b = (torch.randint(-2, 3, shape).half() for shape in ((256, 64), (64, 64)))
    c = torch.zeros(256, 64, dtype=torch.float16)
    kernel(a, b, c)
    assert torch.equal(c.double(), a.double() @ b.double())


def tiles_of_an_iteration(second):
    """Two stores of C an iteration; `second(w)` tells the column of the second one."""

    @T.prim_func
    def main(C: T.Tensor((4, 64, 128), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            for w in T.serial(4):
                T.fill(S, w)
                T.copy(S, C[w, 0:64, 0:64])
                T.fill(S, w + 1)
                T.copy(S, C[w, 0:64, second(w) : second(w) + 64])

    return main


@pytest.mark.parametrize(
    ("second", "order"),
    [
        # Apart, whatever w is.
        (lambda w: 64, ["loop", READ, "fill S", "store", READ, "fill S", "store", READ]),
        (lambda w: 0, ["loop", READ, "fill S", "store", READ, "fill S", WRITTEN, "store"]),
        (lambda w: w % 2 * 64, ["loop", READ, "fill S", "store", READ, "fill S", WRITTEN]),
    ],
)
def test_stores_of_an_iteration_to_other_elements_run_beside_each_other(second, order):
    kernel, found = events(tiles_of_an_iteration(second))
    found = [word for word in found if word != "barrier"]
    assert found[found.index("loop") :][: len(order)] == order
    c = torch.zeros(4, 64, 128, dtype=torch.float16)
    kernel(c)
    wanted = torch.zeros_like(c)
    for w in range(4):
        wanted[w, :, :64] = w
        wanted[w, :, second(w) : second(w) + 64] = w + 1
    assert torch.equal(c, wanted)


def test_stores_of_iterations_to_one_element_wait_for_each_other():
    """That of the last iteration goes on: it writes the other element."""

    @T.prim_func
    def main(C: T.Tensor((2, 64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            for w in T.serial(6):
                T.fill(S, w)
                T.copy(S, C[w % 2, :, :])

    kernel, found = events(main)
    assert [event for event in found if event != "barrier"] == [
        "loop", READ, "fill S", "wait 1 written", "store", READ,
    ]  # fmt: skip
    c = torch.zeros(2, 64, 64, dtype=torch.float16)
    kernel(c)
    assert torch.equal(c, torch.arange(4, 6).reshape(2, 1, 1).expand(2, 64, 64).half())


def test_elements_by_a_variable_that_has_changed():
    """C[w] is then what C[w + 1] was."""

    @T.prim_func
    def main(C: T.Tensor((4, 64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            w = T.alloc_var("int32", init=0)
            T.fill(S, 1)
            T.copy(S, C[w + 1, :, :])
            w += 1
            T.fill(S, 2)
            T.copy(S, C[w, :, :])

    kernel, found = events(main)
    assert [word for word in found if word != "barrier"] == [
        "fill S", "store", READ, "fill S", WRITTEN, "store", READ,
    ]  # fmt: skip
    c = torch.zeros(4, 64, 64, dtype=torch.float16)
    kernel(c)
    assert c[1].eq(2).all()


def test_additions_do_not_wait_for_each_other():
    @T.prim_func
    def main(C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float32")
            for w in T.serial(4):
                T.fill(S, w)
                T.atomic_add(C, S, use_tma=True)

    kernel, found = events(main)
    added = [event for event in found if event != "barrier"]
    assert added == ["loop", READ, "fill S", "add", READ]
    c = torch.ones(64, 64)
    kernel(c)
    assert c.eq(7).all()


def test_two_tiles_take_turns():
    """A tile is filled again while the last store, of the other one, goes on."""

    @T.prim_func
    def main(C: T.Tensor((8, 64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            U = T.alloc_shared((64, 64), "float16")
            for w in T.serial(2):
                for part in T.unroll(4, explicit=True):
                    tile = U if part % 2 else S
                    T.fill(tile, w * 4 + part)
                    T.copy(tile, C[w * 4 + part, 0:64, 0:64])

    kernel, found = events(main)
    turns = ["wait 1 read", "fill S", "store", "wait 1 read", "fill U", "store"] * 2
    assert [event for event in found if event != "barrier"] == ["loop", *turns, READ]
    c = torch.zeros(8, 64, 64, dtype=torch.float16)
    kernel(c)
    assert torch.equal(c, torch.arange(8).reshape(8, 1, 1).expand(8, 64, 64).half())
