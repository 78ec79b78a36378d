"""Random tile programs, each determined by its seed on any machine."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tilelang.testing.fuzz import corners, nests, products, statements
from tilelang.testing.fuzz.interpret import interpret
from tilelang.testing.fuzz.program import (
    Copy,
    Expr,
    Invalid,
    Load,
    Num,
    Op,
    Parallel,
    Persistent,
    Program,
    Ref,
    Store,
    Tensor,
    Tile,
)
from tilelang.testing.fuzz.writer import (
    LIMITS,
    LOADED,
    MOST_ELEMENTS,
    Known,
    Writer,
    add,
    at,
    mul,
    whole,
)

_EXTENTS = (1, 3, 4, 7, 8, 15, 16, 16, 17, 24, 31, 32, 32, 33, 48, 60, 63, 64, 64, 65, 96, 100, 128)
# Rows of whole 16 bytes and whole warp groups: what TMA, wgmma and warp specialisation take.
_ENGINE_EXTENTS = (16, 32, 48, 64, 64, 64, 128)
_ENGINE_THREADS = ((128,), (128,), (256,), (384,))
_THREADS = (
    (32,),
    (64,),
    (128,),
    (128,),
    (128,),
    (256,),
    (384,),
    (96,),
    (160,),
    (48,),
    (100,),
    (20,),
    (16, 8),
)


def generate(seed: int, number: int) -> Program:
    """The program number `number` of a seed; `interpret` accepts it.

    Example: ``print(emit(generate(0, 17)))``
    """
    for attempt in itertools.count():
        writer = Writer(f"{seed}/{number}/{attempt}")
        Generator(writer).function()
        program = writer.program()
        try:
            interpret(program)
        except Invalid:
            continue
        return program
    raise AssertionError


class Generator:
    def __init__(self, writer: Writer):
        self.w = writer
        self.dynamic = writer.chance(0.2)
        self.planes: dict[str, tuple[int, Expr]] = {}
        """Tensors of three dimensions: the one that tiles do not have, and where they are in it."""
        self.for_engines = False
        """The kernel's sizes are such that engines can copy its tiles and multiply them."""

    def function(self) -> None:
        for _ in range(2 if self.w.chance(0.2) else 1):
            self.kernel()
            self.w.start_kernel()

    def kernel(self) -> None:
        w = self.w
        self.for_engines = w.chance(0.3)
        self.m, self.n = self.tile_extents()
        self.threads = w.pick(_ENGINE_THREADS if self.for_engines else _THREADS)
        blocks = w.pick(("one", "one", "rows", "columns", "both"))
        self.M, self.grid_y = self.problem(self.m, blocks in ("rows", "both"), "M")
        self.N, self.grid_x = self.problem(self.n, blocks in ("columns", "both"), "N")
        self.by, self.bx = Num(0), Num(0)  # type: Expr, Expr
        grid: tuple[Expr, ...] = ()
        if blocks == "rows":
            grid, self.by = (self.grid_y,), Ref("bx")
        elif blocks == "columns":
            grid, self.bx = (self.grid_x,), Ref("bx")
        elif blocks == "both":
            grid, self.by, self.bx = (self.grid_x, self.grid_y), Ref("by"), Ref("bx")
        elif w.chance(0.5):
            grid = (Num(1),)
        if blocks == "both" and w.chance(0.4):
            grid = self.persistent()
        else:
            self.tile()
        swizzle = w.pick((2, 4)) if len(grid) == 2 and w.chance(0.15) else 0
        w.finish_kernel(grid, self.threads, swizzle)

    def tile(self) -> None:
        """What a block does with the tile at (by, bx)."""
        w = self.w
        self.origin = [
            Num(0) if b == Num(0) else mul(b, e) for b, e in ((self.by, self.m), (self.bx, self.n))
        ]
        for _ in range(w.pick((1, 1, 2, 3))):
            self.load()
        for _ in range(w.pick((1, 2, 3, 4, 6))):
            self.statement(0)
        self.store_results()

    def persistent(self) -> tuple[Expr, ...]:
        """A few blocks that share all tiles; their grid."""
        w = self.w
        wave = Num(w.pick((1, 2, 3, 5)))
        domain = (self.grid_y, self.grid_x)
        variables = (w.name("p"), w.name("p"))
        self.by, self.bx = Ref(variables[0]), Ref(variables[1])
        with w.body() as body:
            w.loops += [(v, w.value(e)) for v, e in zip(variables, domain, strict=True)]
            self.tile()
            del w.loops[-2:]
        group = w.pick((1, 2, 8))
        w.emit(Persistent(variables, domain, wave, Ref("bx"), group, tuple(body)))
        return (wave,)

    def tile_extents(self) -> tuple[Ref, Ref]:
        w = self.w
        extents = _ENGINE_EXTENTS if self.for_engines else _EXTENTS
        while True:
            m, n = w.pick(extents), w.pick(extents)
            if m * n <= MOST_ELEMENTS:
                return w.size(m, "m"), w.size(n, "n")

    def problem(self, tile: Ref, many: bool, prefix: str) -> tuple[Ref, Expr]:
        """The extent of the tensors along a tile's dimension, and the number of blocks."""
        w = self.w
        extent = w.value(tile)
        total = extent * w.pick((2, 3)) if many else extent
        if w.chance(0.5):
            total = max(total - w.rng.randrange(extent), 1)
        if self.for_engines:
            total = -(-total // 16) * 16
        size = w.size(total, prefix, self.dynamic and not self.for_engines and w.chance(0.6))
        return size, Op("ceildiv", (size, tile))

    # Tensors

    def load(self) -> None:
        """A tile, or a row or column of one, from a tensor."""
        w = self.w
        kind = w.pick(("tile", "tile", "tile", "rows", "columns"))
        shape, sizes, origin = {
            "tile": ((self.m, self.n), (self.M, self.N), self.origin),
            "rows": ((self.m,), (self.M,), self.origin[:1]),
            "columns": ((self.n,), (self.N,), self.origin[1:]),
        }[kind]
        earlier = [t for t in w.written if t[0].shape == sizes]
        if earlier and w.chance(0.7):
            tensor, bound, exact = w.pick(earlier)
        else:
            tensor, bound, exact = self.input(sizes, w.pick(LOADED)), 4, True
        dtype = tensor.dtype
        if w.chance(0.15) and exact:
            wider = [d for d in ("float32", "int32") if bound <= LIMITS[d] and dtype != "float64"]
            dtype = w.pick([dtype, *wider])
        scope = w.pick(("shared", "fragment"))
        name = w.buffer(scope, shape, dtype)
        self.fetch(tensor.name, origin, name, shape)
        w.learn(name, shape, dtype, scope, bound, exact)

    def input(self, sizes: tuple[Expr, ...], dtype: str, top: int = 4) -> Tensor:
        """A parameter that tiles are fetched from: of these sizes, or one plane of it is."""
        w = self.w
        if len(sizes) != 2 or not w.chance(0.15):
            return w.input(sizes, dtype, top)
        dim, count = w.pick((0, 1)), w.pick((2, 3))
        blocks = [b for b in (self.by, self.bx) if isinstance(b, Ref)]
        index: Expr = Num(w.rng.randrange(count))
        if blocks and w.chance(0.4):
            index = Op("mod", (w.pick(blocks), Num(count)))
        tensor = w.input((*sizes[:dim], Num(count), *sizes[dim:]), dtype, top)
        self.planes[tensor.name] = dim, index
        return tensor

    def in_plane(self, tensor: str, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Indices of the tensor, for those of the plane that tiles are in."""
        if tensor not in self.planes:
            return tuple(indices)
        dim, index = self.planes[tensor]
        return (*indices[:dim], index, *indices[dim:])

    def part(self, tensor: str, origin: Sequence[Expr], shape: Sequence[Expr]) -> Tile:
        """The region of a tensor that a tile is."""
        extents = tuple(shape)
        if tensor in self.planes:
            dim = self.planes[tensor][0]
            extents = (*extents[:dim], Num(1), *extents[dim:])
        return Tile(tensor, self.in_plane(tensor, origin), extents)

    def fetch(
        self, tensor: str, origin: Sequence[Expr], name: str, shape: tuple[Expr, ...]
    ) -> None:
        """Fill a tile from where `origin` is in a tensor, in one of three ways."""
        w = self.w
        way = w.pick(("element", "element", "region", "loop"))
        if way == "element" and self.planes.get(tensor, (0,))[0] == 0:
            w.emit(Copy(at(tensor, *self.in_plane(tensor, origin)), Tile(name)))
        elif way != "loop":
            w.emit(Copy(self.part(tensor, origin, shape), Tile(name)))
        else:
            variables = ("i", "j")[: len(shape)]
            refs = tuple(Ref(v) for v in variables)
            where = self.in_plane(tensor, [add(o, r) for o, r in zip(origin, refs, strict=True)])
            w.emit(Parallel(variables, shape, (Store(name, refs, Load(tensor, where)),)))

    def store_results(self) -> None:
        """Every tile that is known, up to a few, goes to a tensor of its own."""
        w = self.w
        tiles = [k for k in w.known if k.scope != "var"]
        w.rng.shuffle(tiles)
        for known in tiles[: w.pick((1, 2, 3, 4))]:
            self.store(known)

    def store(self, known: Known) -> None:
        w = self.w
        if known.shape == (self.m, self.n):
            shape, start = (self.M, self.N), tuple(self.origin)
        else:
            # Each block has its own place.
            shape = (self.grid_y, self.grid_x, *known.shape)  # type: ignore[assignment]
            start = (self.by, self.bx, *(Num(0) for _ in known.shape))
        tensor = w.tensor(shape, known.dtype, prefix="Out")
        way = w.pick(("element", "region", "loop"))
        if way == "loop" and known.rank <= 2:
            variables = ("i", "j")[: known.rank]
            refs = tuple(Ref(v) for v in variables)
            own = start[len(start) - known.rank :]
            where = (
                *start[: len(start) - known.rank],
                *(add(o, r) for o, r in zip(own, refs, strict=True)),
            )
            w.emit(
                Parallel(
                    variables, known.shape, (Store(tensor.name, where, Load(known.name, refs)),)
                )
            )
        elif way == "region":
            ones = tuple(Num(1) for _ in range(len(shape) - known.rank))
            w.emit(Copy(whole(known), Tile(tensor.name, start, (*ones, *known.shape))))
        else:
            w.emit(Copy(whole(known), at(tensor.name, *start)))
        if known.shape == (self.m, self.n):
            w.written.append((tensor, known.bound, known.exact))

    # Statements

    def statement(self, depth: int) -> None:
        w = self.w
        kinds = ["simple"] * 10 + ["gemm"] * (4 if self.for_engines else 2)
        kinds += ["scratch", "length"] * w.chance(0.3)
        if depth < 2:
            kinds += ["loop"] * 2 + ["branch", "warps", "macro"]
        if not w.loops and not w.branches and len(self.threads) == 1:
            kinds += ["threads"]
        kind = w.pick(kinds)
        if kind == "simple":
            self.simple()
        elif kind == "gemm":
            if not (w.chance(0.4) and products.chain(self)):
                products.gemm(self)
        elif kind == "loop":
            nests.loop(self, depth)
        elif kind == "scratch":
            corners.scratch(self)
        elif kind == "length":
            corners.length(self)
        elif kind == "warps":
            corners.warps(self, depth)
        elif kind == "macro":
            corners.macro(self, depth)
        elif kind == "threads":
            statements.threads(w, self.threads[0])
        else:
            nests.branch(self, depth)

    def simple(self) -> None:
        choices = [f for f, weight in statements.SIMPLE for _ in range(weight)]
        for _ in range(4):
            if self.w.pick(choices)(self.w):
                return
