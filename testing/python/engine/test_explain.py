"""kernel.explain(): the whole text of a pipeline, and the words for what did not apply."""

import inspect
import re
import runpy

import pytest
import torch

import tilelang
import tilelang.language as T

TARGET = "cuda -arch=sm_80"


def lines_of(func):
    """The explanation without the file, with lines counted from that of the first T.Pipelined."""
    text = tilelang.compile(func, target=TARGET).explain().replace(f"{__file__}:", "line ")
    start = int(re.search(r"at line (\d+)", text)[1])
    return re.sub(r"\bline (\d+)", lambda m: f"line {int(m[1]) - start}", text).splitlines()


def product(rows, stages):
    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 32), "float16")
            W = T.alloc_shared((32, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(rows, num_stages=stages):
                T.copy(A[0, k * 32], S)
                T.copy(B[k * 32, 0], W, prefer_instruction="sync")
                T.gemm(S, W, F)
            T.copy(F, C)

    return main


def test_a_pipeline():
    lines = lines_of(product(8, 3))
    assert re.fullmatch(r"  registers: \d+ of each thread, 0 bytes spilled", lines.pop(1))
    assert lines == [
        "kernel main_kernel: grid (1, 1, 1), block (128, 1, 1)",
        "  shared memory: 24576 bytes",
        "    bytes 0 to 12288: S, float16",
        "    bytes 12288 to 24576: W, float16",
        "  T.Pipelined over k at line 0: 2 steps ahead",
        "    line 1, T.copy(A[0, k * 32], S): stage 0, order 0, cp.async of 16 bytes, a group for "
        "each step",
        '    line 2, T.copy(B[k * 32, 0], W, prefer_instruction="sync"): stage 0, order 1, by the '
        "threads",
        "    line 3, T.gemm(S, W, F): stage 2, order 2, by the threads, not ahead: it writes F, "
        "which is not shared memory",
        "    versions of buffers: S 3, W 3",
        "    barriers in a step: 1",
        "line 3: T.gemm 64x64x32: 2 x mma.m16n8k16 (float16 x float16 -> float32) along K, 2x2 "
        "warps",
    ]


def test_a_loop_in_which_nothing_can_run_ahead():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((8, 64), "float16")
            T.clear(S)
            for k in T.Pipelined(8, num_stages=3):
                T.copy(S, C[k * 8, 0])
                T.copy(A[k * 8, 0], S)

    assert lines_of(main)[-3:] == [
        "  T.Pipelined over k at line 0: a plain loop, because nothing can run ahead",
        "    line 1, T.copy(S, C[k * 8, 0]): it writes C, which is not shared memory",
        "    line 2, T.copy(A[k * 8, 0], S): S is read before it",
    ]


def test_a_call_with_an_effect_is_not_repeated():
    def counted(**plan):
        @T.prim_func
        def main(A: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "int32")):
            with T.Kernel(1, threads=32):
                S = T.alloc_shared((32,), "float32")
                tx = T.get_thread_binding()
                T.rng_init(1)
                for k in T.Pipelined(4, num_stages=2, **plan):
                    T.copy(A[k, 0:32], S)
                    bits = T.rng_rand()
                    B[k, tx] = T.cast((bits ^ bits) + 1, "int32") + T.cast(S[tx], "int32")

        return main

    assert lines_of(counted())[-2:] == [
        "  T.Pipelined over k at line 0: a plain loop, because nothing can run ahead",
        "    line 2, bits = T.rng_rand(): the call that gives the value does something, and a "
        "pipeline would repeat it",
    ]
    a = torch.arange(128.0).view(4, 32).to("cuda" if torch.cuda.is_available() else "cpu")
    assert torch.equal(tilelang.compile(counted(), out_idx=-1)(a), a.int() + 1)
    with pytest.raises(ValueError, match=r"py:\d+: .* a pipeline would repeat it"):
        tilelang.compile(counted(order=[0, 1, 2], stage=[0, 1, 1]))


def test_copies_that_are_too_narrow_to_be_asynchronous():
    @T.prim_func
    def main(A: T.Tensor((64, 65), "int8"), C: T.Tensor((64, 65), "int8")):
        with T.Kernel(1, threads=65):
            S = T.alloc_shared((8, 65), "int8")
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[k * 8, 0], S)
                T.copy(S, C[k * 8, 0])

    lines = lines_of(main)
    told = "stage 0, order 0, by the threads: cp.async does not fit its width or alignment"
    assert f"    line 1, T.copy(A[k * 8, 0], S): {told}" in lines
    assert "    versions of buffers: S 2" in lines


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_statements_of_a_macro_in_another_file(tmp_path, arch):
    file = tmp_path / "scaling.py"
    file.write_text(
        "import tilelang.language as T\n\n\n@T.macro\ndef scale(F):\n"
        "    for i, j in T.Parallel(64, 32):\n        F[i, j] = F[i, j] * 2\n"
    )
    scale = runpy.run_path(str(file))["scale"]

    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), C: T.Tensor((64, 32), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 32), "float16")
            F = T.alloc_fragment((64, 32), "float16")
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[0, k * 32], S)
                T.copy(S, F)
                scale(F)
            T.copy(F, C)

    text = tilelang.compile(main, target=f"cuda -arch={arch}").explain()
    (line,) = [x for x in text.splitlines() if "scaling.py" in x]
    assert f"{file}:6, for i, j in T.Parallel(64, 32):: " in line
    assert re.search(r"    line \d+, T.copy\(S, F\): ", text)


def test_loops_stand_at_their_kernel():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=32):
            C[0, 0] = 1
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((8, 64), "float16")
            for k in T.Pipelined(8, num_stages=2, order=[0, 1], stage=[0, 1]):
                T.copy(A[k * 8, 0], S)
                T.copy(S, C[k * 8, 0])
        with T.Kernel(1, threads=32):
            C[0, 0] = 1

    lines = lines_of(main)
    kernels = [i for i, line in enumerate(lines) if line.startswith("kernel ")]
    (loop,) = (i for i, line in enumerate(lines) if "T.Pipelined over k" in line)
    assert len(kernels) == 3
    assert kernels[1] < loop < kernels[2]
    assert "not ahead" not in "".join(lines)


def test_a_plan_of_the_user_beside_the_default():
    def program(**plan):
        @T.prim_func
        def main(A: T.Tensor((64, 64), "float32"), C: T.Tensor((64, 64), "float32")):
            with T.Kernel(1, threads=64):
                S = T.alloc_shared((64,), "float32")
                X = T.alloc_fragment((64,), "float32")
                for k in T.Pipelined(8, **plan):
                    T.copy(A[k, 0], S)
                    T.copy(S, X)
                    T.copy(X, C[k, 0])

        return main

    plan = {"order": [0, 2, 1], "stage": [0, 1, 2]}
    asynchronous = "cp.async of 4 bytes, a group for each step"
    assert lines_of(program(num_stages=2, **plan))[-6:] == [
        "  T.Pipelined over k at line 0: 2 steps ahead, as the program says",
        "    line 1, T.copy(A[k, 0], S): stage 0, order 0 (by default stage 0, order 0), "
        f"{asynchronous}",
        "    line 2, T.copy(S, X): stage 1, order 2 (by default stage 1, order 1), by the threads",
        "    line 3, T.copy(X, C[k, 0]): stage 2, order 1 (by default stage 1, order 2), by the "
        "threads",
        "    versions of buffers: S 2",
        "    barriers in a step: 1",
    ]
    assert lines_of(program(**plan))[-6:-4] == [
        "  T.Pipelined over k at line 0: 2 steps ahead, as the program says; by default a plain "
        "loop",
        f"    line 1, T.copy(A[k, 0], S): stage 0, order 0, {asynchronous}",
    ]


def test_pipelined_can_be_replaced_to_see_its_arguments(monkeypatch):
    seen = []
    original = T.Pipelined

    def logged(*arguments, **options):
        bound = inspect.signature(original).bind(*arguments, **options)
        seen.append(dict(bound.arguments))
        return original(*arguments, **options)

    monkeypatch.setattr(tilelang.language, "Pipelined", logged)
    func = product(8, 3)
    assert seen == [{"start": 8, "num_stages": 3}]
    monkeypatch.undo()
    assert func.script() == product(8, 3).script()


@pytest.mark.parametrize(("rows", "versions"), [(1, "one of each"), (2, "S 2, W 2")])
def test_short_pipelines(rows, versions):
    assert f"    versions of buffers: {versions}" in lines_of(product(rows, 3))


def test_each_kernel_has_its_own_roles():
    def product(A, B, C, stages):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            W = T.alloc_shared((64, 64), "float16")
            F = T.alloc_fragment((64, 64), "float32")
            T.clear(F)
            for k in T.Pipelined(4, num_stages=stages):
                T.copy(A[0, k * 64], S)
                T.copy(B[k * 64, 0], W)
                T.gemm(S, W, F)
            T.copy(F, C)

    kernels = [T.macro(product)] * 3

    @T.prim_func
    def main(
        A: T.Tensor((64, 256), "float16"),
        B: T.Tensor((256, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        kernels[0](A, B, C, 0)
        kernels[1](A, B, C, 2)
        kernels[2](A, B, C, 0)

    text = tilelang.compile(main, target="cuda -arch=sm_90a").explain()
    parts = re.split("^kernel ", text, flags=re.MULTILINE)[1:]
    assert [re.findall("(?:not )?warp specialised", part) for part in parts] == [
        ["not warp specialised"],
        ["warp specialised"],
        ["not warp specialised"],
    ]


def test_a_gather_that_runs_ahead_says_by_what():
    @T.prim_func
    def main(
        A: T.Tensor((512, 64), "float16"),
        rows: T.Tensor((64,), "int32"),
        C: T.Tensor((64, 64), "float16"),
    ):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((8, 64), "float16")
            for k in T.Pipelined(8, num_stages=2):
                for i, j in T.Parallel(8, 64):
                    S[i, j] = A[rows[k * 8 + i], j]
                T.copy(S, C[k * 8, 0])

    kernel = tilelang.compile(main, target=TARGET)
    assert "tl::cp_async_gs" in kernel.get_kernel_source()
    text = kernel.explain()
    # 512 halves, four for each of 128 threads.
    assert "cp.async of 8 bytes, a group for each step" in text
    assert "by the threads: cp.async" not in text


@pytest.mark.parametrize("also", [True, False])
def test_a_store_that_another_statement_keeps_from_tma_says_so(also):
    @T.prim_func
    def main(C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), "float16")
            T.fill(S, 1)
            T.copy(S, C)
            if also:
                for i in T.Parallel(64):
                    C[i, 0] = 0

    text = tilelang.compile(main, target="cuda -arch=sm_90a").explain()
    why = (
        "S to C: by the threads, not by TMA: found C, which the kernel also touches in another way"
    )
    assert (why in text) is also
