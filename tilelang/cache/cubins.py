"""What NVRTC, or clang for AMD, makes of a source, kept by the source: two programs that are
lowered to one text share it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilelang.cache import is_cache_enabled, memory, store
from tilelang.cache.store import Store, key_of
from tilelang.cache.versions import (
    digest_of,
    headers_digest,
    loaded_nvrtc_version,
    nvrtc_version,
)
from tilelang.utils.arch import is_amd

if TYPE_CHECKING:
    from tilelang.cuda.nvrtc import Cubin
    from tilelang.hip.compile import CodeObject

KIND = "cubin"
_READS_FILES = re.compile(
    r"(#|%:)(\s|/\*.*?\*/)*(include|include_next|import|embed)\b|\b__has_(include|embed)\b",
    re.DOTALL,
)
_FILE_OPTION = re.compile(
    r"@|-{1,2}(I|include|pre-include|isystem|iquote|idirafter|imacros|optf|options-file|use-pch|pch)"
)
DEVICE_HEADERS = re.compile(r"^#include <tl/[\w/.]+>$", re.MULTILINE)


def reads_other_files(
    source: str, options: Sequence[str] = (), known: re.Pattern[str] = DEVICE_HEADERS
) -> bool:
    """Whether a source, or an option, names files whose content is not in its key: others than
    what is included as `known`.

    Example: ``reads_other_files('#include "mine.h"')``
    """
    text = known.sub("", source.replace("\\\n", ""))
    return bool(_READS_FILES.search(text)) or any(map(_FILE_OPTION.match, options))


def cached_binary(
    source: str,
    arch: str,
    kernel_names: Sequence[str],
    options: Sequence[str],
    fast_math: bool,
    location: str,
) -> Cubin | CodeObject:
    """As `compile_cubin`, or `compile_code_object` for an architecture of AMD, which is called for
    what is not kept yet."""

    def compiled() -> Any:
        # It imports TVM, which who runs an exported kernel in the emulator may not have.
        from tilelang.engine.target_compiler import compiler_of

        return compiler_of(arch)(
            source, arch, kernel_names, options=options, fast_math=fast_math, location=location
        )

    if not is_cache_enabled() or reads_other_files(source, options):
        return compiled()
    binaries: _Cubins | _CodeObjects = (
        _CodeObjects(arch, options, fast_math)
        if is_amd(arch)
        else _Cubins(arch, options, fast_math)
    )
    kept = store()
    parts: dict[str, Any] = {
        "name": ", ".join(kernel_names),
        "source": hashlib.sha256(source.encode()).hexdigest(),
        "arch": arch,
        **binaries.parts(kept),
    }
    key = key_of(parts)
    found: Cubin | CodeObject | None = memory.find(key)
    if found is not None:
        return found
    entry = kept.get(binaries.kind, parts)
    if entry is not None:
        found = binaries.read(entry.files, source, kernel_names, location)
    else:
        found = compiled()
        files = binaries.files(found)
        if files:
            kept.put(binaries.kind, parts, files)
    memory.keep(key, found)
    return found


class _Cubins:
    """How what NVRTC makes is kept."""

    kind = KIND

    def __init__(self, arch: str, options: Sequence[str], fast_math: bool):
        from tilelang.cuda.nvrtc import nvrtc_flags

        self.arch, self.flags = arch, nvrtc_flags(arch, options, fast_math)

    def parts(self, kept: Store) -> dict[str, Any]:
        return {
            "flags": self.flags,
            "headers": headers_digest("cuda", kept),
            "nvrtc": nvrtc_version(),
        }

    def read(
        self, files: Mapping[str, bytes], source: str, kernel_names: Sequence[str], location: str
    ) -> Cubin:
        from tilelang.cuda.nvrtc import Cubin

        binary = (files["kernel.cubin"], files["log.txt"].decode())
        return Cubin(source, self.arch, kernel_names, self.flags, location, binary)

    def files(self, made: Any) -> dict[str, bytes]:
        # Another library than the package's may have been loaded into the process before.
        if not f"{nvrtc_version()}.".startswith(f"{loaded_nvrtc_version()}."):
            return {}
        return {"kernel.cubin": made.cubin, "log.txt": made.log.encode()}


class _CodeObjects:
    """How what clang makes for AMD is kept."""

    kind = "code_object"

    def __init__(self, arch: str, options: Sequence[str], fast_math: bool):
        from tilelang.hip.compile import clang_flags

        self.arch, self.flags = arch, clang_flags(arch, options, fast_math)

    def parts(self, kept: Store) -> dict[str, Any]:
        from tilelang.hip.toolchain import find_math_library, find_toolchain

        library = find_math_library()
        return {
            "flags": self.flags,
            "headers": headers_digest("hip", kept),
            "clang": find_toolchain(self.arch).version(),
            "ocml": digest_of([library], kept) if library else "",
        }

    def read(
        self, files: Mapping[str, bytes], source: str, kernel_names: Sequence[str], location: str
    ) -> CodeObject:
        from tilelang.hip.compile import CodeObject

        assembly, log = files["kernel.s"].decode(), files["log.txt"].decode()
        return CodeObject(self.arch, kernel_names, files["kernel.co"], assembly, log)

    def files(self, made: Any) -> dict[str, bytes]:
        assembly, log = made.assembly.encode(), made.log.encode()
        return {"kernel.co": made.cubin, "kernel.s": assembly, "log.txt": log}
