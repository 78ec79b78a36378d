"""SASS, the GPU's machine code, as text, by NVIDIA's nvdisasm."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import tempfile
from pathlib import Path

from tilelang.env import env

_WHEEL = "nvidia-cuda-nvdisasm"
_TIMEOUT_SECONDS = 60


def find_nvdisasm() -> Path:
    """The program: of the wheel nvidia-cuda-nvdisasm, of CUDA_HOME, or on the PATH.

    Raises `RuntimeError` where there is none.
    """
    try:
        files = importlib.metadata.files(_WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    places = [Path(str(f.locate())) for f in files if f.stem == "nvdisasm"]
    if env.CUDA_HOME:
        places.append(Path(env.CUDA_HOME) / "bin" / "nvdisasm")
    if on_path := shutil.which("nvdisasm"):
        places.append(Path(on_path))
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise RuntimeError(
            f"SASS needs NVIDIA's nvdisasm and there is none: pip install {_WHEEL}, or set "
            "CUDA_HOME to a CUDA toolkit"
        )
    return found


def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin.

    Raises `RuntimeError` where nvdisasm is missing or fails.
    """
    program = find_nvdisasm()
    with tempfile.TemporaryDirectory(prefix="tilelang-") as directory:
        file = Path(directory) / "kernel.cubin"
        file.write_bytes(cubin)
        command = [str(program), "--print-code", str(file)]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
        )
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr}")
    return result.stdout
