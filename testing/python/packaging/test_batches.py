"""Files of a folder may be compiled as one: CMakeLists.txt compiles an installation in batches."""

import collections
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
ALONE = re.search(r'MATCHES "/\(([\w|]+)\)\\\\\.cc\$"', (ROOT / "CMakeLists.txt").read_text())
UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace\n", re.MULTILINE | re.DOTALL)
DECLARATION = re.compile(r"^(?!TL_REGISTER)[A-Za-z].*", re.MULTILINE)
TYPE = re.compile(r"(?:template.*> )?(?:class|struct|union|enum class|enum) (\w+)")
VALUE = re.compile(r"(?<![\w:])(\w+)\s*[({=;\[]")


def names_in_unnamed_namespaces(text):
    """Of types, functions and variables, as clang-format leaves them: they begin a line. Aliases
    may stand twice."""
    for body in UNNAMED.findall(text):
        for line in DECLARATION.findall(body):
            found = TYPE.match(line) or VALUE.search(line)
            if found and not line.startswith("using "):
                yield found[1]


def test_what_names_are_found():
    text = """
namespace {
using Kind = A::Kind;
class Reader : public Visitor {
 public:
  int inner = 0;
};
constexpr int kMost = 3;
std::vector<int> ValuesOf(const Expr& e) {
  return {};
}
Registration read_registration([] {
});
TL_REGISTER_PASS(Read);
}  // namespace
int outer = 0;
"""
    names = list(names_in_unnamed_namespaces(text))
    assert names == ["Reader", "kMost", "ValuesOf", "read_registration"]


def test_names_are_unique_in_a_folder():
    places = collections.defaultdict(list)
    for path in sorted((ROOT / "src").rglob("*.cc")):
        if "device" in path.parts or path.stem in ALONE[1].split("|"):
            continue
        for name in set(names_in_unnamed_namespaces(path.read_text())):
            places[path.parent.relative_to(ROOT), name].append(path.name)
    twice = {f"{folder}: {name}": files for (folder, name), files in places.items() if files[1:]}
    assert not twice, f"wanted other names in all of these files but one: {twice}"
