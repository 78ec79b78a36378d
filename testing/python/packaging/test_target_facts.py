"""Facts about chips stand in the tables of src/target and in the device headers, nowhere else."""

import io
import re
import tokenize
from pathlib import Path

SOURCES = Path(__file__).parents[3] / "src"
PACKAGE = Path(__file__).parents[3] / "tilelang"
TABLES = {"target", "device", "runtime"}
# What else a line about threads may say 32 for: how programs are traced before a target is known,
# elements of a vector, words of a set, bits.
OTHER = r"kTracedLanes|kMaxLanes|kMostUnits|bits *(/|[=!<>]=) *32|kDLU?Int, *32"
LITERAL = r"(?<![\w.])(?:31|32|0x1f|0x20)(?![\w.])"


def code_lines():
    """Lines of the compiler's C++ outside of the tables, without comments and texts."""
    for path in sorted(SOURCES.rglob("*")):
        if path.suffix not in (".cc", ".h") or path.relative_to(SOURCES).parts[0] in TABLES:
            continue
        code = re.sub(
            r"/\*.*?\*/|//[^\n]*",
            lambda m: "\n" * m[0].count("\n"),
            path.read_text(),
            flags=re.DOTALL,
        )
        for number, line in enumerate(code.splitlines(), 1):
            yield f"{path.relative_to(SOURCES)}:{number}", line


def without_texts(line):
    return re.sub(r'"(?:[^"\\]|\\.)*"', "", line)


def warps_by_literal(line):
    """The line is about threads, warps or lanes, and has the size of a warp as a literal."""
    line = without_texts(line)
    return (
        re.search(LITERAL, line) is not None
        and re.search(r"warp|lane|thread", line, re.IGNORECASE) is not None
        and re.search(OTHER, line) is None
    )


def compares_an_architecture(line):
    """The name or the number of an architecture decides something."""
    named = re.search(r'[=!<>]= *"(sm_|gfx)?\d|"(sm_|gfx)\d+\w*" *[=!<>]=|"(sm_|gfx)\d+\w*"', line)
    numbered = re.search(r"\barch\w*(\.\w+)* *[=!<>]=? *\d|\d *[<>]=? *arch", without_texts(line))
    return bool(named or numbered)


def test_no_warp_is_a_literal():
    assert not [place for place, line in code_lines() if warps_by_literal(line)]


# What the Python package says 32 for in a line about threads: the size that programs are traced
# with, NVIDIA's rules of memory accesses, a name of other packages, and the warps of a program
# for the emulator, or of a launch plan, of which nothing else is said.
NAMED = {
    "language/warps.py": "TRACED_LANES = 32",
    "layout/analysis.py": "WARP = 32",
    "compat/mma_layouts.py": "WARP_SIZE = 32",
    "emulator/compiler.py": "warp_threads : int = 32 ,",
    "engine/launch_plan.py": "warp_threads : int = 32",
}
OTHER_IN_PYTHON = r"with_lanes|\bwidth not in"


def python_code_lines(text):
    """Number and tokens of each line, without comments and texts."""
    lines = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NAME, tokenize.NUMBER, tokenize.OP):
            lines.setdefault(token.start[0], []).append(token.string)
    return {number: " ".join(tokens) for number, tokens in lines.items()}


def warps_by_literal_in_python(line):
    return warps_by_literal(line) and not re.search(OTHER_IN_PYTHON, line)


def test_no_warp_is_a_literal_in_python():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name.startswith("testing/"):  # programs of tests, as users write them
            continue
        for line in python_code_lines(path.read_text()).values():
            if warps_by_literal_in_python(line):
                found.setdefault(name, []).append(line)
    assert found == {name: [line] for name, line in NAMED.items()}


def test_no_architecture_is_compared():
    assert not [place for place, line in code_lines() if compares_an_architecture(line)]


def test_the_rules_find_what_they_are_for():
    assert warps_by_literal("const Expr lane = FloorModOf(thread, 32);")
    assert warps_by_literal("if (num_threads % 32) return false;")
    assert not warps_by_literal("constexpr int kWordBits = 32;")
    for text in ("warps = threads // 32", "if threads % 32:\n    pass", "def f(lanes=32): ..."):
        assert any(map(warps_by_literal_in_python, python_code_lines(text).values()))
    for text in ("bits = 32", "f(threads)  # 32", "x = 'a warp has 32 threads'"):
        assert not any(map(warps_by_literal_in_python, python_code_lines(text).values()))
    assert not warps_by_literal('Refuse("wanted 32 threads");')
    assert compares_an_architecture("if (arch >= 90) return true;")
    assert compares_an_architecture("if (target.arch.number < 80) return;")
    assert compares_an_architecture('if (target.arch == "sm_90a") return;')
    assert not compares_an_architecture("if (target.Has(Feature::kTma)) return;")
