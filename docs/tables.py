"""Pages that are tables of the sources: targets.md, types.md, configuration.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilelang._ffi import get_function
from tilelang.compat.pass_configs import WITHOUT_EFFECT
from tilelang.language.dtypes import is_number_dtype

ROOT = Path(__file__).resolve().parent.parent
WRITTEN = "`python docs/generate.py` writes this page from "


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    cells = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in cells]


def _described(path: str, of_class: str) -> Iterator[tuple[str, ast.expr, str]]:
    """The members of a class, with their values and the texts below them."""
    body = next(
        node.body
        for node in ast.parse((ROOT / path).read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == of_class
    )
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = " ".join(str(after.value.value).split())
        assert isinstance(target, ast.Name)
        yield target.id, node.value, text


def variables() -> list[tuple[str, str, str]]:
    """The environment variables: name, default, meaning."""
    found = []
    for name, value, text in _described("tilelang/env.py", "Environment"):
        assert isinstance(value, ast.Call)
        found.append((name, str(ast.literal_eval(value.args[1])), text))
    return found


def pass_configs() -> list[tuple[str, str]]:
    """The keys that have an effect, or may have, and their meanings."""
    found, pending = [], []
    for _, value, text in _described("tilelang/transform/pass_config.py", "PassConfigKey"):
        pending.append(str(ast.literal_eval(value)))
        if text:  # of all members since the last text
            found += [(key, text.replace("``", "`")) for key in pending]
            pending = []
    return [(key, text) for key, text in found if key not in WITHOUT_EFFECT]


def configuration_page() -> str:
    """docs/configuration.md."""
    keys = [[f"`{key}`", text] for key, text in pass_configs()]
    names = [
        [f"`{name}`", f"`{default}`" if default else "", text]
        for name, default, text in variables()
    ]
    page = [
        "# Configuration",
        "",
        WRITTEN + "`tilelang/transform/pass_config.py` and `tilelang/env.py`.",
        "",
        "## Pass configurations",
        "",
        'They are options of one compilation: `pass_configs={"tl.enable_fast_math": True}` of'
        " `tilelang.compile` and `@tilelang.jit`, or `T.annotate_pass_configs` in a program. Keys"
        " may be strings or members of `tilelang.PassConfigKey`. An unknown key is a"
        " `ValueError`.",
        "",
        *_table(["key", "meaning"], keys),
        "",
        "### Keys without effect",
        "",
        "Published programs pass these. They are taken, and the log says once why they are not"
        " needed.",
        "",
        *_table(["key", "why"], [[f"`{k}`", text] for k, text in WITHOUT_EFFECT.items()]),
        "",
        "## Environment variables",
        "",
        "Each is read whenever it is needed, so a change of `os.environ` counts at once. A"
        " variable that is set to nothing counts as not set. A truth value is true as 1, true, yes"
        " or on. `from tilelang.env import env; env.TILELANG_VERBOSE = True` wins over the"
        " environment; None goes back to it. `CXX` names the emulator's compiler.",
        "",
        *_table(["variable", "default", "meaning"], names),
    ]
    return "\n".join(page) + "\n"


def architectures() -> list[dict[str, Any]]:
    """What is known of each architecture that has a row: of a suffix only where it changes it."""
    describe = get_function("target.Describe")
    found = []
    numbers = re.findall(r"^    \{(\d+), ", (ROOT / "src/target/nvidia.cc").read_text(), re.M)
    chips = re.findall(r'^    \{"(gfx\w+)"', (ROOT / "src/target/amd.cc").read_text(), re.M)
    for number in numbers:
        plain = dict(describe("cuda", f"sm_{number}"))
        with_suffix = dict(describe("cuda", f"sm_{number}a"))
        found.append(plain)
        if list(with_suffix["features"]) != list(plain["features"]):
            found.append(with_suffix)
    return found + [dict(describe("hip", chip)) for chip in chips]


def targets_page() -> str:
    """docs/targets.md."""
    rows, features = [], []
    for chip in architectures():
        name = f"`{chip['arch']}`"
        rows.append(
            [
                name,
                str(chip["warp_threads"]),
                f"{chip['shared_bytes_per_block'] // 1024} KiB",
                f"{chip['shared_bytes_per_sm'] // 1024} KiB",
                str(chip["threads_per_block"]),
                str(chip["threads_per_sm"]),
                str(chip["blocks_per_sm"]),
                str(chip["registers_per_thread"]),
            ]
        )
        features.append([name, ", ".join(map(str, chip["features"]))])
    page = [
        "# Targets",
        "",
        WRITTEN + "the tables in `src/target`.",
        "",
        'A *target* is what a kernel is compiled for: `target="cuda -arch=sm_90a"` of'
        ' `tilelang.compile` and `@tilelang.jit`, or `TILELANG_DEFAULT_TARGET`. `"cuda"` is the'
        ' GPU of this machine, and sm_80 where there is none; `"hip"` is AMD ([AMD](amd.md)). A'
        " suffix is a part of the name: sm_90a has instructions that sm_90 has not. Compiling"
        " needs no GPU. The emulator runs a kernel of any target.",
        "",
        "## Limits",
        "",
        *_table(
            [
                "architecture",
                "lanes of a warp",
                "shared memory of a block",
                "of a multiprocessor",
                "threads of a block",
                "of a multiprocessor",
                "blocks of a multiprocessor",
                "registers of a thread",
            ],
            rows,
        ),
        "",
        "## Features",
        "",
        "What the compiler uses, where it exists. A program that asks for a feature that the target"
        " lacks is refused with the feature's name.",
        "",
        *_table(["architecture", "features"], features),
    ]
    return "\n".join(page) + "\n"


Types = tuple[str, str, str]
"""Of both operands, of the accumulator, and what is said of A or of both."""


def products(kind: str, arch: str) -> dict[Types, list[str]]:
    """Instructions by types."""
    found: dict[Types, list[str]] = {}
    for row in get_function("target.MatrixTypes")(kind, arch):
        special = "A 2:4 sparse" if row["sparse"] else "scales of blocks" if row["scaled"] else ""
        # Forms of one instruction, such as "mma.m16n8k16" and "mma.m16n8k8", are one name.
        name = re.sub(r"\.(?!sp).*", "", str(row["name"])) + (" (tf32)" if row["opt_in"] else "")
        name = re.sub(r"(?<=\.sp)\..*?(?= |$)", "", name)
        operands = f"`{row['operand']}` x `{row['operand_b']}`"
        names = found.setdefault((operands, str(row["accumulator"]), special), [])
        if name not in names:
            names.append(name)
    return found


def types_page() -> str:
    """docs/types.md."""
    chips = [c for c in architectures() if products(str(c["kind"]), str(c["arch"]))]
    by_chip = {str(c["arch"]): products(str(c["kind"]), str(c["arch"])) for c in chips}
    # Neighbours that multiply alike are one column.
    columns: list[tuple[list[str], dict[Types, list[str]]]] = []
    for arch, table in by_chip.items():
        same = next((names for names, found in columns if found == table), None)
        if same is None:
            columns.append(([arch], table))
        else:
            same.append(arch)
    keys = list(dict.fromkeys(key for _, table in columns for key in table))
    rows = [
        [
            f"{ab} to `{c}`" + (f", {special}" if special else ""),
            *(", ".join(table.get((ab, c, special), [])) for _, table in columns),
        ]
        for ab, c, special in sorted(keys, key=lambda key: (key[2], keys.index(key)))
    ]
    page = [
        "# Types",
        "",
        WRITTEN + "the tables of matrix instructions in `src/target`.",
        "",
        *_TYPES,
        "",
        "## Products by chip",
        "",
        "The matrix instructions that `T.gemm` takes, by the types of its operands and of its"
        " accumulator. *tf32* rounds its operands to 10 bits of mantissa; it is taken for tiles of"
        " `T.tfloat32`. Where a cell is empty the threads multiply and add, if they can compute in"
        " the types; `T.gemm_sp` (A is sparse) and `T.gemm_blockscaled` need a cell."
        " `explain()` says what a kernel's products became.",
        "",
        *_table(["types", *(", ".join(names) for names, _ in columns)], rows),
    ]
    return "\n".join(page) + "\n"


def _arithmetic(names: str) -> str:
    return ", ".join(f"`{n}`" for n in names.split() if is_number_dtype(n))


_TYPES = [
    'A data type is a name, such as `"float16"`, or a member of `T`, such as `T.float16`; the'
    " two are equal. torch's and numpy's types, Python's `int` (int32), `float` (float32) and"
    ' `bool`, and C\'s names (`"half"`, `"float"`, `"double"`, `"long"`) are taken, too.',
    "",
    "* Threads compute in "
    + _arithmetic(
        "int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
    )
    + ".",
    "* The other types are loaded, stored and converted: `bool`, floats of 8 bits"
    " (`float8_e4m3fn`, `float8_e5m2`, `float8_e8m0fnu`, on AMD `float8_e4m3fnuz`,"
    " `float8_e5m2fnuz`), and elements of 4 bits (`int4`, `uint4`, `float4_e2m1fn`), of which two"
    ' share a byte. Convert before you compute: `T.cast(x, "float32")`.',
    "* A tensor of `uint8` or `int8` is taken for one of `bool` as it is: its bytes have to be 0 or"
    " 1. `mask != 0` makes a bool tensor of a mask of 0 and 255.",
    "* Floats of 6 bits (`float6_e2m3fn`, `float6_e3m2fn`), of which four are three bytes, are"
    " copied between tiles and multiplied by `T.gemm_blockscaled`. A tensor (.., n) of them is one"
    " of `uint8` (.., 3 n / 4), which `tilelang.utils.float6` packs and unpacks.",
    "* `tfloat32` is float32 in memory; a product of two such tiles may use tensor cores, which"
    " keep 10 bits of each mantissa.",
]
