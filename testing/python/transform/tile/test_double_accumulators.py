"""A product runs beside what is made of the one before it: two iterations are one."""

import pytest
import torch

import tilelang
import tilelang.language as T

HOPPER = {"kind": "cuda", "arch": "sm_90a"}
STEP = 64


def scaled(
    steps=4,
    stages=4,
    rows=128,
    threads=256,
    after=False,
    to_tile=False,
    named=False,
    dtype="float16",
    keeps=False,
    cleared="by it",
    loaded=STEP,
    extra=None,
    turned=False,
):
    """Products of steps, each by scales of its rows and one of all columns, added up, with one
    of `extra` numbers from a tile."""
    depth = STEP * steps

    @T.prim_func
    def main(
        A: T.Tensor((rows, depth), dtype),
        B: T.Tensor((128, depth), dtype),
        of_rows: T.Tensor((steps, rows), "float32"),
        of_columns: T.Tensor((steps,), "float32"),
        C: T.Tensor((rows, 128), "float32"),
        Extra: T.Tensor((1 if extra is None else extra,), "float32"),
    ):
        with T.Kernel(1, threads=threads):
            more = T.alloc_shared((1 if extra is None else extra,), "float32")
            a = T.alloc_shared((rows, STEP), dtype)
            b = T.alloc_shared((128, STEP), dtype)
            scale = T.alloc_shared((rows,), "float32")
            product = T.alloc_fragment((rows, 128), "float32")
            total = T.alloc_fragment((rows, 128), "float32")
            T.copy(Extra, more)
            T.clear(total)
            if keeps or cleared == "behind":
                T.clear(product)
            for k in T.Pipelined(steps, num_stages=stages):
                T.copy(A[0, k * STEP], a[:, :loaded])
                T.copy(B[0, k * STEP], b)
                T.copy(of_rows[k, 0], scale)
                T.gemm(
                    a, b, product, transpose_B=True, clear_accum=cleared == "by it" and not keeps
                )
                if named:
                    both = of_columns[k]
                    for i, j in T.Parallel(rows, 128):
                        total[i, j] += product[i, j] * (scale[i] * both)
                else:
                    for i, j in T.Parallel(rows, 128):
                        total[i, j] += product[i, j] * (scale[i] * of_columns[k])
                if cleared == "behind":
                    T.clear(product)
                if turned:
                    for i, j in T.Parallel(rows, 128):
                        total[i, j] += product[j, i]
                if to_tile:
                    T.copy(total, C)
            if after:
                for i, j in T.Parallel(rows, 128):
                    total[i, j] += product[i, j]
            if extra is not None:
                for i, j in T.Parallel(rows, 128):
                    total[i, j] += more[0]
            T.copy(total, C)

    return main


def passed(tile_passes, function, arch="sm_90a"):
    return tile_passes(function, "DoubleAccumulators", arch=arch)["main"].script(show_meta=False)


@pytest.mark.parametrize("named", [False, True])
def test_two_products_of_an_iteration(tile_passes, named):
    lines = [line.strip() for line in passed(tile_passes, scaled(named=named)).splitlines()]
    order = [
        name
        for line in lines
        for name, part in [
            ("loop", "for k in"),
            ("number", "= of_columns[k * 2"),
            ("load", 'tl.tileop.copy", [A['),
            ("product", "tl.tileop.gemm"),
            ("sums", "total[i, j] = "),
        ]
        if part in line
    ]
    wanted = ("load", "product", "number", "sums")
    assert order == ["loop", *(name for name in wanted for _ in range(2))]
    assert any("range(2" in line or "serial(2" in line for line in lines if "for k in" in line)


@pytest.mark.parametrize(
    ("options", "arch"),
    [
        pytest.param({}, "sm_80", id="no asynchronous product"),
        pytest.param({"steps": 5}, "sm_90a", id="an odd number of iterations"),
        pytest.param({"stages": 2}, "sm_90a", id="few stages"),
        pytest.param({"after": True}, "sm_90a", id="the last product is used behind the loop"),
        pytest.param({"to_tile": True}, "sm_90a", id="an iteration writes a tensor"),
        pytest.param({"keeps": True}, "sm_90a", id="sums of all iterations"),
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
    [(4, 4, {}), (6, 3, {"named": True}), (10, 5, {"cleared": "behind"})],
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
    of_columns = torch.rand(steps, device=device) + 0.5
    c = torch.full((128, 128), torch.nan, device=device)
    kernel(a, b, of_rows, of_columns, c, torch.zeros(1, device=device))
    scales = (of_rows.double() * of_columns.double()[:, None]).T.repeat_interleave(STEP, 1)
    torch.testing.assert_close(
        c.double(), (a.double() * scales) @ b.double().T, rtol=1e-4, atol=1e-3
    )


def test_what_exceeds_shared_memory_in_the_end_stays():
    """Elements of a turned tile are exchanged through memory that no pass knows of before."""
    function = scaled(stages=3, extra=12000, turned=True)
    assert tilelang.lower(function, target=HOPPER).kernel_source.count("tl::wgmma_ss<") == 1
    less = scaled(stages=3, extra=4000, turned=True)
    assert tilelang.lower(less, target=HOPPER).kernel_source.count("tl::wgmma_ss<") == 2
