"""The page of kernel.explain: its values, its words, and how it looks in a browser."""

import itertools
import re

import pytest

import tilelang
import tilelang.language as T
from tilelang.tools.known_values import element_of, value_of
from tilelang.tools.lower_trace import lower_trace
from tilelang.tools.shared_memory_picture import memory_picture, shared_memory
from tilelang.tools.tile_schedule import LENGTHS, kernels_of, tile_schedule

HOPPER, AMPERE = "cuda -arch=sm_90a", "cuda -arch=sm_80"


def trace_of(func, target):
    with lower_trace() as traces:
        tilelang.lower(func, target=target)
    return traces[0]


def schedule_of(func, target, kernel=0):
    return tile_schedule(trace_of(func, target).after("LayoutInference").mod, kernel)


def of(schedule, row, kind):
    return [bar for bar in schedule.bars if bar.row == row and bar.kind == kind]


def test_roles_load_wait_and_compute(pipelined_gemm):
    schedule = schedule_of(pipelined_gemm, HOPPER)
    stages = [f"{name}[{n}]" for name in ("A_shared", "B_shared") for n in range(3)]
    producer, consumer, *others = schedule.rows
    assert producer == "producer (threads 0 to 127)"
    assert consumer == "consumer (threads 128 to 255)"
    assert others == ["tensor cores", *stages]
    assert (schedule.is_cut, schedule.is_stuck) == (False, False)
    # Fill 3 is the second one of stage 0: the producer waits until the product of fill 0 has ended.
    first, second = of(schedule, "A_shared[0]", "load")
    assert (first.fill, second.fill) == (0, 3)
    (read, _) = of(schedule, "A_shared[0]", "read")
    assert read.begin >= first.end
    (wait,) = [b for b in of(schedule, producer, "wait") if b.end == second.begin]
    assert wait.words == "waits for A_shared_empty[0]"
    assert wait.end >= read.end
    # The consumer waits for both tiles, which arrive one behind the other.
    waits = of(schedule, consumer, "wait")
    assert waits[0].words == "waits for A_shared_full[0]"
    assert waits[0].end == of(schedule, "B_shared[0]", "load")[0].end
    products = of(schedule, "tensor cores", "product")
    assert [bar.fill for bar in products] == [0, 1, 2, 3]
    assert all(a.end <= b.begin for a, b in itertools.pairwise(products))


def test_a_pipeline_of_all_threads(pipelined_gemm):
    schedule = schedule_of(pipelined_gemm, AMPERE)
    assert schedule.rows[0] == "all threads"
    # Two copies run ahead: in step 2 the first is read while the third is on its way.
    third = of(schedule, "A_shared[2]", "load")[0]
    first_product = of(schedule, "all threads", "product")[0]
    assert third.fill == 2
    assert third.begin < first_product.begin < third.end + LENGTHS["load"]
    assert of(schedule, "all threads", "wait")[0].words.startswith("waits for copies, 1 groups")


def test_a_tile_that_a_counter_gives():
    @T.prim_func
    def main(
        A: T.Tensor((1024, 64), "float16"),
        B: T.Tensor((1024, 64), "float16"),
        counter: T.Tensor((1,), "int32"),
    ):
        with T.Kernel(4, threads=128) as bx:
            S = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float16")
            for i in T.Persistent([16], 4, bx, counter=counter):
                for _k in T.Pipelined(1, num_stages=2):
                    T.copy(A[i * 64, 0], S)
                    T.copy(S, F)
                T.copy(F, B[i * 64, 0])

    schedule = schedule_of(main, HOPPER)
    assert schedule.is_cut
    assert [bar.fill for bar in schedule.bars if bar.kind == "load"][:3] == [0, 1, 2]


def test_the_kernels_of_a_program():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            T.copy(A, S)
            T.copy(S, B)
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((64,), "float32")
            T.fill(F, 1)
            T.copy(F, A)

    trace = trace_of(main, AMPERE)
    mod = trace.after("LayoutInference").mod
    assert len(kernels_of(mod["main"].body)) == 2
    assert next(bar.words for bar in tile_schedule(mod, 0).bars) == "loads A to S"
    assert [bar.words for bar in tile_schedule(mod, 1).bars] == ["T.fill", "F to A"]
    html = tilelang.compile(main, target=AMPERE, execution_backend="emulate").explain("html")
    assert re.findall(r"<h2>Kernel (\w+)</h2>", html) == ["main_kernel", "main_kernel_1"]


def test_numbers_of_expressions():
    k, buffer = T.Var("k", "int32"), None
    values = {k: 7}
    assert value_of(k // 3 & 1 ^ 1, values) == 7 // 3 & 1 ^ 1
    assert value_of(T.And(k < 3, T.Var("n", "int32") > 0), values) == 0
    assert value_of(T.Var("n", "int32") + 1, values) is None
    assert value_of(k // (k - 7), values) is None
    assert element_of(buffer, [k, 2], values) == (None, 7, 2)


def test_shared_memory_from_first_to_last_use(pipelined_gemm):
    trace = trace_of(pipelined_gemm, AMPERE)
    (kernel,) = kernels_of(trace.after("ThreadSync").mod["gemm"].body)
    memory = shared_memory(kernel)
    tiles = {buffer.name: buffer for buffer in memory.buffers}
    assert {(t.first, t.bytes) for t in tiles.values()} == {(0, 24576), (24576, 24576)}
    (loop,) = [span for span in memory.spans if span[0] == "for k"]
    for tile in tiles.values():
        assert tile.uses[0] < loop[1] <= tile.uses[-1] <= loop[2]
    assert "A_shared: bytes 0 to 24576" in memory_picture(memory, 49152)


def test_the_words_of_the_page(pipelined_gemm, tmp_path):
    kernel = tilelang.compile(pipelined_gemm, target=AMPERE, execution_backend="emulate")
    html = kernel.explain(format="html", path=tmp_path / "gemm.html")
    assert (tmp_path / "gemm.html").read_text() == html
    assert "<td>tma: a target before sm_90</td>" in html
    assert "mma.m16n8k16 (float16 x float16 -&gt; float32)" in html
    assert "it writes C_local, which is not shared memory" in html
    assert kernel.explain().splitlines()[0] in html
    with pytest.raises(ValueError, match="format='pdf': expected 'text' or 'html'"):
        kernel.explain("pdf")


def test_waits_and_reasons_of_a_specialised_kernel(pipelined_gemm, said):
    kernel = tilelang.compile(pipelined_gemm, target=HOPPER, execution_backend="emulate")
    before = len(said)
    html = kernel.explain("html")
    assert len(said) == before  # what lowering says was said by the compilation
    assert "wgmma&lt;1&gt; before the statement at" in html
    assert "<td>wgmma.m64n64k16 (float16 x float16 -&gt; float32)</td>" in html


def test_the_page_in_a_browser(tmp_path, shown, pipelined_gemm):
    kernel = tilelang.compile(pipelined_gemm, target=HOPPER, execution_backend="emulate")
    kernel.explain("html", tmp_path / "gemm.html")
    for scheme in ("light", "dark"):
        page = shown(tmp_path / "gemm.html", "explain", scheme)
        schedule = page.locator("svg[aria-label='schedule of roles and stages']")
        boxes = schedule.locator("rect").all()
        assert len(boxes) > 30
        # Bars of one row do not lie on each other, and none leaves the picture.
        frame = schedule.bounding_box()
        rows = {}
        for box in boxes:
            place = box.bounding_box()
            assert place["x"] >= frame["x"]
            assert place["x"] + place["width"] <= frame["x"] + frame["width"]
            rows.setdefault(round(place["y"] + place["height"] / 2), []).append(place)
        for places in rows.values():
            places.sort(key=lambda place: place["x"])
            for one, following in itertools.pairwise(places):
                assert one["x"] + one["width"] <= following["x"] + 1
        assert page.locator("svg[aria-label='shared memory'] rect").count() > 4
        assert page.get_by_role("heading", name="Instructions").is_visible()
