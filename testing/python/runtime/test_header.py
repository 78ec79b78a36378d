"""tilelang_kernel.h launches what Python would: against a stand-in of the driver that records."""

import ctypes
import pathlib
import re
import subprocess
import zipfile

import pytest
import torch

import tilelang
import tilelang.language as T
from tilelang.compile import main as compile_main
from tilelang.engine.launch_plan import (
    KernelLaunch,
    LaunchPlan,
    Requirement,
    ScalarParam,
    TensorParam,
)
from tilelang.runtime import include_dir
from tilelang.runtime.file import Variant, read_kernel, write_kernel

ROOT = pathlib.Path(__file__).resolve().parents[3]
OK, BAD_FILE, BAD_ARGUMENT, NO_VARIANT, DRIVER = range(5)
M = ("var", "m")
STREAM = 4096


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("ndim", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class Argument(ctypes.Structure):
    _fields_ = (("tensor", Tensor), ("integer", ctypes.c_int64), ("number", ctypes.c_double))


CODES = {torch.float32: (2, 32), torch.float16: (2, 16), torch.int32: (0, 32)}


def argument_of(value):
    if isinstance(value, int):
        return Argument(integer=value)
    if isinstance(value, float):
        return Argument(number=value)
    shape = (ctypes.c_int64 * 8)(*value.shape)
    strides = (ctypes.c_int64 * 8)(*value.stride())
    tensor = Tensor(value.data_ptr(), value.dim(), shape, strides, *CODES[value.dtype], 1)
    return Argument(tensor)


class Library:
    """The header's functions; each launch is with a stream, and gives status and message."""

    def __init__(self, path, driver):
        self.library = ctypes.CDLL(str(path))
        self.driver = str(driver).encode()
        self.library.tl_kernel_free.argtypes = [ctypes.c_void_p]

    def load(self, path, device=0):
        kernel, message = ctypes.c_void_p(), ctypes.create_string_buffer(512)
        status = self.library.tl_kernel_load(
            str(path).encode(), device, self.driver, ctypes.byref(kernel), message
        )
        assert (status == OK) == bool(kernel.value)
        return kernel, status, message.value.decode()

    def launch(self, kernel, *values):
        arguments = (Argument * len(values))(*map(argument_of, values))
        message = ctypes.create_string_buffer(512)
        status = self.library.tl_kernel_launch(
            kernel, arguments, len(values), ctypes.c_void_p(STREAM), message
        )
        return status, message.value.decode()

    def shape(self, kernel, index, *values):
        arguments = (Argument * len(values))(*map(argument_of, values))
        shape, message = (ctypes.c_int64 * 8)(), ctypes.create_string_buffer(512)
        status = self.library.tl_kernel_shape(kernel, arguments, len(values), index, shape, message)
        assert status == OK, message.value
        return list(shape)[: self.library.tl_kernel_rank(kernel, index)]


def build(folder, name, source, *flags):
    (folder / source[0]).write_text(source[1])
    command = ["-Wall", "-Wextra", "-Werror", f"-I{include_dir()}", *flags]
    compiler = "g++" if source[0].endswith(".cc") else "gcc"
    subprocess.run(
        [compiler, *command, folder / source[0], "-o", folder / name, "-ldl"], check=True
    )
    return folder / name


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    text = (ROOT / "testing" / "driver" / "libcuda.c").read_text()
    folder = tmp_path_factory.mktemp("driver")
    return build(folder, "libcuda.so.1", ("libcuda.c", text), "-shared", "-fPIC", "-O1")


@pytest.fixture(scope="module", params=["c", "cc"])
def library(request, driver, tmp_path_factory):
    """Of C and of C++."""
    text = "#define TILELANG_KERNEL_IMPLEMENTATION\n#include <tilelang_kernel.h>\n"
    flags = ["-std=c99", "-pedantic"] if request.param == "c" else ["-std=c++17"]
    folder = tmp_path_factory.mktemp("header")
    source = (f"kernel.{request.param}", text)
    sanitizers = ["-fsanitize=undefined", "-fno-sanitize-recover"]
    path = build(folder, "kernel.so", source, "-shared", "-fPIC", *flags, *sanitizers)
    return Library(path, driver)


@pytest.fixture
def log(log_file, monkeypatch):
    """What the driver was asked for, line by line, and how its environment is set."""
    libc = ctypes.CDLL(None)  # the C library's environment is not Python's

    def set_variable(name, value):
        monkeypatch.setenv(name, value)
        libc.setenv(name.encode(), value.encode(), 1)

    set_variable("STAND_IN_LOG", str(log_file))
    start = len(log_file.read_text(errors="replace").splitlines()) if log_file.exists() else 0
    yield lambda: log_file.read_text(errors="replace").splitlines()[start:], set_variable
    for name in ("STAND_IN_ARGS", "STAND_IN_FAIL", "STAND_IN_ARCH"):
        libc.unsetenv(name.encode())


@pytest.fixture(scope="module")
def log_file(tmp_path_factory):
    return tmp_path_factory.mktemp("log") / "driver.log"


@pytest.fixture(scope="module")
def gemm(tmp_path_factory):
    """A program with tensor maps, and more shared memory than a block has by itself."""
    m = T.dynamic("m")

    @T.prim_func
    def matmul(
        A: T.Tensor((m, 256), "float16"),
        B: T.Tensor((256, 128), "float16"),
        C: T.Tensor((m, 128), "float16"),
    ):
        with T.Kernel(T.ceildiv(m, 128), threads=128) as by:
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[by * 128, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 128, 0])

    path = tmp_path_factory.mktemp("gemm") / "matmul.tlk"
    target = {"kind": "cuda", "arch": "sm_90a"}
    kernel = tilelang.compile(matmul, out_idx=-1, target=target, execution_backend="nvrtc")
    kernel.export(path)
    return path, kernel.launch_plan


def test_what_is_launched_is_what_the_plan_says(library, log, gemm):
    path, plan = gemm
    (launch,), lines = plan.kernels, log[0]
    kernel, status, message = library.load(path)
    assert status == OK, message
    shared = launch.shared_bytes
    assert lines() == ["load ELF", f"attribute {launch.name} 8 {shared}"]
    a, b, c = (torch.zeros(s, dtype=torch.float16) for s in [(300, 256), (256, 128), (300, 128)])
    assert library.launch(kernel, a, b, c) == (OK, "")
    tensors = {"A": a, "B": b, "C": c}
    wanted = []
    for descriptor in plan.descriptors:
        tensor = tensors[descriptor.param]
        rows, columns = tensor.shape
        box = " ".join(map(str, descriptor.box))
        swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[descriptor.swizzle]
        wanted.append(
            f"tiled type 6 address {tensor.data_ptr():#x} dims {columns} {rows} strides "
            f"{2 * columns} box {box} steps 1 1 modes 0 {swizzle} 2 0"
        )
    assert len(wanted) >= 2
    block = " ".join(map(str, launch.block))
    wanted.append(
        f"launch {launch.name} grid 3 1 1 block {block} shared {shared} stream {STREAM:#x}"
    )
    assert lines()[2:] == wanted
    library.library.tl_kernel_free(kernel)
    assert lines()[-1] == "unload"


def test_the_map_of_a_tensor_without_elements_is_none_of_the_caller_s_memory(library, log, gemm):
    path, plan = gemm
    kernel, _, _ = library.load(path)
    a, b = torch.zeros(300, 256).half(), torch.zeros(256, 128).half()
    count = len(log[0]())
    for empty in (a[:0], torch.zeros(0, 256).half()):
        assert library.launch(kernel, empty, b, b[:0]) == (OK, "")
    maps = [re.search(r"address 0x(\w+) dims 8 1 ", line) for line in log[0]()[count:]]
    places = [int(found[1], 16) for found in maps if found]
    assert len(places) == 2 * (len(plan.descriptors) - 1)
    # Each map has its own: what one stores no other one loads.
    assert len(set(places)) == len(plan.descriptors) - 1
    for place in places:
        assert place > 4096
        for tensor in (a, b):
            assert not 0 <= place - tensor.data_ptr() < tensor.nbytes
        assert not any(ctypes.string_at(place, 64))
    library.library.tl_kernel_free(kernel)


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """Two launches, one in clusters; scalars, a symbol in an expression, a workspace, an assert."""
    params = (
        TensorParam("A", "float32", (("*", M, 2), 4)),
        ScalarParam("factor", "float32"),
        TensorParam("C", "float32", (M, 4)),
        TensorParam("W", "int32", (("ceildiv", M, 4),)),
    )
    kernels = (
        KernelLaunch(
            "first",
            (("*", ("ceildiv", M, 2), 2), 1, 1),
            (64, 2, 1),
            ("*", M, 16),
            (("param", "A"), ("param", "factor"), ("value", ("-", ("%", M, 7), 3), "int32")),
            cluster=(2, 1, 1),
            cooperative=True,
        ),
        KernelLaunch(
            "second",
            (("max", M, 3), ("min", M, 2), 1),
            (("//", M, 2), 1, 1),
            0,
            (("param", "C"), ("param", "W"), ("param", "A")),
            dependent=True,
        ),
    )
    requirement = Requirement(M, "<=", 64, "at most 64 rows")
    plan = LaunchPlan(
        "two", params, kernels, (2,), "two.py:1", workspaces=1, requirements=(requirement,)
    )
    path = tmp_path_factory.mktemp("two") / "two.tlk"
    variants = [Variant(arch, plan, b"\x7fELF" + arch.encode()) for arch in ("sm_80", "sm_90a")]
    write_kernel(path, variants, "1")
    return path


def arguments(m=10):
    a = torch.zeros(2 * m, 4)
    return [a, 1.5, torch.zeros(m, 4), torch.zeros(-(-m // 4), dtype=torch.int32)]


def test_sizes_scalars_and_attributes_reach_the_launches(library, log, several):
    lines, set_variable = log
    kernel, status, message = library.load(several)
    assert status == OK, message
    a, factor, c, w = arguments()
    assert library.shape(kernel, 2, a, factor, 0, 0) == [10, 4]
    assert library.shape(kernel, 3, a, factor, 0, 0) == [3]
    roles = [library.library.tl_kernel_role(kernel, i) for i in range(4)]
    assert roles == [0, 0, 1, 2]
    set_variable("STAND_IN_ARGS", "3")
    assert library.launch(kernel, a, factor, c, w) == (OK, "")
    head = f"stream {STREAM:#x}"
    half = int.from_bytes(ctypes.c_float(1.5), "little")
    assert lines()[-2:] == [
        f"launch first grid 10 1 1 block 64 2 1 shared 160 {head} arg {a.data_ptr()} "
        f"arg {half} arg 0 attribute 4 2 1 1 attribute 2 1 0 0",
        f"launch second grid 10 2 1 block 5 1 1 shared 0 {head} arg {c.data_ptr()} "
        f"arg {w.data_ptr()} arg {a.data_ptr()} attribute 6 1 0 0",
    ]
    count = len(lines())
    assert library.launch(kernel, *arguments(0)) == (OK, "")
    assert [line.split()[1] for line in lines()[count:]] == []


def test_a_persistent_kernel_has_a_block_for_each_multiprocessor(library, log, tmp_path):
    params = (TensorParam("C", "float32", (M, 4)),)
    tiles = KernelLaunch(
        "tiles", (("*", M, 2), 1, 1), (64, 1, 1), 0, (("param", "C"),), persistent=True
    )
    plan = LaunchPlan("main", params, (tiles,))
    write_kernel(tmp_path / "main.tlk", [Variant("sm_90a", plan, b"\x7fELF")], "1")
    kernel, status, message = library.load(tmp_path / "main.tlk")
    assert status == OK, message
    for m, blocks in ((2, 4), (3, 5)):
        assert library.launch(kernel, torch.zeros(m, 4)) == (OK, "")
        assert log[0]()[-1].startswith(f"launch tiles grid {blocks} 1 1 block 64 1 1")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a: a[:3], "expected 4 arguments, outputs and workspaces included, got 3"),
        (lambda a: [a[0].half(), *a[1:]], "`A` gets another element type"),
        (lambda a: [a[0].flatten(), *a[1:]], "`A`: expected 2 dimensions, got 1"),
        (lambda a: [a[0].t().contiguous().t(), *a[1:]], "`A` is non-contiguous at index"),
        (lambda a: [a[0][:, :3].contiguous(), *a[1:]], "`A`: expected extent 4 at index 1, got 3"),
        (lambda a: [a[0][:-1], *a[1:]], "`A`: expected extent 18 at index 0, got 19"),
        (lambda a: [*a[:2], a[2][:-1], a[3]], "`C`: expected extent 10 at index 0, got 9"),
        (lambda a: [a[0].flatten()[1:73].view(18, 4), *a[1:]], "aligned to 16 bytes"),
        (lambda a: arguments(65), "an assertion fails: at most 64 rows (65, 64)"),
    ],
)
def test_nothing_runs_after_a_bad_argument(library, log, several, change, text):
    kernel, _, _ = library.load(several)
    before = log[0]()
    status, message = library.launch(kernel, *change(arguments()))
    assert status == BAD_ARGUMENT
    assert text in message
    assert log[0]() == before


@pytest.mark.parametrize(
    ("arch", "status", "text"),
    [
        ("90", OK, ""),
        ("86", OK, ""),
        ("100", NO_VARIANT, "two.tlk: it has no binary for a GPU of sm_100"),
    ],
)
def test_the_variant_is_that_of_the_gpu(library, log, several, arch, status, text):
    log[1]("STAND_IN_ARCH", arch)
    _, found, message = library.load(several)
    assert found == status
    assert message.endswith(text)


@pytest.mark.parametrize(
    "function", ["cuLibraryLoadData", "cuLibraryGetKernel", "cuLaunchKernelEx"]
)
def test_a_driver_that_refuses_is_an_error(library, log, several, function):
    log[1]("STAND_IN_FAIL", function)
    kernel, status, message = library.load(several)
    if function == "cuLaunchKernelEx":
        status, message = library.launch(kernel, *arguments())
    assert status == DRIVER
    assert "failed: 999 (it was asked to fail)" in message


def test_files_that_are_damaged_or_foreign_are_refused(library, several, tmp_path):
    content = several.read_bytes()
    path, refused = tmp_path / "bad.tlk", 0
    for kept in [*range(0, 200, 7), len(content) // 2, len(content) - 1]:
        path.write_bytes(content[:kept])
        assert library.load(path)[1] == BAD_FILE, kept
    for place in range(0, len(content), 11):
        changed = bytearray(content)
        changed[place] ^= 0x41
        path.write_bytes(changed)
        kernel, status, _ = library.load(path)
        refused += status != OK
        library.library.tl_kernel_free(kernel)
    assert refused > 20
    assert library.load(tmp_path / "missing.tlk")[1] == BAD_FILE
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sm_90a/calls.bin", b"TLCALLS2" + bytes(64))
        archive.writestr("sm_90a/kernel.cubin", b"")
    assert "newer format" in library.load(path)[2]


def test_a_plan_that_nobody_wrote_is_refused(library, several, tmp_path):
    """With right checksums: each word replaced in turn. No word lets it leave its memory."""
    with zipfile.ZipFile(several) as archive:
        plan = archive.read("sm_90a/calls.bin")
    path = tmp_path / "odd.tlk"
    for word in range(8, len(plan), 8):
        for value in (b"\xff" * 8, b"\x00" * 8, b"\x00" * 7 + b"\x40"):
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("sm_90a/calls.bin", plan[:word] + value + plan[word + 8 :])
                archive.writestr("sm_90a/kernel.cubin", b"\x7fELF")
            kernel, status, _ = library.load(path)
            assert status in (OK, BAD_FILE)
            if status == OK:
                library.launch(kernel, *arguments())
                library.library.tl_kernel_free(kernel)


def test_a_driver_that_is_not_there(library, several):
    other = Library.__new__(Library)
    other.library, other.driver = library.library, b"libnowhere.so.1"
    _, status, message = other.load(several)
    assert status == DRIVER
    assert "the CUDA driver libnowhere.so.1 cannot be opened" in message


@pytest.mark.parametrize(
    ("name", "program", "arguments", "expected", "launched"),
    [
        ("scale", "cpp/scale.py:scale", [], "3, got 0.000000", "grid 125 1 1 block 64 1 1"),
        (
            "attention",
            "attention/flash_attention.py:flash_attention",
            ["batch=1", "heads=2", "length=256", "dim=64", "causal=True"],
            "1.000000, got 0.000000",
            r"grid \d+ 1 1 block 384 1 1",
        ),
    ],
    ids=["scale", "attention"],
)
def test_the_examples_call_their_kernels(
    driver, tmp_path, monkeypatch, name, program, arguments, expected, launched
):
    """Each as its comment says: compiled by the command line, called by the stand-in's driver."""
    words = [f"{ROOT / 'examples' / program}", *(w for a in arguments for w in ("--arg", a))]
    compile_main([*words, "--arch", "sm_90a", "-o", str(tmp_path / "kernel.tlk")])
    assert read_kernel(tmp_path / "kernel.tlk").archs == ("sm_90a",)
    folder = ROOT / "examples" / "cpp"
    source = (f"{name}.cc", (folder / f"{name}.cc").read_text())
    binary = build(tmp_path, name, source, "-std=c++17", f"-I{folder}")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(driver.parent))
    monkeypatch.setenv("STAND_IN_LOG", str(tmp_path / "log"))
    command = [binary, tmp_path / "kernel.tlk"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # The stand-in computes nothing.
    assert (done.returncode, done.stderr) == (1, f"expected {expected}\n")
    lines = (tmp_path / "log").read_text(errors="replace").splitlines()
    (launch,) = [line for line in lines if line.startswith("launch")]
    assert re.match(rf"launch main_kernel {launched} shared \d+ stream \(nil\)", launch)
