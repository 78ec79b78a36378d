"""Draws kernels of many blocks of small tiles, of which neighbours may become one block, and of a
few blocks of large tiles, which may become twice as many: what a block computes from its number,
from its part of a vector, and from what its products make."""

from __future__ import annotations

from drawn import HIGH, LOW, Program, Step, Tensor, Writer, drawn
from drawn_waves import _each, _tile

_GRIDS = ((16, 16), (16, 16), (32, 8), (8, 32), (15, 18), (18, 15), (2, 8, 16), (256,))
"""Blocks for more than two of each multiprocessor of an H200."""
_FEW = ((3, 3), (2, 4), (4, 2), (2, 2, 2))
_LEAST_ROWS = 16


class _Blocks:
    """What the statements of one program have in common."""

    def __init__(self, w: Writer):
        self.w = w
        self.extents: tuple[int, ...] = w.pick((*_GRIDS, *_FEW))
        axes = ["bx", "by", "bz"][: len(self.extents)]
        of_axis = dict(zip(axes, self.extents, strict=True))
        w.rng.shuffle(axes)
        self.x, self.y, *_ = [*axes, "0"]
        """The axes of columns and of rows; a third one repeats the work."""
        self.z = axes[2] if len(axes) > 2 else "0"
        self.across, self.down = of_axis[self.x], of_axis.get(self.y, 1)
        self.planes = of_axis.get(self.z, 1)
        self.rows, self.columns = _LEAST_ROWS, w.pick((16, 16, 32))
        self.depth, self.steps = w.pick((16, 32, 32)), w.rng.randrange(1, 5)
        if self.extents in _FEW:
            self.rows, self.columns = w.pick(((128, 128), (128, 128), (128, 64), (64, 128)))
            self.depth, self.steps = 64, 8
        short = w.pick((0, 0, 0, 3, 8))
        self.m, self.n = self.rows * self.down - short, self.columns * self.across - short
        self.k = self.depth * self.steps
        self.dtype = w.pick(("float16", "bfloat16"))

    def axis(self) -> tuple[str, int, int, str]:
        """One of columns or rows: the block's number, blocks, elements of a block, their name."""
        columns = self.x, self.across, self.columns, "j"
        return self.w.pick((columns, (self.y, self.down, self.rows, "i")))

    def own(self, dtype: str = "int32") -> tuple[str, int, str]:
        """The block's part of a vector along an axis: the tile, its elements, their name."""
        number, blocks, extent, v = self.axis()
        source = self.w.input((blocks * extent,), dtype, -2, 3)
        tile = _tile(self.w, "shared", (extent,), dtype)
        self.w.head.append(Step(f"T.copy({source}[{number} * {extent}], {tile})"))
        return tile, extent, v

    def product(self, c: str) -> list[Step]:
        w = self.w
        a = w.input((self.down * self.rows, self.k), self.dtype, -1, 1)
        b = w.input((self.across * self.columns, self.k), self.dtype, -1, 1)
        left = _tile(w, "shared", (self.rows, self.depth), self.dtype)
        right = _tile(w, "shared", (self.columns, self.depth), self.dtype)
        row, column = f"{self.y} * {self.rows}", f"{self.x} * {self.columns}"
        if w.chance(0.3):
            # Where one axis goes by a table, blocks are neighbours along the other one.
            table = w.input((self.down,), "int32", 0, self.down - 1)
            row = f"{table}[{self.y}] * {self.rows}"
        loads = [
            Step(f"T.copy({a}[{row}, k * {self.depth}], {left})"),
            Step(f"T.copy({b}[{column}, k * {self.depth}], {right})"),
        ]
        w.rng.shuffle(loads)
        clear = w.pick(("", "", ", clear_accum=k == 0"))
        if w.chance(0.15):
            tile, extent, _ = self.own()
            clear = f", clear_accum={tile}[{w.rng.randrange(extent)}] > 0"
        body = (*loads, Step(f"T.gemm({left}, {right}, {c}, transpose_B=True{clear})"))
        loop = f"for k in T.Pipelined({self.steps}, num_stages={w.rng.randrange(1, 5)}):"
        if w.chance(0.25):
            loop = f"for k in T.serial({self.steps}):"
        start = w.pick(("0", "0", "3"))
        if w.chance(0.15):
            tile, extent, _ = self.own("float32")
            start = f"{tile}[{w.rng.randrange(extent)}]"
        return [Step(f"T.fill({c}, {start})"), Step(loop, body)]

    def changed(self, c: str) -> list[Step]:
        """Elements become others, by what the block has."""
        w = self.w
        each = lambda value: _each(self.rows, self.columns, Step(f"{c}[i, j] = {value}"))  # noqa: E731
        form = w.pick(
            ("place", "place", "mask", "vector", "element", "name", "branch", "loop", "table")
        )
        number, blocks, extent, v = self.axis()
        place = f"{number} * {extent} + {v}"
        if form == "place":
            source = w.input((blocks * extent,), "float32")
            size = blocks * extent
            index = w.pick(
                ("{}", "({}) // 3", "({}) % 7", f"{size - 1} - ({{}})", f"T.min({{}}, {size - 9})")
            ).format(place)
            return [each(f"{c}[i, j] + {source}[{index}]")]
        if form == "mask":
            bound = w.pick((str(blocks * extent - 5), f"({self.y} * {self.rows} + i)"))
            return [each(f"T.if_then_else({place} < {bound}, {c}[i, j], 2)")]
        tile, extent, v = self.own()
        at = w.rng.randrange(extent)
        if form == "vector":
            return [each(f"{c}[i, j] + {tile}[{v}]")]
        if form == "element":
            return [each(f"{c}[i, j] + {tile}[{at}]")]
        if form == "name":
            name = w.name("n")
            return [Step(f"{name} = {tile}[{at}]"), each(f"{c}[i, j] * {name}")]
        if form == "branch":
            return [Step(f"if {tile}[{at}] > 0:", (each(f"{c}[i, j] + 1"),))]
        if form == "loop":
            bound = w.pick((f"{tile}[{at}]", f"T.max({tile}[{at}], 1)"))
            return [Step(f"for t in T.serial({bound}):", (each(f"{c}[i, j] + 1"),))]
        parts = w.input((4 * self.rows,), "float32")
        part = _tile(w, w.pick(("shared", "fragment")), (self.rows,), "float32")
        load = f"T.copy({parts}[T.max({tile}[{at}], 0) * {self.rows}], {part})"
        return [Step(load), each(f"{c}[i, j] + {part}[i]")]

    def stored(self, c: str) -> list[Step]:
        """Elements, or what is made of them, go to tensors."""
        w = self.w
        form = w.pick(("tile", "tile", "staged", "loop", "sums", "added", "turned", "diagonal"))
        place = f"{self.z}, {self.y} * {self.rows}, {self.x} * {self.columns}"
        if form == "sums":
            dim = w.pick((0, 1))
            line = _tile(w, "fragment", ((self.columns, self.rows)[dim],), "float32")
            shape = ((self.planes, self.down, self.n), (self.planes, self.across, self.m))[dim]
            w.tensors.append(Tensor(w.name("O"), shape, "float32"))
            at = (f"{self.y}, {self.x} * {self.columns}", f"{self.x}, {self.y} * {self.rows}")[dim]
            name = w.tensors[-1].name
            return [
                Step(f"T.reduce_{w.pick(('sum', 'max'))}({c}, {line}, dim={dim})"),
                Step(f"T.copy({line}, {name}[{self.z}, {at}])"),
            ]
        if form == "added":
            total = w.input((self.rows, self.n), "float32")
            return [Step(f"T.atomic_add({total}[0, {self.x} * {self.columns}], {c})")]
        if form == "diagonal":
            number, blocks, extent, _ = self.axis()
            size = blocks * extent
            name = w.input((size, size), "float32")
            store = Step(f"{name}[{number} * {extent} + i, {number} * {extent} + j] = 1")
            return [_each(extent, extent, store)]
        shape = (self.planes, self.n, self.m) if form == "turned" else (self.planes, self.m, self.n)
        w.tensors.append(Tensor(w.name("O"), shape, "float32", LOW, HIGH))
        name = w.tensors[-1].name
        if form == "staged":
            shared = _tile(w, "shared", (self.rows, self.columns), "float32")
            return [Step(f"T.copy({c}, {shared})"), Step(f"T.copy({shared}, {name}[{place}])")]
        if form == "tile":
            return [Step(f"T.copy({c}, {name}[{place}])")]
        row, column = f"{self.y} * {self.rows} + i", f"{self.x} * {self.columns} + j"
        at = f"{column}, {row}" if form == "turned" else f"{row}, {column}"
        inside = Step(f"{name}[{self.z}, {at}] = {c}[i, j]")
        guarded = Step(f"if {row} < {self.m} and {column} < {self.n}:", (inside,))
        return [_each(self.rows, self.columns, guarded)]


@drawn
def blocks(w: Writer, title: str) -> Program:
    """Many blocks of small products, which share what they load: one block may do more."""
    p = _Blocks(w)
    c = _tile(w, "fragment", (p.rows, p.columns), "float32")
    body = p.product(c)
    for _ in range(w.pick((0, 1, 1, 2))):
        body += p.changed(c)
    for _ in range(w.pick((1, 1, 2))):
        body += p.stored(c)
    grid = p.extents if len(p.extents) > 1 else p.extents[0]
    steps = (*w.head, *body)
    return Program(title, tuple(w.tensors), steps, grid, 128, tuple(w.sizes))
