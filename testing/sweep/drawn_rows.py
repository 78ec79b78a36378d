"""Draws kernels of little work a block, a row each, of as many blocks as the call decides: the
compiler gives several rows to a block, and the last block may have fewer."""

from __future__ import annotations

from drawn import HIGH, LOW, Program, Step, Tensor, Writer, drawn


class _Row:
    """Names of one program: a tensor of rows, a table, a tile in registers and one in shared
    memory."""

    def __init__(self, w: Writer):
        self.w = w
        self.dtype = w.pick(("float32", "float32", "float16", "int32", "int8"))
        self.columns = w.pick((8, 13, 20, 31, 33, 64))
        blocks = w.pick((1, 2, 7, 13, 16, 17, 31))
        w.sizes.append(("m", blocks))
        self.rows = w.input(("m", self.columns), self.dtype)
        self.table = w.input(("m",), "int32", 1, self.columns)
        # Places in a tile, of which the block behind the last one has none.
        self.places = [f"{self.table}[bx] - 1", f"bx % {self.columns}", "bx // 4"]
        if blocks <= self.columns:
            self.places += ["bx", "m - 1 - bx"]
        self.sum = "int32" if "int" in self.dtype else "float32"
        w.head += [
            Step(f'x = T.alloc_fragment(({self.columns},), "{self.sum}")'),
            Step(f'total = T.alloc_fragment((1,), "{self.sum}")'),
            Step(f'tile = T.alloc_shared(({self.columns},), "{self.sum}")'),
            Step(f"T.copy({self.rows}[bx, 0:{self.columns}], x)"),
            Step(f"T.fill(tile, {w.rng.randrange(HIGH)})"),
            Step(f"T.fill(total, {w.rng.randrange(HIGH)})"),
        ]

    def each(self, *inside: Step) -> Step:
        return Step(f"for j in T.Parallel({self.columns}):", inside)

    def out(self, *shape: int) -> str:
        """A tensor with a part for each block."""
        self.w.tensors.append(Tensor(self.w.name("O"), ("m", *shape), self.sum))
        return self.w.tensors[-1].name

    def value(self) -> str:
        """An element of something."""
        return str(
            self.w.pick(
                (
                    "x[j]",
                    f"tile[{self.columns - 1} - j]",
                    "total[0]",
                    f"{self.rows}[bx, j]",
                    f"{self.rows}[bx, {self.columns - 1} - j]",
                    f"T.if_then_else(bx > 0, {self.rows}[bx - 1, j], 3)",
                    f"{self.rows}[m - 1 - bx, j]",
                    f"{self.table}[bx]",
                    "bx",
                    f"{self.w.rng.randrange(LOW, HIGH)}",
                )
            )
        )

    def step(self) -> list[Step]:
        """A statement at block level."""
        w = self.w
        form = w.pick(("each", "each", "if", "reduce", "tile", "place", "read", "copy", "loop"))
        limited = (
            f'T.cast(T.clamp({self.value()} {w.pick("+-")} {self.value()}, -99, 99), "{self.sum}")'
        )
        if form == "if":
            condition = w.pick((f"j > {self.table}[bx]", "bx % 3 == j % 2", "x[j] > 1"))
            return [self.each(Step(f"if {condition}:", (Step(f"x[j] = {limited}"),)))]
        if form == "reduce":
            clear = w.pick((True, False))
            return [
                Step(f"T.reduce_{w.pick(('sum', 'max', 'min'))}(x, total, dim=0, clear={clear})"),
                Step("total[0] = T.clamp(total[0], -99, 99)"),
            ]
        if form == "tile":
            return [self.each(Step(f"tile[j] = {limited}"))]
        if form == "place":
            place = w.pick(self.places)
            return [Step(f"tile[{place}] = {w.rng.randrange(HIGH)}")]
        if form == "read":
            place = w.pick(self.places)
            return [self.each(Step(f"x[j] = T.clamp(x[j] + tile[{place}], -99, 99)"))]
        if form == "copy":
            return [Step(w.pick(("T.copy(x, tile)", "T.copy(tile, x)")))]
        if form == "loop":
            name, start = w.name("k"), w.rng.randrange(3)
            body = self.each(Step(f"x[j] = T.clamp(x[j] + {self.value()} * {name}, -99, 99)"))
            return [Step(f"for {name} in T.serial({start}, {start + 2}):", (body,))]
        return [self.each(Step(f"x[j] = {limited}"))]


@drawn
def rows(w: Writer, title: str) -> Program:
    """A block has a row: loops over its elements, reductions, tiles in shared memory."""
    row = _Row(w)
    steps: list[Step] = []
    for _ in range(w.rng.randrange(1, 7)):
        steps += row.step()
    ends = [
        Step(f"T.copy(x, {row.out(row.columns)}[bx, 0:{row.columns}])"),
        Step(f"T.copy(tile, {row.out(row.columns)}[bx, 0:{row.columns}])"),
        Step(f"{row.out()}[bx] = total[0]"),
    ]
    threads = w.pick((32, 64, 128, 128))
    return Program(title, tuple(w.tensors), (*w.head, *steps, *ends), "m", threads, tuple(w.sizes))
