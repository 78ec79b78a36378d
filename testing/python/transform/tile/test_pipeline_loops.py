"""Serial loops that load tiles and compute with them become pipelines, where data alone order what
the kernel does."""

import re

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
STEP = 64


def product(loop=T.serial, steps=8, form="", threads=128, columns=64, **options):
    """C = A B in steps along K; `form` adds something to the kernel."""

    @T.prim_func
    def main(
        A: T.Tensor((64, STEP * steps), "float16"),
        B: T.Tensor((STEP * steps, columns), "float16"),
        C: T.Tensor((64, columns), "float32"),
        N: T.Tensor((1,), "int32"),
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((64, STEP), "float16")
            b = T.alloc_shared((STEP, columns), "float16")
            c = T.alloc_fragment((64, columns), "float32")
            T.clear(c)
            if form == "a barrier in front":
                T.sync_threads()
            if form == "an ordered atomic":
                T.atomic_add(N[0], 1, memory_order="acquire")
            if form == "a value of an atomic":
                N[0] = T.atomic_add(N[0], 1, return_prev=True)
            if form == "a wait":
                while N[0] == 0:
                    T.evaluate(0)
            for k in loop(steps, **options):
                if form == "an early end" and N[0] == k:
                    T.loop_break()
                T.copy(A[0, k * STEP], a)
                T.copy(B[k * STEP, 0], b)
                if form == "no product":
                    for i, j in T.Parallel(64, columns):
                        c[i, j] += a[i, j] * b[i, j]
                else:
                    T.gemm(a, b, c)
                if form == "a tensor is written":
                    T.copy(c, C)
                if form == "text":
                    T.print(k)
                if form == "a barrier":
                    T.sync_threads()
                if form == "its own source":
                    T.copy(a, A[0, k * STEP])
            if form == "sums":
                T.atomic_add(C[0, 0], c)
            elif form == "another pipeline":
                for k in T.Pipelined(steps, num_stages=2):
                    T.copy(A[0, k * STEP], a)
                    T.copy(B[k * STEP, 0], b)
                    T.gemm(a, b, c)
                T.copy(c, C)
            else:
                T.copy(c, C)

    return main


@pytest.fixture
def stages_of(tile_passes):
    def run(function, arch="sm_90a", config=None):
        text = tile_passes(function, "PipelineLoops", arch=arch, config=config)["main"].script()
        return [int(n) for n in re.findall(r'"num_stages": (?:T\.int32\()?(\d+)', text)]

    return run


def test_the_loop_gets_two_stages_and_a_note(tile_passes):
    function = tile_passes(product(), "PipelineLoops", arch="sm_90a")["main"]
    assert re.findall(r'num_stages": (?:T\.int32\()?(\d)', function.script()) == ["2"]
    (note,) = function.attrs["tl.notes"]
    assert "the loop is a pipeline" in note
    # Nothing is selected yet.
    assert "instruction" not in function.script()


PIPELINES = {
    "of T.Pipelined": {"loop": T.Pipelined},
    "whose sums are added": {"form": "sums"},
    "without a product": {"form": "no product"},
}


@pytest.mark.parametrize("name", PIPELINES)
def test_it_is_a_pipeline(stages_of, name):
    assert stages_of(product(**PIPELINES[name])) == [2]


KEPT = {
    "num_stages=0": ({"loop": T.Pipelined, "num_stages": 0}, [0]),
    "an annotation": ({"annotations": {"x": 1}}, []),
    "few iterations": ({"steps": 2}, []),
    "no whole warp groups": ({"threads": 96}, []),
    "another pipeline": ({"form": "another pipeline"}, [2]),
    **{
        form: ({"form": form}, [])
        for form in (
            "a barrier in front",
            "an ordered atomic",
            "a value of an atomic",
            "a wait",
            "an early end",
            "a tensor is written",
            "text",
            "a barrier",
            "its own source",
        )
    },
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays(stages_of, name):
    options, wanted = KEPT[name]
    assert stages_of(product(**options)) == wanted


@pytest.mark.parametrize(("grid", "wanted"), [(132 * 4, [2]), (132 * 4 + 1, [])])
def test_loops_without_products_keep_their_blocks(stages_of, grid, wanted):
    """Four have room with a producer each."""

    @T.prim_func
    def main(X: T.Tensor((grid, 64, 512), "float16"), Y: T.Tensor((grid, 64), "float32")):
        with T.Kernel(grid, threads=128) as bx:
            x = T.alloc_shared((64, 64), "float16")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for k in T.serial(8):
                T.copy(X[bx, 0, k * 64], x)
                for i in T.Parallel(64):
                    for j in T.serial(64):
                        total[i] += x[i, j]
            T.copy(total, Y[bx, 0])

    assert stages_of(main) == wanted


def test_others_stay(stages_of):
    assert stages_of(product(), arch="sm_80") == []
    assert stages_of(product(), config={"tl.disable_warp_specialized": True}) == []
    assert stages_of(product(), config={"tl.second_choice.spare_shared": True}) == []


def test_a_tile_of_which_two_have_no_room_stays(stages_of):
    assert stages_of(product(columns=256)) == [2]
    assert stages_of(product(columns=1024)) == []


@pytest.mark.parametrize("steps", [3, 5])
def test_the_result_has_the_same_bits(steps):
    a, b = torch.randn(64, STEP * steps).half(), torch.randn(STEP * steps, 64).half()
    found = []
    for options in ({"loop": T.serial}, {"loop": T.Pipelined, "num_stages": 0}):
        kernel = tilelang.compile(
            product(steps=steps, **options), target=HOPPER, execution_backend="emulate"
        )
        found.append(torch.full((64, 64), torch.nan))
        kernel(a, b, found[-1], torch.zeros(1, dtype=torch.int32))
        assert ("a_full" in kernel.get_kernel_source()) == (options["loop"] is T.serial)
    assert torch.equal(*found)
    torch.testing.assert_close(found[0].double(), a.double() @ b.double(), rtol=1e-3, atol=1e-2)


def products_of(loop):
    """Each block multiplies as many tiles as a table says, twice."""

    @T.prim_func
    def main(
        X: T.Tensor((64, 8 * 64), "float16"),
        counts: T.Tensor((4,), "int32"),
        Y: T.Tensor((4, 64, 64), "float32"),
    ):
        with T.Kernel(4, threads=128) as bx:
            x = T.alloc_shared((64, 64), "float16")
            total = T.alloc_fragment((64, 64), "float32")
            T.clear(total)
            for _ in T.serial(2):
                for k in loop(counts[bx]):
                    T.copy(X[0, k * 64], x)
                    T.gemm(x, x, total, transpose_B=True)
            T.copy(total, Y[bx, 0, 0])

    return main


def test_the_run_says_how_many_iterations(stages_of):
    """Among them none, and one."""
    assert stages_of(products_of(T.serial)) == [2]
    kernel = tilelang.compile(
        products_of(T.serial), target=HOPPER, execution_backend="emulate", checks=True
    )
    assert "x_full" in kernel.get_kernel_source()
    x, y = torch.randint(-2, 3, (64, 512)).half(), torch.full((4, 64, 64), torch.nan)
    counts = [0, 1, 5, 8]
    kernel(x, torch.tensor(counts, dtype=torch.int32), y)
    wanted = [2 * (x[:, : 64 * n].float() @ x[:, : 64 * n].float().T) for n in counts]
    assert torch.equal(y, torch.stack(wanted))
