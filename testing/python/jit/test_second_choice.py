"""What ptxas says of a kernel: warnings, explanations, and another choice of the compiler's."""

import pathlib
import re
import sys
import warnings

import pytest

import tilelang
import tilelang.language as T
from tilelang.cache import memory
from tilelang.engine.resource_usage import Advisory, ResourceUsage
from tilelang.jit.export import variant_of
from tilelang.jit.kernel import JITKernel
from tilelang.jit.second_choice import CHOICES, choose

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "attention"
TARGET = "cuda -arch=sm_90a"
ROLES = "tl.second_choice.without_roles"


def attention(rows, keys, threads=128, registers=None, fixed=False):
    """Two products with accumulators of rows x keys and of rows x 128; `fixed` has a barrier of its
    own, with which the compiler leaves the number of threads alone."""
    dim = 128

    @T.prim_func
    def main(
        Q: T.Tensor((rows, dim), T.float16),
        K: T.Tensor((keys * 16, dim), T.float16),
        V: T.Tensor((keys * 16, dim), T.float16),
        Out: T.Tensor((rows, dim), T.float32),
    ):
        with T.Kernel(1, threads=threads):
            if registers:
                T.annotate_producer_reg_dealloc(24)
                T.annotate_consumer_reg_alloc(registers)
            q = T.alloc_shared((rows, dim), T.float16)
            k = T.alloc_shared((keys, dim), T.float16)
            v = T.alloc_shared((keys, dim), T.float16)
            scores = T.alloc_fragment((rows, keys), T.float32)
            weights = T.alloc_fragment((rows, keys), T.float16)
            out = T.alloc_fragment((rows, dim), T.float32)
            T.copy(Q, q)
            if fixed:
                T.sync_threads()
            T.clear(out)
            for step in T.Pipelined(16, num_stages=2):
                T.copy(K[step * keys, 0], k)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(rows, keys):
                    scores[i, j] = T.exp2(scores[i, j])
                T.copy(scores, weights)
                T.copy(V[step * keys, 0], v)
                T.gemm(weights, v, out)
            T.copy(out, Out)

    return main


GOOD = ResourceUsage(168, 0, 0, 0, 0)
# 72 bytes, all of them of a warp that only loads.
BESIDE = ResourceUsage(168, 72, 72, 72, 0, (), 0, 774)
HARDLY = ResourceUsage(128, 20, 20, 20, 0, (), 5, 2868)
FEW = ResourceUsage(168, 36, 36, 36, 0, (), 9, 741)
MANY = ResourceUsage(168, 3460, 3500, 3460, 0, (), 414, 2917)
LESS = ResourceUsage(168, 1600, 1600, 1600, 0, (), 200, 2950)
SERIALISED = ResourceUsage(168, 0, 0, 0, 0, (Advisory("C7512", "wgmmas are serialized"),))


@pytest.mark.parametrize(
    ("found", "kept", "compiled"),
    [
        # Of the first choice, with a block for each tile, with fewer blocks, without a test in
        # front of loops, with twice as many threads, without warps that only load, with addresses
        # computed anew.
        ([GOOD, GOOD, GOOD, GOOD, GOOD, GOOD, GOOD], 0, 1),
        ([BESIDE, GOOD, GOOD, GOOD, GOOD, GOOD, GOOD], 0, 1),
        ([HARDLY, GOOD, GOOD, GOOD, GOOD, GOOD, GOOD], 0, 1),
        ([MANY, GOOD, GOOD, GOOD, GOOD, GOOD, GOOD], 1, 2),
        ([MANY, MANY, GOOD, GOOD, GOOD, GOOD, GOOD], 2, 3),
        ([MANY, MANY, MANY, FEW, GOOD, GOOD, GOOD], 3, 4),
        ([MANY, MANY, MANY, MANY, GOOD, MANY, GOOD], 4, 5),
        ([SERIALISED, MANY, MANY, MANY, MANY, GOOD, GOOD], 5, 6),
        ([SERIALISED, MANY, MANY, MANY, MANY, MANY, GOOD], 6, 7),
        ([SERIALISED, MANY, MANY, MANY, MANY, MANY, MANY], 0, 7),
        ([MANY, MANY, SERIALISED, MANY, MANY, MANY, MANY], 0, 7),
        # What spills a little is compiled with other addresses alone, and kept if it spills less.
        ([FEW, MANY, MANY, MANY, MANY, MANY, GOOD], 1, 2),
        ([FEW, GOOD, GOOD, GOOD, GOOD, GOOD, FEW], 0, 2),
        ([FEW, GOOD, GOOD, GOOD, GOOD, GOOD, SERIALISED], 0, 2),
        ([MANY, MANY, MANY, MANY, MANY, MANY, LESS], 6, 7),
    ],
)
def test_what_is_kept(found, kept, compiled):
    number = {"": 0, **{key: n for n, key in enumerate(CHOICES, 1)}}
    chosen, tried = choose("", lambda key: key, str, lambda key: {"k": found[number[key]]})
    assert (chosen, len(tried)) == (kept, compiled)


# Accumulators of 320 registers of a thread, and half of them by twice the threads.
LARGE, SMALL = attention(128, 128, fixed=True), attention(128, 128, threads=256)


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """Compiles as for a GPU of this machine, and loads nothing."""
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")
    monkeypatch.setattr(JITKernel, "_why_not_here", "")
    monkeypatch.setattr(JITKernel, "_build_adapter", lambda self: None)
    return lambda program, **options: tilelang.compile(
        program, target=TARGET, execution_backend="nvrtc", **options
    )


def test_a_warning_has_the_place_the_numbers_and_a_repair(compiled):
    with pytest.warns(tilelang.PerformanceWarning) as said:
        kernel = compiled(LARGE)
    (warning,) = said
    usage = kernel.resource_usage["main_kernel"]
    assert f"{warning.filename}:{warning.lineno}" == kernel.launch_plan.location
    assert re.fullmatch(
        r"kernel main_kernel, \d+ registers of each thread: found ptxas C751[12]: "
        r"wgmma.mma_async instructions are serialized due to insufficient register resources .*; "
        rf"spilled: {usage.spill_stores} bytes stored, {usage.spill_loads} loaded, "
        rf"{usage.spills_in_loops} of {usage.instructions_in_loops} instructions in loops, wanted "
        r"products that run beside each other and no spills in loops; where 128 threads "
        r"compute, let 256 share the tiles \(threads= of T.Kernel\), else .*",
        str(warning.message),
    )
    for line in ("serialized due to insufficient register resources", "instructions in loops"):
        assert line in kernel.explain()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for _ in range(2):
            compiled(LARGE)
    assert len(said) == 1


def test_the_repair_repairs(compiled):
    with warnings.catch_warnings():
        warnings.simplefilter("error", tilelang.PerformanceWarning)
        kernel = compiled(SMALL)
    usage = kernel.resource_usage["main_kernel"]
    assert usage.advisories == ()
    assert usage.spill_stores == 0
    assert "choices of the compiler" not in kernel.explain()


def test_a_cached_kernel_says_the_same(compiled, monkeypatch):
    memory.forget()  # of the other tests
    with pytest.warns(tilelang.PerformanceWarning) as first:
        one = compiled(LARGE)
    memory.forget()
    monkeypatch.setattr("tilelang.cuda.nvrtc._run", None)  # nothing is compiled
    with pytest.warns(tilelang.PerformanceWarning) as second:
        other = compiled(LARGE)
    assert [str(w.message) for w in first] == [str(w.message) for w in second]
    assert other.explain() == one.explain()


def test_another_choice_of_the_compiler_is_kept(compiled):
    """With a producer 128 threads have 240 registers each, without one 255."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", tilelang.PerformanceWarning)
        kernel = compiled(attention(128, 64, fixed=True))
    options = {"target": TARGET, "execution_backend": "emulate"}
    first = tilelang.compile(attention(128, 64, fixed=True), **options)
    second = tilelang.compile(attention(128, 64, fixed=True), pass_configs={ROLES: True}, **options)
    assert kernel.kernel_source == second.kernel_source != first.kernel_source
    # What a GPU would run, the emulator's kernel tells as well, and runs it from then on.
    assert first.resource_usage["main_kernel"].advisories == ()
    assert first.kernel_source == kernel.kernel_source
    assert first.launch_plan.kernels[0].block == (128, 1, 1)
    assert kernel.cubin == second.cubin == first.cubin
    assert kernel.launch_plan.kernels[0].block == (128, 1, 1)
    lines = kernel.explain().splitlines()
    at = lines.index("choices of the compiler that were compiled:")
    assert re.fullmatch(
        r"  first choice: 240 registers, \d+ bytes spilled, products serialised", lines[at + 1]
    )
    assert re.fullmatch(
        r"  no warps that only load: 2\d\d registers, 0 bytes spilled, kept", lines[at + 2]
    )
    assert lines[at : at + 3] == first.explain().splitlines()[-3:]


def test_a_file_has_the_plan_of_its_binary():
    kernel = tilelang.compile(attention(128, 64, fixed=True), target=TARGET)
    assert kernel.launch_plan.kernels[0].block == (256, 1, 1)
    variant = variant_of(kernel, "sm_90a")
    assert variant.plan.kernels[0].block == (128, 1, 1)
    assert variant.binary == kernel.cubin


def test_twice_as_many_threads_where_nothing_depends_on_their_number(compiled):
    """128 threads had 816 bytes spilled, and a third of the speed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", tilelang.PerformanceWarning)
        kernel = compiled(attention(128, 128))
    assert kernel.launch_plan.kernels[0].block == (384, 1, 1)
    assert re.fullmatch(
        r"  twice as many threads: 168 registers, 0 bytes spilled, kept",
        kernel.explain().splitlines()[-1],
    )


def test_loops_that_are_known_to_run(monkeypatch):
    """Gradients of keys: their accumulators, set in front of the loop, are in flight behind it, and
    ptxas does not see that it has an iteration (C7515)."""
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.setenv("TILELANG_DEFAULT_TARGET", TARGET)
    from flash_attention_windows import gradients_of_keys

    for name in ("flash_attention", "flash_attention_windows"):
        del sys.modules[name]
    kernel = gradients_of_keys(4, 64, 4096, 64, 4096, 8, num_stages=2)
    (usage,) = kernel.resource_usage.values()
    assert usage.advisories == ()
    assert re.search(r"first choice: \d+ registers, .* products serialised", kernel.explain())
    assert re.fullmatch(
        r"  no test in front of loops that are known to run: \d+ registers, 0 bytes spilled, kept",
        kernel.explain().splitlines()[-1],
    )


def test_a_choice_of_the_users_stays(compiled):
    with pytest.warns(tilelang.PerformanceWarning):
        kernel = compiled(attention(128, 64, registers=240))
    assert kernel.launch_plan.kernels[0].block == (256, 1, 1)
    assert "no warps that only load" not in kernel.explain()


def moved(registers):
    """Two warp groups that multiply, one with registers of two others, one with its own ones, which
    may not say so."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 64), T.float16),
        B: T.Tensor((64, 192), T.float16),
        C: T.Tensor((128, 192), T.float32),
    ):
        with T.Kernel(1, threads=512):
            a = T.alloc_shared((128, 64), T.float16)
            b = T.alloc_shared((64, 192), T.float16)
            T.copy(A, a)
            T.copy(B, b)
            with T.ws(0, 1):
                T.dec_max_nreg(24)
            for half in T.unroll(2, explicit=True):
                with T.ws(2 + half):
                    if registers[half]:
                        T.set_max_nreg(registers[half], half == 0)
                    c = T.alloc_fragment((64, 192), T.float32)
                    T.clear(c)
                    for _ in T.serial(4):
                        T.gemm(a[half * 64 : half * 64 + 64, :], b, c)
                    T.copy(c, C[half * 64 : half * 64 + 64, :])

    return main


def test_registers_that_are_not_moved_are_warned_about(compiled):
    with pytest.warns(tilelang.PerformanceWarning, match=r"C7507.*also those that keep") as said:
        kernel = compiled(moved((216, 0)))
    assert "registers moved as the program says" in str(said[0].message)
    assert "C7507" in kernel.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error", tilelang.PerformanceWarning)
        compiled(moved((216, 128)))
