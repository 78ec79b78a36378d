"""Writes the program after each pass, one file a pass."""

from __future__ import annotations

from pathlib import Path

import tvm
import tvm_ffi

from tilelang.env import env
from tilelang.transform import PassConfigKey, current_config


class Dump:
    """A directory of numbered programs: ``00_trace.py``, ``01_BindTarget.py``, ..."""

    def __init__(self, directory: Path, name: str):
        self._directory = directory / name
        self._directory.mkdir(parents=True, exist_ok=True)
        for old in self._directory.glob("[0-9][0-9]_*.py"):
            old.unlink()
        self._count = 0

    @staticmethod
    def from_config(name: str) -> Dump | None:
        """The dump that ``tl.enable_dump_ir`` or TILELANG_DUMP_IR asks for; None without."""
        if not (env.TILELANG_DUMP_IR or current_config(PassConfigKey.TL_ENABLE_DUMP_IR, False)):
            return None
        return Dump(Path(str(current_config(PassConfigKey.TL_DUMP_IR_DIR, "./dump_ir"))), name)

    def write(self, pass_name: str, mod: tvm.IRModule) -> None:
        """Writes `mod` as the program after `pass_name`, layouts as comments below it."""
        file = self._directory / f"{self._count:02d}_{pass_name.split('.')[-1]}.py"
        self._count += 1
        file.write_text(program_text(mod))


def program_text(mod: tvm.IRModule) -> str:
    """The script of a program, and the layouts that it names by number."""
    layouts: list[str] = []

    def collect(block: tvm.s_tir.SBlock) -> None:
        for buffer, layout in dict(block.annotations.get("layout_map", {})).items():
            layouts.append(f"# {buffer.name}: " + str(layout).replace("\n", "\n#   "))

    for func in mod.functions.values():
        tvm_ffi.structural_walk(func, [(tvm.s_tir.SBlock, collect)])
    return "\n".join([mod.script(show_meta=False), *layouts, ""])
