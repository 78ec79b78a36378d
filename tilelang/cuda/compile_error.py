"""What an error of NVRTC or ptxas means for the program that the source comes from."""

from __future__ import annotations

import re

# Texts of ptxas 13.5; an error that is worded otherwise is quoted.
_REGISTERS = re.compile(
    r"Insufficient registers \((\d+)\) .* in function (\w+)\. .*register target of (\d+)"
)
_SHARED = re.compile(
    r"Entry function '(\w+)' uses too much shared data \(0x(\w+) bytes, 0x(\w+) max\)"
)
_PARAMETERS = re.compile(
    r"Formal parameter space overflowed \((\d+) bytes required, max (\d+) bytes allowed\) "
    r"in function (\w+)"
)
_ERROR = re.compile(r"\b(?:error|fatal)\s*:\s*(.+)", re.IGNORECASE)


def explain_failure(log: str, location: str, compiler: str) -> str:
    """One sentence about a failed compilation: the kernel, what was found and wanted, one repair.

    Args:
        log: what the compilers said.
        location: ``file:line`` of the program, or nothing where it has none.
        compiler: name and version of the compiler.

    Example: ``explain_failure(log, "gemm.py:12", "NVRTC 13.0")``
    """
    return (f"{location}: " if location else "") + _cause(log, compiler)


def _cause(log: str, compiler: str) -> str:
    if match := _REGISTERS.search(log):
        limit, kernel, needed = match.groups()
        return (
            f"{kernel}: found an instruction that takes {needed} registers of a thread or more, "
            f"wanted at most the {limit} that each has; compute a smaller tile in it, or let fewer "
            "threads and blocks share a multiprocessor"
        )
    if match := _SHARED.search(log):
        kernel, found, most = match[1], int(match[2], 16), int(match[3], 16)
        return (
            f"{kernel}: found {found} bytes of static shared memory, wanted at most {most}; "
            'allocate tiles in scope "shared.dyn", or smaller ones'
        )
    if match := _PARAMETERS.search(log):
        needed, most_bytes, kernel = match.groups()
        return (
            f"{kernel}: found {needed} bytes of arguments, wanted at most {most_bytes}; "
            "pass a tensor of them"
        )
    first = _ERROR.search(log)
    return (
        f"found `{(first[1] if first else log).strip()}`, wanted source and options that "
        f"{compiler} takes; correct the line of the source, or the option, that it names"
    )
