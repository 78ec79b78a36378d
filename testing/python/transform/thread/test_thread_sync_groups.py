"""ThreadSync where several warp groups run a range: they wait only for whom they share with."""

import re

import pytest
import tvm
from tvm.script import tirx as T

import tilelang.language  # noqa: F401 (its operators are T.tl.* of scripts)


@pytest.fixture
def sync(statements):
    """Statements of the range after ThreadSync; barriers are BARRIER, ALL and GROUP."""

    def run(func):
        text = statements("ThreadSync", func, arch="sm_90")
        text = text.replace('T.tvm_storage_sync("shared")', "BARRIER")
        text = text.replace("T.tl.sync_threads_partial(3, 256)", "ALL")
        # Each of the warp groups 1 and 2 has a barrier of its own, behind those of sets of threads.
        text = re.sub(r"T\.tl\.sync_threads_partial\(tx // 128 \+ [23], 128\)", "GROUP", text)
        lines = [line for line in text.splitlines() if "T.attr" not in line]
        assert lines[0] == "if 128 <= tx:"
        return "\n".join(line[4:] for line in lines[1:])

    return run


def kernel(body):
    """A kernel of 384 threads, of which the last two warp groups run the body; t counts theirs."""
    lines = [
        "@T.prim_func(s_tir=True)",
        "def func(A: T.Buffer((256,), 'float32'), n: T.int32):",
        "    tx = T.launch_thread('threadIdx.x', 384)",
        "    with T.sblock('tilelang_root'):",
        "        S = T.sblock_alloc_buffer((256,), scope='shared.dyn')",
        "        U = T.sblock_alloc_buffer((256,), scope='shared.dyn')",
        "        if 128 <= tx:",
        "            T.attr([128, 256], 'tl.thread_range', 1)",
        *("            " + line for line in body.replace("OWN", OWN).strip().splitlines()),
    ]
    return tvm.script.from_source("\n".join(lines), extra_vars={"T": T})


# The elements of a thread's own group, in reverse.
OWN = "tx // 128 * 128 - 1 - tx % 128"


def test_each_group_meets_by_itself(sync):
    func = kernel("S[tx - 128] = A[tx - 128]\nA[tx - 128] = S[OWN]")
    assert sync(func).splitlines()[1] == "GROUP"


def test_groups_that_share_meet(sync):
    func = kernel("S[tx - 128] = A[tx - 128]\nA[tx - 128] = S[383 - tx]")
    assert sync(func).splitlines()[1] == "ALL"


def test_one_barrier_for_both(sync):
    """What the groups share needs more than what each has, at the same place."""
    func = kernel(
        "S[tx - 128] = A[tx - 128]\nU[tx - 128] = A[tx - 128]\nA[tx - 128] = S[OWN] + U[383 - tx]"
    )
    lines = sync(func).splitlines()
    assert lines[2] == "ALL"
    assert len(lines) == 4


def test_groups_that_have_met_by_themselves_still_meet_for_what_they_share(sync):
    func = kernel("S[tx - 128] = A[tx - 128]\nA[tx - 128] = S[OWN]\nA[tx - 128] = S[383 - tx]")
    lines = sync(func).splitlines()
    assert [lines[1], lines[3]] == ["GROUP", "ALL"]


def test_in_a_loop(sync):
    func = kernel(
        "for k in range(4):\n    S[tx - 128] = A[tx - 128]\n    A[tx - 128] = S[OWN] + 1.0"
    )
    lines = [line.strip() for line in sync(func).splitlines()]
    assert lines.count("GROUP") == 2
    assert "ALL" not in lines


def test_the_next_iteration_of_another_group(sync):
    """In an iteration groups are apart; the next one writes what another group has read."""
    func = kernel(
        "for k in range(4):\n    S[tx - 128] = A[tx - 128]\n"
        "    A[tx - 128] = S[(OWN + k * 128) % 256]"
    )
    lines = [line.strip() for line in sync(func).splitlines()]
    assert lines.count("ALL") == 2
    assert "GROUP" not in lines


def test_too_few_barriers(sync):
    """The program has all but one of the named barriers: the range meets there."""
    taken = "\n".join(f"T.evaluate(T.tl.sync_threads_partial({k}, 256))" for k in range(4, 16))
    func = kernel(f"{taken}\nS[tx - 128] = A[tx - 128]\nA[tx - 128] = S[OWN]")
    assert sync(func).splitlines()[13] == "ALL"


def test_threads_of_no_range_meet_as_a_block(statements):
    @T.prim_func(s_tir=True)
    def func(A: T.Buffer((256,), "float32")):
        tx = T.launch_thread("threadIdx.x", 256)
        with T.sblock("tilelang_root"):
            S = T.sblock_alloc_buffer((256,), "float32", scope="shared.dyn")
            S[tx] = A[tx]
            A[tx] = S[tx // 128 * 128 + 127 - tx % 128]

    assert "tvm_storage_sync" in statements("ThreadSync", func, arch="sm_90")


def beside(statements, body):
    """The text of a kernel of 384 threads; ROLE n is a range of the warp group n."""
    lines = ["@T.prim_func(s_tir=True)"]
    lines += ["def func(A: T.Buffer((384,), 'float32'), B: T.Buffer((384,), 'float32')):"]
    lines += ["    tx = T.launch_thread('threadIdx.x', 384)", "    with T.sblock('tilelang_root'):"]
    lines += [f"        {n} = T.sblock_alloc_buffer((384,), scope='shared.dyn')" for n in "SU"]
    for line in body.splitlines():
        indent, role, rest = re.fullmatch(r"( *)(?:ROLE (\d): )?(.*)", line).groups()
        if role:
            first = int(role) * 128
            lines.append(f"        {indent}if {first} <= tx and tx < {first + 128}:")
            lines.append(f"            {indent}T.attr([{first}, 128], 'tl.thread_range', 1)")
        lines.append(("            " if role else "        ") + indent + rest)
    func = tvm.script.from_source("\n".join(lines), extra_vars={"T": T})
    text = statements("ThreadSync", func, arch="sm_90")
    text = re.sub(r"( *)if (\d+) <= tx .*\n.*T\.attr.*\n *", r"\1ROLE \2: ", text)
    text = re.sub(r"ROLE (\d+)", lambda m: f"ROLE {int(m[1]) // 128}", text)
    return text.replace('T.tvm_storage_sync("shared")', "BARRIER").splitlines()


@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("S[tx] = A[tx]\nROLE 0: U[tx] = A[tx]\nROLE 1: B[tx] = S[383 - tx]", [1]),
        # All threads read between the roles.
        ("S[tx] = A[tx]\nROLE 0: U[tx] = A[tx]\nB[tx] = S[383 - tx]\nROLE 1: U[tx] = A[tx]", [1]),
        # All threads read behind the roles.
        ("S[tx] = A[tx]\nROLE 0: U[tx] = A[tx]\nROLE 1: U[tx] = A[tx]\nB[tx] = S[383 - tx]", [3]),
        # All threads write between the roles.
        ("ROLE 0: U[tx] = A[tx]\nS[tx] = A[tx]\nROLE 1: B[tx] = S[383 - tx]", [2]),
        # The next iteration writes what roles have read.
        (
            "for k in range(4):\n    S[tx] = A[tx]\n    ROLE 0: U[tx] = A[tx]\n"
            "    ROLE 1: B[tx] = S[383 - tx]",
            [1, 2],
        ),
        # The last iteration has written what a role reads.
        (
            "for k in range(4):\n    ROLE 0: U[tx] = A[tx]\n    ROLE 1: B[tx] = S[383 - tx]\n"
            "    S[tx] = A[tx]",
            [1, 3],
        ),
        # Accesses of two roles are ordered by the program's mbarriers: no barrier.
        ("ROLE 0: S[tx] = A[tx]\nROLE 1: B[tx] = S[383 - tx]", []),
    ],
)
def test_a_barrier_of_the_block_stands_in_front_of_roles(statements, body, before):
    """Role 0 may wait for role 1: a barrier between them would end in a deadlock."""
    wanted = body.splitlines()
    for at in reversed(before):
        indent = wanted[at][: len(wanted[at]) - len(wanted[at].lstrip())]
        wanted.insert(at, f"{indent}BARRIER")
    assert beside(statements, body) == wanted
