"""Draws chains of steps through a tensor that has two names: each step loads what the step before
stored, by either name."""

from __future__ import annotations

from drawn import Program, Step, Tensor, Writer, drawn
from drawn_waves import _each, _tile


class _Chain:
    """The tensor's names, its extents and tiles."""

    def __init__(self, w: Writer):
        self.w = w
        self.dtype = w.pick(("float16", "float32", "int32"))
        self.count, self.grid = w.rng.randrange(2, 6), w.pick((1, 1, 2))
        self.rows, self.columns = w.pick(((16, 64), (32, 64), (8, 32), (16, 30)))
        shape = self.grid, self.count + 1, self.rows, self.columns
        self.names = [w.input(shape, self.dtype) for _ in range(2)]
        w.head.append(Step(f"T.annotate_restrict_buffers({', '.join(self.names)})"))
        self.loaded, self.made = (
            _tile(w, "shared", (self.rows, self.columns), self.dtype) for _ in "ab"
        )
        self.part = _tile(w, "fragment", (self.rows, self.columns), self.dtype)

    def place(self, step: str) -> str:
        """A tile of the tensor, by one of its names."""
        name = self.w.pick(self.names)
        return f"{name}[bx, {step}, 0:{self.rows}, 0:{self.columns}]"

    def each(self, target: str) -> Step:
        """Elements of a target, made of the tile that was loaded."""
        w = self.w
        i = w.pick(("i", f"{self.rows - 1} - i"))
        j = w.pick(("j", f"{self.columns - 1} - j"))
        value = (
            f"T.clamp({self.loaded}[{i}, {j}] * {w.pick((1, -1))} + {w.rng.randrange(3)}, -99, 99)"
        )
        return _each(self.rows, self.columns, Step(f'{target} = T.cast({value}, "{self.dtype}")'))

    def stored(self) -> list[Step]:
        """The next tile of the tensor."""
        form = self.w.pick(("shared", "shared", "fragment", "elements", "added"))
        if form == "elements":
            return [self.each(f"{self.w.pick(self.names)}[bx, t + 1, i, j]")]
        tile = self.part if form == "fragment" else self.made
        steps = [self.each(f"{tile}[i, j]")]
        if form == "added" and self.columns % 8 == 0:
            by_tma = self.w.pick((", use_tma=True", ""))
            return [*steps, Step(f"T.atomic_add({self.place('t + 1')}, {tile}{by_tma})")]
        return [*steps, Step(f"T.copy({tile}, {self.place('t + 1')})")]


@drawn
def names(w: Writer, title: str) -> Program:
    """Tile after tile of a tensor is made of the one before."""
    chain = _Chain(w)
    loop = w.pick(
        (
            f"for t in T.serial({chain.count}):",
            f"for t in T.Pipelined({chain.count}, num_stages={w.rng.randrange(1, 4)}):",
        )
    )
    body = [Step(f"T.copy({chain.place('t')}, {chain.loaded})"), *chain.stored()]
    if w.chance(0.3):
        body += [Step(f"T.copy({chain.place('t + 1')}, {chain.loaded})"), *chain.stored()]
    w.tensors.append(Tensor(w.name("O"), (chain.grid, chain.rows, chain.columns), chain.dtype))
    whole = f"0:{chain.rows}, 0:{chain.columns}"
    end = [
        Step(f"T.copy({chain.place(str(chain.count))}, {chain.part})"),
        Step(f"T.copy({chain.part}, {w.tensors[-1].name}[bx, {whole}])"),
    ]
    steps = (*w.head, Step(loop, tuple(body)), *end)
    return Program(title, tuple(w.tensors), steps, chain.grid, 128, same=tuple(chain.names))
