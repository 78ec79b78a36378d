"""Rewrites a Python function so that running it once emits its program.

Input: the AST of a function. Output: the same function in which statements and expressions that
can mean something in IR go through the methods of a ``Hooks`` object, in the variable ``HOOKS``:

    for k in T.serial(n):        hooks.at(3)
        x = A[k] + 1      ->     for k in hooks.loop(T.serial(n), "k"):
                                     hooks.at(4)
                                     x = hooks.bind(
                                         "x", hooks.binary("Add", hooks.value(hooks.item(A, k)), 1)
                                     )

Everything else stays Python. Refused, with the place and what to write instead: statements that
have no meaning in a kernel (try, class, async, global, nonlocal, del, match, yield).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

HOOKS = "__tl"

# By AST class: what the user wrote, what to write instead.
_UNSUPPORTED = {
    "Try": ("try", "check before, or move the code that may raise out of the kernel"),
    "TryStar": ("try", "check before, or move the code that may raise out of the kernel"),
    "ClassDef": ("class", "define the class outside of the kernel"),
    "AsyncFor": ("async for", "use a plain `for`"),
    "AsyncWith": ("async with", "use a plain `with`"),
    "AsyncFunctionDef": ("async def", "use a plain `def`"),
    "Global": ("global", "use a new name, or T.alloc_var for a value that changes"),
    "Nonlocal": ("nonlocal", "use T.alloc_var, or return the value"),
    "Delete": ("del", "leave the name alone"),
    "Match": ("match", "use if/elif/else"),
    "Yield": ("yield", "return a list, or emit the statements in a @T.macro"),
    "YieldFrom": ("yield from", "return a list, or emit the statements in a @T.macro"),
    "Await": ("await", "call a plain function"),
    "NamedExpr": (":=", "assign in a statement before"),
}
_COMPARISONS = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Is: "is_",
    ast.IsNot: "is_not",
    ast.In: "in_",
    ast.NotIn: "not_in",
}


_LOAD = ast.Load()


class UnsupportedSyntax(Exception):
    """Syntax that has no meaning in a kernel, with its node."""

    def __init__(self, message: str, node: ast.AST):
        super().__init__(message)
        self.node = node


def declarations(function: ast.FunctionDef) -> tuple[dict[str, bool], int]:
    """Return the parameters that statements ``name: annotation`` declare, each with whether it is
    declared on every path, and the number of the function's statement that has the last of them
    (-1 without any)."""
    arguments = function.args
    parameters = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    declared: dict[str, bool] = {}
    last = -1
    for i, statement in enumerate(function.body):
        for node in _own_statements(statement):
            if not isinstance(node, ast.AnnAssign) or node.value is not None:
                continue
            if isinstance(node.target, ast.Name) and node.target.id in parameters:
                name = node.target.id
                declared[name] = declared.get(name, False) or node is statement
                last = i
    return declared, last


def _own_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield ``node`` and the statements in it, except the bodies of functions that it defines."""
    if isinstance(node, ast.stmt):
        yield node
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, name, ()):
            yield from _own_statements(child)


def rewrite(
    function: ast.FunctionDef,
    local: Iterable[str],
    free: Iterable[str],
    declared: Iterable[str],
    last: int,
) -> list[tuple[int, int, int, int]]:
    """Rewrite a function in place; return the place (line, end line, column, end column) of each
    ``at``.

    ``local`` are the names that the function binds, ``free`` those of enclosing functions that it
    uses, ``declared`` and ``last`` are what ``declarations`` says. New nodes have the place of the
    nearest one around them that has one, as ``ast.fix_missing_locations`` would give them: compiled
    functions are many small nodes, and a walk over all of them takes longer than their rewriting.
    """
    arguments = function.args
    parameters = tuple(a.arg for a in (*arguments.posonlyargs, *arguments.args))
    rewriter = _Rewriter(frozenset(local), frozenset(free), frozenset(declared), parameters)
    for argument in [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        *filter(None, [arguments.vararg, arguments.kwarg]),
    ]:
        argument.annotation = None
    arguments.defaults = []
    arguments.kw_defaults = [None] * len(arguments.kwonlyargs)
    function.decorator_list = []
    function.returns = None
    first = rewriter.suite(function.body[: last + 1])
    if declared:
        first.append(ast.Expr(rewriter.hook("declarations_end")))
    function.body = [*first, *rewriter.suite(function.body[last + 1 :])] or [ast.Pass()]
    place = _place(function)
    for statement in function.body:
        _fill(statement, place)
    return rewriter.places


class _Rewriter(ast.NodeTransformer):
    def __init__(
        self,
        local: frozenset[str],
        free: frozenset[str],
        declared: frozenset[str],
        parameters: tuple[str, ...],
    ):
        self.parameters = parameters  # those that can be given by position
        self.local = local
        self.free = free
        self.declared = declared
        self.shadowed: list[set[str]] = []  # parameters of lambdas, targets of comprehensions
        self.places: list[tuple[int, int, int, int]] = []
        self.temporaries = 0
        self.binds_now = False  # whether there was a `:=`

    # -- building blocks --------------------------------------------------------------------------

    def visit(self, node: ast.AST) -> Any:
        """Rewrite ``node``; an expression keeps its place, which errors show."""
        return _placed(super().visit(node), node)

    def thunk(self, body: ast.expr) -> ast.Lambda:
        """Return a function of no arguments with a rewritten expression: what is evaluated later,
        or not at all."""
        if self.binds_now:
            self.refuse_bindings(body)
        return _thunk(body)

    def refuse_bindings(self, body: ast.expr) -> None:
        for node in ast.walk(body):
            if isinstance(node, ast.NamedExpr):
                self.unsupported(node)  # it would bind a variable of the function

    def hook(self, name: str, *args: ast.expr) -> ast.Call:
        function = ast.Attribute(ast.Name(HOOKS, _LOAD), name, _LOAD)
        return ast.Call(function, list(args), [])

    def hook_at(self, node: ast.expr, name: str, *args: ast.expr) -> ast.expr:
        """Return the call of a hook that refuses ``node``, so that the error is at its place."""
        return _placed(self.hook(name, *args), node)

    def at(self, node: ast.stmt) -> ast.stmt:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        place = (node.lineno, node.end_lineno, node.col_offset + 1, node.end_col_offset + 1)
        self.places.append(place)
        return ast.Expr(self.hook("at", ast.Constant(len(self.places) - 1)))

    def temporary(self) -> str:
        self.temporaries += 1
        return f"{HOOKS}_{self.temporaries}"

    def suite(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        out: list[ast.stmt] = []
        jumps = [s for s in statements if isinstance(s, ast.Break | ast.Continue)]
        leaves = bool(jumps) and isinstance(jumps[0], ast.Break)
        if leaves:
            out.append(self.leaves(statements[0], True))
        for i, statement in enumerate(statements):
            is_jump = isinstance(statement, ast.Break | ast.Continue)
            if is_jump and leaves:
                out.append(self.leaves(statement, False))
            if is_jump and i + 1 < len(statements):
                dead = statements[i + 1]
                out += self.located(dead, [ast.Expr(self.hook("ignored"))])
            rewritten = self.visit(statement)
            out += rewritten if isinstance(rewritten, list) else [rewritten]
            if is_jump:
                break
        return out

    def leaves(self, node: ast.stmt, begins: bool) -> ast.stmt:
        """Say that the statements from here on, or up to here, end with the loop."""
        said = ast.Expr(self.hook("leaves", ast.Constant(begins)))
        _fill(said, _place(node))
        return said

    def located(self, node: ast.stmt, statements: list[ast.stmt]) -> list[ast.stmt]:
        out = [self.at(node), *statements]
        place = _place(node)
        for statement in out:
            vars(statement).update(place)
            _fill_below(statement, place)
        return out

    def unsupported(self, node: Any) -> NoReturn:
        name, repair = _UNSUPPORTED[type(node).__name__]
        raise UnsupportedSyntax(f"`{name}` is not supported in a kernel; {repair}", node)

    visit_Try = visit_TryStar = visit_ClassDef = visit_AsyncFor = visit_AsyncWith = unsupported
    visit_AsyncFunctionDef = visit_Global = visit_Nonlocal = visit_Delete = visit_Match = (
        unsupported
    )
    visit_Yield = visit_YieldFrom = visit_Await = unsupported

    # -- statements -------------------------------------------------------------------------------

    def visit_FunctionDef(self, node: ast.FunctionDef) -> list[ast.stmt]:
        # The body is rewritten when the decorator, ours or the user's, sees the function.
        if not node.decorator_list:
            node.decorator_list = [ast.Attribute(ast.Name(HOOKS, _LOAD), "nested", _LOAD)]
        self.defaults(node.args)
        return self.located(node, [node])

    def visit_Pass(self, node: ast.Pass) -> ast.stmt:
        return node

    def _plain(self, node: ast.stmt) -> list[ast.stmt]:
        return self.located(node, [self.generic_visit(node)])  # type: ignore[list-item]

    visit_Import = visit_ImportFrom = visit_Raise = _plain

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        if isinstance(node.value, ast.Constant):
            return [ast.copy_location(ast.Pass(), node)]
        return self.located(node, [ast.Expr(self.hook("emit", self.visit(node.value)))])

    def visit_Return(self, node: ast.Return) -> list[ast.stmt]:
        value = ast.Constant(None) if node.value is None else self.visit(node.value)
        return self.located(node, [ast.Return(self.hook("returned", value))])

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        message = ast.Constant("") if node.msg is None else self.visit(node.msg)
        check = self.hook_at(node.test, "assertion", self.test(node.test), self.thunk(message))
        return self.located(node, [ast.Expr(check)])

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        branch = self.temporary()

        def part(name: str) -> ast.Call:
            return ast.Call(ast.Attribute(ast.Name(branch, _LOAD), name, _LOAD), [], [])

        start = ast.Assign(
            [ast.Name(branch, ast.Store())],
            self.hook_at(node.test, "branch", self.test(node.test)),
        )
        parts: list[ast.stmt] = [start, ast.If(part("then"), self.suite(node.body), [])]
        if node.orelse:
            parts.append(ast.If(part("otherwise"), self.suite(node.orelse), []))
        return self.located(node, [*parts, ast.Expr(part("end"))])

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        self.refuse_else(node, node.orelse)
        if _is_call_of(node.iter, "range"):
            assert isinstance(node.iter, ast.Call)
            arguments = [self.visit(a) for a in node.iter.args]
            function = ast.Name("range", _LOAD)
            iterated: ast.expr = self.hook_at(node.iter, "range", function, *arguments)
        else:
            iterated = self.visit(node.iter)
        names = self.target_names(node.target)
        frame = self.hook_at(node.iter, "loop", iterated, names)
        loop = ast.For(node.target, frame, self.suite(node.body), [])
        return self.located(node, [loop])

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        self.refuse_else(node, node.orelse)
        target = ast.Name(self.temporary(), ast.Store())
        is_literal = isinstance(node.test, ast.Constant)
        ends = ast.Constant(is_literal and any(map(_has_break, node.body)))
        iterated = self.hook_at(node.test, "while_", self.thunk(self.test(node.test)), ends)
        return self.located(node, [ast.For(target, iterated, self.suite(node.body), [])])

    def refuse_else(self, node: ast.stmt, orelse: list[ast.stmt]) -> None:
        if orelse:
            raise UnsupportedSyntax(
                "`else` of a loop is not supported in a kernel; put the code after the loop", node
            )

    def visit_Break(self, node: ast.Break) -> list[ast.stmt]:
        return self.located(node, [ast.If(self.hook("breaks"), [node], [])])

    def visit_Continue(self, node: ast.Continue) -> list[ast.stmt]:
        return self.located(node, [ast.If(self.hook("continues"), [node], [])])

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        for item in node.items:
            names = (
                ast.Constant(None)
                if item.optional_vars is None
                else self.target_names(item.optional_vars)
            )
            manager = item.context_expr
            item.context_expr = self.hook_at(manager, "context", self.visit(manager), names)
        node.body = self.suite(node.body)
        return self.located(node, [node])

    def target_names(self, target: ast.expr) -> ast.expr:
        """Return the names of a target as a nested tuple of strings."""
        if isinstance(target, ast.Name):
            return ast.Constant(target.id)
        if isinstance(target, ast.Tuple | ast.List):
            return ast.Tuple([self.target_names(t) for t in target.elts], _LOAD)
        if isinstance(target, ast.Starred):
            return ast.Tuple([ast.Constant("*"), self.target_names(target.value)], _LOAD)
        raise UnsupportedSyntax(
            f"`{ast.unparse(target)}` cannot be bound here; bind a name and assign it in the body",
            target,
        )

    # -- assignments ------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        value = self.visit(node.value)
        if len(node.targets) == 1:
            return self.located(node, self.assign(node.targets[0], value))
        shared = self.temporary()
        # `a = b = v` stores like `a, b = v, v` does: v is evaluated once, before the first store.
        names = ast.Tuple([self.name_or_none(t) for t in node.targets], _LOAD)
        out: list[ast.stmt] = [
            ast.Assign([ast.Name(shared, ast.Store())], self.hook("shared", value, names))
        ]
        for target in node.targets:
            out += self.assign(target, ast.Name(shared, _LOAD))
        return self.located(node, out)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        if node.value is None:
            if not isinstance(node.target, ast.Name) or node.target.id not in self.declared:
                return [ast.copy_location(ast.Pass(), node)]
            name = ast.Constant(node.target.id)
            found = ast.Name(node.target.id, _LOAD)
            self.refuse_bindings(node.annotation)
            kind = self.hook("declared", name, _thunk(self.annotation(node.annotation)), found)
            return self.located(node, [ast.Assign([node.target], kind)])
        self.refuse_bindings(node.annotation)
        value = self.hook("annotated", _thunk(node.annotation), self.visit(node.value))
        return self.located(node, self.assign(node.target, value))

    def annotation(self, node: ast.expr) -> ast.expr:
        """Return an annotation in which the names that are no variables here go through a hook: an
        enclosing function's may be among them, which only annotations that are text do not keep."""
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        bound = {n.id for n in names if not isinstance(n.ctx, ast.Load)}

        class Outer(ast.NodeTransformer):
            def visit_Name(_, name: ast.Name) -> ast.expr:
                if name.id in bound or self.is_traced_name(name.id):
                    return name
                return self.hook_at(name, "outer", ast.Constant(name.id), _thunk(name))

        outer = Outer().visit(node)
        assert isinstance(outer, ast.expr)
        return outer

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        operator = ast.Constant(type(node.op).__name__)
        value = self.visit(node.value)
        target = node.target
        if isinstance(target, ast.Name):
            read = ast.copy_location(ast.Name(target.id, _LOAD), target)
            current: ast.expr = self.visit(read)
            combined = self.hook("augment", operator, *self.in_order(current, value))
            return self.located(node, self.assign(target, combined))
        owner = self.temporary()
        out: list[ast.stmt] = [ast.Assign([ast.Name(owner, ast.Store())], self.raw(target.value))]
        if isinstance(target, ast.Attribute):
            field = [ast.Name(owner, _LOAD), ast.Constant(target.attr)]
            current = self.hook("value", self.hook("attribute", *field))
            combined = self.hook("augment", operator, *self.in_order(current, value))
            out.append(ast.Expr(self.hook("set_attribute", combined, *field)))
            return self.located(node, out)
        index = self.temporary()
        at = self.index(target.slice)
        if _calls(value):  # which may change what says where the place is
            at = self.hook("place", at)
        out.append(ast.Assign([ast.Name(index, ast.Store())], at))
        place = [ast.Name(owner, _LOAD), ast.Name(index, _LOAD)]
        current = self.hook("value", self.hook("item", *place))
        combined = self.hook("augment", operator, *self.in_order(current, value))
        out.append(ast.Expr(self.hook("store", combined, *place)))
        return self.located(node, out)

    def assign(self, target: ast.expr, value: ast.expr) -> list[ast.stmt]:
        if isinstance(target, ast.Name):
            return [ast.Assign([target], self.hook("bind", ast.Constant(target.id), value))]
        if isinstance(target, ast.Subscript):
            place = [self.raw(target.value), self.index(target.slice)]
            return [ast.Expr(self.hook("store", *self.before(value, place)))]
        if isinstance(target, ast.Attribute):
            name = ast.Constant(target.attr)
            parts = self.before(value, [self.raw(target.value)])
            return [ast.Expr(self.hook("set_attribute", *parts, name))]
        assert isinstance(target, ast.Tuple | ast.List)
        star = next((i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)), None)
        plain = [t.value if isinstance(t, ast.Starred) else t for t in target.elts]
        names = ast.Tuple([self.name_or_none(t) for t in plain], _LOAD)
        unpacked = self.temporary()
        call = self.hook("unpack", value, names, ast.Constant(star))
        out: list[ast.stmt] = [ast.Assign([ast.Name(unpacked, ast.Store())], call)]
        for i, item in enumerate(plain):
            element = ast.Subscript(ast.Name(unpacked, _LOAD), ast.Constant(i), _LOAD)
            out += self.assign(item, element)
        return out

    def name_or_none(self, target: ast.expr) -> ast.Constant:
        return ast.Constant(target.id if isinstance(target, ast.Name) else None)

    # -- expressions ------------------------------------------------------------------------------

    def is_traced_name(self, name: str) -> bool:
        return name in self.local or name in self.free or any(name in s for s in self.shadowed)

    def raw(self, node: ast.expr) -> ast.expr:
        """Return ``node`` without reading it: a mutable scalar stays its buffer."""
        return _placed(self._raw(node), node)

    def _raw(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Name):
            if node.id in self.local and not any(node.id in s for s in self.shadowed):
                return self.hook("name", ast.Constant(node.id), node)
            return node
        if isinstance(node, ast.Subscript):
            return self.hook("item", self.raw(node.value), self.index(node.slice))
        if isinstance(node, ast.Attribute):
            if not self.is_traced_root(node):
                return node
            return self.hook("attribute", self.raw(node.value), ast.Constant(node.attr))
        visited = self.visit(node)
        assert isinstance(visited, ast.expr)
        return visited

    def is_traced_root(self, node: ast.Attribute) -> bool:
        """Whether an attribute is not simply one of a module or another global, such as T.copy."""
        root: ast.expr = node
        while isinstance(root, ast.Attribute):
            root = root.value
        return not isinstance(root, ast.Name) or self.is_traced_name(root.id)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if not isinstance(node.ctx, ast.Load) or not self.is_traced_name(node.id):
            return node
        if node.id in self.local and not any(node.id in s for s in self.shadowed):
            return self.hook("read", ast.Constant(node.id), node)
        return self.hook("value", node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        return self.hook("value", self.raw(node))

    def in_order(self, *operands: ast.expr) -> list[ast.expr]:
        """Return rewritten operands, of which those on the left are evaluated before a call on the
        right emits statements."""
        if not _calls_after_another(operands):
            return list(operands)
        if not any(isinstance(operand, ast.Starred) for operand in operands):
            return [ast.Starred(self.hook("in_order", *map(self.thunk, operands)), _LOAD)]
        stars = ast.Tuple([ast.Constant(isinstance(o, ast.Starred)) for o in operands], _LOAD)
        values = [o.value if isinstance(o, ast.Starred) else o for o in operands]
        return [ast.Starred(self.hook("members", stars, *map(self.thunk, values)), _LOAD)]

    def before(self, value: ast.expr, place: list[ast.expr]) -> list[ast.expr]:
        """Return a value and the place that it is assigned to, which is not read."""
        return self.in_order(value, *place) if any(map(_calls, place)) else [value, *place]

    def visit_Call(self, node: ast.Call) -> ast.expr:
        is_super = isinstance(node.func, ast.Name) and node.func.id == "super"
        if is_super and not node.args and "__class__" in self.free and self.parameters:
            # Without arguments it asks the Python frame, which may become that of a lambda here.
            given = ("__class__", self.parameters[0])
            node.args = [_placed(ast.Name(name, _LOAD), node) for name in given]
            return node
        has_calls = any(isinstance(a, ast.Call) for a in [*node.args, *_values(node.keywords)])
        name = "function_of_calls" if has_calls else "function"
        node.func = _placed(self.hook(name, self.raw(node.func)), node.func)
        keywords = [(k.arg or "**", self.visit(k.value)) for k in node.keywords]
        arguments = [(None, self.visit(a)) for a in node.args]
        if not _calls_after_another([value for _, value in (*arguments, *keywords)]):
            node.args = [value for _, value in arguments]
            for keyword, (_, value) in zip(node.keywords, keywords, strict=True):
                keyword.value = value
            return node
        named = [
            ("*", value.value) if isinstance(value, ast.Starred) else (name, value)
            for name, value in (*arguments, *keywords)
        ]
        names = ast.Tuple([ast.Constant(name) for name, _ in named], _LOAD)
        return self.hook("call", node.func, names, *(self.thunk(value) for _, value in named))

    def operand(self, node: ast.expr) -> ast.expr:
        """Rewrite what an operator computes with: simplifying it must not lose a call."""
        if not isinstance(node, ast.Call):
            visited = self.visit(node)
            assert isinstance(visited, ast.expr)
            return visited
        return self.hook_at(node, "operand", self.visit(node))

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.operand(node.left), self.operand(node.right)
        if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
            return node
        operator = ast.Constant(type(node.op).__name__)
        if not _calls_after_another([left, right]):
            return self.hook("binary", operator, left, right)
        return self.hook("operate", operator, self.thunk(left), self.thunk(right))

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return self.hook("value", self.raw(node))

    def index(self, node: ast.expr) -> ast.expr:
        if isinstance(node, ast.Tuple):
            return ast.Tuple(self.in_order(*map(self.index, node.elts)), _LOAD)
        if isinstance(node, ast.Slice):
            bounds = (b or ast.Constant(None) for b in (node.lower, node.upper, node.step))
            return self.hook("slice", *self.in_order(*map(self.visit, bounds)))
        visited = self.visit(node)
        assert isinstance(visited, ast.expr)
        return visited

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        return self.connected(node, self.visit, ("first_false", "first_true"))

    def test(self, node: ast.expr) -> ast.expr:
        """Rewrite an expression of which only the truth counts."""
        if isinstance(node, ast.BoolOp):
            return _placed(self.connected(node, self.test, ("all_of", "any_of")), node)
        visited = self.visit(node)
        assert isinstance(visited, ast.expr)
        return visited

    def connected(
        self, node: ast.BoolOp, visit: Callable[[ast.expr], ast.expr], names: tuple[str, str]
    ) -> ast.expr:
        first, *others = map(visit, node.values)
        name = names[0] if isinstance(node.op, ast.And) else names[1]
        return self.hook(name, first, *(self.thunk(v) for v in others))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            is_call = isinstance(node.operand, ast.Call)
            return self.hook("negation", (self.operand if is_call else self.test)(node.operand))
        operand = self.operand(node.operand)
        if isinstance(operand, ast.Constant):
            return node
        return self.hook("unary", ast.Constant(type(node.op).__name__), operand)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        left, *others = (self.operand(v) for v in [node.left, *node.comparators])
        is_plain = len(others) == 1 and not isinstance(node.ops[0], ast.In | ast.NotIn)
        compared = [ast.Constant(_COMPARISONS[type(op)]) for op in node.ops]
        if is_plain and not _calls_after_another([left, *others]):
            is_identity = isinstance(node.ops[0], ast.Is | ast.IsNot)
            return self.hook("identity" if is_identity else "compare", compared[0], left, *others)
        names = ast.Tuple(list(compared), _LOAD)
        return self.hook("chain", left, names, *map(self.thunk, others))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.expr:
        if self.shadowed:  # in a lambda or a comprehension, which Python runs as a function
            self.unsupported(node)
        self.binds_now = True
        name = ast.Constant(node.target.id)
        bound = ast.NamedExpr(node.target, self.hook("bind_now", name, self.visit(node.value)))
        return self.hook("read", name, _placed(bound, node))

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        test, body, orelse = self.test(node.test), self.visit(node.body), self.visit(node.orelse)
        return self.hook("ternary", test, self.thunk(body), self.thunk(orelse))

    def defaults(self, arguments: ast.arguments) -> None:
        """Rewrite the defaults of a function that is defined here: they are evaluated here."""
        arguments.defaults = [self.element(d) for d in arguments.defaults]
        arguments.kw_defaults = [
            None if d is None else self.element(d) for d in arguments.kw_defaults
        ]

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        arguments = node.args
        self.defaults(arguments)
        parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        parameters += filter(None, [arguments.vararg, arguments.kwarg])
        node.body = self.shadowing({p.arg for p in parameters}, lambda: self.visit(node.body))
        return node

    def visit_Starred(self, node: ast.Starred) -> ast.expr:
        if isinstance(node.ctx, ast.Load):
            node.value = self.hook_at(node.value, "items", self.visit(node.value))
        return node

    def visit_List(self, node: Any) -> ast.expr:
        node.elts = [self.element(e) for e in node.elts]
        return node

    visit_Tuple = visit_List

    def visit_Set(self, node: ast.Set) -> ast.expr:
        members = ast.List([self.element(e) for e in node.elts], _LOAD)
        return self.hook_at(node, "members_of_set", members)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        members = ast.ListComp(node.elt, node.generators)
        return self.hook_at(node, "members_of_set", self.visit(members))

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        node.keys = [None if key is None else self.visit(key) for key in node.keys]
        node.values = [self.element(value) for value in node.values]
        return node

    def element(self, node: ast.expr) -> ast.expr:
        """Rewrite a member of a container: it has the value of now, not of when it is used."""
        if isinstance(node, ast.Starred | ast.Constant | ast.Tuple | ast.List):
            return self.visit(node)
        return _placed(self.hook("element", self.visit(node)), node)

    def visit_ListComp(self, node: Any) -> ast.expr:
        generators = node.generators
        targets = {
            name.id for g in generators for name in ast.walk(g.target) if isinstance(name, ast.Name)
        }
        generators[0].iter = self.hook_at(
            generators[0].iter, "items", self.visit(generators[0].iter)
        )

        def inner() -> None:
            for i, generator in enumerate(generators):
                if i:
                    generator.iter = self.visit(generator.iter)
                generator.ifs = [
                    self.hook_at(node, "python_bool", self.test(c)) for c in generator.ifs
                ]
            if hasattr(node, "key"):
                node.key = self.visit(node.key)
            member = "value" if hasattr(node, "value") else "elt"
            setattr(node, member, self.element(getattr(node, member)))

        self.shadowing(targets, inner)
        return node

    visit_DictComp = visit_GeneratorExp = visit_ListComp

    def shadowing(self, names: set[str], visit: Callable[[], Any]) -> Any:
        self.shadowed.append(names)
        result = visit()
        self.shadowed.pop()
        return result


def _placed(out: Any, node: ast.AST) -> Any:
    """Give the expression that replaces ``node`` its place, if it has none. Where ``node`` is new
    and has none either, that is left to what is around it."""
    if isinstance(out, ast.expr) and "lineno" not in vars(out) and "lineno" in vars(node):
        place = _place(node)
        if isinstance(out, ast.Call):
            # Python says that a call of a method is where the method's name ends.
            start = dict(place, end_lineno=place["lineno"], end_col_offset=place["col_offset"])
            _fill(out.func, start)
        _fill(out, place)
    return out


_PLACE = ("lineno", "col_offset", "end_lineno", "end_col_offset")


def _place(node: ast.AST) -> dict[str, int]:
    found = vars(node)
    return {name: found[name] for name in _PLACE}


def _fill(node: ast.AST, place: dict[str, int]) -> None:
    """Give a new node, and the new ones in it, their place. What is in a node with a place has its
    own."""
    attributes = vars(node)
    if "lineno" in attributes:
        return
    if node._attributes:
        attributes.update(place)
    if not isinstance(node, ast.Constant | ast.Name):
        _fill_below(node, place)


def _fill_below(node: ast.AST, place: dict[str, int]) -> None:
    for value in vars(node).values():
        if isinstance(value, list):
            for member in value:
                if isinstance(member, ast.AST):
                    _fill(member, place)
        elif isinstance(value, ast.AST) and value is not _LOAD:
            _fill(value, place)


def _calls_after_another(operands: Sequence[ast.expr]) -> bool:
    """Whether one of the rewritten operands calls what may emit statements, beside another operand
    that the program may change."""
    varying = [o for o in operands if not isinstance(o, ast.Constant)]
    return len(varying) > 1 and any(_calls(o) for o in varying)


def _calls(node: Any) -> bool:
    """Whether a rewritten expression calls a function of the user's or of the language. It is asked
    of each operand of an expression of any depth, and of the operands of these: a node keeps its
    answer."""
    attributes = vars(node)
    found: bool | None = attributes.get(_CALLS)
    if found is None:
        found = isinstance(node, ast.Call) and not (
            isinstance(node.func, ast.Attribute) and _is_silent_hook(node.func)
        )
        found = found or any(
            _calls(member)
            for value in attributes.values()
            for member in (value if isinstance(value, list) else [value])
            if isinstance(member, ast.AST) and not isinstance(member, ast.Constant | ast.Name)
        )
        attributes[_CALLS] = found
    return found


_CALLS = "__tl_calls"


def _is_silent_hook(function: ast.Attribute) -> bool:
    """Whether a call is a hook's that does not call a function; attributes may be properties."""
    is_hook = isinstance(function.value, ast.Name) and function.value.id == HOOKS
    return is_hook and function.attr not in ("call", "attribute")


def _values(keywords: Sequence[ast.keyword]) -> list[ast.expr]:
    return [keyword.value for keyword in keywords]


def _has_break(statement: ast.stmt) -> bool:
    """Whether a statement of a loop has a ``break`` of that loop."""
    if isinstance(statement, ast.For | ast.While | ast.FunctionDef):
        return False
    parts = [*getattr(statement, "body", ()), *getattr(statement, "orelse", ())]
    return isinstance(statement, ast.Break) or any(map(_has_break, parts))


def _thunk(body: ast.expr) -> ast.Lambda:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), body)


def _is_call_of(node: ast.expr, name: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == name
        and not node.keywords
        and not any(isinstance(a, ast.Starred) for a in node.args)
    )
