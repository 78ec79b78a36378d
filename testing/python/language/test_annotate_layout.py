"""T.annotate_layout, T.Parallel(loop_layout=) and T.copy(loop_layout=): what they leave in the
program, that kernels with them are right, and what is refused."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.layout import make_full_bank_swizzled_layout, make_swizzled_layout


def run(func, *tensors):
    """Calls the kernel where it runs and brings its results back."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    moved = [tensor.to(device) for tensor in tensors]
    tilelang.compile(func, execution_backend="auto")(*moved)
    for tensor, result in zip(tensors, moved, strict=True):
        tensor.copy_(result)


# -- what stands in the program


def test_the_layout_and_its_text_stand_on_the_block(trace, body):
    func = trace("""\
        S = T.alloc_shared((8, 16), "float16")
        for k in T.serial(2):
            T.annotate_layout({S: lambda i, j: [j, i]})
            S[0, k] = T.float16(1)
        """)
    text = body(func)
    assert '"layouts": {S: "Layout(i < 8, j < 16) -> (j, i)"}' in text
    assert text.count("T.sblock_attr") == 1


def test_the_layout_of_a_loop_and_of_a_copy_show(trace, body):
    func = trace(
        """\
        S = T.alloc_shared((8, 16), "float32")
        T.copy(A, S, loop_layout=layout)
        for i, j in T.Parallel(8, 16, loop_layout=layout):
            B[i, j] = S[i, j]
        """,
        layout=T.Fragment((8, 16), lambda i, j: (i * 8 + j // 2, j % 2)),
    )
    line = "Fragment(i < 8, j < 16) -> thread i * 8 + j // 2, register j % 2"
    assert f'"loop_layout": "{line}"' in body(func)


def test_inference_keeps_what_the_user_says(tile_kernel_layouts):
    placed, _ = tile_kernel_layouts(pipelined_gemm(128, 64, 2))
    one = make_full_bank_swizzled_layout(T.Tensor((64, 64), "float16").as_buffer())
    assert placed["S"].is_equal(one.expand([2]))


@pytest.fixture
def tile_kernel_layouts():
    """Layouts after inference, by buffer name, and the text of the program."""
    import tvm
    import tvm_ffi
    from tvm import s_tir

    from tilelang import transform

    def run_passes(func):
        target = tilelang.utils.target.determine_target("cuda -arch=sm_80", return_object=True)
        mod = tvm.IRModule({"main": func})
        with transform.PassContext():
            for step in (
                transform.BindTarget(target),
                transform.MaterializeKernelLaunch(),
                transform.SelectInstructions(),
                transform.PipelinePlanning(),
                transform.InjectSoftwarePipeline(),
                transform.LayoutInference(),
            ):
                mod = step(mod)
        placed = {}

        def collect(block):
            layouts = dict(block.annotations.get("layout_map", {})).items()
            placed.update({buffer.name: layout for buffer, layout in layouts})

        tvm_ffi.structural_walk(mod["main"], [(s_tir.SBlock, collect)])
        return placed, mod.script(show_meta=False)

    return run_passes


def test_every_layout_shows_in_the_program_after_inference(tile_kernel_layouts):
    placed, text = tile_kernel_layouts(pipelined_gemm(128, 64, 2))
    for name, layout in placed.items():
        assert f'{name}: "{str(layout).splitlines()[0]}"' in text


# -- kernels


def through_shared(m, n, layout, dtype="float16", threads=128):
    @T.prim_func
    def main(A: T.Tensor((m, n), dtype), C: T.Tensor((n, m), dtype)):
        with T.Kernel(1, threads=threads):
            S = T.alloc_shared((m, n), dtype)
            T.annotate_layout({S: layout(S) if layout is make_swizzled_layout else layout})
            T.copy(A, S)
            for j, i in T.Parallel(n, m):
                C[j, i] = S[i, j]

    return main


@pytest.mark.parametrize(
    ("m", "n", "layout", "dtype", "threads"),
    [
        (64, 64, make_swizzled_layout, "float16", 128),
        (60, 100, lambda i, j: [j, i], "float32", 96),
        (17, 3, lambda i, j: (i * 3 + j) * 2, "int8", 32),
        (8, 32, lambda i, j: [i, j // 8 ^ i % 4, 7 - j % 8], "bfloat16", 64),
        (129, 1, lambda i, j: 128 - i, "float64", 256),
    ],
)
def test_shared_buffer_with_a_layout_of_the_user(m, n, layout, dtype, threads):
    kind = getattr(torch, dtype)
    a = torch.randn(m, n).mul(10).to(kind)
    c = torch.zeros(n, m, dtype=kind)
    run(through_shared(m, n, layout, dtype, threads), a, c)
    assert torch.equal(c, a.T)


def pipelined_gemm(block, depth, stages):
    @T.prim_func
    def main(
        A: T.Tensor((64, depth * 4), "float16"),
        B: T.Tensor((depth * 4, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=block):
            S = T.alloc_shared((64, depth), "float16")
            W = T.alloc_shared((depth, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.annotate_layout({S: make_full_bank_swizzled_layout(S)})
            T.annotate_layout({W: make_full_bank_swizzled_layout(W)})
            T.clear(F)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[0, k * depth], S)
                T.copy(B[k * depth, 0], W)
                T.gemm(S, W, F)
            T.copy(F, C)

    return main


def test_pipelined_gemm_with_layouts_of_the_user():
    a, b, c = torch.randn(64, 256).half(), torch.randn(256, 64).half(), torch.zeros(64, 64)
    run(pipelined_gemm(64, 64, 2), a, b, c)
    torch.testing.assert_close(c.double(), a.double() @ b.double(), rtol=1e-3, atol=1e-3)


FRAGMENTS = {
    "strided": lambda m, n: T.Fragment((m, n), lambda i, j: (j % 32, i * -(-n // 32) + j // 32)),
    "swizzled": lambda m, n: T.Fragment((m, n), lambda i, j: (i % 8 * 8 + (j % 8 ^ i % 8), i // 8)),
    "replicated": lambda m, n: T.Fragment((m, n), lambda i, j, rep: (j * 2 + rep, i), replicate=2),
    "one thread": lambda m, n: T.Fragment((m, n), lambda i, j: (5, i * n + j)),
}


@pytest.mark.parametrize(
    ("m", "n", "kind"),
    [(3, 60, "strided"), (24, 8, "swizzled"), (17, 31, "replicated"), (3, 5, "one thread")],
)
def test_fragment_with_a_layout_of_the_user(m, n, kind):
    layout = FRAGMENTS[kind](m, n)

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((m, n), "float32")
            T.annotate_layout({F: layout})
            T.copy(A, F)
            for i, j in T.Parallel(m, n):
                F[i, j] = F[i, j] * 2 + i
            T.copy(F, C)

    a, c = torch.randn(m, n), torch.zeros(m, n)
    run(main, a, c)
    assert torch.equal(c, a * 2 + torch.arange(m)[:, None])


@pytest.mark.parametrize("kind", list(FRAGMENTS))
def test_loops_and_copies_with_a_layout_of_the_user(kind):
    m, n = {"swizzled": (24, 8), "one thread": (3, 5)}.get(kind, (17, 31))
    layout = FRAGMENTS[kind](m, n)

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((m, n), "float32")
            F = T.alloc_fragment((m, n), "float32")
            T.copy(A, S, loop_layout=layout)
            for i, j in T.Parallel(m, n, loop_layout=layout):
                F[i, j] = S[i, j] - 1
            for i, j in T.Parallel(m, n, loop_layout=layout):
                B[i, j] = B[i, j] + A[i, j] * F[i, j]

    a, b = torch.randn(m, n), torch.randn(m, n)
    wanted = torch.addcmul(b, a, a - 1)
    run(main, a, b)
    torch.testing.assert_close(b, wanted)


# -- what is refused


@pytest.mark.parametrize(
    ("entry", "error", "told"),
    [
        ("S: lambda i, j: i + j", ValueError, "two elements in one place in the layout of S"),
        ("S: lambda i, j: [i - 1, j]", ValueError, "found a negative place"),
        ("S: T.Layout((8, 8), lambda i, j: [i, j])", ValueError, r"shape \(8, 16\)"),
        ("S: T.Fragment((8, 16), lambda i, j: (i, j))", TypeError, "wanted a T.Layout"),
        ("S: 3", TypeError, "found 3 for S"),
        ("F: lambda i, j: [i, j]", TypeError, "wanted a T.Fragment"),
        ("F: T.Fragment((8, 16), lambda i, j: (i, 0))", ValueError, "in one register of a thread"),
        ("F: T.Fragment((8, 16), lambda i, j: (i * 16 + j + 1, 0))", ValueError, "129 threads"),
        ("L: lambda i, j: [i, j]", ValueError, "L is in scope local"),
        ("A: T.Layout((8, 17), lambda i, j: [i, j])", ValueError, r"shape \(8, 17\)"),
        ("A: T.Fragment((8, 16), lambda i, j: (i, j))", TypeError, "wanted a T.Layout"),
        ("'S': lambda i, j: [i, j]", TypeError, "wanted a buffer as key"),
    ],
)
def test_annotations_that_are_refused(trace, entry, error, told):
    with pytest.raises(error, match=rf"T\.annotate_layout: [\s\S]*{told}[\s\S]*--> "):
        trace(f"""\
            S = T.alloc_shared((8, 16), "float16")
            F = T.alloc_fragment((8, 16), "float32")
            L = T.alloc_local((8, 16), "float32")
            T.annotate_layout({{{entry}}})
            """)


def test_a_second_layout_is_refused(trace):
    with pytest.raises(ValueError, match="S has a layout already"):
        trace("""\
            S = T.alloc_shared((8, 16), "float16")
            T.annotate_layout({S: lambda i, j: [i, j]})
            T.annotate_layout({S: lambda i, j: [j, i]})
            """)


def test_a_name_of_the_same_memory_has_its_layout():
    with pytest.raises(ValueError, match=r"R has a layout already as S, a name of its memory"):

        @T.prim_func
        def main():
            with T.Kernel(1, threads=32):
                S = T.alloc_shared((8, 16), "float16")
                R = T.reshape(S, (16, 8))
                T.annotate_layout({S: lambda i, j: [j, i], R: lambda i, j: [i, j]})


def test_a_gemm_and_a_user_who_want_different_registers(device):
    """The user's layout stays; the product has an accumulator of its own."""

    @T.prim_func
    def main(A: T.Tensor((16, 16), "float16"), C: T.Tensor((16, 8), "float32")):
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((16, 16), "float16")
            W = T.alloc_shared((16, 8), "float16")
            F = T.alloc_fragment((16, 8), "float32")
            T.annotate_layout({F: T.Fragment((16, 8), lambda i, j: (i * 2 + j // 4, j % 4))})
            T.copy(A, S)
            T.copy(A[0:16, 0:8], W)
            T.clear(F)
            T.gemm(S, W, F)
            T.copy(F, C)

    kernel = tilelang.compile(main, execution_backend="auto")
    a = torch.randint(-3, 4, (16, 16)).half()
    c = torch.full((16, 8), torch.nan, device=device)
    kernel(a.to(device), c)
    assert torch.equal(c.cpu(), a.float() @ a[:, :8].float())
    assert "F_2 to F: by shuffles in a warp: 4 shfl" in kernel.explain()


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        (T.Fragment((8, 8), lambda i, j: (i, j)), "another shape than the loop's extents"),
        (T.Fragment((8, 16), lambda i, j: (i * 16 + j, 0)), "128 threads where the block has 64"),
        (T.Fragment((8, 16), lambda i, j: (i, j // 2)), "two elements in one register"),
    ],
)
@pytest.mark.parametrize("by_copy", [False, True])
def test_loop_layouts_that_are_refused(layout, told, by_copy):
    @T.prim_func
    def main(A: T.Tensor((8, 16), "float32"), B: T.Tensor((8, 16), "float32")):
        with T.Kernel(1, threads=64):
            if by_copy:
                T.copy(A, B, loop_layout=layout)
            else:
                for i, j in T.Parallel(8, 16, loop_layout=layout):
                    B[i, j] = A[i, j]

    with pytest.raises(ValueError, match=rf"\.py:\d+: loop_layout: found {told}"):
        tilelang.compile(main, execution_backend="auto")


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ("loop_layout=3", TypeError, "wanted a T.Fragment"),
        ("loop_layout=layout, coalesced_width=2", ValueError, "wanted one of them"),
    ],
)
def test_keywords_that_do_not_go_together(trace, arguments, error, told):
    layout = T.Fragment((8, 16), lambda i, j: (i, j))
    with pytest.raises(error, match=told):
        trace(f"T.copy(A, B, {arguments})", layout=layout)
    with pytest.raises(error, match=told):
        trace(f"for i, j in T.Parallel(8, 16, {arguments}):\n    A[i, j] = 0", layout=layout)
