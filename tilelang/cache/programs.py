"""What lowering makes of a program, kept by the program.

The key has everything that lowering reads: the program's canonical form
(src/tvm/canonical_form.cc), the target, pass configurations, environment and the compiler itself.
So an entry says and explains the same as the compilation that has written it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm.target import Target

from tilelang._ffi import get_function
from tilelang.cache import is_cache_enabled, memory, store
from tilelang.cache.store import key_of
from tilelang.cache.versions import compiler_versions
from tilelang.engine.callback import has_postproc
from tilelang.engine.device_codegen import emit_cuda
from tilelang.engine.explain import Explanation
from tilelang.engine.launch_plan import LaunchPlan
from tilelang.engine.observers import is_observed
from tilelang.engine.param import CompiledArtifact
from tilelang.env import env

KIND = "program"


@dataclass(frozen=True)
class LoweredProgram:
    """A lowered program as data, without TVM.

    Attributes:
        source: CUDA C++ of its kernels.
        emulated_source: the same with ``#line`` directives, which the emulator builds.
        plan: how they are launched; its outputs are not chosen.
        explanation: what became of the program.
        said: level and text of what lowering it has logged.
    """

    source: str
    emulated_source: str
    plan: LaunchPlan
    explanation: Explanation
    said: tuple[tuple[int, str], ...]

    def files(self) -> dict[str, bytes]:
        """Its form on disk."""
        said = {"said": self.said, "explanation": dataclasses.asdict(self.explanation)}
        return {
            "kernel.cu": self.source.encode(),
            "emulated.cu": self.emulated_source.encode(),
            "plan.json": self.plan.to_json().encode(),
            "notes.json": json.dumps(said, indent=1).encode(),
        }

    @staticmethod
    def of_files(files: Mapping[str, bytes]) -> LoweredProgram:
        """The inverse of `files`."""
        notes = json.loads(files["notes.json"])
        return LoweredProgram(
            files["kernel.cu"].decode(),
            files["emulated.cu"].decode(),
            LaunchPlan.from_json(files["plan.json"].decode()),
            Explanation.of_json(notes["explanation"]),
            tuple((level, text) for level, text in notes["said"]),
        )


def program_parts(
    func: tvm.tirx.PrimFunc, target: Target, pass_configs: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The parts of a program's key; None for one that has to be lowered each time: the cache is
    disabled, a hook changes its source, lowering is to be watched, or it has no form as data."""
    if not is_cache_enabled() or has_postproc(target) or _is_watched(pass_configs):
        return None
    try:
        form = bytes(get_function("CanonicalForm")(func))
        # As JSON 1, 1.0 and true are different; what it cannot say is no plain value.
        configs = json.loads(json.dumps(pass_configs, sort_keys=True))
    except TypeError:
        return None
    return {
        "name": str(func.attrs["global_symbol"]),
        "program": hashlib.sha256(form).hexdigest(),
        "target": str(target),
        "pass_configs": configs,
        "environment": {"TILELANG_ENABLE_DATA_RACE_CHECK": env.TILELANG_ENABLE_DATA_RACE_CHECK},
        **compiler_versions(store()),
    }


def _is_watched(pass_configs: Mapping[str, Any]) -> bool:
    return is_observed(pass_configs.get) or env.TILELANG_PASS_PROFILE


def find_program(parts: Mapping[str, Any]) -> LoweredProgram | None:
    """What was kept under these parts, here or on disk."""
    key = key_of(parts)
    found: LoweredProgram | None = memory.find(key)
    if found is None:
        entry = store().get(KIND, parts)
        if entry is not None:
            found = LoweredProgram.of_files(entry.files)
            memory.keep(key, found)
    return found


def keep_program(
    parts: Mapping[str, Any],
    func: tvm.tirx.PrimFunc,
    artifact: CompiledArtifact,
    said: list[tuple[int, str]],
) -> LoweredProgram:
    """Keeps what was made of `func`, here and on disk, and returns it."""
    program = LoweredProgram(
        artifact.kernel_source,
        emit_cuda(artifact.device_mod, line_directives=True),
        artifact.launch_plan,
        Explanation.of(artifact.device_mod),
        tuple(said),
    )
    memory.keep(key_of(parts), program)
    # The script is for who compares two entries.
    script = func.script(show_meta=False).encode()
    store().put(KIND, parts, {**program.files(), "program.py": script})
    return program
