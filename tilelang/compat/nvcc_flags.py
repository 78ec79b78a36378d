"""Options of nvcc in the words of NVRTC, which compiles kernels here.

Facts: CUDA Compiler Driver NVCC, "NVCC Command Options"; NVRTC, "Supported Compile Options".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tilelang.utils.log import logger

# Options whose value may be the next word. What they are in NVRTC's words; None where a kernel that
# is compiled in this process has no use for them: they are of the host's compiler, of the linker or
# of nvcc's own phases, or the target of tilelang.compile decides.
_WITH_VALUE: dict[str, str | None] = {
    "-D": "--define-macro",
    "--define-macro": "--define-macro",
    "-U": "--undefine-macro",
    "--undefine-macro": "--undefine-macro",
    "-I": "--include-path",
    "--include-path": "--include-path",
    "-isystem": "--include-path",
    "--system-include": "--include-path",
    "-include": "--pre-include",
    "--pre-include": "--pre-include",
    "-std": "--std",
    "--std": "--std",
    "-maxrregcount": "--maxrregcount",
    "--maxrregcount": "--maxrregcount",
    "-ftz": "--ftz",
    "--ftz": "--ftz",
    "-fmad": "--fmad",
    "--fmad": "--fmad",
    "-prec-div": "--prec-div",
    "--prec-div": "--prec-div",
    "-prec-sqrt": "--prec-sqrt",
    "--prec-sqrt": "--prec-sqrt",
    "-Xptxas": "--ptxas-options",
    "--ptxas-options": "--ptxas-options",
    "-diag-suppress": "--diag-suppress",
    "--diag-suppress": "--diag-suppress",
    "-Xcompiler": None,
    "--compiler-options": None,
    "-Xlinker": None,
    "--linker-options": None,
    "-Xcudafe": None,
    "-Xnvlink": None,
    "--nvlink-options": None,
    "-Xfatbin": None,
    "--fatbin-options": None,
    "-ccbin": None,
    "--compiler-bindir": None,
    "-gencode": None,
    "--generate-code": None,
    "-arch": None,
    "--gpu-architecture": None,
    "-code": None,
    "--gpu-code": None,
    "-t": None,
    "--threads": None,
    "-O": None,
    "--optimize": None,
    "-o": None,
    "--output-file": None,
    "-l": None,
    "--library": None,
    "-L": None,
    "--library-path": None,
    "-x": None,
    "--x": None,
    "-rdc": None,
    "--relocatable-device-code": None,
    "-cudart": None,
    "--cudart": None,
    "-default-stream": None,
    "--default-stream": None,
}
_ALONE: dict[str, str | None] = {
    "-use_fast_math": "--use_fast_math",
    "--use_fast_math": "--use_fast_math",
    "-w": "--disable-warnings",
    "--disable-warnings": "--disable-warnings",
    "-G": "--device-debug",
    "--device-debug": "--device-debug",
    # These are in every compilation.
    "-lineinfo": "",
    "--generate-line-info": "",
    "-expt-relaxed-constexpr": None,
    "--expt-relaxed-constexpr": None,
    "-expt-extended-lambda": None,
    "--expt-extended-lambda": None,
    "-extended-lambda": None,
    "--extended-lambda": None,
    "-g": None,
    "--debug": None,
    "-c": None,
    "--compile": None,
    "-dc": None,
    "-dlto": None,
    "-shared": None,
    "--shared": None,
    "-cubin": None,
    "--cubin": None,
    "-ptx": None,
    "--ptx": None,
    "-fatbin": None,
    "--fatbin": None,
    "-keep": None,
    "--keep": None,
    "-v": None,
    "--verbose": None,
    "-res-usage": None,
    "--resource-usage": None,
    "-MD": None,
    "-m64": None,
}
# A value that stands right behind the option's one letter.
_GLUED = ("-D", "-U", "-I", "-O", "-l", "-L")
# Warnings of the host's compiler; NVRTC has few.
_WARNING = re.compile(r"--?W[a-z]")
# What the device headers are written in.
_OLDEST_STANDARD = 17


def to_nvrtc(options: Iterable[str]) -> list[str]:
    """`options` with nvcc's words as NVRTC's.

    An item may hold an option and its value (``"-Xptxas -v"``). One line of the log names those
    that NVRTC has no use for; unknown ones stay as they are.

    Raises `ValueError` where an option lacks its value.

    Example: ``to_nvrtc(["-O3", "-Xptxas=-v,-O2"]) == ["--ptxas-options=-v",
    "--ptxas-options=-O2"]``
    """
    translated: list[str] = []
    dropped: list[str] = []
    words = iter(_words(options))
    for word in words:
        name, value, text = _split(word, words)
        if name in _ALONE and value is None:
            meant = _ALONE[name]
        elif name in _WITH_VALUE:
            meant = _WITH_VALUE[name]
        elif _WARNING.match(word):
            meant = None
        else:
            translated.append(word)
            continue
        if meant is None or (meant == "--std" and _is_too_old(value)):
            dropped.append(text)
        elif meant == "--ptxas-options":
            translated += [f"{meant}={part}" for part in (value or "").split(",") if part]
        elif meant:
            translated.append(meant if value is None else f"{meant}={value}")
    if dropped:
        logger.info(
            "compile flags: NVRTC, which compiles kernels in this process, has no use for %s",
            ", ".join(dropped),
        )
    return translated


def _words(options: Iterable[str]) -> Iterator[str]:
    for option in options:
        first, *rest = option.split(None, 1) or [option]
        yield from [first, *rest] if first in _WITH_VALUE else [option]


def _split(word: str, rest: Iterator[str]) -> tuple[str, str | None, str]:
    """The name of an option, its value, and both as they were written."""
    name, separator, value = word.partition("=")
    if name in _ALONE and not separator:
        return name, None, word
    if name in _WITH_VALUE and separator:
        return name, value.strip("\"'"), word
    if name in _WITH_VALUE and name != "-O":
        following = next(rest, None)
        if following is None:
            raise ValueError(f"compile flag {word}: found no value, wanted {word}=value")
        return name, following.strip("\"'"), f"{word} {following}"
    glued = next((option for option in _GLUED if word.startswith(option)), None)
    if glued is not None:
        return glued, word[len(glued) :], word
    return word, None, word


def _is_too_old(standard: str | None) -> bool:
    found = re.fullmatch(r"c\+\+(\d+)", standard or "")
    return found is not None and int(found[1]) < _OLDEST_STANDARD
