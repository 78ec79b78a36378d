"""Work for several threads under control that threads take apart: right, or refused."""

import builtins
import linecache
import textwrap

import pytest
import torch

import tilelang
import tilelang.language as T

FILE = "kernel.py"
HEAD = """\
@T.prim_func
def main(
    A: T.Tensor((64, 64), "float32"), N: T.Tensor((256,), "int32"),
    C: T.Tensor(({results}, 64, 64), "float32"),
):
    with T.Kernel(1, threads={threads}):
        tx, ty = T.get_thread_binding(), T.get_thread_binding(1)
        warp = T.get_warp_idx()
        S = T.alloc_shared((64, 64), "float32")
        S_in = T.alloc_shared((64, 64), "float32")
        H = T.alloc_shared((64, 64), "float16")
        row = T.alloc_shared((64,), "float32")
        T.copy(A, S_in)
        T.copy(A, H)
"""

# A statement that fills S from A (in S_in, H and global memory) or C[k], and what is there then.
OPERATORS = {
    "from global": ("T.copy(A, S)", lambda a: a),
    "to global": ("T.copy(S_in, C[k, :, :])", lambda a: a),
    "in shared": ("T.copy(S_in, S)", lambda a: a),
    "through a fragment": ("F = T.alloc_fragment((64, 64), 'float32')\nT.copy(A, F)\nT.copy(F, S)",
                           lambda a: a),
    "fill": ("T.fill(S, 3)", lambda a: torch.full_like(a, 3)),
    "clear": ("T.clear(S)", torch.zeros_like),
    "transpose": ("T.transpose(S_in, S)", lambda a: a.T),
    "atomic": ("T.clear(S)\nT.atomic_add(S, S_in)", lambda a: a),
    "cumsum": ("T.cumsum(S_in, S, dim=1)", lambda a: a.cumsum(1)),
    "reduce": (
        "F = T.alloc_fragment((64, 64), 'float32')\nR = T.alloc_fragment((64,), 'float32')\n"
        "T.copy(A, F)\nT.reduce_sum(F, R, dim=1)\n"
        "for i, j in T.Parallel(64, 64):\n    S[i, j] = R[i]",
        lambda a: a.sum(1, keepdim=True).expand(64, 64),
    ),
    "gemm": (
        "F = T.alloc_fragment((64, 64), 'float32')\n"
        "T.clear(F)\nT.gemm(H, H, F, transpose_B=True)\nT.copy(F, S)",
        lambda a: a @ a.T,
    ),
    "parallel": (
        "for i, j in T.Parallel(64, 64):\n    S[i, j] = A[j, i] * 2", lambda a: 2 * a.T
    ),
    "reducer": (
        "total = T.alloc_reducer((64,), 'float32', 'sum')\nT.reducer_init(total)\n"
        "for i, j in T.Parallel(64, 64):\n    total[j] += A[i, j]\n"
        "T.finalize_reducer(total)\n"
        "for i, j in T.Parallel(64, 64):\n    S[i, j] = total[j]",
        lambda a: a.sum(0).expand(64, 64),
    ),
}  # fmt: skip

# Control that whole warps in a row take.
TAKEN = {
    "all": (256, ["if tx >= 0:"]),
    "front": (256, ["if tx < 128:"]),
    "back": (256, ["if tx >= 128:"]),
    "middle": (256, ["if 64 <= tx < 192:"]),
    "one warp": (128, ["if warp == 3:"]),
    "three warps": (160, ["if tx // 32 >= 2:"]),
    "group": (256, ["if T.get_warp_group_idx() == 1:"]),
    "not": (256, ["if not tx < 224:"]),
    "else": (256, ["if tx < 96:\n    T.sync_warp()\nelse:"]),
    "nested": (256, ["if tx < 128:", "if tx >= 32:"]),
    "and uniform": (128, ["if tx < 64 and N[0] == 0:"]),
    "uniform around": (128, ["for _ in T.serial(N[1]):", "if N[0] == 0:", "if tx < 64:"]),
    "uniform inside": (128, ["if tx < 64:", "for _ in T.serial(N[1]):", "if N[0] == 0:"]),
    "rows": ((32, 4), ["if ty >= 2:"]),
    "one row": ((32, 4), ["if ty == 1:"]),
    "long rows": ((64, 2), ["if tx >= 32 and ty == 1:"]),
    "no condition": (48, ["for _ in T.serial(1):"]),
    "named": (128, ["mine = tx < 64", "if mine:"]),
}

# Control that threads take apart otherwise.
REFUSED = {
    "one thread": (256, ["if tx == 0:"]),
    "every other thread": (256, ["if tx % 2 == 0:"]),
    "a part of a warp": (256, ["if tx < 100:"]),
    "all but one": (256, ["if tx != 77:"]),
    "the else of one": (256, ["if tx == 0:\n    T.sync_warp(mask=1)\nelse:"]),
    "warps apart": (256, ["if warp % 2 == 0:"]),
    "the last half warp": (48, ["if tx >= 32:"]),
    "loaded": (256, ["if N[tx] > 0:"]),
    "bound": (256, ["n = N[tx]", "if n > 0:"]),
    "kept": (256, ["n = T.alloc_var('int32', init=tx)", "n += 1", "if n < 128:"]),
    "by block and thread": (256, ["if warp == N[0]:"]),
    "serial": (256, ["for _ in T.serial(tx // 128):"]),
    "while": (256, ["n = T.alloc_var('int32', init=0)", "while n < N[tx]:", "n += 1"]),
    "left by some": (256, ["for i in T.serial(4):", "if N[tx] > i:\n    break"]),
    "inside of a range": (256, ["if tx < 128:", "if tx % 32 < 16:"]),
    "lanes": ((32, 4), ["if tx < 16:"]),
    "columns": ((16, 8), ["if tx < 8:"]),
    "uniform or not": (256, ["if tx < 64 or N[0] == 0:"]),
}


def program(threads, results, text):
    text = HEAD.format(threads=threads, results=results) + textwrap.indent(text, " " * 8) + "\n"
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    names = {"T": T}
    exec(builtins.compile(text, FILE, "exec"), names)
    return names["main"]


def under(control, body):
    """The body in the control, which opens a block where it ends with a colon."""
    depth, lines = 0, []
    for line in control:
        lines.append(textwrap.indent(line, " " * 4 * depth))
        depth += line.endswith(":")
    return "\n".join([*lines, textwrap.indent(body, " " * 4 * depth)])


@pytest.mark.parametrize("name", TAKEN)
def test_whole_warps_do_the_work(name, device):
    threads, control = TAKEN[name]
    text = []
    for k, (statement, _) in enumerate(OPERATORS.values()):
        body = statement.replace("[k, ", f"[{k}, ")
        text.append("T.fill(S, 7)\n" + under(control, body))
        if "C[k" not in statement:
            text.append(f"T.copy(S, C[{k}, :, :])")
    kernel = tilelang.compile(program(threads, len(OPERATORS), "\n".join(text)))
    a = torch.randint(-3, 4, (64, 64), generator=torch.Generator().manual_seed(1)).float()
    n = torch.tensor([0, 1, *range(254)], dtype=torch.int32)
    c = torch.zeros(len(OPERATORS), 64, 64)
    c = c.to(device)
    kernel(a.to(device), n.to(device), c)
    for (what, (_, wanted)), found in zip(OPERATORS.items(), c.cpu(), strict=True):
        assert torch.equal(found, wanted(a)), what


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", REFUSED)
def test_others_are_refused(name, operator):
    threads, control = REFUSED[name]
    body = OPERATORS[operator][0].replace("[k, ", "[0, ")
    func = program(threads, 1, under(control, body))
    with pytest.raises(ValueError, match=r"kernel\.py:\d+: found ") as error:
        tilelang.lower(func, target="cuda -arch=sm_80")
    assert "wanted all threads of the block or a range of whole warps" in str(error.value)


def run(threads, text, device, results=1, n=None):
    """C of a kernel over A = 0, 1, .. by rows and N = 0, 1, .."""
    kernel = tilelang.compile(program(threads, results, text))
    a = torch.arange(4096).reshape(64, 64).float().to(device)
    n = torch.arange(256, dtype=torch.int32) if n is None else n
    c = torch.zeros(results, 64, 64).to(device)
    kernel(a, n.to(device), c)
    return c.cpu()


@pytest.mark.parametrize(("memory", "prefix"), [("S", ""), ("C", "0, ")])
@pytest.mark.parametrize("threads", [1, 20, 128, (32, 4)])
def test_an_element_is_changed_once(memory, prefix, threads, device):
    one, two = (f"{memory}[{prefix}{at}]" for at in ("0, 1", "2, N[3]"))
    lines = [
        f"for i, j in T.Parallel(64, 64):\n    {memory}[{prefix}i, j] = 0",
        f"{one} = 2",
        f"{one} = {one} * 3 + 1",
        f"for k in T.serial(5):\n    {two} = {two} * 2 + k\n    T.sync_threads()",
        f"if N[0] == 0:\n    {one} += {two}",
    ]
    text = "\nT.sync_threads()\n".join(lines)
    if memory == "S":
        text += "\nT.copy(S, C[0, :, :])"
    wanted = torch.zeros(1, 64, 64)
    wanted[0, 2, 3], wanted[0, 0, 1] = 26, 33
    assert torch.equal(run(threads, text, device), wanted)


def test_a_branch_of_whole_warps_changes_an_element_once(device):
    text = """
S[0, 0] = 1
S[0, 1] = 1
T.sync_threads()
if tx >= 64:
    S[0, 0] = S[0, 0] * 3
if tx < 64:
    T.copy(S_in, C[0, :, :])
    S[0, 1] = S[0, 1] * 5
T.sync_threads()
C[0, 0, 0] = S[0, 0]
C[0, 0, 1] = S[0, 1]
"""
    wanted = torch.arange(4096).reshape(1, 64, 64).float()
    wanted[0, 0, :2] = torch.tensor([3.0, 5])
    assert torch.equal(run(256, text, device), wanted)


def test_what_is_counted_by_all_threads_together(device):
    text = "for i in T.serial(64):\n    C[0, 0, N[i] % 5] = C[0, 0, N[i] % 5] + 1"
    wanted = torch.zeros(1, 64, 64)
    wanted[0, 0, :5] = torch.bincount(torch.arange(64) % 5)
    assert torch.equal(run(128, text, device), wanted)


@pytest.mark.parametrize(
    "store",
    [
        "S[0, 0] = 5",
        "S[0, 0] = S[0, 1] + 1",
        "S[tx % 64, ty] = S[tx % 64, ty] * 2",
        "S[1, N[2]] = A[0, 0]",
    ],
)
def test_other_stores_stay(store):
    func = program(128, 1, f"T.clear(S)\n{store}\nT.copy(S, C[0, :, :])")
    source = tilelang.compile(func, target="cuda -arch=sm_80").get_kernel_source()
    assert "if (tx == 0)" not in source


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("T.atomic_add(R, A[0, tx])", 2016),
        ("T.atomic_max(R, A[0, tx])", 63),
        ("x = A[0, tx]\nT.atomic_add(R, x)", 2016),
        ("T.atomic_add(R, tx)", 2016),
        ("T.atomic_add(R, 3)", 3),
        ("if tx == 7:\n    T.atomic_add(R, 3)", 3),
        ("if tx < 5:\n    T.atomic_add(R, tx)", 10),
        ("if tx < 32:\n    T.atomic_add(R, N[2])", 2),
    ],
)
def test_an_atomic_operation_on_one_element(statement, wanted, device):
    text = f"R = T.alloc_shared((1,), 'float32')\nT.clear(R)\n{statement}\nC[0, 0, 0] = R[0]"
    assert run(64, text, device)[0, 0, 0] == wanted


def test_one_thread_issues_copies_by_tma():
    """The one that the program lets through, or one of the range."""
    for branch in ("tx == 40", "tx >= 128", "32 <= tx < 64", "T.shuffle_elect(0)"):
        text = f"""
full = T.alloc_barrier(1)
if {branch}:
    T.tma_copy(A, S, barrier=full)
T.sync_threads()
if tx == 0:
    T.barrier_arrive(full)
T.barrier_wait(full, 0)
T.copy(S, C[0, :, :])
"""
        kernel = tilelang.compile(
            program(256, 1, text), target="cuda -arch=sm_90a", execution_backend="emulate"
        )
        a, c = torch.randn(64, 64), torch.zeros(1, 64, 64)
        kernel(a, torch.zeros(256, dtype=torch.int32), c)
        assert torch.equal(c[0], a), branch


@pytest.mark.usefixtures("tensors_on_device")
def test_a_range_and_its_else_wait_for_their_own_accesses():
    """Each at a barrier of its own; what they do one after the other is in order."""
    text = """
T.transpose(S_in, S)
if tx < 64:
    T.copy(A, S_in)
    for i, j in T.Parallel(64, 64):
        C[0, i, j] = S_in[j, i]
else:
    T.copy(S, H)
    for i, j in T.Parallel(64, 64):
        C[1, i, j] = H[j, i]
if tx >= 96:
    T.copy(S_in, C[2, :, :])
"""
    kernel = tilelang.compile(program(128, 3, text))
    source = kernel.get_kernel_source()
    assert "tl::sync_threads_partial(3, 64)" in source
    assert "tl::sync_threads_partial(4, 64)" in source
    a, c = torch.arange(4096).reshape(64, 64).float() % 37, torch.zeros(3, 64, 64)
    kernel(a, torch.zeros(256, dtype=torch.int32), c)
    assert torch.equal(c, torch.stack([a.T, a, a]))


@pytest.mark.parametrize(
    ("branch", "instruction"),
    [
        ("tx >= 128", "tl::wgmma_ss"),
        ("64 <= tx < 192", "tl::mma_sync"),
        ("tx < 32", "tl::mma_sync"),
    ],
)
def test_a_product_takes_the_instruction_that_its_threads_have(branch, instruction):
    body = "T.clear(F)\nT.gemm(H, H, F)\nT.copy(F, C[0, :, :])"
    text = f"F = T.alloc_fragment((64, 64), 'float32')\n{under([f'if {branch}:'], body)}"
    func = program(256, 1, text)
    source = tilelang.compile(func, target="cuda -arch=sm_90a").get_kernel_source()
    assert {i for i in ("tl::wgmma_ss", "tl::mma_sync") if i in source} == {instruction}


@pytest.mark.parametrize("tile", ["S", "B"])
@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ("X[tx] = X[63 - tx]", lambda a: a.flip(0)),
        ("if tx < 32:\n    X[tx] = X[31 - tx]", lambda a: torch.cat([a[:32].flip(0), a[32:]])),
        (
            "for d in T.serial(6):\n    X[tx] += T.if_then_else(tx >= 1 << d, X[tx - (1 << d)], 0)",
            lambda a: a.cumsum(0).int(),
        ),
        ("X[tx] = tx\nX[X[tx] ^ 1] = tx", lambda a: torch.arange(64).int() ^ 1),
    ],
)
def test_threads_read_what_others_write_in_one_statement(define, tile, statement, wanted):
    """It was a race, which the emulator alone reported."""
    lines = "\n".join(" " * 12 + line for line in statement.splitlines())
    main = define(f"""
    @T.prim_func
    def main(A: T.Tensor((64,), T.int32), B: T.Tensor((64,), T.int32)):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            S = T.alloc_shared((64,), T.int32)
            X = {tile}
            X[tx] = A[tx]
{lines}
            B[tx] = X[tx]
    """)["main"]
    a, b = torch.randint(-9, 9, (64,), dtype=torch.int32), torch.empty(64, dtype=torch.int32)
    tilelang.compile(main, execution_backend="emulate")(a, b)
    assert torch.equal(b, wanted(a))
