"""ThreadSync in ranges of threads, and what is uniform in them."""

import pytest
import tvm
from tvm.script import tirx as T


@pytest.fixture
def sync(statements):
    """Statements after ThreadSync, without attributes; barriers are BARRIER and RANGE(id, n)."""

    def run(func):
        text = statements("ThreadSync", func, arch="sm_90")
        text = text.replace('T.tvm_storage_sync("shared")', "BARRIER")
        text = text.replace("T.tl.sync_threads_partial", "RANGE")
        return "\n".join(line for line in text.splitlines() if "T.attr" not in line)

    return run


def kernel(body, threads=256):
    """A kernel of so many threads over A[256] and shared S[128], U[128]."""
    lines = [
        "@T.prim_func(s_tir=True)",
        "def func(A: T.Buffer((256,), 'float32'), n: T.int32):",
        f"    tx = T.launch_thread('threadIdx.x', {threads})",
        "    with T.sblock('tilelang_root'):",
        "        S = T.sblock_alloc_buffer((128,), scope='shared.dyn')",
        "        U = T.sblock_alloc_buffer((128,), scope='shared.dyn')",
        "        c = T.sblock_alloc_buffer((1,), 'int32', scope='local.var')",
        *("        " + line for line in body.strip().splitlines()),
    ]
    return tvm.script.from_source("\n".join(lines), extra_vars={"T": T})


LOW = "if tx < 128:\n    T.attr([0, 128], 'tl.thread_range', 1)\n    "
HIGH = "if 128 <= tx:\n    T.attr([128, 128], 'tl.thread_range', 1)\n    "


def test_ranges_apart_are_ordered_by_the_program(sync):
    func = kernel(f"{LOW}S[tx] = A[tx]\n{HIGH}A[tx] = S[255 - tx]")
    assert "BARRIER" not in sync(func)
    assert "RANGE" not in sync(func)


def test_a_range_orders_its_own_accesses(sync):
    """Also where they stand in two branches: the other threads need not come."""
    func = kernel(f"{LOW}S[tx] = A[tx]\n{HIGH}U[tx - 128] = A[tx]\n{LOW}A[tx] = S[127 - tx]")
    assert sync(func) == (
        "if tx < 128:\n"
        "    S[tx] = A[tx]\n"
        "if 128 <= tx:\n"
        "    U[tx - 128] = A[tx]\n"
        "if tx < 128:\n"
        "    RANGE(3, 128)\n"
        "    A[tx] = S[127 - tx]"
    )


ALL = "if tx < 256:\n    T.attr([0, 256], 'tl.thread_range', 1)\n    "


@pytest.mark.parametrize("low_is_first", [True, False])
def test_the_larger_one_of_two_ranges_meets_alone(sync, low_is_first):
    """In front of its read, or behind its write. Threads 256 and above may be waited for."""
    first, second = (LOW, ALL) if low_is_first else (ALL, LOW)
    func = kernel(f"{first}S[tx % 128] = A[tx]\n{second}A[tx] = S[127 - tx % 128]", threads=384)
    lines = sync(func).splitlines()
    assert [line for line in lines if "RANGE" in line or "BARRIER" in line] == ["    RANGE(3, 256)"]
    assert lines.index("    RANGE(3, 256)") == (3 if low_is_first else 2)


def test_ranges_that_share_some_threads_meet_as_a_block(sync):
    func = kernel(
        f"{ALL}S[tx % 128] = A[tx]\nif 128 <= tx:\n    T.attr([128, 256], 'tl.thread_range', 1)\n"
        "    A[tx] = S[127 - tx % 128]",
        threads=384,
    )
    assert sync(func).splitlines()[2] == "BARRIER"


def test_ranges_in_a_loop_meet_in_the_larger_one(sync):
    """Others may be iterations ahead."""
    body = f"{ALL}S[tx % 128] = A[tx]\n{LOW}A[tx] = S[127 - tx]"
    func = kernel(
        "for k in range(4):\n" + "\n".join("    " + line for line in body.splitlines()), threads=384
    )
    assert sync(func) == (
        "for k in range(4):\n"
        "    if tx < 256:\n"
        "        RANGE(3, 256)\n"
        "        S[tx % 128] = A[tx]\n"
        "        RANGE(3, 256)\n"
        "    if tx < 128:\n"
        "        A[tx] = S[127 - tx]"
    )


def test_a_range_in_a_loop_meets_alone(sync):
    func = kernel(
        "for k in range(4):\n    if tx < 128:\n        T.attr([0, 128], 'tl.thread_range', 1)\n"
        "        A[tx] = S[127 - tx]\n        S[tx] = A[tx]\n"
    )
    assert sync(func).splitlines()[2:] == [
        "        RANGE(3, 128)",
        "        A[tx] = S[127 - tx]",
        "        RANGE(3, 128)",
        "        S[tx] = A[tx]",
    ]


def test_all_threads_meet_before_what_all_threads_do(sync):
    func = kernel(f"{LOW}S[tx] = A[tx]\nA[tx] = S[tx // 2]\n{HIGH}S[tx - 128] = A[tx]")
    assert sync(func) == (
        "if tx < 128:\n"
        "    S[tx] = A[tx]\n"
        "BARRIER\n"
        "A[tx] = S[tx // 2]\n"
        "BARRIER\n"
        "if 128 <= tx:\n"
        "    S[tx - 128] = A[tx]"
    )


COUNTED = """c[0] = 0
while c[0] < n:
    A[tx] = S[127 - tx % 128]
    S[tx % 128] = A[tx]
    c[0] = c[0] + 1"""


def test_a_counter_of_a_range_is_the_same_in_its_threads(sync):
    inner = COUNTED.replace("\n", "\n    ")
    assert sync(kernel(LOW + inner)).count("RANGE(3, 128)") == 2
    assert (
        sync(kernel("c[0] = 1\n" + LOW + inner + "\n" + HIGH + inner)).count("RANGE(4, 128)") == 2
    )


def test_a_counter_that_a_range_changes_for_all_is_not(sync):
    """Threads of the range are ahead where all threads loop."""
    with pytest.raises(ValueError, match="needs a barrier after an access by other threads"):
        sync(kernel(f"c[0] = 0\n{LOW}c[0] = 2\n{COUNTED[9:]}"))


def test_threads_that_a_number_of_the_call_chooses_may_have_elements_of_their_own(sync):
    """Of the threads with one element, the condition lets one in."""
    body = "if {} == n % 8:\n    S[tx % 32] = A[tx]\n    A[tx] = S[tx % 32]\n    S[tx % 32] = A[tx]"
    assert "BARRIER" not in sync(kernel(body.format("tx // 32")))
    assert "BARRIER" not in sync(
        kernel(body.format("tx // 32").replace("n % 8:", "n % 8 and tx < n:"))
    )
    with pytest.raises(ValueError, match="needs a barrier after an access by other threads"):
        sync(kernel(body.format("tx % 2").replace("S[tx % 32]\n", "S[31 - tx % 32]\n")))
    with pytest.raises(ValueError, match="needs a barrier after an access by other threads"):
        sync(kernel(body.format("tx % 64")))
