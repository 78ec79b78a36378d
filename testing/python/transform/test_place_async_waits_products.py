"""PlaceAsyncWaits: where a product is waited for."""

import re

import pytest
import tvm

import tilelang
import tilelang.language as T
from tilelang import transform
from tilelang.cuda.nvrtc import compile_cubin
from tilelang.transform import PassContext
from tilelang.utils.target import determine_target

F16 = "float16"


def passed(func, arch="sm_90a"):
    """A program after the pass."""
    target = determine_target(f"cuda -arch={arch}", return_object=True)
    mod = tvm.IRModule({"main": func})
    for step in (
        transform.BindTarget(target),
        transform.MaterializeKernelLaunch(),
        transform.SelectInstructions(),
        transform.PipelinePlanning(),
        transform.InjectSoftwarePipeline(),
        transform.Simplify(),
        transform.PlaceAsyncWaits(),
    ):
        mod = step(mod)
    return mod


def planned(func, arch="sm_90a"):
    """The statements of a kernel after the pass, short: a wait with its count and accumulators."""
    text = [line.strip() for line in passed(func, arch).script().splitlines()]
    return [short for line in text if (short := shortened(line))]


def shortened(line):
    if line.startswith('T.Call("tl.tileop.'):
        name = line.removeprefix('T.Call("tl.tileop.').partition('"')[0]
        waits = name == "gemm" and '"wg_wait": -1' not in line
        return f"{name}, wait" if waits else name
    if line.startswith("T.tl.wgmma_wait("):
        arguments = line.removeprefix("T.tl.wgmma_wait(").removesuffix(")").split(", ")
        names = [a.partition("[")[0] for a in arguments[1:] if "[" in a]
        return " ".join(["wait", arguments[0], *names])
    if line.startswith(("for ", "if ", "else", "while ")):
        return line.split()[0].rstrip(":")
    if line.startswith("T.tl."):
        return line.removeprefix("T.tl.").partition("(")[0]
    return "sync" if "tvm_storage_sync" in line else None


def kernel(body, threads=128):
    """A kernel with two pairs of operands, of several versions, and two accumulators."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), F16), C: T.Tensor((64, 64)), n: T.int32):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((3, 64, 64), F16)
            b = T.alloc_shared((3, 64, 64), F16)
            c = T.alloc_fragment((64, 64), "float32")
            d = T.alloc_fragment((64, 64), "float32")
            p = T.alloc_fragment((64, 64), F16)
            body(A, C, n, a, b, c, d, p)

    return main


def straight(A, C, n, a, b, c, d, p):
    T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
    T.gemm(a[1, :, :], b[0, :, :], c, transpose_B=True)
    T.gemm(a[2, :, :], b[0, :, :], d, transpose_B=True)
    T.copy(c, C)
    T.copy(d, C)


def test_accumulators_are_waited_for_where_they_are_used():
    assert planned(kernel(T.macro(straight))) == [
        "gemm", "gemm", "gemm", "wait 1 c", "copy", "wait 0 d", "copy",
    ]  # fmt: skip


def test_each_wait_tells_its_reason():
    @T.macro
    def body(A, C, n, a, b, c, d, p):
        for k in T.serial(n):
            T.gemm(a[k % 3, :, :], b[0, :, :], c, transpose_B=True)
            T.copy(A, a[(k + 1) % 3, :, :])
            if n > 3:
                T.copy(c, C)
        T.sync_threads()
        T.gemm(a[0, :, :], b[0, :, :], d, transpose_B=True)

    texts = passed(kernel(body))["main"].attrs["tl.async_waits"]
    assert [re.sub(r" at /[^:]*\.py:\d+", "", text) for text in texts] == [
        "wgmma<2> before the statement: writes a, which the gemm reads",
        "wgmma<0> before the statement: uses c, which the gemm writes",
        "wgmma<0> behind the loop: the loop may run no iteration",
        "wgmma<0> at the end of what begins: the kernel ends",
    ]


@pytest.mark.parametrize("assumed", [False, True])
def test_a_loop_that_is_assumed_to_run(assumed):
    """The wait behind it needs no branch, wherever its number of iterations comes from."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        steps = A[0, 0].astype("int32")
        if assumed:
            T.assume(steps >= 0)
        T.clear(c)
        for _k in T.serial(steps // 4 + 1):
            T.gemm(a[0, :, :], b[0, :, :], d, transpose_B=True, clear_accum=True)
            T.copy(d, a[2, :, :])
            T.gemm(a[2, :, :], b[1, :, :], c)
        T.copy(c, C)

    assert ("if" in planned(kernel(body))) == (not assumed)


def test_a_number_of_iterations_from_a_tensor_that_is_copied_too():
    """A copy only reads it: all threads find the same number there, and run the loop together."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.copy(A, a[0, :, :])
        for _k in T.serial(A[0, 0].astype("int32")):
            T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
            T.gemm(a[1, :, :], b[0, :, :], d, transpose_B=True)
        T.copy(c, C)

    assert "gemm, wait" not in planned(kernel(body))


def test_what_is_assumed_in_a_branch_alone():
    """What such an assumption says of others than its branch's names does not hold elsewhere."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        if n != 0:
            slot = A[0, 0].astype("int32")
            T.assume(slot >= 0 and n >= 1)
            T.copy(A, a[slot, :, :])
        T.clear(c)
        for _k in T.serial(n):
            T.gemm(a[0, :, :], b[0, :, :], d, transpose_B=True, clear_accum=True)
            T.copy(d, a[2, :, :])
            T.gemm(a[2, :, :], b[1, :, :], c)
        T.copy(c, C)

    assert planned(kernel(body)).count("if") == 2


def test_index_that_each_iteration_reads_anew():
    """Slot s + 1 of an iteration may be slot s of the one before."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        for k in T.serial(n):
            s = A[k, 0].astype("int32")
            T.gemm(a[s, :, :], b[0, :, :], c, transpose_B=True)
            T.copy(A, a[s + 1, :, :])
        T.copy(c, C)

    assert planned(kernel(body)) == ["if", "for", "gemm", "wait 1", "copy", "wait 0 c", "copy"]


def test_chip():
    """Other instructions have nobody who could wait."""
    assert planned(kernel(T.macro(straight)), "sm_80") == ["gemm, wait"] * 3 + ["copy"] * 2


def test_operand_from_accumulator():
    """The product that makes an operand is waited for, the one that reads it when it changes."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        for _k in T.serial(n):
            T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True, clear_accum=True)
            T.copy(c, p)
            T.gemm(p, b[1, :, :], d)
        T.copy(d, C)

    # The second product is in flight while the first one of the next iteration is issued.
    assert planned(kernel(body)) == [
        "if", "for", "gemm", "wait 0 c d", "copy", "gemm", "wait 0 d", "copy",
    ]  # fmt: skip


def test_registers_that_are_written_while_the_next_product_runs():
    """Each product is waited for behind the next one, where the wait would else be in front of the
    copy: ptxas sees only there that the registers are free."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        q = T.alloc_fragment((64, 64), F16)
        for _k in T.serial(n):
            for operand in (p, q):
                T.copy(a[0, :, :], operand)
                T.gemm(operand, b[0, :, :], c)
        T.copy(c, C)

    assert planned(kernel(body)) == [
        "if", "for", "copy", "gemm", "wait 1", "copy", "gemm", "wait 1", "wait 0 c", "copy",
    ]  # fmt: skip


@pytest.mark.parametrize("operands", [3, 4])
@pytest.mark.parametrize("held", [False, True])
def test_every_product_of_a_loop_whose_registers_are_written_there_has_its_wait(operands, held):
    """Also the last one: its registers are not written before a later wait has retired it, but
    ptxas serialises the loop's products if it runs while registers of others are written (C7513).
    That is no matter of registers that are written in front of the loop."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        parts = [T.alloc_fragment((64, 64), F16) for _ in range(operands)]
        T.copy(a[0, :, :], p)
        for _k in T.serial(n):
            for operand in parts:
                T.copy(a[0, :, :], operand)
                T.gemm(operand, b[0, :, :], c)
            if held:
                T.gemm(p, b[1, :, :], c)
        T.copy(c, C)

    lines = planned(kernel(body))
    waited = ["copy", "gemm", "wait 1"]
    # The last of the products that are waited for is the one before.
    wanted = [*waited[:2], *waited * (operands - 1), *waited[1:]] if held else waited * operands
    assert lines == ["copy", "if", "for", *wanted, "wait 0 c", "copy"]


@pytest.mark.parametrize("written", [True, False])
def test_registers_of_a_product_beside_another_one_of_the_iteration_before(written):
    """The wait for the product of the iteration before stands in front of what writes registers of
    the next one, if the loop writes the registers of both: ptxas else lets no product of the kernel
    run beside another one (C7513)."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        q = T.alloc_fragment((64, 64), F16)
        T.clear(c)
        T.copy(a[0, :, :], q)
        for k in T.serial(16):
            T.copy(a[k % 3, :, :], p)
            T.gemm(p, b[0, :, :], d, clear_accum=True)
            T.copy(d, b[2, :, :])
            if written:
                T.copy(a[(k + 1) % 3, :, :], q)
            T.gemm(q, b[2, :, :], c)
        T.copy(c, C)

    lines = planned(kernel(body))
    start = lines.index("for")
    if written:
        assert lines[start : start + 5] == ["for", "copy", "gemm", "wait 0 d", "copy"]
        assert lines[-3:] == ["gemm", "wait 0 c", "copy"]
    else:
        assert lines[start : start + 4] == ["for", "copy", "gemm", "wait 0 d c"]
    source = tilelang.lower(kernel(body), target="cuda -arch=sm_90a").kernel_source
    assert "C75" not in compile_cubin(source, "sm_90a", ["main_kernel"], ["--no-cache"]).log


def test_same_accumulator_in_a_loop():
    @T.macro
    def body(A, C, n, a, b, c, d, p):
        for k in T.serial(3):
            T.gemm(a[k, :, :], b[k, :, :], c, transpose_B=True)
        T.copy(c, C)

    assert planned(kernel(body)) == ["for", "gemm", "wait 0 c", "copy"]


def test_a_loop_without_products_is_waited_in_front_of():
    """In the loop, all iterations but the first would wait for nothing."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
        for k in T.serial(n):
            T.fill(a[k, :, :], 0)
            T.copy(c, C[k, 0])

    assert planned(kernel(body)) == ["gemm", "wait 0 c", "for", "fill", "copy"]


@pytest.mark.parametrize("before", [False, True])
def test_an_iteration_ends_with_the_wait_that_the_next_one_begins_with(before):
    """Unless there is something to wait for in front of the first one."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        if before:
            T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
        for _ in T.serial(n):
            T.copy(A, a[0, :, :])
            T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
        T.copy(c, C)

    lines = planned(kernel(body))
    if before:
        assert lines == ["gemm", "for", "wait 0 c", "copy", "gemm", "wait 0 c", "copy"]
    else:
        assert lines == ["for", "copy", "gemm", "wait 0 c", "copy"]


@pytest.mark.parametrize(("ahead", "wait"), [(0, "wait 0"), (1, "wait 2"), (2, "wait 1")])
def test_versions(ahead, wait):
    """A copy waits for the product that reads its version: of this iteration, of the one before
    the last, or of the last one.
    """

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        for k in T.serial(n):
            T.gemm(a[k % 3, :, :], b[0, :, :], c, transpose_B=True)
            T.copy(A, a[(k + ahead) % 3, :, :])
        T.copy(c, C)

    lines = planned(kernel(body))
    # Something is in flight behind the loop, except after the product of this iteration was waited
    # for. A program that has run no iteration does not come to that wait.
    if ahead == 0:
        assert lines == ["for", "gemm", "wait 0 c", "copy", "copy"]
    else:
        assert [line.removesuffix(" c") for line in lines[:4]] == ["if", "for", "gemm", wait]
        assert lines[4:] == ["copy", "wait 0 c", "copy"]


@pytest.mark.parametrize("scaled", [False, True])
def test_products_run_beside_each_other_over_iterations(scaled):
    """ptxas lets no product of a kernel run beside another one in two cases. Registers that the
    program has set meet those of products in flight: so ends a loop without iterations (C7515). Or
    accumulators of an earlier iteration are used while a later product runs (C7514)."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.clear(c)
        for _k in T.serial(n):
            T.gemm(a[0, :, :], b[0, :, :], d, transpose_B=True, clear_accum=True)
            if scaled:
                for i, j in T.Parallel(64, 64):
                    c[i, j] = c[i, j] * 0.5
            T.copy(d, a[2, :, :])
            T.gemm(a[2, :, :], b[1, :, :], c)
        T.copy(c, C)

    lines = planned(kernel(body))
    start = lines.index("if")
    assert lines[start : start + 4] == ["if", "for", "gemm", "wait 0 d c"]
    assert lines[-4:] == ["copy", "gemm", "wait 0 c", "copy"]
    source = tilelang.lower(kernel(body), target="cuda -arch=sm_90a").kernel_source
    assert "C75" not in compile_cubin(source, "sm_90a", ["main_kernel"], ["--no-cache"]).log


@pytest.mark.parametrize(("scaled", "wait"), [(True, "wait 0 d c"), (False, "wait 1 c")])
def test_a_slot_of_the_iteration_before(scaled, wait):
    """The wait is for the tile that a product of the iteration before reads. It completes that
    product's accumulators, too: a later product stays in flight only if no statement of the loop
    uses these (C7514)."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.clear(c)
        for k in T.serial(n):
            T.gemm(a[0, :, :], b[0, :, :], d, transpose_B=True, clear_accum=True)
            T.copy(A, b[1 + (k + 1) % 2, :, :])
            T.copy(d, a[2, :, :])
            if scaled:
                for i, j in T.Parallel(64, 64):
                    c[i, j] = c[i, j] * 0.5
            T.gemm(a[2, :, :], b[1 + k % 2, :, :], c)
        T.copy(c, C)

    lines = planned(kernel(body))
    start = lines.index("for")
    assert lines[start + 1 : start + 4] == ["gemm", wait, "copy"]
    source = tilelang.lower(kernel(body), target="cuda -arch=sm_90a").kernel_source
    assert "C75" not in compile_cubin(source, "sm_90a", ["main_kernel"], ["--no-cache"]).log


@pytest.mark.parametrize("both", [False, True])
def test_branches(both):
    """What one way has in flight is waited for behind the branch, but at the end of that way if the
    other one has set the accumulators: ptxas else lets no product of the kernel run beside another
    one (C7515)."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.clear(c)
        T.clear(d)
        T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
        if both:
            T.gemm(a[1, :, :], b[0, :, :], d, transpose_B=True)
        if n > 3:
            T.gemm(a[2, :, :], b[0, :, :], d, transpose_B=True)
        T.copy(A, b[2, :, :])
        T.copy(c, C)
        T.copy(d, C)

    lines = planned(kernel(body))
    start = lines.index("if")
    if both:
        assert lines[start + 2 :] == ["copy", "wait 1 c", "copy", "wait 0 d", "copy"]
    else:
        assert lines[start:] == ["if", "gemm", "wait 0 c d", "copy", "wait 0 c", "copy", "copy"]
    source = tilelang.lower(kernel(body), target="cuda -arch=sm_90a").kernel_source
    assert "C75" not in compile_cubin(source, "sm_90a", ["main_kernel"], ["--no-cache"]).log


def test_the_other_way_of_a_branch():
    """Its products are waited for at its end, too; what is in flight in front stays so."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
        if n > 3:
            T.copy(A, b[2, :, :])
        else:
            T.gemm(a[1, :, :], b[0, :, :], d, transpose_B=True)
        T.copy(d, C)
        T.copy(c, C)

    assert planned(kernel(body)) == [
        "gemm", "if", "copy", "else", "gemm", "wait 0 c d", "copy", "wait 0 c", "copy",
    ]  # fmt: skip


@pytest.mark.parametrize("runs", [False, True])
def test_loop_that_is_known_to_run(runs):
    """Nor does it, unless it sees that a loop has an iteration, where accumulators that the program
    has set in front of the loop are in flight behind it (C7515). The second choice shows it."""

    @T.prim_func
    def main(A: T.Tensor((16, 64, 64), F16), C: T.Tensor((8, 64, 64))):
        with T.Kernel(8, threads=128) as bx:
            a = T.alloc_shared((64, 64), F16)
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined((16 if runs else 7) - bx, num_stages=3):
                T.copy(A[k, :, :], a)
                T.gemm(a, a, c)
            T.copy(c, C[bx, :, :])

    def compiled(**configs):
        with PassContext(opt_level=3, config=configs):
            source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
        return source, "C7515" in compile_cubin(source, "sm_90a", ["main_kernel"]).log

    source, _ = compiled()
    assert "k == 0 ||" not in source
    assert ("if (bx < 7)" in source or "if (bx <= 6)" in source) != runs
    source, serialised = compiled(**{"tl.second_choice.loops_run": True})
    assert ("k == 0 || k < 16 - bx" in source) == runs
    assert not serialised


def test_loop_that_an_assumption_lets_run():
    """Code generation has no assumptions: the loop keeps what they say of it."""

    @T.prim_func
    def main(A: T.Tensor((16, 64, 64), F16), C: T.Tensor((64, 64)), n: T.int32):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), F16)
            c = T.alloc_fragment((64, 64), "float32")
            T.assume(n > 0)
            T.clear(c)
            for k in T.Pipelined(n, num_stages=3):
                T.copy(A[k, :, :], a)
                T.gemm(a, a, c)
            T.copy(c, C)

    with PassContext(opt_level=3, config={"tl.second_choice.loops_run": True}):
        source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    assert "k == 0 || k < n" in source
    assert "C7515" not in compile_cubin(source, "sm_90a", ["main_kernel"]).log


@pytest.mark.parametrize("beside", [False, True])
def test_accumulators_that_a_branch_uses(beside):
    """The wait stands in front of the branch: ptxas lets no product of a kernel run beside another
    one if it is in flight on one way to a statement and complete on the other (C7514)."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.clear(c)
        for k in T.serial(16):
            T.gemm(a[0, :, :], b[0, :, :], d, transpose_B=True, clear_accum=True)
            if k > n:
                if beside:
                    T.copy(A, a[1, :, :])
                for i, j in T.Parallel(64, 64):
                    d[i, j] = T.if_then_else(i > j, d[i, j], 0)
            for i, j in T.Parallel(64, 64):
                p[i, j] = d[i, j]
            T.gemm(p, b[1, :, :], c)
            for i, j in T.Parallel(64, 64):
                c[i, j] = c[i, j] * 0.5
        T.copy(c, C)

    lines = planned(kernel(body))
    first = lines.index("gemm")
    assert lines[first : first + 3] == ["gemm", "wait 0 d", "if"]
    assert lines.count("wait 0 d") == 1


@pytest.mark.parametrize("varies", [False, True])
def test_loop_up_to_a_variable(varies):
    """Which all threads give the same value: they run the iterations together."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        last = T.alloc_var(T.int32, init=0)
        while last < n:
            last += T.get_thread_binding(0) if varies else 2
        for _ in T.serial(last):
            T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
        T.copy(c, C)

    loop = ["for", "gemm, wait"] if varies else ["if", "for", "gemm", "wait 0 c"]
    assert planned(kernel(body)) == ["while", *loop, "copy"]


def test_others_may_act():
    """Behind a barrier other threads may write an operand."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
        T.sync_threads()
        T.copy(A, a[0, :, :])

    assert planned(kernel(body)) == ["gemm", "wait 0 c", "sync", "copy"]


def test_branch_of_some_threads():
    """A whole warp group waits, so the wait stands before the branch."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
        if T.get_thread_binding(0) < 7:
            a[0, 0, 0] = T.float16(1)

    assert planned(kernel(body)) == ["gemm", "wait 0 c", "if"]


def test_end():
    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)

    assert planned(kernel(body)) == ["gemm", "wait 0"]


def test_while():
    @T.macro
    def body(A, C, n, a, b, c, d, p):
        while n > 3:
            T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
            T.copy(A, a[1, :, :])

    assert planned(kernel(body)) == ["while", "gemm", "copy", "wait 0"]


def test_by_hand():
    """The program counts its groups: other products wait at once."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        T.wgmma_gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)
        T.wgmma_gemm(a[1, :, :], b[0, :, :], d, transpose_B=True)
        T.wait_wgmma(1)
        T.copy(c, C)
        T.wait_wgmma(0)
        T.copy(d, C)
        T.gemm(a[0, :, :], b[0, :, :], c, transpose_B=True)

    assert planned(kernel(body)) == [
        "gemm", "gemm", "wait 1 c", "copy", "wait 0 d", "copy", "gemm, wait",
    ]  # fmt: skip


def test_by_hand_in_a_loop():
    """An accumulator that later groups still change is not complete."""

    @T.macro
    def body(A, C, n, a, b, c, d, p):
        for k in T.serial(n):
            T.wgmma_gemm(a[k % 3, :, :], b[0, :, :], c, transpose_B=True)
            T.wait_wgmma(1)
        T.wait_wgmma(0)
        T.copy(c, C)

    assert planned(kernel(body)) == ["for", "gemm", "wait 1", "wait 0 c", "copy"]
