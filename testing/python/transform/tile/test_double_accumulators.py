"""A product runs beside what is made of the one before it: two iterations are one."""

import re
from importlib import import_module

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.engine.errors import SharedMemoryError

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
STEP = 64


@T.macro
def load(form, loaded, tensors, tiles, total, k):
    """The tiles of a step."""
    A, B, of_rows, of_columns = tensors
    a, b, scale = tiles
    rows = a.shape[0]
    if form == "a table":
        at = T.cast(of_columns[k], "int32")
        T.copy(A[0, at * STEP], a)
    elif form != "one left operand":
        T.copy(A[0, k * STEP], a[:, :loaded])
    T.copy(B[0, k * STEP], b)
    if form == "scales of sums":
        for i in T.Parallel(rows):
            scale[i] = total[i, 0]
    elif form == "scales in registers":
        own = T.alloc_fragment((rows,), "float32")
        for i in T.Parallel(rows):
            own[i] = of_rows[k, i]
    else:
        T.copy(of_rows[k, 0], scale)


@T.macro
def multiply(form, clears, a, b, before, product, k):
    """The product of a step."""
    if form == "asynchronous":
        T.wgmma_gemm(a, b, product, transpose_B=True, clear_accum=True)
        T.wait_wgmma(0)
    elif form == "at times":
        T.gemm(a, b, product, transpose_B=True, clear_accum=k % 2 == 0)
    elif form == "one left operand":
        T.gemm(before, b, product, transpose_B=True, clear_accum=True)
    else:
        T.gemm(a, b, product, transpose_B=True, clear_accum=clears)


@T.macro
def add(form, product, total, scale, of_rows, number, k):
    """What a step adds to the sums."""
    rows = total.shape[0]
    if form == "changed":
        for i, j in T.Parallel(rows, 128):
            product[i, j] *= 2
    if form == "under a condition":
        for i, j in T.Parallel(rows, 128):
            if j < 64:
                total[i, j] += product[i, j] * (scale[i] * number[k])
    elif form == "of a choice":
        for i, j in T.Parallel(rows, 128):
            factor = T.if_then_else(j < 64, number[k], 1)
            total[i, j] += product[i, j] * (scale[i] * factor)
    elif form == "of each row":
        for i, j in T.Parallel(rows, 128):
            total[i, j] += product[i, j] * (of_rows[k, i] * number[k])
    elif form == "of a tile":
        for i, j in T.Parallel(rows, 128):
            total[i, j] += product[i, j] * scale[0]
    elif form == "turned":
        for i, j in T.Parallel(rows, 128):
            total[i, j] += product[i, j] * (scale[i] * number[k])
        for i, j in T.Parallel(rows, 128):
            total[i, j] += product[j, i]
    else:
        for i, j in T.Parallel(rows, 128):
            total[i, j] += product[i, j] * (scale[i] * number[k])


@T.macro
def store(form, total, C):
    """An iteration's sums go to memory, in some forms."""
    rows = total.shape[0]
    if form == "a sum elsewhere":
        for i in T.Parallel(rows):
            T.atomic_add(C[i, 0], total[i, 0])
    elif form == "stored":
        for i, j in T.Parallel(rows, 128):
            C[i, j] = total[i, j]
    elif form == "copied":
        T.copy(total, C)


def scaled(
    steps=4,
    stages=4,
    rows=128,
    threads=256,
    named=False,
    cleared="by it",
    loaded=STEP,
    extra=None,
    first=0,
    form="",
):
    """Products of steps, each by scales of its rows and one of all columns, added up, with one
    of `extra` numbers from a tile; something is otherwise in some forms."""
    depth = STEP * steps
    orders = {"order": [0, 1, 2, 3, 4], "stage": [0, 0, 0, 1, 1]} if form == "ordered" else {}

    @T.prim_func
    def main(
        A: T.Tensor((rows, depth), "float16"),
        B: T.Tensor((128, depth), "float16"),
        of_rows: T.Tensor((steps, rows), "float32"),
        of_columns: T.Tensor((steps,), "float32"),
        C: T.Tensor((rows, 128), "float32"),
        Extra: T.Tensor((1 if extra is None else extra,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            more = T.alloc_shared((1 if extra is None else extra,), "float32")
            a = T.alloc_shared((rows, STEP), "float16")
            b = T.alloc_shared((128, STEP), "float16")
            scale = T.alloc_shared((rows,), "float32")
            product, total = (T.alloc_fragment((rows, 128), "float32") for _ in range(2))
            before = T.alloc_fragment((rows, STEP), "float16")
            T.copy(Extra, more)
            T.clear(total)
            if form == "sums of all" or cleared == "behind":
                T.clear(product)
            if form == "one left operand":
                T.copy(A[0, 0], before)
            elif form == "roles":
                with T.ws(0):
                    total[0, 0] = 1
            elif form == "a layout":
                T.annotate_layout({a: tilelang.layout.make_swizzled_layout(a)})
            elif form == "a view":
                T.copy(Extra, T.reshape(scale, (rows,))[0:1])
            for k in T.Pipelined(first, steps, num_stages=stages, **orders):
                if form == "a name in front":
                    both = of_columns[k]
                load(form, loaded, (A, B, of_rows, of_columns), (a, b, scale), total, k)
                clears = cleared == "by it" and form != "sums of all"
                multiply(form, clears, a, b, before, product, k)
                if named:
                    if form != "a name in front":
                        both = of_columns[k]
                    for i, j in T.Parallel(rows, 128):
                        total[i, j] += product[i, j] * (scale[i] * both)
                else:
                    add(form, product, total, scale, of_rows, of_columns, k)
                if cleared == "behind":
                    T.clear(product)
                store(form, total, C)
            if form == "used behind":
                for i, j in T.Parallel(rows, 128):
                    total[i, j] += product[i, j]
            if extra is not None:
                for i, j in T.Parallel(rows, 128):
                    total[i, j] += more[0]
            T.copy(total, C)

    return main


def passed(tile_passes, function, arch="sm_90a"):
    return tile_passes(function, "DoubleAccumulators", arch=arch)["main"].script(show_meta=False)


@pytest.mark.parametrize(
    "options", [{}, {"named": True}, {"named": True, "form": "a name in front"}]
)
def test_two_products_of_an_iteration(tile_passes, options):
    lines = [line.strip() for line in passed(tile_passes, scaled(**options)).splitlines()]
    order = [
        name
        for line in lines
        for name, part in [
            ("loop", "for k in"),
            ("number", "= of_columns[k * 2"),
            ("load", 'tl.tileop.copy", [A['),
            ("product", "tl.tileop.gemm"),
            ("first sums", " + product["),
            ("other sums", " + product_"),
        ]
        if part in line
    ]
    wanted = ("load", "product", "number")
    both = [name for name in wanted for _ in range(2)]
    assert order == ["loop", *both, "first sums", "other sums"]
    (loop,) = [line for line in lines if "for k in" in line]
    assert "range(2" in loop or "serial(2" in loop
    assert '"num_stages": 2' in loop


@pytest.mark.parametrize(
    ("form", "numbers"),
    [("", 2), ("of each row", 2), ("under a condition", 0), ("of a choice", 0), ("of a tile", 0)],
)
def test_what_has_a_name(tile_passes, form, numbers):
    """Numbers in global memory that all elements read in each case."""
    text = passed(tile_passes, scaled(form=form))
    assert text.count("tl.tileop.gemm") == 2
    assert len(re.findall(r"_number\w*: ", text)) == numbers


@pytest.mark.parametrize(
    ("options", "arch"),
    [
        pytest.param({}, "sm_80", id="no asynchronous product"),
        pytest.param({"steps": 5}, "sm_90a", id="an odd number of iterations"),
        pytest.param({"stages": 2}, "sm_90a", id="few stages"),
        pytest.param(
            {"form": "used behind"}, "sm_90a", id="the last product is used behind the loop"
        ),
        pytest.param({"form": "copied"}, "sm_90a", id="an iteration writes a tensor"),
        pytest.param({"form": "sums of all"}, "sm_90a", id="sums of all iterations"),
        pytest.param({"steps": 2}, "sm_90a", id="two iterations"),
        pytest.param({"form": "ordered"}, "sm_90a", id="an order of the program's"),
        pytest.param({"form": "asynchronous"}, "sm_90a", id="an asynchronous product"),
        pytest.param({"form": "at times"}, "sm_90a", id="sums of some iterations"),
        pytest.param({"form": "one left operand"}, "sm_90a", id="an operand in registers"),
        pytest.param({"form": "scales of sums"}, "sm_90a", id="loads of what is used"),
        pytest.param({"form": "scales in registers"}, "sm_90a", id="loads to registers"),
        pytest.param({"form": "changed"}, "sm_90a", id="a use changes accumulators"),
        pytest.param({"form": "a sum elsewhere"}, "sm_90a", id="an iteration adds to a tensor"),
        pytest.param({"form": "stored"}, "sm_90a", id="an iteration stores to a tensor"),
        pytest.param({"form": "roles"}, "sm_90a", id="threads with roles"),
        pytest.param({"form": "a layout"}, "sm_90a", id="a tile with a layout"),
        pytest.param({"form": "a view"}, "sm_90a", id="a tile with another name"),
        pytest.param({"threads": (128, 2)}, "sm_90a", id="threads of two dimensions"),
        pytest.param({"loaded": 32}, "sm_90a", id="a part of a tile stays"),
        pytest.param({"stages": 5, "steps": 10, "extra": 8192}, "sm_90a", id="no shared memory"),
        pytest.param({"stages": 3, "extra": T.dynamic("n")}, "sm_90a", id="the call says how much"),
        pytest.param({"threads": 128}, "sm_90a", id="no registers"),
        pytest.param({"rows": 64}, "sm_90a", id="two blocks have registers"),
    ],
)
def test_what_stays(tile_passes, options, arch):
    assert passed(tile_passes, scaled(**options), arch).count("tl.tileop.gemm") == 1


@pytest.mark.parametrize(
    ("steps", "stages", "options"),
    [
        (4, 4, {}),
        (6, 3, {"named": True}),
        (10, 5, {"cleared": "behind"}),
        (6, 4, {"first": 2, "form": "a table"}),
        (4, 4, {"form": "of each row"}),
        (4, 4, {"form": "of a choice"}),
    ],
)
def test_the_same_sums(device, steps, stages, options):
    function = scaled(steps, stages, **options)
    kernel = tilelang.compile(function, target=HOPPER, execution_backend="auto")
    source = kernel.get_kernel_source()
    assert source.count("tl::wgmma_ss<") == 2
    # The second product runs beside the use of the first one.
    assert "tl::warpgroup_wait<1>();" in source
    torch.manual_seed(0)
    a, b = (torch.randn(128, steps * STEP, device=device).half() for _ in range(2))
    of_rows = torch.rand(steps, 128, device=device) + 0.5
    of_columns = torch.randint(0, steps, (steps,), device=device).float()
    c = torch.full((128, 128), torch.nan, device=device)
    kernel(a, b, of_rows, of_columns, c, torch.zeros(1, device=device))
    wanted = torch.zeros(128, 128, dtype=torch.float64, device=device)
    form = options.get("form")
    for k in range(options.get("first", 0), steps):
        at = int(of_columns[k]) if form == "a table" else k
        of_a, of_b = (x[:, s * STEP :][:, :STEP].double() for x, s in ((a, at), (b, k)))
        factor = of_columns[k].double().repeat(128)
        if form == "of a choice":
            factor[64:] = 1
        wanted += of_a @ of_b.T * of_rows[k].double()[:, None] * factor
    torch.testing.assert_close(c.double(), wanted, rtol=1e-4, atol=1e-3)


def test_what_exceeds_shared_memory_in_the_end_stays():
    """Elements of a turned tile are exchanged through memory that no pass knows of before."""
    function = scaled(stages=3, extra=12000, form="turned")
    assert tilelang.lower(function, target=HOPPER).kernel_source.count("tl::wgmma_ss<") == 1
    less = scaled(stages=3, extra=4000, form="turned")
    assert tilelang.lower(less, target=HOPPER).kernel_source.count("tl::wgmma_ss<") == 2


@pytest.mark.parametrize(("error", "runs"), [(SharedMemoryError, 2), (ValueError, 1)])
def test_another_refusal_is_no_reason_to_lower_again(monkeypatch, error, runs):
    """The second error had the first one behind it, as one that happened while it was handled."""
    refusals = []

    def refuse(*arguments):
        refusals.append(error("no"))
        raise refusals[-1]

    monkeypatch.setattr(import_module("tilelang.engine.lower"), "OptimizeForTarget", refuse)
    with pytest.raises(error) as raised:
        tilelang.lower(scaled(stages=3), target=HOPPER)
    assert (len(refusals), raised.value) == (runs, refusals[-1])
    assert raised.value.__context__ is None
