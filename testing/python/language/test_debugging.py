"""What kernels print, and how they stop."""

import pytest
import torch

import tilelang
import tilelang.language as T

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


@pytest.fixture
def lines(capfd):
    """Run a kernel; return the lines that it printed, sorted, and its result."""

    def run(func, *args, out_idx=None):
        result = tilelang.compile(func, out_idx=out_idx)(*[a.to(DEVICE) for a in args])
        if GPU:
            torch.cuda.synchronize()
        printed = [line for line in capfd.readouterr().out.splitlines() if "msg=" in line]
        return sorted(printed), result

    return run


PLACE = "BlockIdx=({}, 0, 0), ThreadIdx=({}, {}, 0)"


def test_scalars_and_messages_are_printed_by_every_thread(lines):
    @T.prim_func
    def main(A: T.Tensor((2, 4), "float32")):
        with T.Kernel(2, threads=(2, 2)) as bx:
            tx, ty, _ = T.get_thread_bindings()
            if ty == 1:
                T.print(A[bx, tx] * 0.5, msg='50% of "A"')
                T.print(msg="here")
            T.print(bx > 0)
            T.print(T.float32x2(1, 2), "pair")

    a = torch.tensor([[1.0, 0.2, 0, 0], [-3.0, torch.inf, 0, 0]])
    printed, _ = lines(main, a)
    half = "msg='50% of \"A\"' " + PLACE + ": dtype=float32 value={}"
    values = ["0.5", "0.100000001", "-1.5", "inf"]
    wanted = [half.format(b, t, 1, values[2 * b + t]) for b in (0, 1) for t in (0, 1)]
    wanted += ["msg='here' " + PLACE.format(b, t, 1) for b in (0, 1) for t in (0, 1)]
    places = [(b, PLACE.format(b, x, y)) for b in (0, 1) for x in (0, 1) for y in (0, 1)]
    truth = ("false", "true")
    wanted += [f"msg='expr<bx > 0>' {p}: dtype=bool value={truth[b]}" for b, p in places]
    wanted += [f"msg='pair' {p}: dtype=float32x2 value={v}" for _, p in places for v in (1, 2)]
    assert printed == sorted(wanted)


@pytest.mark.parametrize("dtype", ["float16", "int8", "uint32", "float64", "float8_e4m3fn"])
def test_tiles_are_printed_by_one_thread(lines, dtype):
    @T.prim_func
    def main(A: T.Tensor((4, 8), dtype), B: T.Tensor((4, 8), dtype)):
        with T.Kernel(1, threads=64):
            F = T.alloc_fragment((4, 8), dtype)
            S = T.alloc_shared((4, 8), dtype)
            T.copy(A, F)
            T.print(F)
            T.copy(F, S)
            T.print(S, msg="shared", warp_id=1)
            T.copy(S, B)

    a = torch.arange(32).view(4, 8).to(T.dtype(dtype).as_torch())
    printed, b = lines(main, a, out_idx=-1)
    rows = [(f"buffer<F, {dtype}>", 0, "F"), ("shared", 32, "S")]
    wanted = [
        f"msg='{msg}' {PLACE.format(0, thread, 0)}: buffer={name}, index={i}, dtype={dtype} "
        f"value={float(v):g}"
        for msg, thread, name in rows
        for i, v in enumerate(a.flatten().tolist())
    ]
    assert printed == sorted(wanted)
    assert torch.equal(b.cpu().view(torch.uint8), a.view(torch.uint8))


def test_memory_of_a_thread_is_printed_by_each(lines):
    @T.prim_func
    def main(A: T.Tensor((3,), "int32")):
        with T.Kernel(1, threads=2):
            tx = T.get_thread_binding()
            L = T.alloc_local((2,), "int32")
            for i in T.unroll(2):
                L[i] = tx * 2 + i
            count = T.alloc_var("int32", tx + 7)
            T.print(L, "local")
            T.print(count, "count")
            if tx == 1:
                T.print(A, "global")

    printed, _ = lines(main, torch.tensor([4, 5, 6], dtype=torch.int32))
    wanted = [
        f"msg='local' {PLACE.format(0, t, 0)}: buffer=L, index={i}, dtype=int32 value={2 * t + i}"
        for t in (0, 1)
        for i in (0, 1)
    ]
    wanted += [f"msg='count' {PLACE.format(0, t, 0)}: dtype=int32 value={t + 7}" for t in (0, 1)]
    wanted += [
        f"msg='global' {PLACE.format(0, 1, 0)}: buffer=A, index={i}, dtype=int32 value={4 + i}"
        for i in range(3)
    ]
    assert printed == sorted(wanted)


@pytest.mark.parametrize(
    ("statement", "error", "message"),
    [
        ("T.print()", AssertionError, "neither an object nor a message"),
        ("T.print([1])", ValueError, r"T.print found \[1\] of type list"),
        ("T.print(T.alloc_shared((4,), 'int8'), warp_id=4)", ValueError, "are thread 128"),
        ("T.device_assert(1 > 2, 'no')", AssertionError, "Device assert failed: no"),
        ("T.device_assert(A)", ValueError, "found the buffer A .* wanted a condition"),
    ],
)
def test_errors(trace, statement, error, message):
    with pytest.raises(error, match=rf"{message}[\s\S]*--> "):
        trace(statement)


@pytest.mark.skipif(GPU, reason="a trap would end the process's use of the GPU")
@pytest.mark.parametrize("place", [True, False])
def test_a_failed_assertion_stops_the_kernel(place):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            T.device_assert(1 < 2)
            for i in T.Parallel(64):
                T.device_assert(A[i] >= 0, 'x is "negative"', no_stack_info=not place)
                B[i] = A[i] + 1

    kernel = tilelang.compile(main, out_idx=-1)
    a = torch.arange(64.0)
    assert torch.equal(kernel(a), a + 1)
    a[40] = -1
    with pytest.raises(RuntimeError, match='Device assert failed: x is "negative"') as raised:
        kernel(a)
    assert ("\n  at " in str(raised.value)) == place
    assert "test_debugging.py:" in str(raised.value)


@pytest.mark.skipif(GPU, reason="a trap would end the process's use of the GPU")
def test_an_assertion_without_text_and_place_only_traps():
    """A call of printf has a stack frame."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            i = T.get_thread_binding()
            T.device_assert(A[i] >= 0, no_stack_info=True)
            B[i] = A[i] + 1

    kernel = tilelang.compile(main, out_idx=-1)
    a = torch.arange(64.0)
    assert torch.equal(kernel(a), a + 1)
    a[40] = -1
    with pytest.raises(RuntimeError, match="Device assert failed"):
        kernel(a)
    compiled = tilelang.compile(main, target="cuda -arch=sm_90a", execution_backend="tvm_ffi")
    assert compiled.resource_usage["main_kernel"].stack == 0
