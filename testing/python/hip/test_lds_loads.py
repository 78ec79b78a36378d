"""Loads to shared memory (LDS) that no register holds: AMD's buffer loads with LDS."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.engine.lower import lower
from tilelang.engine.observers import observing
from tilelang.hip.compile import compile_code_object
from tilelang.layout import Layout, make_swizzled_layout
from tilelang.utils.target import determine_target

# gfx950 loads 16 bytes of a lane; the others load 4, where the program asks for it.
ARCHS = {"gfx90a": "cp_async", "gfx942": "cp_async", "gfx950": None}


def compiled(program, arch="gfx950"):
    return tilelang.compile(program, out_idx=-1, target=f"hip -mcpu={arch}")


@pytest.mark.parametrize(
    ("stages", "plan"),
    [
        (2, ([0, 0, 1], [0, 1, 2], {"A_shared": 2, "B_shared": 2})),
        (3, ([0, 0, 2], [0, 1, 2], {"A_shared": 3, "B_shared": 3})),
    ],
)
@pytest.mark.parametrize(("arch", "asked"), ARCHS.items())
def test_plans_are_those_of_asynchronous_copies(product, plan_of, stages, plan, arch, asked):
    assert plan_of(product(stages, 160, asked=asked), arch) == plan


def statements(source):
    """The calls that load, wait, or multiply, in the order of the text."""
    return re.findall(r"tl::(buffer_load_lds\w*<\d+>|wait_vmcnt<\d+>|mfma|sync_threads)", source)


def test_waits_count_the_loads_of_a_step(product):
    """A step has two loads of A and two of B a thread. The last tile's may be on their way."""
    source = compiled(product(3, 128)).get_kernel_source()
    assert re.findall(r"tl::(wait_vmcnt<\d+>|mfma)", source) == [
        "wait_vmcnt<4>",
        "mfma",
        "wait_vmcnt<0>",
    ]
    dwords = compiled(product(3, 128, asked="cp_async"), "gfx942").get_kernel_source()
    assert "tl::wait_vmcnt<16>()" in dwords
    assert "cp_async" not in source + dwords


def loads_of(source, tile):
    """(shared + lane, offset + uniform) of each load of a tile, as functions of tx and r."""
    calls = re.findall(rf"r < (\d+); .*\n *tl::buffer_load_lds\w*<(\d+)>\({tile}(.*?)\);\n", source)
    for count, width, arguments in calls:
        parts = re.split(r", (?![^()]*\))", arguments)
        yield int(count), int(width), parts


def evaluated(text, **names):
    return eval(text.replace("/", "//"), {}, names)


@pytest.mark.parametrize(("arch", "asked"), ARCHS.items())
@pytest.mark.parametrize("columns", [32, 64])
def test_places_follow_the_lanes_and_elements_the_swizzle(arch, asked, columns):
    """Rows of 128 (64) bytes: chunk c of 16 bytes of row i lies at c xor i % 8 (i // 2 % 4); with
    the 64 banks of gfx950 at c xor what the upper bits of i are worth."""

    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, columns), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(256 // columns, num_stages=2):
                T.copy(A[0, k * columns], S, prefer_instruction=asked)
                T.gemm(S, S, F, transpose_B=True)
            T.copy(F, C)

    source = compiled(main, arch).get_kernel_source()
    count, width, parts = next(loads_of(source, "S"))
    shared, lane, _, _, offset, uniform = parts[:6]
    seen = set()
    for r in range(count):
        for tx in range(128):
            place = 2 * (evaluated("0" + shared, r=r) + evaluated(lane, tx=tx))
            assert place == 128 * width * r + width * tx
            i, chunk, rest = place // (2 * columns), place % (2 * columns) // 16, place % 16
            if arch == "gfx950":
                worth = (4 if columns == 64 else 0, 3, 2, 1)
                for bit in range(4):
                    chunk ^= (i >> bit + 1 & 1) * worth[bit]
            else:
                chunk ^= i % 8 if columns == 64 else i // 2 % 4
            element = evaluated(offset, r=r, tx=tx) + evaluated(uniform, r=r, tx=tx)
            assert element == i * 256 + chunk * 8 + rest // 2
            seen.add(element)
    assert len(seen) == 64 * columns * 2 // width


@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("k", [32, 64, 104, 160])
def test_product(product, checked, stages, k):
    a, b = torch.randn(1, 60, k).half(), torch.randn(64, k).half()
    kernel = compiled(product(stages, k))
    assert "buffer_load_lds" in kernel.get_kernel_source()
    checked(kernel, (a, b), a[0].float() @ b.float().T, seeds=3)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("stages", [2, 3])
def test_product_by_dwords(product, checked, stages, arch):
    a, b = torch.randn(1, 60, 104).half(), torch.randn(64, 104).half()
    kernel = compiled(product(stages, 104, asked="cp_async"), arch)
    assert "buffer_load_lds_if<4>" in kernel.get_kernel_source()
    checked(kernel, (a, b), a[0].float() @ b.float().T, seeds=3)


@pytest.mark.parametrize(("stages", "annotate"), [(2, False), (3, True)])
def test_product_of_tiles_with_three_dimensions(product, checked, stages, annotate):
    a, b = torch.randn(2, 60, 128).half(), torch.randn(64, 128).half()
    kernel = compiled(product(stages, 128, 2, annotate=annotate))
    assert "buffer_load_lds<16>(A_shared" in kernel.get_kernel_source().replace("_if", "")
    checked(kernel, (a, b), a.float().sum(0) @ b.float().T)


def loading(asked=None, dtype="float16", shape=(64, 32), tensor=(64, 128), **options):
    """A loop that loads a tile; the options say what is in the way of loads to LDS."""
    threads, layout, index = (
        options.get("threads", 128),
        options.get("layout"),
        options.get("index"),
    )
    source = options.get("source", dtype)
    columns = T.dynamic("columns") if options.get("dynamic") else tensor[1]

    @T.prim_func
    def main(
        A: T.Tensor((tensor[0], columns), source),
        rows_of: T.Tensor((4,), "int32"),
        C: T.Tensor(shape, "float32"),
    ):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared(shape, dtype)
            F = T.alloc_fragment(shape, "float32")
            if layout is not None:
                T.annotate_layout({S: Layout(shape, layout)})
            T.clear(F)
            for k in T.Pipelined(4, num_stages=2):
                if index:
                    T.copy(A[rows_of[k], 0], S, prefer_instruction=asked)
                elif options.get("part"):
                    T.copy(
                        A[0:24, k * shape[1] : (k + 1) * shape[1]],
                        S[0:24, :],
                        prefer_instruction=asked,
                    )
                else:
                    T.copy(A[0, k * shape[1]], S, prefer_instruction=asked)
                for i, j in T.Parallel(*shape):
                    F[i, j] += T.cast(S[i, j], "float32")
            if options.get("writes"):
                A[0, 0] = T.cast(F[0, 0], source)
            T.copy(F, C)

    return main


REJECTED = {
    "rows that are no multiples of 4 bytes": {"shape": (64, 33), "tensor": (64, 132)},
    "a layout of S whose places do not follow each other": {"layout": lambda i, j: i * 40 + j},
    "a layout of S in which 4 bytes do not lie side by side": {"layout": lambda i, j: j * 64 + i},
    "2048 bytes for 1024 threads, who do not have equally many times 4": {
        "shape": (32, 32),
        "threads": 1024,
    },
    "a part of S": {"part": True},
    "a conversion from float32 to float16": {"source": "float32"},
    "the program writes A": {"writes": True},
    "an index that is read from memory": {"index": True},
    "A has rows of a size of the call's, or of 2 GiB": {"dynamic": True},
}


@pytest.mark.parametrize("arch", ARCHS)
def test_rows_whose_number_the_call_decides(checked, arch):
    """A resource begins at the tile; what is behind the last row is zeros."""
    m = T.dynamic("m")

    @T.prim_func
    def main(A: T.Tensor((m, 2, 96), "float16"), B: T.Tensor((m, 96), "float16")):
        with T.Kernel(T.ceildiv(m, 64), threads=128) as bx:
            S = T.alloc_shared((64, 32), "float16")
            for k in T.Pipelined(3, num_stages=2):
                T.copy(
                    A[bx * 64 : bx * 64 + 64, 1, k * 32 : k * 32 + 32],
                    S,
                    prefer_instruction="cp_async",
                )
                T.copy(S, B[bx * 64, k * 32])

    kernel = compiled(main, arch)
    assert "int64_t(m), int64_t(384))" in kernel.get_kernel_source()
    code = compile_code_object(kernel.get_kernel_source(), arch, ["main_kernel"])
    assert re.search(r"buffer_load_dword\w* v.* lds", code.assembly)
    # A resource that is not in scalar registers takes a loop over the lanes.
    assert "s_cbranch_execnz" not in code.assembly
    for rows in (1, 64, 100):
        a = torch.randn(rows, 2, 96).half()
        checked(kernel, (a,), a[:, 1], seeds=2)


def test_a_tensor_of_8_gib():
    """Offsets in its resource are those in a tile."""
    program = loading("cp_async", tensor=(1 << 24, 256))
    source = tilelang.lower(program, target="hip -mcpu=gfx950").kernel_source
    calls = re.findall(r"buffer_load_lds\w*<16>\(.*, A, int64_t\(8589934592\), (.*)\);", source)
    assert len(calls) == 2
    assert all("int64_t(k) * 32" in call or call.endswith("int64_t(0)") for call in calls)


def rejection_of(program, arch="gfx950"):
    """What SelectInstructions says of the load."""
    target = determine_target(f"hip -mcpu={arch}", return_object=True)
    found = []

    class Reader:
        def write(self, name, mod):
            if name == "tl.SelectInstructions":
                found.append(mod.script())

        def close(self):
            pass

    with observing(lambda _: Reader()):
        lower(program, target=target)
    match = re.search(r'tileop.copy", \[A.*"buffer_load_lds": "([^"]*)"', found[0])
    return match and match[1]


@pytest.mark.parametrize("why", REJECTED)
def test_rejected(why):
    assert rejection_of(loading(**REJECTED[why])) == why


@pytest.mark.parametrize("why", REJECTED)
def test_refused_where_it_is_asked_for(why):
    with pytest.raises(ValueError, match=re.escape(f"T.copy: found {why}, wanted a whole tile")):
        compiled(loading("cp_async", **REJECTED[why]))


def test_elements_of_four_bits(checked):
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float4_e2m1fn"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float4_e2m1fn")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], S)
                for i, j in T.Parallel(64, 64):
                    F[i, j] += T.cast(S[i, j], "float32")
            T.copy(F, C)

    kernel = compiled(main)
    assert "buffer_load_lds_if<16>(S + " in kernel.get_kernel_source()
    codes = torch.randint(0, 16, (64, 256))
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])[codes]
    stored = (codes[:, ::2] | codes[:, 1::2] << 4).to(torch.uint8)
    stored = stored.view(T.float4_e2m1fn.as_torch())
    checked(kernel, (stored,), values.reshape(64, 4, 64).sum(1), seeds=2)


@pytest.mark.parametrize(("arch", "asked"), ARCHS.items())
def test_assembly_waits_where_the_program_does(product, arch, asked):
    """LLVM waits for all loads in front of reads of LDS that it cannot tell from them."""
    kernel = compiled(product(3, 4096, asked=asked), arch)
    assembly = compile_code_object(kernel.get_kernel_source(), arch, ["main_kernel"]).assembly
    before, _, behind = assembly.partition("Inner Loop Header")
    label = re.findall(r"^(\.LBB\w+):", before, re.MULTILINE)[-1]
    loop = behind[: behind.rindex(f" {label}\n")]
    loads = re.findall(r"buffer_load_dword\w* v.* lds", loop)
    of_step = 4 if arch == "gfx950" else 16
    waits = re.findall(r"s_waitcnt.*vmcnt\(\d+\)", loop)
    assert set(waits) == {f"s_waitcnt vmcnt({of_step})"}
    assert len(loads) == of_step * len(waits)
    assert "ds_write" not in loop


def test_explanation(product):
    text = compiled(product(3, 160)).explain()
    assert "buffer_load_lds of 16 bytes" in text


@pytest.mark.parametrize("arch", ["gfx942"])
def test_dwords_are_for_who_asks(product, arch):
    assert "buffer_load_lds" not in compiled(product(2, 160), arch).get_kernel_source()


@T.prim_func
def by_hand(A: T.Tensor((4, 128), "float32"), B: T.Tensor((4, 128), "float32")):
    """Two tiles are on their way; the program says which one is waited for."""
    with T.Kernel(1, threads=128):
        S = T.alloc_shared((2, 128), "float32")
        T.async_copy(A[0, :], S[0, :])
        for k in range(4):
            T.async_copy(A[T.min(k + 1, 3), :], S[(k + 1) % 2, :])
            T.ptx_wait_group(1)
            for i in T.Parallel(128):
                B[k, i] = S[k % 2, 127 - i]


@pytest.mark.parametrize("arch", ["gfx90a", "gfx950"])
def test_copies_that_the_program_waits_for(checked, arch):
    kernel = tilelang.compile(by_hand, out_idx=-1, target=f"hip -mcpu={arch}")
    assert "tl::wait_vmcnt<1>()" in kernel.get_kernel_source()
    a = torch.randn(4, 128)
    checked(kernel, (a,), a.flip(1))


def by_shares(rows, first, swizzled):
    """The program fills a tile by `rows` rows at a time."""
    count = 64 // rows

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((2, 64, 64), "float16")
            if swizzled:
                T.annotate_layout({S: make_swizzled_layout(S)})
            for k in range(count):
                T.async_copy(
                    A[k * rows : k * rows + rows, :],
                    S[1, (k * rows + first) % 64 : (k * rows + first) % 64 + rows, :],
                )
            T.ptx_wait_group(0)
            for i, j in T.Parallel(64, 64):
                B[i, j] = S[1, (i + first) % 64, 63 - j]

    return main


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize(("rows", "first"), [(8, 0), (16, 32), (32, 0)])
@pytest.mark.parametrize("swizzled", [False, True])
def test_equal_shares_of_a_tile(checked, arch, rows, first, swizzled):
    program = by_shares(rows, first, swizzled)
    kernel = tilelang.compile(program, out_idx=-1, target=f"hip -mcpu={arch}")
    assert "buffer_load_lds" in kernel.get_kernel_source()
    a = torch.randn(64, 64).half()
    checked(kernel, (a,), a.flip(1))


@pytest.mark.parametrize(("rows", "first"), [(8, 4), (24, 0)])
def test_other_parts_of_a_tile_are_refused(rows, first):
    """They begin within a share, or are no share."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64, 64), "float16")
            T.async_copy(A[0:rows, :], S[first : first + rows, :])
            T.ptx_wait_group(0)
            T.copy(S, B)

    with pytest.raises(ValueError, match="found a part of S, wanted a whole tile, or one of equal"):
        tilelang.lower(main, target="hip -mcpu=gfx950")


def test_rdna_has_no_loads_to_lds():
    message = r"must be cp\.async: found target gfx1100, .*use T\.copy without"
    with pytest.raises(ValueError, match=message):
        tilelang.compile(by_hand, out_idx=-1, target="hip -mcpu=gfx1100")
