"""AnnotateWarpGroupRegAlloc: registers by number of warp groups, hints, and what keeps its own."""

import logging
import re

import pytest
import tvm
from tvm import tirx
from tvm.script import tirx as T

import tilelang
import tilelang.language as TL
from tilelang._ffi import get_function

COPY = "X[tx] = X[tx]"
WAIT = "T.evaluate(0)"


ONE_BLOCK = "T.attr(0, 'tl.min_blocks_per_sm', 1)\n"


def specialised(producers, consumers, head=ONE_BLOCK, body=WAIT, shared=0, local=0):
    """A kernel whose first warp groups produce and whose others consume, with `shared` bytes and
    `local` registers of a thread."""
    first = 128 * producers
    lines = [
        "@T.prim_func(s_tir=True)",
        "def func(X: T.Buffer((1024,), 'float32')):",
        f"    tx = T.launch_thread('threadIdx.x', {first + 128 * consumers})",
        "    with T.sblock('tilelang_root'):",
        "        c = T.sblock_alloc_buffer((1,), 'int32', scope='local.var')",
        *([f"        s = T.alloc_buffer(({shared},), 'uint8', scope='shared')"] if shared else []),
        *([f"        r = T.alloc_buffer(({local},), 'int32', scope='local')"] if local else []),
        *(f"        {line}" for line in head.splitlines()),
        f"        if tx < {first}:",
        f"            with T.attr([0, {first}], 'tl.thread_range', 1):",
        "                with T.attr('producer', 'tl.warp_role', 1):",
        *(f"                    {line}" for line in body.splitlines()),
        "        else:",
        f"            with T.attr([{first}, {128 * consumers}], 'tl.thread_range', 1):",
        "                with T.attr('consumer', 'tl.warp_role', 1):",
        "                    X[tx] = X[tx]",
    ]
    return tvm.script.from_source("\n".join(lines), extra_vars={"T": T})


@pytest.fixture
def registers(statements, caplog):
    """Registers of producers and consumers after the pass, None where they stay as they are."""

    def run(func, arch="sm_90a"):
        with caplog.at_level(logging.WARNING, "tilelang"):
            text = statements("AnnotateWarpGroupRegAlloc", func, arch=arch)
        assert "thread_range" not in text
        assert "warp_role" not in text
        lines = [line.strip() for line in text.splitlines() if "min_blocks_per_sm" not in line]
        if not any("warpgroup_reg" in line for line in lines):
            return None
        start = lines.index("else:")
        assert lines[1].startswith("T.tl.warpgroup_reg_dealloc(")
        assert lines[start + 1].startswith("T.tl.warpgroup_reg_alloc(")
        assert sum("warpgroup_reg" in line for line in lines) == 2
        return tuple(int(lines[i].split("(")[1][:-1]) for i in (1, start + 1))

    return run


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [((1, 1), (24, 240)), ((1, 2), (24, 240)), ((2, 2), (24, 232)), ((1, 3), (24, 160))],
)
def test_registers_by_number_of_groups(registers, groups, wanted):
    assert registers(specialised(*groups)) == wanted


def test_other_numbers_of_groups_are_left_alone(registers, caplog):
    assert registers(specialised(1, 4)) is None
    assert "found 1 warp groups that copy and 4 that compute" in caplog.text


def test_a_producer_that_moves_data_keeps_more_registers(registers):
    """One as large as the consumer keeps all that it has."""
    assert registers(specialised(2, 2, body=COPY)) is None
    assert registers(specialised(1, 2, body=COPY)) == (48, 224)
    assert registers(specialised(1, 2, body="c[0] = c[0] + 1")) == (24, 240)


def test_a_producer_that_moves_data_begins_with_what_it_gives_back(registers):
    """Four blocks of 384 threads begin with 40 registers each, which ptxas refuses to lower to 48
    (C7406). Where the program does not ask for four, there are three."""
    four = "T.attr(0, 'tl.min_blocks_per_sm', 4)\n"
    assert registers(specialised(1, 2, head=four, body=COPY)) == (40, 40)

    @TL.prim_func
    def main(
        A: TL.Tensor((6400, 64), "float8_e4m3fn"),
        B: TL.Tensor((16, 64), "float8_e4m3fn"),
        rows: TL.Tensor((6400,), "int32"),
        C: TL.Tensor((6400, 16), "float32"),
    ):
        with TL.Kernel(100, threads=256) as bx:
            a = TL.alloc_shared((64, 32), "float8_e4m3fn")
            b = TL.alloc_shared((16, 32), "float8_e4m3fn")
            c = TL.alloc_fragment((64, 16), "float32")
            TL.clear(c)
            for k in TL.Pipelined(2, num_stages=1):
                for i, j in TL.Parallel(64, 32):
                    a[i, j] = A[rows[bx * 64 + i], k * 32 + j]
                TL.copy(B[0, k * 32], b)
                TL.gemm(a, b, c, transpose_B=True, policy=TL.GemmWarpPolicy.FullCol)
            TL.copy(c, C[bx * 64, 0])

    source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    assert "__launch_bounds__(384, 3)" in source
    assert "warpgroup_reg_dealloc<48>" in source


@pytest.mark.parametrize(
    ("groups", "shared", "local", "wanted"),
    [
        ((1, 1), 0, 0, (4, 104)),
        ((1, 1), 0, 40, (4, 104)),
        ((1, 1), 0, 41, (3, 136)),
        ((1, 1), 100 * 1024, 41, (2, 232)),
        ((1, 1), 100 * 1024, 168, (2, 232)),
        ((1, 1), 100 * 1024, 169, (1, 240)),
        ((1, 1), 113 * 1024, 0, (2, 232)),
        ((1, 1), 113 * 1024 + 16, 0, (1, 240)),
        ((1, 2), 0, 0, (3, 72)),
        ((1, 2), 0, 40, (2, 104)),
        ((1, 2), 0, 41, (1, 240)),
        ((2, 2), 0, 0, (2, 104)),
    ],
)
def test_as_many_blocks_as_there_is_room_for(groups, shared, local, wanted):
    """Blocks of a multiprocessor and the registers of consumers, by shared bytes and the registers
    of a thread's buffers."""
    func = specialised(*groups, head="", shared=shared, local=local)
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90a"})
    mod = tirx.transform.BindTarget(target)(tvm.IRModule({"main": func}))
    text = get_function("transform.AnnotateWarpGroupRegAlloc")()(mod).script()
    blocks = re.search(r"min_blocks_per_sm\"\D+(\d+)", text)
    registers = re.search(r"warpgroup_reg_alloc\((\d+)\)", text)
    assert (int(blocks[1]) if blocks else 1, int(registers[1])) == wanted


@pytest.mark.parametrize(("few", "blocks"), [(False, 2), (True, 1)])
def test_accumulators_leave_another_block_its_registers(few, blocks):
    """Of 104 registers of a thread, 64 are accumulators: with one block alone, three stages do not
    hide the loads. Of 15 blocks along an axis `ResizeBlocks` makes no pairs."""
    size, rows, step = 15 * 128, 128, 64

    @TL.prim_func
    def main(
        A: TL.Tensor((size, size), "float16"),
        B: TL.Tensor((size, size), "float16"),
        C: TL.Tensor((size, size), "float16"),
    ):
        with TL.Kernel(size // rows, size // rows, threads=256) as (bx, by):
            a = TL.alloc_shared((rows, step), "float16")
            b = TL.alloc_shared((rows, step), "float16")
            c = TL.alloc_fragment((rows, rows), "float32")
            TL.clear(c)
            for k in TL.Pipelined(size // step, num_stages=3):
                TL.copy(A[by * rows, k * step], a)
                TL.copy(B[bx * rows, k * step], b)
                TL.gemm(a, b, c, transpose_B=True)
            TL.copy(c, C[by * rows, bx * rows])

    with tilelang.transform.PassContext(config={"tl.second_choice.fewer_blocks": few}):
        source = tilelang.lower(main, target="cuda -arch=sm_90a").kernel_source
    bounds = re.search(r"__launch_bounds__\((\d+), (\d+)\)", source)
    assert (int(bounds[1]), int(bounds[2])) == (384, blocks)


def test_the_program_says_how_many_blocks_share_the_registers(registers):
    two = "T.attr(0, 'tl.min_blocks_per_sm', 2)\n"
    assert registers(specialised(1, 1, head=two)) == (24, 232)
    hint = "T.attr(0, 'tl.consumer_registers', 240)\n"
    with pytest.raises(ValueError, match=r"wanted at most 32768 registers for all .*at most 232"):
        registers(specialised(1, 1, head=two + hint))


@pytest.mark.parametrize(
    ("groups", "shared", "arch", "asked", "most", "wanted"),
    [
        ((1, 2), 0, "sm_90a", 5, 5, [24, 32]),
        ((1, 2), 0, "sm_90a", 6, 5, [24, 32]),
        ((1, 1), 0, "sm_90a", 100, 8, [24, 40]),
        ((1, 1), 75 * 1024, "sm_90a", 3, 3, [24, 136]),
        ((1, 1), 75 * 1024 + 16, "sm_90a", 3, 2, [24, 232]),
        ((1, 1), 0, "sm_80", 9, 8, []),
        ((1, 1), 0, "sm_89", 9, 6, []),
        ((1, 1), 32 * 1024, "sm_75", 3, 2, []),
    ],
)
def test_more_blocks_than_there_is_room_for(
    statements, caplog, groups, shared, arch, asked, most, wanted
):
    func = specialised(*groups, head=f"T.attr(0, 'tl.min_blocks_per_sm', {asked})", shared=shared)
    with caplog.at_level(logging.WARNING, "tilelang"):
        text = statements("AnnotateWarpGroupRegAlloc", func, arch=arch)
    assert f'"tl.min_blocks_per_sm": {most}' in text
    assert [int(n) for n in re.findall(r"warpgroup_reg_\w+\((\d+)", text)] == wanted
    words = (
        f"found {asked} blocks of {128 * sum(groups)} threads and {shared} bytes of shared memory, "
        f"wanted at most the {most} that a multiprocessor of {arch} has room for"
    )
    assert (words in caplog.text) == (most < asked)
    assert (f"write {most}\n" in caplog.text) == (most < asked)


def test_hints(registers, caplog):
    producer = "T.attr(0, 'tl.producer_registers', 40)\n"
    consumer = "T.attr(0, 'tl.consumer_registers', 208)\n"
    assert registers(specialised(1, 2, head=producer)) == (40, 232)
    assert registers(specialised(1, 2, head=producer + consumer, body=COPY)) == (40, 208)
    assert registers(specialised(1, 4, head="T.attr(0, 'tl.consumer_registers', 112)")) == (24, 112)
    stays = "T.attr(0, 'tl.no_set_max_nreg', 1)\n"
    assert registers(specialised(1, 2, head=stays)) is None
    assert not caplog.text
    assert registers(specialised(1, 2, head=stays + producer)) is None
    assert "has no effect: T.no_set_max_nreg()" in caplog.text


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (
            "T.attr(0, 'tl.consumer_registers', 240)",
            "found 240 registers for each thread of the consumers, with 256 threads that copy and "
            "256 that compute, wanted at most 65536 registers for all threads: at most 232 here",
        ),
        (
            "T.attr(0, 'tl.producer_registers', 240)",
            "found 240 registers for each thread of the producers",
        ),
    ],
)
def test_more_registers_than_there_are(registers, head, message):
    with pytest.raises(ValueError, match=message):
        registers(specialised(2, 2, head=head))


def test_only_where_the_target_moves_registers(registers, caplog):
    func = specialised(1, 2, head="T.attr(0, 'tl.producer_registers', 40)")
    assert registers(func, "sm_120") is None
    assert "the target moves no registers" in caplog.text


def test_hints_of_a_kernel_without_roles(registers, caplog):
    @T.prim_func(s_tir=True)
    def func(X: T.Buffer((128,), "float32")):
        tx = T.launch_thread("threadIdx.x", 128)
        with T.sblock("tilelang_root"):
            T.attr(0, "tl.producer_registers", 40)
            X[tx] = X[tx]

    assert registers(func) is None
    assert "gives the kernel no producers and consumers" in caplog.text


def scheduled(*roles, threads, head=""):
    """A kernel with roles of a schedule, each first thread, threads, registers."""
    lines = [
        "@T.prim_func(s_tir=True)",
        "def func(X: T.Buffer((1024,), 'float32')):",
        f"    tx = T.launch_thread('threadIdx.x', {threads})",
        "    with T.sblock('tilelang_root'):",
        *(f"        {line}" for line in head.splitlines()),
    ]
    for first, count, registers in roles:
        lines += [
            f"        if tx >= {first} and tx < {first + count}:",
            f"            with T.attr([{first}, {count}], 'tl.thread_range', 1):",
            f"                with T.attr('r{first}', 'tl.scheduled_role', {registers}):",
            "                    X[tx] = X[tx]",
        ]
    return tvm.script.from_source("\n".join(lines), extra_vars={"T": T})


@pytest.mark.parametrize(
    ("roles", "threads", "wanted"),
    [
        ([(0, 128, 24), (128, 256, 240)], 384, ["dealloc(24)", "alloc(240)"]),
        # 256 threads start with 256 each, 512 with 128.
        ([(0, 128, 24), (128, 128, 240)], 256, ["dealloc(24)", "dealloc(240)"]),
        # ptxas ignores all numbers where a role says none (C7507).
        (
            [(0, 128, 24), (128, 128, 0), (256, 128, 216)],
            512,
            ["dealloc(24)", "dealloc(128)", "alloc(216)"],
        ),
        (
            [(0, 128, 24), (128, 128, 128), (256, 128, 216)],
            512,
            ["dealloc(24)", "dealloc(128)", "alloc(216)"],
        ),
        ([(0, 128, 24), (128, 128, 0)], 256, ["dealloc(24)", "dealloc(240)"]),
        ([(0, 128, 120), (128, 128, 0)], 512, ["dealloc(120)", "dealloc(128)"]),
        ([(0, 128, 128), (128, 128, 0)], 512, []),
    ],
)
def test_registers_of_a_schedule(statements, roles, threads, wanted):
    text = statements(
        "AnnotateWarpGroupRegAlloc", scheduled(*roles, threads=threads), arch="sm_90a"
    )
    assert "scheduled_role" not in text
    assert re.findall(r"warpgroup_reg_(\S+)", text) == wanted


def test_a_schedule_with_too_many_registers_is_refused(statements):
    func = scheduled((0, 128, 24), (128, 256, 240), threads=512)
    message = (
        r"found 24 for each of 128 threads of 'r0', 240 for each of 256 threads of 'r128', "
        r"80896 registers with those of idle warps, wanted at most 65536 for the 512 threads"
    )
    with pytest.raises(ValueError, match=message):
        statements("AnnotateWarpGroupRegAlloc", func, arch="sm_90a")


@pytest.mark.parametrize(
    ("arch", "head", "why"),
    [
        ("sm_100", "", "the target moves no registers between warp groups"),
        ("sm_90a", "T.attr(0, 'tl.no_set_max_nreg', 1)", "lets threads keep what they have"),
    ],
)
def test_registers_of_a_schedule_without_an_effect(statements, caplog, arch, head, why):
    func = scheduled((0, 128, 24), (128, 128, 240), threads=256, head=head)
    with caplog.at_level(logging.WARNING, "tilelang"):
        text = statements("AnnotateWarpGroupRegAlloc", func, arch=arch)
    assert "warpgroup_reg" not in text
    assert why in caplog.text


@pytest.mark.parametrize(("columns", "blocks"), [(192, 2), (200, 2), (208, 1), (256, 1)])
def test_a_thread_begins_with_the_registers_of_its_largest_instruction(columns, blocks):
    """ptxas takes no notice of registers that setmaxnreg moves: two blocks of 256 threads begin
    with 128 each, and a wgmma of n columns takes n / 2 and 26."""

    @TL.prim_func
    def gemm(
        A: TL.Tensor((64 * 200, 256), TL.float16),
        B: TL.Tensor((256, columns), TL.float16),
        C: TL.Tensor((64 * 200, columns), TL.float32),
    ):
        with TL.Kernel(200, threads=128) as bx:
            A_shared = TL.alloc_shared((64, 64), TL.float16)
            B_shared = TL.alloc_shared((64, columns), TL.float16)
            C_local = TL.alloc_fragment((64, columns), TL.float32)
            TL.clear(C_local)
            for k in TL.Pipelined(4, num_stages=2):
                TL.copy(A[bx * 64, k * 64], A_shared)
                TL.copy(B[k * 64, 0], B_shared)
                TL.gemm(A_shared, B_shared, C_local)
            TL.copy(C_local, C[bx * 64, 0])

    kernel = tilelang.compile(gemm, target="cuda -arch=sm_90a")
    assert "0 bytes spilled" in str(kernel.explain())  # ptxas has taken it
    assert f"__launch_bounds__(256, {blocks})" in kernel.get_kernel_source()


@pytest.mark.parametrize(
    ("columns", "waits", "wanted"),
    [(64, True, (512, 176)), (64, False, (384, 240)), (256, True, (384, 240))],
)
def test_a_kernel_that_waits_for_another_one_leaves_it_registers(columns, waits, wanted):
    """A quarter, where sums of 128 x 64 have room in the others; those of 128 x 256 have not."""

    @TL.prim_func
    def main(
        A: TL.Tensor((128, 1024), "float16"),
        B: TL.Tensor((columns, 1024), "float16"),
        C: TL.Tensor((128, columns), "float32"),
    ):
        with TL.Kernel(1, threads=256):
            if waits:
                TL.pdl_sync()
            a = TL.alloc_shared((128, 128), "float16")
            b = TL.alloc_shared((columns, 128), "float16")
            c = TL.alloc_fragment((128, columns), "float32")
            TL.clear(c)
            for k in TL.Pipelined(8, num_stages=2 if columns == 256 else 4):
                TL.copy(A[0, k * 128], a)
                TL.copy(B[0, k * 128], b)
                TL.gemm(a, b, c, transpose_B=True)
            TL.copy(c, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    source = kernel.get_kernel_source()
    bounds, consumer = wanted
    assert f"__launch_bounds__({bounds}, 1)" in source
    assert f"warpgroup_reg_alloc<{consumer}>" in source


def test_a_quarter_of_the_registers_is_counted_as_ptxas_does():
    """Four warp groups and a third of as many are 22 warps, which begin with 80 registers a thread,
    not 88: 104 for each consumer would be waited for for ever."""

    @TL.prim_func
    def main(
        A: TL.Tensor((192, 384), "float16"),
        B: TL.Tensor((64, 384), "float16"),
        C: TL.Tensor((192, 64), "float16"),
    ):
        with TL.Kernel(1, threads=384):
            a = TL.alloc_shared((192, 64), "float16")
            b = TL.alloc_shared((64, 64), "float16")
            c = TL.alloc_fragment((192, 64), "float32")
            TL.pdl_sync()
            TL.clear(c)
            for k in TL.Pipelined(6, num_stages=6):
                TL.copy(A[0, k * 64], a)
                TL.copy(B[0, k * 64], b)
                TL.gemm(a, b, c, transpose_B=True)
            TL.copy(c, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="emulate")
    source = kernel.get_kernel_source()
    start = kernel.resource_usage["main_kernel"].registers
    give, take = (
        int(re.search(f"warpgroup_reg_{x}<(\\d+)>", source)[1]) for x in ("dealloc", "alloc")
    )
    assert 128 * give + 384 * take <= 512 * start
