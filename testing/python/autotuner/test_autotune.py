"""Tuning from end to end in the emulator, whose time is a count of statements."""

import importlib
import re
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.autotuner import AutoTuner, AutotuneResult, autotune, set_autotune_inputs
from tilelang.autotuner.decorator import _Call
from tilelang.autotuner.inputs import ProfileArgs
from tilelang.autotuner.processes import Child
from tilelang.jit.compile import current_target

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="counts statements, which a GPU does not"
)
N = 256


def adder(n, block, wrong=False, hangs=False, dtype="float32"):
    """C = A + B; a small block has more threads per element."""

    @T.prim_func
    def main(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype), C: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
            flag = T.alloc_var(T.int32, 1)
            if hangs:
                while flag > 0:
                    C[0] = B[0]
                    flag = 1
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] + B[bx * block + i] + (1 if wrong else 0)

    return main


CONFIGS = [
    {"block": 32},
    {"block": 64, "wrong": True},
    {"block": 64, "dtype": "no_dtype"},
    {"block": 128},
]


@pytest.fixture(scope="module")
def tuned():
    """A run with one wrong configuration and one that does not compile."""
    implementation = tilelang.jit(out_idx=[-1])(adder)
    return autotune(configs=CONFIGS, ref_prog=torch.add, timeout=60)(implementation)


@pytest.fixture(scope="module")
def result(tuned):
    return tuned.tune(N)


def test_the_fastest_right_configuration_is_found(result, tuned):
    assert result.config == {"block": 128}
    latencies = [trial.latency for trial in result.trials]
    assert latencies[1] is None
    assert latencies[2] is None
    assert latencies[3] == result.latency < latencies[0]
    assert "WrongResult" in result.trials[1].failure
    assert "no_dtype" in result.trials[2].failure
    a, b = torch.randn(N), torch.randn(N)
    kernel = tuned(N)
    assert torch.equal(kernel(a, b), a + b)
    assert kernel.get_tuner_result() == {
        "latency": result.latency,
        "config": {"block": 128},
        "ref_latency": None,
    }


def test_times_of_the_emulator_are_those_of_the_statements(result):
    """Two statements a thread for 32 elements; 32 threads in a block."""
    loop = [t.latency for t in result.trials]
    kernels = [tilelang.compile(adder(N, block), out_idx=-1) for block in (32, 128)]
    from tilelang.testing.perf.costs import statements_executed

    for kernel, latency, blocks in zip(
        kernels, (loop[0], loop[3]), (N // 32, N // 128), strict=True
    ):
        (body,) = [f.body for f in kernel.artifact.device_mod.functions.values()]
        assert latency == pytest.approx(statements_executed(body) * 32 * blocks / 1e6)


def test_the_table_has_resources_and_reasons(result):
    lines = result.table().splitlines()
    assert re.split(r"\s{2,}", lines[0].strip())[:4] == [
        "time, ms",
        "registers",
        "shared",
        "spills",
    ]
    assert lines[1].endswith("block=128")
    best = result.trials[3]
    assert lines[1].split()[1:4] == [str(n) for n in (best.registers, best.shared, best.spills)]
    assert best.registers > 0
    assert re.search(r"failed.*block=64, wrong=True: WrongResult", lines[3] + lines[4])


def test_a_picture_of_the_search(result, tmp_path):
    pytest.importorskip("matplotlib")
    path = result.plot(tmp_path / "search.svg")
    assert "best until then" in path.read_text() or path.stat().st_size > 1000


def test_a_result_is_written_and_read(result, tmp_path):
    result.save_to_disk(tmp_path)
    found = AutotuneResult.load_from_disk(
        tmp_path, lambda config: tilelang.compile(adder(N, **config), out_idx=-1)
    )
    assert (found.config, found.latency, found.libcode) == (
        result.config,
        result.latency,
        result.libcode,
    )
    assert found.trials == result.trials
    assert torch.equal(found.kernel(torch.ones(N), torch.ones(N)), torch.full((N,), 2.0))


def test_a_configuration_that_hangs_is_ended():
    configs = [{"block": 32, "hangs": True}, {"block": 64}]
    found = (
        AutoTuner.from_kernel(lambda block, hangs=False: adder(N, block, hangs=hangs), configs)
        .set_compile_args(out_idx=-1)
        .set_profile_args(ref_prog=torch.add, timeout=3)
        .run()
    )
    assert "more than 3 s" in found.trials[0].failure
    assert found.config == {"block": 64}


def test_nothing_runs_in_the_emulator_that_is_not_checked():
    tuner = AutoTuner.from_kernel(lambda block: adder(N, block, hangs=True), [{"block": 32}])
    tuner.set_compile_args(out_idx=-1).set_profile_args(skip_check=True, timeout=10)
    assert tuner.run().latency > 0


def test_where_nothing_works_all_reasons_are_told():
    tuner = AutoTuner.from_kernel(lambda block: adder(N, block, dtype="no"), {"block": [32]})
    with pytest.raises(RuntimeError, match="none of 1 configurations of `<lambda>`") as caught:
        tuner.set_compile_args(out_idx=-1).run()
    assert "block=32: " in str(caught.value)


# Executors.


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_any_executor_compiles_and_times(pool, result):
    with pool(1) as executor:
        found = (
            AutoTuner.from_kernel(lambda block: adder(N, block), {"block": [32, 128]})
            .set_compile_args(out_idx=-1)
            .set_profile_args(ref_prog=torch.add, timeout=60)
            .set_executors(executor, executor)
            .run()
        )
    assert [t.latency for t in found.trials] == [result.trials[0].latency, result.trials[3].latency]


# Calls.


def recorded(monkeypatch, tuned):
    """Tuning without trying: the first configuration is the best."""
    calls = []

    def run(tuner, **options):
        calls.append(tuner)
        kernel = tuner._subject.kernel(tuner.configs[0])
        return AutotuneResult(1.0, tuner.configs[0], kernel=kernel)

    monkeypatch.setattr(AutoTuner, "run", run)
    return calls


@tilelang.jit(out_idx=[-1])
def factory(n, block=32, other=0):
    return adder(n, block)


def test_each_set_of_arguments_is_tuned_once(monkeypatch):
    calls = recorded(monkeypatch, factory)
    tuned = autotune(configs={"block": [64, 128]}, do_not_specialize="other")(factory)
    assert tuned(N).launch_plan.kernels[0].grid[0] == N // 64
    assert tuned(n=N) is tuned(N)
    assert tuned(N, other=3).launch_plan.kernels[0].grid[0] == N // 64
    assert len(calls) == 1
    tuned(2 * N)
    assert len(calls) == 2


def test_who_passes_what_is_tuned_gets_it(monkeypatch, said):
    calls = recorded(monkeypatch, factory)
    tuned = autotune(configs={"block": [64, 128]})(factory)
    assert tuned(N, block=32).launch_plan.kernels[0].grid[0] == N // 32
    assert not calls
    assert any("block of `factory` is passed by the caller" in line for line in said)
    # A function of the other arguments does not take it; it had `block` for an unknown keyword.
    tuned = autotune(configs=lambda n: {"block": [n // 4, n // 2]})(factory)
    assert tuned(N, block=32).launch_plan.kernels[0].grid[0] == N // 32
    assert not calls
    with pytest.raises(TypeError, match="unexpected keyword argument 'depth'"):
        tuned(N, depth=32)


def test_configurations_may_depend_on_the_arguments(monkeypatch):
    calls = recorded(monkeypatch, factory)
    autotune(configs=lambda n: [{"block": n // 2}])(factory)(N)
    autotune(configs=lambda: {"block": [16]})(factory)(N)
    assert [tuner.configs for tuner in calls] == [[{"block": N // 2}], [{"block": 16}]]


def test_pass_configs_of_a_configuration(monkeypatch):
    calls = recorded(monkeypatch, factory)
    key = tilelang.PassConfigKey.TL_ENABLE_FAST_MATH
    tuned = autotune(configs=[{"block": 64, "pass_configs": {key: True}}])(factory)
    assert tuned(N).pass_configs == {key.value: True}
    assert len(calls) == 1


@tilelang.autotune(configs={"block": [32, 128]})
@tilelang.jit
def eager(A, B, block: int = 32):
    n = T.const("n")
    A: T.Tensor[[n], T.float32]
    B: T.Tensor[[n], T.float32]
    C = T.empty((n,), T.float32)
    with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
        for i in T.Parallel(block):
            C[bx * block + i] = A[bx * block + i] + B[bx * block + i]
    return C


def test_a_function_in_eager_style_is_tuned_on_the_tensors_of_the_call():
    a, b = torch.randn(N), torch.randn(N)
    assert torch.equal(eager(a, b), a + b)
    assert eager.tune(a, b).config == {"block": 128}
    assert eager.compile(a, b).config == {"block": 128}
    seen = []
    checked = autotune(configs={"block": [64]}, ref_prog=lambda *given: seen.extend(given) or a + b)
    assert torch.equal(checked(eager.jit_impl)(a, b), a + b)
    assert torch.equal(torch.stack(seen), torch.stack([a, b]))


class Model:
    scale = 1

    @tilelang.autotune(configs={"block": [64]})
    @tilelang.jit(out_idx=[-1])
    def add(self, n, block=32):
        return adder(n, block)


def test_a_method_is_tuned(monkeypatch):
    recorded(monkeypatch, None)
    assert Model().add(N).launch_plan.kernels[0].grid[0] == N // 64


def test_inputs_of_the_user_win(said):
    a, b = torch.ones(N), torch.ones(N)
    seen = []

    def reference(x, y):
        seen.append((x, y))
        return x + y

    tuned = autotune(
        configs={"block": [64]}, ref_prog=reference, supply_prog=lambda params: [b, b]
    )(tilelang.jit(out_idx=[-1])(adder))
    with set_autotune_inputs(a * 3, b * 4):
        tuned(N)
    assert torch.equal(seen[0][0] + seen[0][1], torch.full((N,), 7.0))
    assert any("win over supply_prog" in line for line in said)


def test_a_check_by_hand_decides():
    def check(expected, found):
        assert len(expected) == len(found) == 1
        raise AssertionError("never good enough")

    tuner = AutoTuner.from_kernel(lambda block: adder(N, block), [{"block": 64}])
    tuner.set_compile_args(out_idx=-1).set_profile_args(ref_prog=torch.add, manual_check_prog=check)
    with pytest.raises(RuntimeError, match="never good enough"):
        tuner.run()


# What is refused.


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: autotune(factory), ValueError, "expected configs"),
        (lambda: autotune(configs=[]), ValueError, "found no configuration"),
        (lambda: autotune(configs=[1]), TypeError, "found 1 among configs"),
        (lambda: autotune(configs=3), TypeError, "configs is int"),
        (lambda: autotune(configs=CONFIGS)(adder), AssertionError, "above @tilelang.jit"),
        (
            lambda: autotune(configs=CONFIGS, early_stop_factor=0.5),
            ValueError,
            "wanted 1.0 or more",
        ),
        (lambda: autotune(configs=[{"tile": 3}])(factory)(N), ValueError, "Unused keys in config"),
        (
            lambda: autotune(configs={"block": [32]})(tilelang.jit(out_idx=[-1])(dynamic))(),
            ValueError,
            "symbolic dimension `n`. Give the inputs by supply_prog",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused(make, error, text):
    with pytest.raises(error, match=re.escape(text)):
        make()


def dynamic(block=32):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=32) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i]

    return main


# What is kept.

PROGRAM = """
import tilelang.language as T
from tilelang.autotuner.key import structure
SCALE = {scale}
{comment}
def twice(n, block):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(n // block, threads=32) as bx:
            for i in T.Parallel(block):
                C[bx * block + i] = A[bx * block + i] {sign} {factor} + helper(n)
    return main
def helper(n):
    assert n not in {{"some", "texts", "in", "any", "order"}}
    return {helped}
def digest():
    return structure(twice, {{"n": 256}}, None)
"""


def test_a_function_counts_by_its_structure_in_every_process(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    plain = {"scale": 1, "comment": "", "sign": "*", "factor": "SCALE", "helped": "n"}

    def program(number, **changed):
        name = f"tuned_program_{number}"
        (tmp_path / f"{name}.py").write_text(PROGRAM.format(**{**plain, **changed}))
        return importlib.import_module(name).digest

    digest = program(0)
    child = Child()  # whose sets have another order
    assert child.call(digest) == digest()
    child.close()
    assert program(1, comment="# Something else.\n")() == digest()
    others = [{"scale": 2}, {"factor": "3"}, {"helped": "n + 1"}, {"sign": "-"}]
    found = [program(2 + number, **changed)() for number, changed in enumerate(others)]
    assert len({digest(), *found}) == 5


def test_the_key_has_the_sizes(monkeypatch, said):
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")

    def parts(n, **inputs):
        tuner = AutoTuner(_Call(autotune(configs={"block": [32]})(factory), (n,), {}), [{}])
        return tuner._parts(ProfileArgs(), current_target(None), True, None)

    assert parts(256) == parts(256) != parts(512)
    with set_autotune_inputs(torch.zeros(3)):
        assert parts(256)["inputs"] == [["torch.float32", [3], [1], "cpu"]]


def test_a_result_is_kept_for_other_processes(tmp_path, monkeypatch, said):
    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "0")
    monkeypatch.setenv("TILELANG_CACHE_DIR", str(tmp_path / "cache"))

    def tune():
        return AutoTuner.from_kernel(kept, {"block": [32, 64]}).set_compile_args(out_idx=-1)

    first = tune().run()
    monkeypatch.setattr("tilelang.autotuner.search.Search.run", None)
    second = tune().run()
    assert (second.config, second.trials) == (first.config, first.trials)
    assert any("`kept` was tuned before" in line for line in said)
    monkeypatch.setenv("TILELANG_AUTO_TUNING_DISABLE_CACHE", "1")
    with pytest.raises(TypeError, match="not callable"):
        tune().run()


def kept(block):
    return adder(N, block)
