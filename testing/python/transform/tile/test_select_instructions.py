"""SelectInstructions: the attributes that it leaves on products, as values."""

import pytest
import tvm
from tvm_ffi import structural_walk

import tilelang.language as T
from tilelang.engine.phase import verify

F16 = "float16"


def choices(mod, op="gemm"):
    """Of each call of the operator: attributes as Python values."""
    found = []

    def call(node):
        if isinstance(node.value, tvm.ir.Call) and node.value.op.name == f"tl.tileop.{op}":
            found.append({str(key): value_of(value) for key, value in node.value.attrs.items()})

    structural_walk(mod["main"], [(tvm.tirx.Evaluate, call)])
    return found


def value_of(v):
    if hasattr(v, "items"):
        return {str(key): value_of(value) for key, value in v.items()}
    return v if isinstance(v, str | int) else [value_of(entry) for entry in v]


def product(m, n, k, dtype=F16, threads=128, options=None, layout=None):
    accumulator = "float32" if "float" in dtype else "int32"

    @T.prim_func
    def main(C: T.Tensor((m, n), accumulator)):
        with T.Kernel(1, threads=threads):
            a = T.alloc_shared((m, k), dtype)
            b = T.alloc_shared((n, k), dtype)
            c = T.alloc_fragment((m, n), accumulator)
            if layout is not None:
                T.annotate_layout({a: layout})
            T.clear(a)
            T.clear(b)
            T.clear(c)
            T.gemm(a, b, c, transpose_B=True, **(options or {}))
            T.copy(c, C)

    return main


def chosen(tile_passes, func, arch):
    (choice,) = choices(tile_passes(func, "SelectInstructions", arch=arch))
    return choice


WGMMA = "wgmma.m64n64k16 (float16 x float16 -> float32)"
HALF = "wgmma.m64n32k16 (float16 x float16 -> float32)"
MMA = "mma.m16n8k16 (float16 x float16 -> float32)"


def test_a_product_of_warp_groups(tile_passes):
    assert chosen(tile_passes, product(128, 64, 64, threads=256), "sm_90a") == {
        "instruction": [[WGMMA, 0, 64]],
        "warps": [8, 1],
        "swizzle": [128, 128],
    }


def test_the_policy_decides_about_warps(tile_passes):
    options = {"policy": T.GemmWarpPolicy.FullCol}
    choice = chosen(tile_passes, product(128, 64, 64, threads=256, options=options), "sm_90a")
    assert choice == {"instruction": [[HALF, 0, 64]], "warps": [4, 2], "swizzle": [128, 128]}


@pytest.mark.parametrize(("columns", "warps"), [(128, [4, 2]), (192, [8, 1])])
def test_warp_groups_take_rows_unless_two_blocks_have_registers(tile_passes, columns, warps):
    """wgmma of 128 columns takes 90 of the registers that a thread begins with, and two blocks of
    384 threads begin with 80. Accumulators of 192 columns leave no room for another block."""
    choice = chosen(tile_passes, product(128, columns, 64, threads=256), "sm_90a")
    assert choice["warps"] == warps


@pytest.mark.parametrize(
    ("func", "why"),
    [
        (product(32, 64, 64), "M must be a multiple of 64, found 32"),
        (product(64, 64, 64, threads=64), "threads must be a multiple of 128, found 64"),
        (
            product(64, 64, 64, layout=T.Layout((64, 64), lambda i, j: i * 64 + j)),
            "the layout of a has no swizzle of 128, 64 or 32 bytes",
        ),
    ],
)
def test_warps_take_what_warp_groups_reject(tile_passes, func, why):
    choice = chosen(tile_passes, func, "sm_90a")
    assert choice["instruction"] == [[MMA, 0, 64]]
    assert choice["rejected"] == {"wgmma": why}


def test_rows_share_k(tile_passes):
    """What the first instruction leaves of K is for a smaller one, then for arithmetic."""
    choice = chosen(tile_passes, product(64, 64, 44), "sm_80")
    assert choice["instruction"] == [
        [MMA, 0, 32],
        ["mma.m16n8k8 (float16 x float16 -> float32)", 32, 40],
        ["multiply-add", 40, 44],
    ]
    assert choice["rejected"]["mma"].startswith(f"{MMA}: K must be at least 16, found 4; ")


def test_arithmetic_says_why(tile_passes):
    choice = chosen(tile_passes, product(64, 64, 64, dtype="float32"), "sm_80")
    assert choice["instruction"] == [["multiply-add", 0, 64]]
    assert "warps" not in choice
    assert 'allow it with annotations={"allow_tf32": True}' in choice["rejected"]["mma"]


def test_what_users_refuse(tile_passes):
    func = product(64, 64, 64)
    config = {"tl.disable_wgmma": True}
    mod = tile_passes(func, "SelectInstructions", arch="sm_90a", config=config)
    assert choices(mod)[0]["rejected"] == {"wgmma": "tl.disable_wgmma is set"}


def test_a_range_of_threads_counts(tile_passes):
    @T.prim_func
    def main(C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((64, 64), F16)
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(a)
            with T.ws(1):
                T.clear(c)
                T.gemm(a, a, c)
                T.copy(c, C)

    choice = chosen(tile_passes, main, "sm_90a")
    assert choice == {"instruction": [[WGMMA, 0, 64]], "warps": [4, 1], "swizzle": [128, 128]}


def test_the_role_of_a_schedule_counts(tile_passes):
    plan = T.WSSchedule(
        num_warps=12,
        roles={"load": T.WSRole(0, 4), "mma": T.WSRole(4, 12)},
        pipelines={"tile": T.WSPipeline(2)},
        scopes=[
            T.WSScope("k", {"load": ["a"], "mma": ["c"]}, [T.WSSync("a", "c", "tile")]),
            T.WSScope(None, {"mma": ["clear", "store"]}),
        ],
    )

    @T.prim_func
    def main(A: T.Tensor((512, 64), F16), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=384):
            T.annotate_ws_schedule(plan)
            a = T.alloc_shared((128, 64), F16)
            c = T.alloc_fragment((128, 64), "float32")
            with T.ws_op("clear"):
                T.clear(c)
            for k in T.Pipelined(4, num_stages=2, annotations={T.WSID: "k"}):
                T.copy(A[k * 128, 0], a, annotations={T.WSID: "a"})
                T.gemm(a, a[0:64, :], c, transpose_B=True, annotations={T.WSID: "c"})
            T.copy(c, C, annotations={T.WSID: "store"})

    for steps in (("SelectInstructions",), ("HoistViews", "ProducerConsumerWarpSpecialized")):
        (choice,) = choices(tile_passes(main, *steps, arch="sm_90a"))
        choice.pop("tl.ws_id", None)
        assert choice == {"instruction": [[WGMMA, 0, 64]], "warps": [8, 1], "swizzle": [128, 128]}


def test_choices_stay_through_the_passes(tile_passes):
    """Versions of tiles, and roles of warps, change operands only."""

    @T.prim_func
    def main(
        A: T.Tensor((128, 512), F16), B: T.Tensor((512, 64), F16), C: T.Tensor((128, 64), F16)
    ):
        with T.Kernel(1, threads=256):
            a = T.alloc_shared((128, 64), F16)
            b = T.alloc_shared((64, 64), F16)
            c = T.alloc_fragment((128, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(8, num_stages=3):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    steps = ("HoistViews", "SelectInstructions", "ProducerConsumerWarpSpecialized")
    mod = tile_passes(main, *steps, "PipelinePlanning", "InjectSoftwarePipeline", arch="sm_90a")
    assert "tl.tileop.acquire" in mod.script() or "T.tl.acquire" in mod.script()
    assert {str(c) for c in choices(mod)} == {
        # Columns of B lie side by side: an instruction's 64 are a span.
        str({"instruction": [[WGMMA, 0, 64]], "warps": [8, 1], "swizzle": [128, 128]})
    }


def test_a_lost_choice_is_a_bug_of_the_pass(tile_passes):
    mod = tile_passes(product(64, 64, 64), "SelectInstructions")
    verify(mod, "SelectInstructions", lowered=False)
    func = product(64, 64, 64).with_attr("tl.selected", 1)
    with pytest.raises(RuntimeError, match=r"after pass Mine: .*a gemm without an instruction"):
        verify(tvm.IRModule({"main": func}), "Mine", lowered=False)


# -- copies


def copies(tile_passes, func, *names, arch="sm_90a", **config):
    passes = ("HoistViews", *(names or ("SelectInstructions",)))
    return choices(tile_passes(func, *passes, arch=arch, config=config), "copy")


def load(extents=(64, 64), tensor=F16, shared=F16, columns=64, **options):
    """A copy of a tile of a tensor whose rows are `columns` elements longer than the tile's."""
    m, n = extents

    @T.prim_func
    def main(A: T.Tensor((m, n + columns), tensor)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((m, n), shared)
            T.copy(A[0, 0], S, **options)

    return main


def test_candidates_of_a_load(tile_passes):
    assert copies(tile_passes, load()) == [
        {"instruction": ["tma", "cp.async", "vector"], "aligned": 16}
    ]


@pytest.mark.parametrize(
    ("func", "candidates", "rejected"),
    [
        (load(shared="float32"), ["vector"], dict.fromkeys(("tma", "cp.async"), "a conversion")),
        (load(columns=4), ["cp.async", "vector"], {"tma": "a stride of 136 bytes in A"}),
        (load(disable_tma=True), ["cp.async", "vector"], {"tma": "disable_tma=True"}),
        (
            load(prefer_instruction="sync"),
            ["vector"],
            dict.fromkeys(("tma", "cp.async"), 'prefer_instruction="sync"'),
        ),
    ],
)
def test_what_is_against_a_load(tile_passes, func, candidates, rejected):
    (choice,) = copies(tile_passes, func)
    assert choice["instruction"] == candidates
    assert choice["rejected"].keys() == rejected.keys()
    for instruction, why in rejected.items():
        assert choice["rejected"][instruction].startswith(why)


def test_the_target_counts(tile_passes):
    (choice,) = copies(tile_passes, load(), arch="sm_75")
    assert choice == {
        "instruction": ["vector"],
        "rejected": {"tma": "a target before sm_90", "cp.async": "a target before sm_80"},
    }


@pytest.mark.parametrize(("columns", "bytes_"), [(4, 8), (2, 4), (8, 16)])
def test_bytes_that_are_proved(tile_passes, columns, bytes_):
    (choice,) = copies(tile_passes, load(columns=columns), arch="sm_80")
    assert choice["instruction"] == ["cp.async", "vector"]
    assert choice["aligned"] == bytes_


def test_odd_rows_prove_nothing(tile_passes):
    """A pipeline may still try: what is too narrow stays a store."""
    (choice,) = copies(tile_passes, load(columns=1), arch="sm_80")
    assert "cp.async" in choice["instruction"]
    assert "aligned" not in choice


@pytest.mark.parametrize(("asked", "instruction"), [("tma", "tma"), ("cp_async", "cp.async")])
def test_a_demand_leaves_one(tile_passes, asked, instruction):
    (choice,) = copies(tile_passes, load(prefer_instruction=asked))
    assert choice["instruction"] == [instruction]
    assert choice["demanded"] == 1


def store(also=False, between=F16):
    @T.prim_func
    def main(A: T.Tensor((64, 64), F16), B: T.Tensor((64, 64), F16)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), F16)
            F = T.alloc_fragment((64, 64), between)
            T.clear(F)
            T.copy(F, S)
            T.copy(S, A)
            if also:
                A[0, 0] = 1
            T.copy(S, F)

    return main


def test_stores_and_fragments(tile_passes):
    assert copies(tile_passes, store()) == [
        {"instruction": ["stmatrix", "vector"]},
        {"instruction": ["tma", "vector"]},
        {"instruction": ["ldmatrix", "vector"]},
    ]
    # stmatrix came with sm_90.
    of_sm_80 = copies(tile_passes, store(), arch="sm_80")
    assert of_sm_80[0] == {
        "instruction": ["vector"],
        "rejected": {"stmatrix": "a target before sm_90"},
    }
    assert of_sm_80[2] == {"instruction": ["ldmatrix", "vector"]}


def test_what_else_happens_to_the_tensor(tile_passes):
    why = "A, which the kernel also touches in another way"
    assert copies(tile_passes, store(also=True))[1] == {
        "instruction": ["vector"],
        "rejected": {"tma": why},
        "touched_elsewhere": 1,
    }


def pipelined(columns=64, **options):
    """Loads of two tensors; rows of the second one are `columns` elements longer than its tile."""

    @T.prim_func
    def main(
        A: T.Tensor((512, 64), F16), B: T.Tensor((512, 64 + columns), F16), C: T.Tensor((64, 64))
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), F16)
            b = T.alloc_shared((64, 64), F16)
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(8, num_stages=2):
                T.copy(A[k * 64, 0], a)
                T.copy(B[k * 64, 0], b, **options)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


@pytest.mark.parametrize(
    ("func", "left"),
    [
        (pipelined(columns=4), ["cp.async"]),
        (pipelined(disable_tma=True), ["cp.async"]),
        (pipelined(columns=1), ["vector"]),
        (pipelined(prefer_instruction="sync"), ["vector"]),
    ],
)
def test_roles_narrow_the_candidates(tile_passes, func, left):
    """The producer has the first load by TMA, a statement of its own, and decides about the
    second; nobody has asked for it."""
    (choice, out) = copies(tile_passes, func, "ProducerConsumerWarpSpecialized")
    assert choice["instruction"] == left
    assert "demanded" not in choice
    assert out["instruction"] == ["vector"]


def test_a_wrong_proof_is_no_fault_of_the_user(tile_passes):
    """What the compiler has narrowed to cp.async and cannot make is a bug, not a demand."""
    names = ("HoistViews", "ProducerConsumerWarpSpecialized", "LayoutInference", "LowerTileOp")
    text = tile_passes(pipelined(columns=4), *names, arch="sm_90a").script()
    assert 'T.attr("proved", "async_copy"' in text
    assert 'T.attr("demanded", "async_copy"' not in text


def test_a_copy_without_a_choice_is_a_bug_of_the_pass():
    func = load().with_attr("tl.selected", 1)
    with pytest.raises(RuntimeError, match=r"found tl.tileop.copy without an instruction"):
        verify(tvm.IRModule({"main": func}), "Mine", lowered=False)


def by_matrices(rows=64):
    """An accumulator goes to shared memory, of which `rows` rows are stored."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), F16), C: T.Tensor((64, 64), F16)):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), F16)
            c = T.alloc_fragment((64, 64), "float32")
            out = T.alloc_shared((64, 64), F16)
            T.copy(A, a)
            T.gemm(a, a, c, clear_accum=True)
            T.copy(c, out)
            T.copy(out[0:rows, :], C[0:rows, :])

    return main


PADDED = T.Layout((64, 64), lambda i, j: i * 72 + j)


def row_by_row(layout=None):
    @T.prim_func
    def main(A: T.Tensor((64, 64), F16)):
        with T.Kernel(1, threads=128):
            S = T.alloc_shared((64, 64), F16)
            if layout is not None:
                T.annotate_layout({S: layout})
            T.clear(S)
            T.copy(S, A)

    return main


BOXES = {"boxes": [[0, 0, 64, 1], [1, 1, 64, 1]], "dims": [0, 1], "swizzle": 128}


def test_final_layouts_leave_one_instruction(tile_passes):
    load, to_shared, to_tensor = copies(tile_passes, by_matrices(), "LayoutInference")
    assert load["instruction"] == ["vector"]
    why = "no pass lets threads wait for it"
    assert load["rejected"] == {"tma": why, "cp.async": why}
    assert to_shared == {"instruction": ["stmatrix"], "matrices": {"runs": [[0, 16]]}}
    assert to_tensor == {"instruction": ["tma"], "tma": BOXES}


def test_a_layout_without_boxes_is_stored_by_threads(tile_passes):
    (choice,) = copies(tile_passes, row_by_row(PADDED), "LayoutInference")
    assert choice["instruction"] == ["vector"]
    assert choice["rejected"]["tma"].startswith("a layout of S that is neither row-major nor")
    (choice,) = copies(tile_passes, row_by_row(), "LayoutInference")
    assert choice == {"instruction": ["tma"], "tma": BOXES}


def test_a_pipeline_waits_for_what_is_wide_enough(tile_passes):
    passes = ("PipelinePlanning", "InjectSoftwarePipeline", "LayoutInference")
    *loads, out = copies(tile_passes, pipelined(), *passes, arch="sm_80")
    assert [load["instruction"] for load in loads] == [["cp.async", "vector"]] * 4
    assert out["instruction"] == ["vector"]


def test_fragments_of_other_threads_are_exchanged(tile_passes):
    def between(policy):
        @T.prim_func
        def main():
            with T.Kernel(1, threads=256):
                a = T.alloc_shared((128, 64), F16)
                b = T.alloc_shared((64, 64), F16)
                c = T.alloc_fragment((128, 64), "float32")
                d = T.alloc_fragment((128, 64), "float32")
                T.clear(a)
                T.clear(b)
                T.gemm(a, b, c, clear_accum=True)
                T.gemm(a, b, d, clear_accum=True, policy=policy)
                T.copy(c, d)

        return main

    (same,) = copies(tile_passes, between(T.GemmWarpPolicy.Square), "LayoutInference")
    assert same == {"instruction": ["vector"]}
    (other,) = copies(tile_passes, between(T.GemmWarpPolicy.FullCol), "LayoutInference")
    assert other["instruction"] == ["exchange"]
    assert other["rejected"] == {
        "vector": "other threads hold its elements",
        "shfl": "shared memory costs less, or other warps hold its elements",
    }


@pytest.mark.parametrize(("rows", "group_dim"), [(64, 0), (65, None)])
def test_warp_groups_store_rows_of_their_own(tile_passes, rows, group_dim):
    @T.prim_func
    def main(A: T.Tensor((128, 64), F16)):
        with T.Kernel(1, threads=384):
            S = T.alloc_shared((128, 64), F16)
            with T.ws(0, 1):
                T.clear(S)
                T.copy(S[0:rows, :], A[0:rows, :])

    (choice,) = copies(tile_passes, main, "LayoutInference")
    assert choice["instruction"] == ["tma"]
    assert choice["tma"].get("group_dim") == group_dim


@pytest.mark.parametrize(("rows", "block_dim"), [(64, 0), (63, 1)])
def test_blocks_of_a_cluster_load_parts(tile_passes, rows, block_dim):
    def of(cluster):
        @T.prim_func
        def main(A: T.Tensor((rows, 128), F16)):
            with T.Kernel(2, threads=128, cluster_dims=cluster):
                S = T.alloc_shared((rows, 128), F16)
                T.copy(A, S)

        return main

    assert copies(tile_passes, of(2))[0].get("block_dim") == block_dim
    assert "block_dim" not in copies(tile_passes, of(1))[0]


def test_lowering_chooses_nothing(tile_passes):
    """Without layout inference candidates are left, and no layout is known."""
    with pytest.raises(tvm.error.InternalError, match="found a copy without an instruction"):
        tile_passes(row_by_row(), "HoistViews", "SelectInstructions", "LowerTileOp", arch="sm_90a")


def two_readers(first, second, shape=(64, 128), view=None, layout=None, second_gemm=T.gemm):
    """Two products by the first and second operand A of one tile, or of a view of it."""

    @T.prim_func
    def main(C: T.Tensor((128, 64), "float32"), D: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared(shape, F16)
            b = T.alloc_shared((144, 64), F16)
            T.clear(a)
            T.clear(b)
            if layout is not None:
                T.annotate_layout({a: layout})
            r = a if view is None else T.reshape(a, view)
            for read, multiply, out in ((first, T.gemm, C), (second, second_gemm, D)):
                tile, rows, columns = read(a, r)
                c = T.alloc_fragment((rows, 64), "float32")
                multiply(tile, b[:columns, :], c, clear_accum=True)
                if second_gemm is not T.gemm:
                    T.wait_wgmma(0)
                T.copy(c, out[:rows, :])

    return main


def instructions(tile_passes, func):
    """Of each product the family, which LayoutInference then finds a layout for."""
    found = choices(tile_passes(func, "LayoutInference", arch="sm_90a"))
    return [c["instruction"][0][0].split(".")[0] for c in found]


def test_readers_of_one_tile_agree_on_a_swizzle(tile_passes):
    """Parts that begin at 16 and at 32 columns both take spans of 16 columns, and no wider ones."""
    func = two_readers(lambda a, r: (a[:, 16:48], 64, 32), lambda a, r: (a[:, 32:128], 64, 96))
    assert instructions(tile_passes, func) == ["wgmma", "wgmma"]


def test_the_swizzle_is_chosen_once_and_kept_on_the_products(tile_passes):
    """That of the tile that both read, and of the rest of each: columns side by side."""
    func = two_readers(lambda a, r: (a[:, 16:48], 64, 32), lambda a, r: (a[:, 32:128], 64, 96))
    found = choices(tile_passes(func, "SelectInstructions", arch="sm_90a"))
    assert [c["swizzle"] for c in found] == [[32, 128]] * 2


WHOLE = (lambda a, r: (r, 128, 144), lambda a, r: (a[0, :, :], 64, 144))


def test_rows_of_two_lengths_have_no_common_swizzle(tile_passes):
    func = two_readers(*WHOLE, shape=(2, 64, 144), view=(128, 144))
    assert instructions(tile_passes, func) == ["wgmma", "mma"]
    why = choices(tile_passes(func, "SelectInstructions", arch="sm_90a"))[1]["rejected"]["wgmma"]
    assert why.startswith("no swizzle of a has both the matrix that this product reads and that of")
    func = two_readers(*WHOLE, (2, 64, 144), (128, 144), second_gemm=T.wgmma_gemm)
    assert instructions(tile_passes, func) == ["mma", "wgmma"]


def test_a_layout_of_the_user_is_that_of_views(tile_passes):
    def rows(a, r):
        return r, 128, 64

    layout = T.Layout((64, 128), lambda i, j: i * 136 + j)
    func = two_readers(rows, rows, view=(128, 64), layout=layout)
    assert instructions(tile_passes, func) == ["mma", "mma"]


def test_a_layout_of_a_view_is_that_of_its_tile(tile_passes):
    @T.prim_func
    def main(C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128, 64), F16)
            b = T.alloc_shared((64, 64), F16)
            c = T.alloc_fragment((128, 64), "float32")
            view = T.reshape(a, (64, 128))
            T.annotate_layout({view: T.Layout((64, 128), lambda i, j: i * 136 + j)})
            T.clear(a)
            T.clear(b)
            T.gemm(a, b, c, clear_accum=True)
            T.copy(c, C)

    assert instructions(tile_passes, main) == ["mma"]
