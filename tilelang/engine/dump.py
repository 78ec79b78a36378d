"""Writes the program after each pass, one file a pass."""

from __future__ import annotations

from pathlib import Path

import tvm

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
        """The dump that ``tl.enable_dump_ir``, TILELANG_DUMP_IR or TL_LOWER_TRACE asks for; None
        without.
        """
        asked_for = env.TILELANG_DUMP_IR or env.TL_LOWER_TRACE
        if not (asked_for or current_config(PassConfigKey.TL_ENABLE_DUMP_IR, False)):
            return None
        directory = current_config(PassConfigKey.TL_DUMP_IR_DIR, env.TL_LOWER_TRACE_DIR)
        return Dump(Path(str(directory)), name)

    def write(self, pass_name: str, mod: tvm.IRModule) -> None:
        """Writes `mod` as the program after `pass_name`."""
        file = self._directory / f"{self._count:02d}_{pass_name.split('.')[-1]}.py"
        self._count += 1
        file.write_text(mod.script(show_meta=False) + "\n")

    def close(self) -> None:
        """All files are written."""
