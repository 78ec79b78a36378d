"""Software pipelines: the plan as a value, and the program it becomes."""

import pytest

import tilelang.language as T


def plan(text):
    line = next(line for line in text.splitlines() if line.startswith("for k in"))
    return line.partition("annotations=")[2].rstrip(":)")


@pytest.mark.parametrize(
    ("stages", "order", "stage"),
    [(1, [1, 2, 0], [0, 0, 1]), (2, [0, 1, 2], [0, 0, 1]), (3, [0, 1, 2], [0, 0, 2])],
)
def test_automatic_plan(statements, gemm, stages, order, stage):
    assert plan(statements(gemm(stages), "PipelinePlanning")) == (
        f'{{"software_pipeline_async_stages": [0], "software_pipeline_order": {order}, '
        '"software_pipeline_reasons": ["", "", "it writes F, which is not shared memory"], '
        f'"software_pipeline_stage": {stage}}}'
    )


def test_no_stages_is_a_plain_loop(statements, gemm):
    assert "for k in range(8):" in statements(gemm(0), "PipelinePlanning")


def test_before_sm_80_nothing_is_asynchronous(statements, gemm):
    text = statements(gemm(3), "PipelinePlanning", arch="sm_75")
    assert '"software_pipeline_async_stages": []' in text
    text = statements(gemm(3), "PipelinePlanning", config={"tl.enable_async_copy": False})
    assert '"software_pipeline_async_stages": []' in text


def test_copy_that_is_read_before_it_is_not_prefetched(statements):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((8, 64), "float16")
            T.clear(S)
            for k in T.Pipelined(8, num_stages=3):
                T.copy(S, C[k * 8, 0])
                T.copy(A[k * 8, 0], S)

    assert "for k in range(8):" in statements(main, "PipelinePlanning")


def test_copy_of_what_the_loop_writes_is_not_prefetched(statements):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((8, 64), "float16")
            for k in T.Pipelined(7, num_stages=2):
                T.copy(A[k * 8, 0], S)
                T.copy(S, A[k * 8 + 8, 0])

    assert "for k in range(7):" in statements(main, "PipelinePlanning")


def test_scalar_bindings_go_to_their_users(statements):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((8, 64), "float16")
            for k in T.Pipelined(8, num_stages=2):
                row = k * 8
                T.copy(A[row, 0], S)
                T.copy(S, C[row, 0])

    text = statements(main, "PipelinePlanning")
    assert '"software_pipeline_stage": [0, 1]' in text
    assert "row" not in text


def test_three_stages_become_prologue_and_loop(statements, gemm):
    assert statements(gemm(3), "PipelinePlanning", "InjectSoftwarePipeline", "Simplify") == (
        """\
T.tl.fill(F[0:64, 0:64], T.float32(0.0))
with T.attr({"async_copy": T.bool(True)}):
    T.tl.copy(A[0:64, 0:32], S[0, 0:64, 0:32])
with T.attr({"async_copy": T.bool(True)}):
    T.tl.copy(B[0:32, 0:64], W[0, 0:32, 0:64])
T.tl.cp_async_commit()
with T.attr({"async_copy": T.bool(True)}):
    T.tl.copy(A[0:64, 32:64], S[1, 0:64, 0:32])
with T.attr({"async_copy": T.bool(True)}):
    T.tl.copy(B[32:64, 0:64], W[1, 0:32, 0:64])
T.tl.cp_async_commit()
for k in range(8):
    T.tl.cp_async_wait(1)
    with T.attr({"async_copy": k < 6}):
        T.tl.copy(A[0:64, k * 32 + 64:k * 32 + 64 + 32], S[(k + 2) % 3, 0:64, 0:32])
    with T.attr({"async_copy": k < 6}):
        T.tl.copy(B[k * 32 + 64:k * 32 + 64 + 32, 0:64], W[(k + 2) % 3, 0:32, 0:64])
    T.tl.cp_async_commit()
    T.tl.gemm(S[k % 3, 0:64, 0:32], W[k % 3, 0:32, 0:64], F[0:64, 0:64], \
T.bool(False), T.bool(False), 0, T.bool(False))
T.tl.cp_async_wait(0)
T.tl.copy(F[0:64, 0:64], C[0:64, 0:64])"""
    )


def test_one_stage_has_one_slot(statements, gemm):
    text = statements(gemm(1), "PipelinePlanning", "InjectSoftwarePipeline", "Simplify")
    loop = text[text.index("for k in") :].splitlines()[1:]
    assert [line.split("(")[0].strip() for line in loop[:7]] == [
        "T.tl.cp_async_wait",
        "T.tl.gemm",
        "with T.attr",
        "T.tl.copy",
        "with T.attr",
        "T.tl.copy",
        "T.tl.cp_async_commit",
    ]
    assert "S[0:64, 0:32]" in text
