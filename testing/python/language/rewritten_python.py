"""Runs Python functions in their rewritten form, with hooks that mean what Python means.

Run by test_rewrite_versions.py under several versions of Python, so it imports nothing of ours but
the file that it is given, tilelang/language/rewrite.py.
"""

import ast
import builtins
import importlib.util
import inspect
import operator
import sys
import textwrap

COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "is_": operator.is_,
    "is_not": operator.is_not,
    "in_": lambda a, b: a in b,
    "not_in": lambda a, b: a not in b,
}
IN_PLACE = {"Add": operator.iadd, "Mult": operator.imul, "Sub": operator.isub}


OPERATORS = {
    "Add": operator.add,
    "Mod": operator.mod,
    "Mult": operator.mul,
    "Sub": operator.sub,
}
UNARY = {"USub": operator.neg, "UAdd": operator.pos, "Invert": operator.invert}


class Branch:
    def __init__(self, condition):
        self.condition = condition

    def then(self):
        return bool(self.condition)

    def otherwise(self):
        return not self.condition

    def end(self):
        pass


class PythonHooks:
    """Python's own meaning of everything that rewritten code asks about."""

    slice = builtins.slice

    def __init__(self):
        self.places = []

    def at(self, place):
        self.places.append(place)

    def items(self, iterated):
        return iterated

    def operand(self, value):
        return value

    def function_of_calls(self, function):
        return self.function(function)

    def item(self, owner, index):
        return owner[index]

    def store(self, value, owner, index):
        owner[index] = value

    def attribute(self, owner, name):
        return getattr(owner, name)

    def set_attribute(self, value, owner, name):
        setattr(owner, name, value)

    def name(self, name, value):
        return value

    read = bind = name

    def value(self, value):
        return value

    emit = element = returned = python_bool = nested = value

    def annotated(self, annotation, value):
        annotation()
        return value

    def assertion(self, condition, message):
        assert condition, message()

    def branch(self, condition):
        return Branch(condition)

    def range(self, function, *bounds):
        return function(*bounds)

    def loop(self, iterated, names):
        return iter(iterated)

    def context(self, manager, names):
        return manager

    def leaves(self, begins):
        pass

    def breaks(self):
        return True

    continues = breaks

    def place(self, index):
        return index

    def negation(self, value):
        return not value

    def all_of(self, value, *others):
        for other in others:
            value = value and other()
        return value

    def any_of(self, value, *others):
        for other in others:
            value = value or other()
        return value

    first_false, first_true = all_of, any_of

    def chain(self, left, names, *others):
        for name, other in zip(names, others):  # noqa: B905 - for old versions too
            right = other()
            if not COMPARISONS[name](left, right):
                return False
            left = right
        return True

    def ternary(self, test, body, orelse):
        return body() if test else orelse()

    def in_order(self, *operands):
        return [operand() for operand in operands]

    def operate(self, name, left, right):
        return OPERATORS[name](left(), right())

    def binary(self, name, left, right):
        return OPERATORS[name](left, right)

    def unary(self, name, operand):
        return UNARY[name](operand)

    def compare(self, name, left, right):
        return COMPARISONS[name](left, right)

    def function(self, function):
        return function

    def bind_now(self, name, value):
        return self.bind(name, value)

    def call(self, function, names, *arguments):
        positional, keywords = [], {}
        for name, argument in zip(names, arguments):  # noqa: B905 - for old versions too
            if name is None:
                positional.append(argument())
            elif name == "*":
                positional += argument()
            else:
                keywords.update(argument() if name == "**" else {name: argument()})
        return function(*positional, **keywords)

    def unpack(self, value, names, star):
        values = list(value)
        if star is not None:
            end = len(values) - (len(names) - 1 - star)
            values[star:end] = [values[star:end]]
        return values

    def shared(self, value, names):
        return value

    def augment(self, name, current, value):
        return IN_PLACE[name](current, value)


def control(n):
    total, seen = 0, []
    for i in range(n):
        if i == 2:
            continue
        if i == 6:
            break
        total += i * 2 if 1 < i <= 4 and i != 3 else 1
        seen.append(i)
    return total, seen, not seen, n in (1, 9) or n


def expressions(n):
    first, *rest = [k * n for k in range(4) if k not in (1,)]
    table = {f"{k!r}:{v:>{n}}": [v, {"a": v}["a"]] for k, v in enumerate(rest)}
    table["x"] = table["y"] = first
    table["x"] += 3
    pick = lambda k, d=n, *more, e=2: k + d + e + len(more)  # noqa: E731
    return table, pick(1), pick(1, 2, 3, e=4), rest[-1:0:-1], sum(k for k in rest)


def order(n):
    calls = []

    def step(k):
        calls.append(k)
        return len(calls)

    box = {0: n}
    box[step(0)] = step(1) + step(2) * len(calls)
    box[0] += step(3)
    pair = (lambda *a, **k: (a, k))(
        n, step(4), *[step(5)], k=calls[-1], **{name: step(6) for name in "m"}
    )
    return box, pair, 0 < step(7) <= n + step(8) < 20, [1, 2, 3][0 : step(9)], calls


def definitions(n):
    values: list = [n]

    def add(k, by=n):
        values[0] += k + by
        return values

    class_of = type(values).__name__
    assert add(1) is values, "the same list"
    return values, class_of


PROGRAMS = [control, expressions, order, definitions]
SOURCE_3_12 = """
def newer(n):
    words = ["a", "b"]
    def twice[Kind](k: Kind) -> Kind:
        return k
    return f"{", ".join(f"{w}{n}" for w in words)}", [n for n in words], n, twice(n)
"""


def rewritten(function, source, module):
    """Return ``function`` rewritten and compiled again, as source.py does it."""
    tree = ast.parse(textwrap.dedent(source)).body[0]
    code = function.__code__
    local, free = (*code.co_varnames, *code.co_cellvars), code.co_freevars
    places = module.rewrite(tree, local, free, *module.declarations(tree))
    namespace = dict(function.__globals__)
    hooks = namespace["__tl"] = PythonHooks()
    exec(compile(ast.Module([tree], []), "<rewritten>", "exec"), namespace)
    return namespace[function.__name__], hooks, places


def main(path):
    spec = importlib.util.spec_from_file_location("rewrite", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    programs = [(program, inspect.getsource(program)) for program in PROGRAMS]
    if sys.version_info >= (3, 12):
        namespace = {}
        exec(SOURCE_3_12, namespace)
        programs.append((namespace["newer"], SOURCE_3_12))
    for program, source in programs:
        again, hooks, places = rewritten(program, source, module)
        for n in (1, 4, 9):
            wanted, found = program(n), again(n)
            assert repr(found) == repr(wanted), (program.__name__, n, found, wanted)
        assert hooks.places
        assert max(hooks.places) < len(places)
    print(len(programs), "programs agree")


if __name__ == "__main__":
    main(sys.argv[1])
