"""What NVRTC makes of a source, kept by the source: two programs that are lowered to one text share
it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilelang.cache import is_cache_enabled, memory, store
from tilelang.cache.store import key_of
from tilelang.cache.versions import headers_digest, loaded_nvrtc_version, nvrtc_version

if TYPE_CHECKING:
    from tilelang.cuda.nvrtc import Cubin

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


def cached_cubin(
    source: str,
    arch: str,
    kernel_names: Sequence[str],
    options: Sequence[str],
    fast_math: bool,
    location: str,
) -> Cubin:
    """As `compile_cubin`, which is called for what is not kept yet."""
    from tilelang.cuda.nvrtc import Cubin, compile_cubin, nvrtc_flags

    def compiled() -> Cubin:
        return compile_cubin(
            source, arch, kernel_names, options=options, fast_math=fast_math, location=location
        )

    if not is_cache_enabled() or reads_other_files(source, options):
        return compiled()
    flags = nvrtc_flags(arch, options, fast_math)
    kept = store()
    parts: dict[str, Any] = {
        "name": ", ".join(kernel_names),
        "source": hashlib.sha256(source.encode()).hexdigest(),
        "arch": arch,
        "flags": flags,
        "headers": headers_digest("cuda", kept),
        "nvrtc": nvrtc_version(),
    }
    key = key_of(parts)
    found: Cubin | None = memory.find(key)
    if found is not None:
        return found
    entry = kept.get(KIND, parts)
    if entry is not None:
        binary = (entry.files["kernel.cubin"], entry.files["log.txt"].decode())
        found = Cubin(source, arch, kernel_names, flags, location, binary)
    else:
        found = compiled()
        # Another library than the package's may have been loaded into the process before.
        if f"{nvrtc_version()}.".startswith(f"{loaded_nvrtc_version()}."):
            files = {"kernel.cubin": found.cubin, "log.txt": found.log.encode()}
            kept.put(KIND, parts, files)
    memory.keep(key, found)
    return found
