"""The file that a kernel is shipped in: a zip archive of plain data.

======================  ==========================================================================
``about.json``          format, its version, the kernel's name, variants, SHA-256 of the others
``<arch>/plan.json``    the launch plan (`tilelang.engine.launch_plan`)
``<arch>/calls.bin``    the same for readers without Python (`tilelang.runtime.calls`)
``<arch>/kernel.cubin`` the binary for an architecture such as ``sm_90a``
``<arch>/kernel.co``    the same for one of AMD such as ``gfx942``, which has no ``calls.bin``
``emulate/kernel.cu``   the source that the emulator builds, instead of a binary
======================  ==========================================================================

Members are stored without compression, at fixed times: the same kernel gives the same bytes.
Nothing in a file runs when it is read. Checksums find damage; they do not tell who wrote a file: a
kernel that is called may do with the process what its author wants, as any library.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import struct
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilelang.engine.launch_plan import LaunchPlan
from tilelang.utils.arch import is_amd

FORMAT = "tilelang.kernel"
VERSION = 1
"""The version of the format that is written, and the newest that is read."""
EMULATE = "emulate"
"""The variant that the emulator runs, in place of an architecture."""
_ABOUT, _PLAN, _CALLS = "about.json", "plan.json", "calls.bin"
_VARIANT = re.compile(rf"sm_\d{{2,3}}[af]?|gfx[0-9a-f]{{3,5}}|{EMULATE}")
_TIME = (1980, 1, 1, 0, 0, 0)  # the first that zip knows


class KernelFileError(ValueError):
    """A file is not a kernel that this tilelang can read: it is of another kind, damaged, cut off,
    or of a newer format. Nothing of it is used.

    Example: ``tilelang.runtime.load("notes.txt")``
    """


@dataclass(frozen=True)
class Variant:
    """A kernel for one architecture.

    Attributes:
        arch: such as ``"sm_90a"``, or ``"emulate"``.
        plan: how it is called; its last parameters may differ between variants (workspaces).
        binary: a cubin, a code object of AMD, or the source for the emulator as UTF-8.
    """

    arch: str
    plan: LaunchPlan
    binary: bytes

    def __post_init__(self) -> None:
        if not _VARIANT.fullmatch(self.arch):
            raise ValueError(f"variant {self.arch!r}: expected an architecture such as sm_90a")

    def files(self) -> dict[str, bytes]:
        """Its members by name."""
        from tilelang.runtime.calls import encode_calls

        files = {_PLAN: self.plan.to_json().encode(), _binary_name(self.arch): self.binary}
        # tilelang_kernel.h calls the CUDA driver.
        if self.arch != EMULATE and not is_amd(self.arch):
            files[_CALLS] = encode_calls(self.plan)
        return {f"{self.arch}/{name}": content for name, content in files.items()}


@dataclass(frozen=True)
class KernelFile:
    """What a file has: the kernel's name, the tilelang that wrote it, a variant each
    architecture."""

    name: str
    tilelang: str
    variants: tuple[Variant, ...]

    @property
    def archs(self) -> tuple[str, ...]:
        """The architectures in the file's order."""
        return tuple(variant.arch for variant in self.variants)


def write_kernel(path: str | Path, variants: Sequence[Variant], version: str) -> None:
    """Writes a file, as a whole or not at all; `version` is that of tilelang.

    Raises `ValueError` for no variant, two for one architecture, or variants that are called
    differently; `OSError` where the file cannot be written.

    Example: ``write_kernel("add.tlk", [Variant("sm_90a", plan, cubin)], "0.1.0")``
    """
    _check_variants(variants)
    files = {name: data for variant in variants for name, data in variant.files().items()}
    about = {
        "format": FORMAT,
        "version": VERSION,
        "tilelang": version,
        "name": variants[0].plan.name,
        "variants": [variant.arch for variant in variants],
        "files": {n: hashlib.sha256(b).hexdigest() for n, b in files.items()},
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as out:
        for name, content in {_ABOUT: json.dumps(about, indent=1).encode(), **files}.items():
            out.writestr(zipfile.ZipInfo(name, _TIME), content)
    path = Path(path)
    staged = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        staged.write_bytes(archive.getvalue())
        staged.replace(path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise


def read_kernel(path: str | Path) -> KernelFile:
    """What a file has. Nothing is loaded and nothing runs.

    Raises `KernelFileError` where the file is no kernel that this tilelang reads, `OSError` where
    it cannot be read.

    Example: ``read_kernel("add.tlk").archs == ("sm_90a", "emulate")``
    """
    content = Path(path).read_bytes()
    try:
        return _parse(content)
    except KernelFileError as error:
        raise KernelFileError(f"kernel file {os.fspath(path)!r}: {error}") from error.__cause__


def _parse(content: bytes) -> KernelFile:
    members = _members(content)
    about = _about(members.pop(_ABOUT, None))
    try:
        _check_members(about["files"], members)
        variants = tuple(_variant(arch, members) for arch in about["variants"])
        _check_variants(variants)
        return KernelFile(str(about["name"]), str(about["tilelang"]), variants)
    except KernelFileError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KernelFileError(f"it is not written by tilelang: {error!r}") from error


def _check_members(listed: Mapping[str, Any], members: Mapping[str, bytes]) -> None:
    if {*members} != {*listed}:
        raise KernelFileError("its members are not those that it lists; export the kernel again")
    for name, digest in listed.items():
        if hashlib.sha256(members[name]).hexdigest() != digest:
            raise KernelFileError(f"{name} is damaged; copy or export it again")


def _members(content: bytes) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            infos = archive.infolist()
            if any(info.compress_type != zipfile.ZIP_STORED for info in infos):
                raise KernelFileError("it has compressed members; export the kernel again")
            if len({info.filename for info in infos}) != len(infos):
                raise KernelFileError("it has a member twice; export the kernel again")
            # `read` compares a member with its CRC.
            return {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError, struct.error) as error:
        if isinstance(error, KernelFileError):
            raise
        raise KernelFileError(
            f"it is no kernel, or it is cut off or damaged ({error}); copy or export it again"
        ) from error
    except (NotImplementedError, RuntimeError) as error:  # what zip has and we never write
        raise KernelFileError(f"it is an archive of another kind: {error}") from error


def _about(text: bytes | None) -> dict[str, Any]:
    try:
        about = json.loads(text or b"")
        ours = about["format"] == FORMAT and isinstance(about["version"], int)
    except (ValueError, KeyError, TypeError, RecursionError):
        ours = False
    if not ours:
        raise KernelFileError("it is an archive without a kernel; `kernel.export(path)` writes one")
    if about["version"] > VERSION:
        raise KernelFileError(
            f"it has version {about['version']} of the format, and this tilelang reads up to "
            f"{VERSION}; install tilelang {about.get('tilelang', '')} or later"
        )
    return dict(about)


def _variant(arch: str, members: Mapping[str, bytes]) -> Variant:
    plan = LaunchPlan.from_json(members[f"{arch}/{_PLAN}"].decode())
    return Variant(arch, plan, members[f"{arch}/{_binary_name(arch)}"])


def _binary_name(arch: str) -> str:
    if arch == EMULATE:
        return "kernel.cu"
    return "kernel.co" if is_amd(arch) else "kernel.cubin"


def _check_variants(variants: Sequence[Variant]) -> None:
    if not variants:
        raise ValueError("a kernel file needs at least one variant")
    archs = [variant.arch for variant in variants]
    if len({*archs}) != len(archs):
        raise ValueError(f"two variants of a kernel file have one architecture: {archs}")
    first, *others = variants
    for other in others:
        if _signature(first.plan) != _signature(other.plan):
            raise ValueError(
                f"the variants for {first.arch} and {other.arch} take or return different "
                "arguments. Export programs with the same parameters and outputs"
            )


def _signature(plan: LaunchPlan) -> tuple[Any, ...]:
    """What a caller sees of a plan."""
    return plan.name, [plan.params[i] for i in (*plan.inputs, *plan.outputs)], plan.outputs
