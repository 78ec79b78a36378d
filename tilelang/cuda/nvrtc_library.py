"""The library NVRTC. Who compiles something imports this module, and nobody else: loading the
library takes tens of milliseconds."""

from __future__ import annotations

from typing import Any

from cuda.bindings import nvrtc

from tilelang.cuda.compile_error import explain_failure


def version() -> tuple[int, int]:
    """Major and minor version, as the library says itself."""
    _, major, minor = nvrtc.nvrtcVersion()
    return major, minor


def run(source: str, flags: list[str], location: str, form: str) -> tuple[bytes, str]:
    """A compiled program and what the compiler said. `form` is ``"CUBIN"`` or ``"PTX"``.

    Raises `RuntimeError`, with the log, where the source does not compile.
    """
    program = _call(nvrtc.nvrtcCreateProgram, source.encode(), b"kernel.cu", 0, [], [])
    try:
        log = _compile(program, flags, location)
        binary = bytes(_call(getattr(nvrtc, f"nvrtcGet{form}Size"), program))
        _call(getattr(nvrtc, f"nvrtcGet{form}"), program, binary)
    finally:
        _call(nvrtc.nvrtcDestroyProgram, program)
    return binary, log


def _call(function: Any, *args: Any) -> Any:
    error, *values = function(*args)
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"{function.__name__}: {_describe(error)}")
    return values[0] if values else None


def _describe(error: Any) -> str:
    return nvrtc.nvrtcGetErrorString(error)[1].decode()


def _compile(program: Any, flags: list[str], location: str) -> str:
    (error,) = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])
    log = bytes(_call(nvrtc.nvrtcGetProgramLogSize, program))
    _call(nvrtc.nvrtcGetProgramLog, program, log)
    # ptxas ends each part of what it says by a zero.
    text = log.replace(b"\0", b"").rstrip().decode(errors="replace")
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        compiler = f"NVRTC {'.'.join(map(str, version()))}"
        raise RuntimeError(
            f"{explain_failure(text or _describe(error), location, compiler)}\n"
            f"{compiler}: {_describe(error)}\noptions: {' '.join(flags)}\n{text}"
        )
    return text
