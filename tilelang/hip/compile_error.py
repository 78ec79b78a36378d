"""What an error of clang or lld means for the program that the source comes from."""

from __future__ import annotations

import re

# Texts of LLVM 21; an error that is worded otherwise is quoted.
_SHARED = re.compile(r"local memory \((\d+)\) exceeds limit \((\d+)\) in (?:function )?'(\w+)'")
_UNDEFINED = re.compile(r"undefined (?:hidden )?symbol: (\w+)")
_ERROR = re.compile(r"\berror: (.+)")


def explain_failure(log: str, location: str, compiler: str) -> str:
    """One sentence about a failed compilation: the kernel, what was found and wanted, one repair.

    Args:
        log: what the compiler said.
        location: ``file:line`` of the program, or nothing where it has none.
        compiler: name and version of the compiler.

    Example: ``explain_failure(log, "gemm.py:12", "clang version 21.1.0")``
    """
    return (f"{location}: " if location else "") + _cause(log, compiler)


def _cause(log: str, compiler: str) -> str:
    if match := _SHARED.search(log):
        found, most, kernel = match.groups()
        return (
            f"{kernel}: found {found} bytes of static shared memory, wanted at most {most}; "
            "allocate smaller tiles"
        )
    if match := _UNDEFINED.search(log):
        return (
            f"found a call of {match[1]}, wanted a function that the source defines or the device "
            "headers have; define it in T.import_source"
        )
    first = _ERROR.search(log)
    return (
        f"found `{(first[1] if first else log).strip()}`, wanted source and options that "
        f"{compiler} takes; correct the line of the source, or the option, that it names"
    )
