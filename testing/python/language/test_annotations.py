"""Hints to the compiler: what they make of a kernel."""

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.engine.launch_plan import LaunchPlan

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ("10", "rasterization2DRow<10>"),
        ("panel_size=4, order='column'", "rasterization2DColumn<4>"),
        ("8, order='mlx'", "rasterization2DMLX<8>"),
    ],
)
def test_it_holds_for_the_rest_of_the_kernel(trace, traced, round_trip, arguments, pattern):
    statements = f"A[0, 0] = 1\nT.use_swizzle({arguments})\nA[0, 1] = 2"
    assert traced(statements) == (
        "A[0, 0] = T.float32(1.0)\n"
        f'with T.attr({{"threadblock_swizzle_pattern": "{pattern}"}}):\n'
        "    A[0, 1] = T.float32(2.0)\n"
    )
    round_trip(trace(statements))


def test_disabled_it_does_nothing(traced):
    assert "swizzle" not in traced("T.use_swizzle(10, enable=False)")


@pytest.mark.parametrize(
    ("arguments", "message"), [("0", "positive int"), ("4, 'snake'", "'row', 'column' or 'mlx'")]
)
def test_errors(trace, arguments, message):
    with pytest.raises(ValueError, match=rf"{message}[\s\S]*--> "):
        trace(f"T.use_swizzle({arguments})")


def test_hints_for_the_kernel_and_the_function():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        T.annotate_compile_flags("--maxrregcount=32 --generate-line-info")
        with T.Kernel(1, threads=32):
            T.annotate_min_blocks_per_sm(3)
            T.annotate_restrict_buffers(A, B)
            T.annotate_compile_flags(["--extra-device-vectorization"])
            T.annotate_pass_configs({"tirx.disable_vectorize": True})
            T.annotate_pass_configs({tilelang.PassConfigKey.TL_DISABLE_DATA_RACE_CHECK: True})
            for i in T.Parallel(64):
                B[i] = A[i] + 1.0

    kernel = tilelang.compile(
        main,
        pass_configs={"tl.disable_data_race_check": False},
        compile_flags="--no-source-include",
        target="auto" if DEVICE == "cuda" else "cuda -arch=sm_80",
    )
    source = kernel.get_kernel_source()
    assert "__launch_bounds__(32, 3) main_kernel(const float* A, float* B)" in source
    assert "tl::load" not in source
    assert kernel.compile_flags == [
        "--maxrregcount=32",
        "--generate-line-info",
        "--extra-device-vectorization",
        "--no-source-include",
    ]
    assert kernel.pass_configs == {
        "tirx.disable_vectorize": True,
        "tl.disable_data_race_check": False,
    }
    assert kernel.n_regs <= 32
    a = torch.zeros(64, device=DEVICE)
    kernel(a, a)
    assert a.eq(1).all()


def test_the_launch_knows_what_persists_in_l2(trace):
    func = trace("""
        T.annotate_l2_hit_ratio({B: 0.5})
        A[0, tx % 16] = B[0, tx % 16] + n
    """)
    kernel = tilelang.compile(func)
    plan = kernel.artifact.launch_plan
    assert plan.kernels[0].l2_hit_ratio == ("B", 0.5)
    assert LaunchPlan.from_json(plan.to_json()) == plan
    assert plan.script().endswith("l2_hit_ratio=('B', 0.5)\n")
    a = torch.zeros(8, 16, device=DEVICE)
    kernel(a, torch.ones_like(a), 3)
    assert a[0].eq(4).all()


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("T.annotate_l2_hit_ratio({A: 0.5, B: 0.5})", "for two tensors, A and B, in one kernel"),
        ("V = T.view(A, (128,))\nT.annotate_l2_hit_ratio(V, 1)", "wanted a tensor that the func"),
    ],
)
def test_a_launch_has_one_window_over_a_parameter(trace, statements, message):
    with pytest.raises(ValueError, match=rf"{message}[\s\S]*--> "):
        tilelang.compile(trace(f"{statements}\nA[0, tx % 16] = 1"))


def test_an_attribute_holds_for_what_is_in_it(trace, body):
    func = trace("""
        with T.attr(0, "pragma_unroll_factor", 4):
            for i in T.serial(16):
                A[0, i] = B[0, i]
    """)
    assert 'T.attr({"pragma_unroll_factor": 4})\nfor i in range(16):' in body(func)
    assert "#pragma unroll 4" in tilelang.compile(func).get_kernel_source()


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("T.annotate_restrict_buffers(n)", ValueError, "wanted a global tensor"),
        ("T.annotate_min_blocks_per_sm(0)", ValueError, "found 0, wanted a positive int"),
        ("T.annotate_l2_hit_ratio({n: 0.5})", ValueError, "wanted a global tensor"),
        ("T.annotate_l2_hit_ratio(A)", ValueError, "found None for A, wanted a share above 0"),
        ("T.annotate_l2_hit_ratio(A, 1.5)", ValueError, "found 1.5 for A, wanted a share above 0"),
        ("T.annotate_compile_flags(3)", TypeError, "found 3 of type int, wanted strings"),
        ("T.annotate_pass_configs('tl.x')", TypeError, "wanted a mapping of keys to values"),
        ("T.import_source(3)", TypeError, "wanted C\\+\\+ text"),
    ],
)
def test_errors_of_hints(trace, statement, error, message):
    with pytest.raises(error, match=rf"(?:{message})[\s\S]*--> "):
        trace(statement)
