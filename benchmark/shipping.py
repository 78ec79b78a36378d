"""What keeping and shipping kernels costs: the first result of a second process, an operator of
torch, a kernel called from C++, a tuning run through Ray.

Each row runs in new processes, which share a cache of their own. Needs no GPU: the emulator runs
the kernels then, and a driver that computes nothing stands in for CUDA's where C++ launches
(testing/driver/libcuda.c).
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZE, BLOCK = 128, (128, 128, 32)
ATTENTION = {"batch": 1, "heads": 2, "length": 256, "dim": 64, "causal": True}


def child(*words, **environment):
    """What a process of this script, or another command, prints. It has this one's environment."""
    given = {**os.environ, **environment}
    # An installed package has its modules compiled; a source tree gets them by the first process.
    given.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(words, env=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))} fails:\n{done.stderr}")
    return done.stdout


def part(name, cache, **environment):
    """What a function of `PARTS` returns in a new process."""
    environment = {"TILELANG_CACHE_DIR": cache, "TILELANG_DISABLE_CACHE": "0", **environment}
    return json.loads(
        child(sys.executable, __file__, "--part", name, **environment).split("\n")[-2]
    )


def imports():
    """All that a script imports before its first kernel."""
    sys.path.insert(0, str(ROOT / "examples"))
    import quickstart

    import tilelang

    tilelang.set_log_level("ERROR")
    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")
    return quickstart.matmul


def first_result():
    """Milliseconds, by the clock and of the processor, from the imports to the result of a GEMM."""
    matmul = imports()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a = torch.ones(SIZE, SIZE, dtype=torch.float16, device=device)
    starts = time.perf_counter(), time.process_time()
    result = matmul(SIZE, SIZE, SIZE, *BLOCK)(a, a)
    if device == "cuda":
        torch.cuda.synchronize()
    ends = time.perf_counter(), time.process_time()
    assert torch.all(result == SIZE)
    return [1e3 * (end - start) for start, end in zip(starts, ends, strict=True)]


def first_cubin():
    """The same to the cubin, which needs no GPU."""
    matmul = imports()
    import tilelang

    starts = time.perf_counter(), time.process_time()
    program = matmul.get_tir(SIZE, SIZE, SIZE, *BLOCK)
    options = {"target": "cuda -arch=sm_90a", "execution_backend": "nvrtc"}
    assert tilelang.compile(program, out_idx=-1, **options).cubin.startswith(b"\x7fELF")
    ends = time.perf_counter(), time.process_time()
    return [1e3 * (end - start) for start, end in zip(starts, ends, strict=True)]


def operator():
    """Milliseconds of torch.library.opcheck, of torch.compile without a graph break, and of a call
    of what that has made."""
    matmul = imports()
    from tilelang.torch import register

    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = (torch.randn(SIZE, SIZE, device=device).half() for _ in range(2))
    multiply = register(matmul(SIZE, SIZE, SIZE, *BLOCK), "shipping::matmul")
    start = time.perf_counter()
    torch.library.opcheck(multiply, (a, b))
    checked = time.perf_counter()
    whole = torch.compile(lambda x, y: multiply(x, y) + 1, fullgraph=True, backend="aot_eager")
    whole(a, b)
    compiled = time.perf_counter()
    found = whole(a, b)
    end = time.perf_counter()
    wanted = (a.float() @ b.float()).relu() + 1
    torch.testing.assert_close(found.float(), wanted, rtol=1e-2, atol=1e-1)
    return [1e3 * (checked - start), 1e3 * (compiled - checked), 1e3 * (end - compiled)]


PARTS = {function.__name__: function for function in (first_result, first_cubin, operator)}


def second_process(cache, repeat):
    """The medians over several processes that find what one before them has kept."""
    for name, what in (("first_result", "its first result"), ("first_cubin", "a cubin of sm_90a")):
        cold = part(name, cache)
        found = [part(name, cache) for _ in range(repeat)]
        clock, processor = (statistics.median(times) for times in zip(*found, strict=True))
        best = min(times[0] for times in found)
        yield (
            f"second process, imports to {what}",
            f"{clock:.1f} ms (best {best:.1f}; processor {processor:.1f}; first process "
            f"{cold[0]:.0f}; wanted < 60)",
        )


def opcheck(cache, repeat):
    """Times of the GEMM as an operator."""
    checked, compiled, called = part("operator", cache)
    yield "opcheck of the GEMM as an operator", f"passes, {checked:.0f} ms"
    yield (
        "torch.compile(fullgraph=True)",
        f"no graph break, {compiled:.0f} ms; call {called:.2f} ms",
    )


def from_cpp(cache, repeat):
    """Attention that the command line exports and examples/cpp/attention.cc calls."""
    import tilelang.runtime

    sm = 10 * torch.cuda.get_device_capability()[0] if torch.cuda.is_available() else 90
    arch = f"sm_{sm}{'a' * (sm >= 90)}"
    with tempfile.TemporaryDirectory() as folder:
        file, binary = f"{folder}/attention.tlk", f"{folder}/attention"
        program = ROOT / "examples" / "attention" / "flash_attention.py"
        arguments = [w for item in ATTENTION.items() for w in ("--arg", "{}={}".format(*item))]
        start = time.perf_counter()
        child(
            *(sys.executable, "-m", "tilelang.compile", f"{program}:flash_attention"),
            *(*arguments, "--arch", arch, "-o", file),
            TILELANG_CACHE_DIR=cache,
        )
        seconds = time.perf_counter() - start
        source = ROOT / "examples" / "cpp" / "attention.cc"
        include = tilelang.runtime.include_dir()
        child("c++", "-std=c++17", "-O1", f"-I{include}", source, "-ldl", "-o", binary)
        size = os.path.getsize(file)
        said = f"exported for {arch} in {seconds:.1f} s, {size} bytes; "
        if torch.cuda.is_available():
            said += child(binary, file).strip()
        else:
            said += launched_by(binary, file, folder)
    yield "attention exported and called from C++", said


def launched_by(binary, file, folder):
    """The launch that a binary asks a stand-in of the driver for."""
    stand_in = ROOT / "testing" / "driver" / "libcuda.c"
    child("cc", "-shared", "-fPIC", "-O1", stand_in, "-o", f"{folder}/libcuda.so.1")
    log = pathlib.Path(folder, "log")
    environment = {**os.environ, "LD_LIBRARY_PATH": folder, "STAND_IN_LOG": str(log)}
    # The stand-in computes nothing, which the binary finds.
    done = subprocess.run([binary, file], env=environment, capture_output=True, check=False)
    assert done.returncode == 1, done.stderr
    lines = log.read_text(errors="replace").splitlines()
    (launch,) = [line for line in lines if line.startswith("launch")]
    return f"a stand-in of the driver got: {launch}"


def through_ray(cache, repeat):
    """A tuning run by two workers of Ray."""
    what = "tuning 8 configurations by two workers of Ray"
    if importlib.util.find_spec("ray") is None:
        yield what, "Ray is not installed (extra ray)"
        return
    script = ROOT / "benchmark" / "tuning_run.py"
    words = [sys.executable, script, "--configs", "8", "--executor", "ray"]
    emulate = [] if torch.cuda.is_available() else ["--emulate"]
    yield what, child(*words, *emulate, TILELANG_CACHE_DIR=cache).splitlines()[-2]


ROWS = {
    "second": second_process,
    "opcheck": opcheck,
    "cpp": from_cpp,
    "ray": through_ray,
}


def main():
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=ROWS, action="append", help="rows, by default all")
    parser.add_argument("--repeat", type=int, default=7, help="processes a median is taken of")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part:
        print(json.dumps(PARTS[arguments.part]()))
        return
    with tempfile.TemporaryDirectory() as cache:
        for name in arguments.only or ROWS:
            for what, found in ROWS[name](cache, arguments.repeat):
                print(f"{what:<48} {found}")


if __name__ == "__main__":
    main()
