"""Random scalar expressions that stay within bounds."""

from __future__ import annotations

import dataclasses

from tilelang.testing.fuzz.operations import INTS, wraps
from tilelang.testing.fuzz.program import Cast, Expr, Load, Num, Op, Ref
from tilelang.testing.fuzz.writer import LIMITS, Known, Writer, as_dtype, clamp, is_float, is_signed


@dataclasses.dataclass(frozen=True)
class Bounded:
    """An expression, the largest absolute value that it may have, and whether it is not rounded."""

    expr: Expr
    bound: float
    exact: bool = True


class Expressions:
    """Expressions over the iterations of one parallel loop (or a scalar, for no variables)."""

    def __init__(
        self, writer: Writer, variables: tuple[str, ...], shape: tuple[Expr, ...], dtype: str
    ):
        self.writer, self.variables, self.shape, self.dtype = writer, variables, shape, dtype
        self.limit = LIMITS[dtype]

    def value(self, depth: int, exact: bool = False) -> Bounded:
        """An expression of the dtype."""
        w = self.writer
        if depth == 0 or w.chance(0.15):
            return self.leaf(exact)
        x = self.value(depth - 1, exact)
        kinds = ("arithmetic", "arithmetic", "extreme", "select", "unary", "special", "identity")
        kind = w.pick(kinds)
        if kind == "identity":
            return self.identity(x, self.leaf(exact))
        if kind == "unary":
            return self.unary(x)
        if kind == "special":
            return self.integer(x) if not is_float(self.dtype) else self.function(x, exact)
        y = self.value(depth - 1, exact)
        bound, both = max(x.bound, y.bound), x.exact and y.exact
        if kind == "extreme":
            return Bounded(Op(w.pick(("max", "min")), (x.expr, y.expr)), bound, both)
        if kind == "select":
            return Bounded(Op("select", (self.condition(depth - 1), x.expr, y.expr)), bound, both)
        name = w.pick(("add", "sub", "mul") if is_signed(self.dtype) else ("add", "mul"))
        total = x.bound * y.bound if name == "mul" else x.bound + y.bound
        if total <= self.limit:
            return Bounded(Op(name, (x.expr, y.expr)), total, both)
        return Bounded(Op("min", (x.expr, y.expr)), bound, both)

    def identity(self, x: Bounded, y: Bounded) -> Bounded:
        """What a simplifier of real numbers knows more of than is so for floats: they have NaN, two
        zeros and sums that are rounded."""
        w = self.writer
        both, bound = x.exact and y.exact, max(x.bound, y.bound)
        forms = ["zero", "one", "equal"]
        if is_signed(self.dtype):
            forms += ["difference", "cancels"]
        if is_float(self.dtype):
            forms += ["is_nan", "not_less"]
        form = w.pick(forms)
        if form == "zero":
            product = Op("mul", (x.expr, as_dtype(Num(0), "int32", self.dtype)))
            return Bounded(Op("max", (product, y.expr)), y.bound, both)
        if form == "one":
            one = as_dtype(Num(1), "int32", self.dtype)
            return Bounded(Op("mul", (one, x.expr)), x.bound, x.exact)
        if form == "equal":
            compared = Op(w.pick(("eq", "ne", "lt", "le")), (x.expr, x.expr))
            return Bounded(Op("select", (compared, x.expr, y.expr)), bound, both)
        if form == "difference":
            nothing = Op("sub", (x.expr, x.expr))
            return Bounded(Op("add", (nothing, y.expr)), y.bound, both)
        if form == "cancels":
            total = Op("add", (x.expr, y.expr))
            if not both or x.bound + y.bound > self.limit:
                return x
            return Bounded(Op("sub", (total, y.expr)), x.bound, True)
        root = Op("sqrt", (x.expr,))  # NaN where x is negative
        if not x.exact:
            return x
        less = Op("lt", (root, as_dtype(Num(0), "int32", self.dtype)))
        found = Op("ne", (root, root)) if form == "is_nan" else Op("not", (less,))
        return Bounded(Op("select", (found, y.expr, x.expr)), bound, both)

    def unary(self, x: Bounded) -> Bounded:
        w = self.writer
        name = w.pick(("abs", "neg") if is_signed(self.dtype) else ("clamp",))
        if name == "clamp" or w.chance(0.3):
            bound = min(x.bound, w.pick((1, 3, 5)))
            return Bounded(clamp(x.expr, bound, self.dtype), bound, x.exact)
        return Bounded(Op(name, (x.expr,)), x.bound, x.exact)

    def function(self, x: Bounded, exact: bool) -> Bounded:
        """A function of floats; one that rounds only where that is allowed."""
        w = self.writer
        if exact or w.chance(0.6):
            return Bounded(Op("floor", (x.expr,)), x.bound, True) if x.exact else x
        small = clamp(x.expr, 4, self.dtype)
        name = w.pick(("exp2", "exp", "sqrt", "div", "tanh", "rsqrt", "log2"))
        if name == "sqrt":
            return Bounded(Op("sqrt", (Op("abs", (small,)),)), 2, False) if x.exact else x
        above = Op("add", (Op("abs", (small,)), Num(2)))
        if name in ("rsqrt", "log2"):
            return Bounded(Op(name, (above,)), 3, False)
        if name == "div":
            return Bounded(Op("div", (x.expr, above)), x.bound, False)
        return Bounded(Op(name, (small,)), 64 if name == "exp" else 16, False)

    def integer(self, x: Bounded) -> Bounded:
        """What integers have: division, remainders, bits, and types that do not hold a value."""
        w = self.writer
        if w.chance(0.3):
            return self.wrapped(x)
        name = w.pick(("floordiv", "mod", "bitand", "bitor", "bitxor", "shl", "shr"))
        if name in ("floordiv", "mod"):
            by = w.pick((2, 3, 5))
            return Bounded(Op(name, (x.expr, Num(by))), by if name == "mod" else x.bound)
        if name == "shl":
            if x.bound * 4 > self.limit:
                return x
            return Bounded(Op("shl", (Op("abs", (x.expr,)), Num(2))), x.bound * 4)
        if name == "shr":
            return Bounded(Op("shr", (x.expr, Num(1))), x.bound)
        y = self.leaf(True)
        top = 1
        while top <= max(x.bound, y.bound):
            top *= 2
        if top > self.limit:
            return x
        return Bounded(Op(name, (x.expr, y.expr)), top)

    def wrapped(self, x: Bounded) -> Bounded:
        """The value in other types, which may not hold it, and what is decided by it there."""
        w = self.writer
        value, dtype = x.expr, self.dtype
        for _ in range(w.pick((1, 2, 2))):
            dtype = w.pick(tuple(d for d in INTS if d not in ("bool", "uint64")))
            value = Cast(dtype, value)
            if wraps(dtype) and w.chance(0.7):
                by = Cast(dtype, Num(w.pick((1, 3, 100, 127))))
                value = Op(w.pick(("add", "sub", "sub", "mul")), (value, by))
        form = w.pick(("remainder", "clamped", "compared"))
        if form == "compared":
            other = Cast(dtype, Num(w.pick((0, 1, 7, 127))))
            less = Op(w.pick(("lt", "le", "eq")), w.pick(((value, other), (other, value))))
            y = self.leaf(True)
            return Bounded(Op("select", (less, x.expr, y.expr)), max(x.bound, y.bound))
        if form == "remainder":
            by = w.pick((3, 7, 8))
            return Bounded(Cast(self.dtype, Op("mod", (value, Cast(dtype, Num(by))))), by - 1)
        small = clamp(value, 5, dtype)
        if is_signed(dtype) and not is_signed(self.dtype):
            small = Op("max", (small, Num(0)))
        return Bounded(Cast(self.dtype, small), 5)

    def condition(self, depth: int) -> Expr:
        """A condition that nothing rounded decides."""
        w = self.writer
        if depth > 0 and w.chance(0.25):
            name = w.pick(("and", "or", "not"))
            count = 1 if name == "not" else 2
            return Op(name, tuple(self.condition(depth - 1) for _ in range(count)))
        bools = [(k, self.indices(k)) for k in w.tiles(dtype="bool")]
        bools = [(k, where) for k, where in bools if where is not None]
        if bools and w.chance(0.5):
            known, where = w.pick(bools)
            return Load(known.name, where)
        compared = w.pick(("lt", "le", "eq", "ne"))
        if self.variables and w.chance(0.5):
            index = Ref(w.pick(self.variables))
            extent = w.value(self.shape[self.variables.index(index.name)])
            other: Expr = Num(w.rng.randrange(max(extent, 1)))
            if len(self.variables) > 1 and w.chance(0.4):
                other = Ref(w.pick(self.variables))
            if compared in ("eq", "ne"):
                index_value: Expr = Op("mod", (index, Num(w.pick((2, 3, 7)))))
                return Op(compared, (index_value, Num(w.pick((0, 1)))))
            return Op(compared, (index, other))
        scalars = self.scalar_names()
        if scalars and w.chance(0.3):
            return Op(compared, (Ref(w.pick(scalars)), Num(w.pick((0, 1, 2)))))
        x, y = self.value(depth if depth < 1 else 1, exact=True), self.leaf(True)
        return Op(compared, (x.expr, y.expr))

    def scalar_names(self) -> list[str]:
        """Integers that the block has: loop variables and scalars."""
        names = [name for name, _ in self.writer.loops]
        return names + [k.name for k in self.writer.tiles(scope="var", dtype="int32")]

    def leaf(self, exact: bool) -> Bounded:
        """A number, an index, a scalar, or an element of a tile."""
        w = self.writer
        if w.chance(0.8):
            found = self.element(exact)
            if found is not None:
                return found
        if self.variables and w.chance(0.4):
            small = Op("mod", (Ref(w.pick(self.variables)), Num(5)))
            return Bounded(as_dtype(small, "int32", self.dtype), 4)
        scalars = [k for k in w.tiles(scope="var") if k.exact or not exact]
        if scalars and w.chance(0.5):
            return self.cast(Ref((k := w.pick(scalars)).name), k.dtype, k.bound, k.exact)
        number = w.pick((0, 1, 2, 3, 5))
        if is_signed(self.dtype) and w.chance(0.3):
            number = -number
        # A dtype of its own, so that operations on two numbers have it, too.
        return Bounded(Cast(self.dtype, Num(number)), abs(number))

    def element(self, exact: bool) -> Bounded | None:
        """An element of a known tile whose shape is part of the loop's."""
        w = self.writer
        choices: list[tuple[Known, tuple[Expr, ...]]] = []
        for k in w.known:
            if k.scope == "var" or (exact and not k.exact):
                continue
            if is_float(k.dtype) and not is_float(self.dtype) and not k.exact:
                continue
            indices = self.indices(k)
            if indices is not None:
                choices += [(k, indices)] * (3 if k.rank == len(self.shape) else 1)
        if not choices:
            return None
        known, where = w.pick(choices)
        return self.cast(Load(known.name, where), known.dtype, known.bound, known.exact)

    def indices(self, known: Known) -> tuple[Expr, ...] | None:
        """Where a tile is read: by the loop's variables, for its own dimensions."""
        w = self.writer
        shape = w.extents(self.shape)
        found = w.extents(known.shape)
        refs = [Ref(v) for v in self.variables]
        if known.shape == self.shape:
            if known.scope == "shared" and len(refs) == 2 and w.chance(0.2):
                # Another row: in reverse order, or the same for all.
                top = Op("sub", (self.shape[0], Num(1)))
                return Op("sub", (top, refs[0])), refs[1]
            return tuple(refs)
        if found == (1,) * known.rank and known.rank == 1:
            return (Num(0),)
        if len(refs) == 2 and known.rank == 1:
            fitting = [r for r, e in zip(refs, self.shape, strict=True) if (e,) == known.shape]
            return (w.pick(fitting),) if fitting else None
        if len(refs) == 2 and known.shape == self.shape[::-1] and known.scope == "shared":
            return refs[1], refs[0]
        if known.scope == "shared" and w.chance(0.1):
            gathered = self.gathered(known)
            if gathered is not None:
                return gathered
        if known.scope == "shared" and known.rank == len(shape) and w.chance(0.5):
            # A larger or smaller tile, around its end.
            return tuple(Op("mod", (r, e)) for r, e in zip(refs, known.shape, strict=True))
        return None

    def gathered(self, known: Known) -> tuple[Expr, ...] | None:
        """Indices that are themselves elements."""
        w = self.writer
        tiles = [k for k in w.tiles(dtype="int32", shape=self.shape) if k.scope != "var"]
        if not tiles or known.rank > 2:
            return None
        element = Load(w.pick(tiles).name, tuple(Ref(v) for v in self.variables))
        small = [Op("mod", (Op("abs", (element,)), e)) for e in known.shape]
        return tuple(small[:1] + [Num(0)] * (known.rank - 1)) if w.chance(0.5) else tuple(small)

    def cast(self, expr: Expr, dtype: str, bound: float, exact: bool) -> Bounded:
        """The value in this dtype, made to fit it."""
        if bound > self.limit:
            expr, bound = clamp(expr, self.limit // 4, dtype), self.limit // 4
        if is_signed(dtype) and not is_signed(self.dtype):
            expr = Op("max", (expr, Num(0)))
        return Bounded(as_dtype(expr, dtype, self.dtype), bound, exact)
