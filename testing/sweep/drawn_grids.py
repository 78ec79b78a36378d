"""Draws kernels of a block for each tile, of grids of one to three axes with more tiles than a chip
has multiprocessors: what a block does before, beside and behind its products, tile after tile."""

from __future__ import annotations

import math

from drawn import HIGH, LOW, Program, Step, Tensor, Writer, drawn
from drawn_waves import _each, _tile

_GRIDS = (
    *((133,), (136,), (12, 12), (7, 19), (1, 134), (135, 1), (3, 5, 9), (1, 1, 133), (5, 1, 27)),
    *((2, 67, 1), (45, 3, 1), (11, 11)),
)
"""All but the last have more tiles than an H200 has multiprocessors."""


class _Grid:
    """What the statements of one program have in common."""

    def __init__(self, w: Writer):
        self.w = w
        self.dtype = w.pick(("float16", "float16", "bfloat16", "float8_e4m3fn"))
        self.rows, self.columns = 64, w.pick((16, 32, 64, 64))
        self.depth = 128
        self.steps = w.pick((1, 1, 2, 3))
        self.extents = w.pick(_GRIDS)
        axes = ["bx", "by", "bz"][: len(self.extents)]
        of_axis = dict(zip(axes, self.extents, strict=True))
        w.rng.shuffle(axes)
        """Which axis is that of columns, of rows, and of matrices."""
        self.x, self.y, self.z = [*axes, "0", "0"][:3]
        self.across, self.down, self.planes = (
            of_axis.get(axis, 1) for axis in (self.x, self.y, self.z)
        )
        self.m, self.n = (
            size * count - (w.pick((3, 8, 16)) if w.chance(0.3) else 0)
            for size, count in ((self.rows, self.down), (self.columns, self.across))
        )
        self.k = self.depth * self.steps - (w.pick((8, 16)) if w.chance(0.2) else 0)
        self.operands: tuple[str, str] | None = None

    def element(self) -> str:
        """A number of the block's own."""
        w = self.w
        table = w.input((self.across, self.down), "int32", -3, 3)
        return str(
            w.pick(
                (
                    f"{table}[{self.x}, {self.y}]",
                    f"{self.x} % 5",
                    f"{self.y} % 3 - {self.z}",
                    f"({self.x} + {self.y}) // 2 % 4",
                    "7",
                )
            )
        )

    def condition(self) -> str:
        w = self.w
        return str(
            w.pick((f"{self.element()} > 0", f"{self.x} % 2 == 0", f"{self.y} >= {self.down - 1}"))
        )

    def place(self, tensor: str) -> str:
        """The block's tile of a tensor of all results."""
        return f"{tensor}[{self.z}, {self.y} * {self.rows}, {self.x} * {self.columns}]"

    def product(self, c: str, new: bool) -> list[Step]:
        """A pipelined loop whose products are added to c."""
        w = self.w
        # Operands of some tiles, which others share.
        down, across = min(self.down, 3), min(self.across, 3)
        if self.operands is None or w.chance(0.3):
            self.operands = (
                w.input((min(self.planes, 2), down * self.rows, self.k), self.dtype, -1, 1),
                w.input((across * self.columns, self.k), self.dtype, -1, 1),
            )
        a, b = self.operands
        left = _tile(w, "shared", (self.rows, self.depth), self.dtype)
        right = _tile(w, "shared", (self.columns, self.depth), self.dtype)
        at = f"{self.z} % {min(self.planes, 2)}, {self.y} % {down} * {self.rows}"
        loads = [
            Step(f"T.copy({a}[{at}, k * {self.depth}], {left})"),
            Step(f"T.copy({b}[{self.x} % {across} * {self.columns}, k * {self.depth}], {right})"),
        ]
        w.rng.shuffle(loads)
        steps: list[Step] = []
        clear = w.pick(("statement", "statement", "first", "bias")) if new else "none"
        of_first = ", clear_accum=k == 0" if clear == "first" else ""
        if clear == "statement":
            steps.append(Step(f"T.clear({c})"))
        if clear == "bias":
            bias = w.input((self.across * self.columns,), "float32")
            own = _tile(w, w.pick(("shared", "fragment")), (self.columns,), "float32")
            steps.append(Step(f"T.copy({bias}[{self.x} * {self.columns}], {own})"))
            steps.append(_each(self.rows, self.columns, Step(f"{c}[i, j] = {own}[j]")))
        # Of blocks with as much memory a multiprocessor has room for one.
        bits = 8 if "8" in self.dtype else 16
        bytes_of_stage = (self.rows + self.columns) * self.depth * bits // 8
        stages = -(-120_000 // bytes_of_stage) if w.chance(0.8) else w.pick((2, 3, 4))
        trip = f"T.ceildiv({self.k}, {self.depth})"
        product = Step(f"T.gemm({left}, {right}, {c}, transpose_B=True{of_first})")
        body = [*loads, product]
        if w.chance(0.15):
            value = f"T.max({c}[i, j], {w.pick((0, -64))})"
            body.append(_each(self.rows, self.columns, Step(f"{c}[i, j] = {value}")))
        return [
            *steps,
            Step(f"for k in T.Pipelined({trip}, num_stages={stages}):", tuple(body)),
        ]

    def changed(self, c: str) -> list[Step]:
        """Elements become others, by what the block finds."""
        w = self.w
        form = w.pick(("scalar", "condition", "residual", "columns", "var", "staged table"))
        each = lambda value: _each(self.rows, self.columns, Step(f"{c}[i, j] = {value}"))  # noqa: E731
        if form == "scalar":
            return [each(f"{c}[i, j] + {self.element()}")]
        if form == "condition":
            value = w.pick((f"T.max({c}[i, j], 0)", f"-{c}[i, j]", "4"))
            return [Step(f"if {self.condition()}:", (each(value),))]
        if form == "residual":
            residual = w.input((self.planes, self.m, self.n), w.pick(("float32", "float16")))
            own = _tile(
                w,
                w.pick(("shared", "fragment")),
                (self.rows, self.columns),
                w.tensors[-1].dtype,
            )
            return [
                Step(f"T.copy({self.place(residual)}, {own})"),
                each(f"{c}[i, j] + {own}[i, j]"),
            ]
        if form == "columns":
            own = _tile(w, "shared", (self.columns,), "float32")
            scale = w.input((self.across * self.columns,), "float32", -2, 2)
            line = f"{own}[j] = {scale}[{self.x} * {self.columns} + j]"
            fill = Step(f"for j in T.Parallel({self.columns}):", (Step(line),))
            return [fill, each(f"{c}[i, j] * {own}[j]")]
        if form == "var":
            count = w.name("v")
            return [
                Step(f'{count} = T.alloc_var("int32", init=3)'),
                Step(f"{count} = {count} + {self.element()}"),
                each(f"{c}[i, j] + {count}"),
            ]
        table = _tile(w, "shared", (self.rows,), "float32")
        return [
            Step(f"T.fill({table}, {w.pick((1, 2))})"),
            Step(f"if {self.condition()}:", (Step(f"T.fill({table}, 3)"),)),
            each(f"{c}[i, j] * {table}[i]"),
        ]

    def stored(self, c: str) -> list[Step]:
        """Elements, or what is made of them, go to tensors."""
        w = self.w
        form = w.pick(
            ("straight", "straight", "straight", "staged", "loop", "rows", "sum", "one", "twice")
        )
        out = w.pick(("float16", "float16", "bfloat16", "float32"))
        if form == "rows":
            most = _tile(w, "fragment", (self.rows,), "float32")
            w.tensors.append(Tensor(w.name("O"), (self.planes, self.across, self.m), "float32"))
            name = w.tensors[-1].name
            reduction = w.pick(("max", "sum"))
            return [
                Step(f"T.reduce_{reduction}({c}, {most}, dim=1)"),
                Step(f"T.copy({most}, {name}[{self.z}, {self.x}, {self.y} * {self.rows}])"),
            ]
        if form == "sum":
            total = w.input((self.m, self.columns), "float32")
            return [Step(f"T.atomic_add({total}[{self.y} * {self.rows}, 0], {c})")]
        if form == "one":
            count = w.input((4,), "int32")
            add = Step(f"T.atomic_add({count}[{self.y} % 4], {self.element()})")
            return [Step("for t in T.Parallel(1):", (add,))]
        name = w.name("O")
        w.tensors.append(Tensor(name, (self.planes, self.m, self.n), out, LOW, HIGH))
        store = Step(f"T.copy({c}, {self.place(name)})")
        if form == "staged":
            shared = _tile(w, "shared", (self.rows, self.columns), out)
            return [Step(f"T.copy({c}, {shared})"), Step(f"T.copy({shared}, {self.place(name)})")]
        if form == "loop":
            row, column = f"{self.y} * {self.rows} + i", f"{self.x} * {self.columns} + j"
            inside = Step(f"{name}[{self.z}, {row}, {column}] = {c}[i, j]")
            guarded = Step(f"if {row} < {self.m} and {column} < {self.n}:", (inside,))
            return [_each(self.rows, self.columns, guarded)]
        if form == "twice":
            again = _each(self.rows, self.columns, Step(f"{c}[i, j] += 1"))
            w.tensors.append(Tensor(w.name("O"), (self.planes, self.m, self.n), out, LOW, HIGH))
            return [store, again, Step(f"T.copy({c}, {self.place(w.tensors[-1].name)})")]
        return [store]


@drawn
def grids(w: Writer, title: str) -> Program:
    """A block for each tile of a large grid: products, what changes them, and where they go."""
    p = _Grid(w)
    c = _tile(w, "fragment", (p.rows, p.columns), "float32")
    swizzle = []
    if len(p.extents) > 1 and w.chance(0.4):
        order = w.pick(("row", "row", "column", "mlx"))
        swizzle = [Step(f'T.use_swizzle({w.pick((1, 3, 8))}, order="{order}")')]
    body = p.product(c, True)
    for _ in range(w.pick((0, 1, 1, 2))):
        body += p.changed(c)
    if w.chance(0.2):
        body += p.product(c, False)
    for _ in range(w.pick((1, 1, 2))):
        body += p.stored(c)
    grid = p.extents if len(p.extents) > 1 else math.prod(p.extents)
    steps = (*swizzle, *w.head, *body)
    return Program(title, tuple(w.tensors), steps, grid, w.pick((128, 128, 256)), tuple(w.sizes))
