"""No file has over 800 lines, no function over 80."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDERS = ("src", "tilelang", "examples", "benchmark", "testing", "docs", "cmake")
PYTHON, CPP = {".py", ".pyi"}, {".cc", ".cpp", ".c", ".h", ".cu", ".cuh"}
MOST_OF_FILE, MOST_OF_FUNCTION = 800, 80

COMMENTS_AND_TEXTS = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^()\s]*)\(.*?\)\1"|"(?:[^"\\\n]|\\.)*"'
    r"|(?<!\w)'(?:[^'\\\n]|\\.)+'|^[ \t]*#(?:[^\n\\]|\\.)*",
    re.DOTALL | re.MULTILINE,
)
TEMPLATE = re.compile(r"\Atemplate\s*<.*?>\s*?\n\s*", re.DOTALL)
SCOPE = re.compile(r"(?:inline\s+)?(?:namespace|class|struct|union|enum)\b|extern\s*$")
# Between paragraphs, behind calls of macros and labels.
BEFORE_HEAD = re.compile(r"\n\s*\n|^[A-Z0-9_]+\(.*\)$|:$", re.MULTILINE)


def sources(suffixes):
    """Path and text of each file that is written by hand."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and "__pycache__" not in path.parts:
                yield path.relative_to(ROOT), path.read_text()


def python_functions(text):
    """Name, first line and number of lines of each function, decorators apart."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def blanked(text):
    """The text without comments, texts and the preprocessor's lines, in as many lines."""
    return COMMENTS_AND_TEXTS.sub(lambda m: "\n" * m[0].count("\n") or " ", text)


def is_function(head):
    """Whether what stands in front of a brace, in a namespace or class, begins a function: it has
    parameters, and gives no variable a value."""
    outside = re.sub(r"operator\s*\W+?\(", "operator(", head).split("(")[0]
    return "(" in head and "=" not in outside and not SCOPE.match(head)


def cpp_functions(text):
    """The same, of a file as clang-format leaves it: what braces in a namespace or class hold, if
    parameters stand in front of them. Lambdas are a part of what they are in."""
    text = blanked(text)
    inside, begin = 0, 0  # braces that are open in what is no namespace or class; of a head
    for found in re.finditer(r"[{};]", text):
        at, sign = found.start(), found[0]
        if sign == "{" and not inside:
            head = TEMPLATE.sub("", BEFORE_HEAD.split(text[begin:at])[-1].strip())
            inside = int(not SCOPE.match(head))
            first = text.count("\n", 0, text.rindex(head, begin, at)) + 1
        elif inside:
            inside += {"{": 1, "}": -1, ";": 0}[sign]
            if not inside and is_function(head):
                name = re.search(r"(?:operator\W+|[\w~:]*)$", head.split("(")[0])[0]
                yield name, first, text.count("\n", 0, at) + 2 - first
        if not inside:
            begin = at + 1


def too_long(functions, suffixes):
    return [
        f"{path}:{line}: {name} has {count} lines"
        for path, text in sources(suffixes)
        if text.count("\n") > MOST_OF_FUNCTION
        for name, line, count in functions(text)
        if count > MOST_OF_FUNCTION
    ]


def test_no_file_is_too_long():
    counts = {path: text.count("\n") for path, text in sources(PYTHON | CPP)}
    assert not {path: count for path, count in counts.items() if count > MOST_OF_FILE}


def test_no_function_in_python_is_too_long():
    assert not too_long(python_functions, PYTHON)


def test_no_function_in_cpp_is_too_long():
    assert not too_long(cpp_functions, CPP)


def test_the_rules_find_functions():
    """In namespaces and classes, with initialisers and default arguments, of operators and
    templates; no types, tables, lambdas of their own, or text."""
    found = list(
        cpp_functions(
            """namespace tl {
/*! f(int) { */
struct A {
  explicit A(int x = 0, char c = '{')
      : x_(x), y_{x} {
    y_ = x;
  }
  bool operator==(const A& other) const { return true; }

 private:
  void G() {
    const auto h = [&](int i) {
      return "}";
    };
    for (int i = 0; i < 3; ++i) {
      h(i);
    }
  }
};
const std::vector<int> rows = {
    Row(1),
    Row(2),
};
#define F(x) \\
  void x() {
template <typename T, int N = 2>
T f(const std::string& text,
    T value) {
  return R"x({)x" + value;
}
extern "C" void Kernel() {
}
enum class E : int { kOne = Value(1) };
}  // namespace tl
"""
        )
    )
    lengths = [(name, count) for name, _, count in found]
    assert lengths[-4:] == [("operator==", 1), ("G", 8), ("f", 4), ("Kernel", 2)]
    assert [line for _, line, _ in found[-4:]] == [8, 11, 27, 31]
    assert list(
        python_functions("@a\n@b\ndef f(\n    x,\n):\n    def g(): ...\n    return x\n")
    ) == [
        ("f", 3, 5),
        ("g", 6, 1),
    ]
