"""Draws programs whose threads have parts: roles of warp groups that pass tiles by mbarriers, and
branches on the thread's number."""

from __future__ import annotations

from drawn import HIGH, Program, Step, Writer, drawn
from drawn_tiles import Scope, copy_part, elementwise, fill_part, load_part, shifted

_STEPS = (copy_part, load_part, elementwise, fill_part, shifted)


def _some(w: Writer, tiles: list[str], scope: Scope, most: int) -> tuple[Step, ...]:
    """Statements about some of the tiles."""
    every, w.tiles = w.tiles, {name: w.tiles[name] for name in tiles}
    found: list[Step] = []
    for _ in range(w.rng.randrange(1, most + 1)):
        found += w.pick(_STEPS)(w, scope)
    w.tiles = every
    return tuple(found)


@drawn
def roles(w: Writer, title: str) -> Program:
    """One warp group fills the slots of a shared tile, others wait for each and add them up."""
    grid, groups = w.pick((1, 2)), w.pick((2, 3))
    count, rows, columns = w.rng.randrange(1, 5), w.pick((4, 16, 32)), w.pick((8, 32, 20, 64))
    dtype = w.pick(("float32", "float16", "int32"))
    own = [[w.tile("shared", (rows, columns), dtype, grid)] for _ in range(groups)]
    own = [[*mine, w.tile("shared", (rows, columns), dtype, grid)] for mine in own]
    producer = w.rng.randrange(groups)
    slots, full = w.name("P"), w.name("full")
    w.head.append(Step(f'{slots} = T.alloc_shared(({count}, {rows}, {columns}), "{dtype}")'))
    w.head.append(Step(f"{full} = T.alloc_barrier([128] * {count})"))
    source = w.input((grid, count, rows, columns), dtype)
    for group in (producer, *(g for g in range(groups) if g != producer)):
        k = w.name("k")
        scope = Scope(grid, {k: count - 1}, 1)
        tile = f"{slots}[{k}, 0:{rows}, 0:{columns}]"
        inside = list(_some(w, own[group], scope, 2))
        if group == producer:
            taken = w.pick((f"{source}[bx, {k}, 0:{rows}, 0:{columns}]", own[group][0]))
            inside += [Step(f"T.copy({taken}, {tile})"), Step(f"T.mbarrier_arrive({full}[{k}])")]
            body: list[Step] = []
        else:
            total = w.name("F")
            inside += [
                Step(f"T.mbarrier_wait_parity({full}[{k}], 0)"),
                *_added(w, total, slots, k, rows, columns),
            ]
            body = [
                Step(f'{total} = T.alloc_fragment(({rows}, {columns}), "{dtype}")'),
                Step(f"T.fill({total}, {w.rng.randrange(HIGH)})"),
            ]
        body.append(Step(f"for {k} in T.{w.pick(('serial', 'unroll'))}({count}):", tuple(inside)))
        if group != producer:
            body.append(Step(f"T.copy({total}, {own[group][0]})"))
        w.steps.append(Step(f"with T.ws({group}):", tuple(body)))
    return w.program(title, grid, 128 * groups)


def _added(w: Writer, total: str, slots: str, k: str, rows: int, columns: int) -> list[Step]:
    form = w.pick(("add", "max", "turned"))
    value = f"{slots}[{k}, i, j]"
    if form == "turned":
        value = f"{slots}[{k}, {rows - 1} - i, {columns - 1} - j]"
    both = f"{total}[i, j] + {value}" if form == "add" else f"T.max({total}[i, j], {value})"
    loop = f"for i, j in T.Parallel({rows}, {columns}):"
    return [Step(loop, (Step(f"{total}[i, j] = {both}"),))]


class _Ring:
    """A tile of several slots that roles fill and empty in turns. Its name begins with R: NumPy has
    a slot for each fill, and runs the roles one after the other."""

    def __init__(self, w: Writer, shape: tuple[int, int], dtype: str, readers: int):
        self.name, self.shape, self.slots = w.name("R"), shape, w.rng.randrange(1, 4)
        self.full, self.empty = w.name("full"), w.name("empty")
        w.head += [
            Step(
                f'{self.name} = T.alloc_shared(({self.slots}, {shape[0]}, {shape[1]}), "{dtype}")'
            ),
            Step(f"{self.full} = T.alloc_barrier([128] * {self.slots})"),
            Step(f"{self.empty} = T.alloc_barrier([{128 * readers}] * {self.slots})"),
        ]

    def tile(self, k: str) -> str:
        return f"{self.name}[{k} % {self.slots}, 0:{self.shape[0]}, 0:{self.shape[1]}]"

    def element(self, k: str, i: str, j: str) -> str:
        return f"{self.name}[{k} % {self.slots}, {i}, {j}]"

    def wait(self, k: str, writes: bool) -> Step:
        barrier = self.empty if writes else self.full
        phase = f"({k} // {self.slots}) & 1"
        return Step(
            f"T.mbarrier_wait_parity({barrier}[{k} % {self.slots}], "
            + (f"({phase}) ^ 1)" if writes else f"{phase})")
        )

    def arrive(self, k: str, writes: bool) -> Step:
        barrier = self.full if writes else self.empty
        return Step(f"T.mbarrier_arrive({barrier}[{k} % {self.slots}])")


def _filled(w: Writer, ring: _Ring, k: str, source: str, mine: str, dtype: str) -> list[Step]:
    """A slot gets its values: by threads, by TMA, from the role's own tile."""
    rows, columns = ring.shape
    whole = f"{source}[bx, {k}, 0:{rows}, 0:{columns}]"
    form = w.pick(("copy", "tma", "own"))
    if form == "own":
        value = f'T.cast(T.clamp({mine}[i, j] + {k}, -8, 8), "{dtype}")'
        loop = f"for i, j in T.Parallel({rows}, {columns}):"
        filled = Step(loop, (Step(f"{ring.element(k, 'i', 'j')} = {value}"),))
    elif form == "tma":
        barrier = f"{ring.full}[{k} % {ring.slots}]"
        filled = Step(f"T.tma_copy({whole}, {ring.tile(k)}, barrier={barrier})")
    else:
        filled = Step(f"T.copy({whole}, {ring.tile(k)})")
    return [ring.wait(k, True), filled, ring.arrive(k, True)]


def _emptied(w: Writer, ring: _Ring, k: str, total: str, mine: str, dtype: str) -> list[Step]:
    """A slot's values are added to the role's, or go to its tile."""
    rows, columns = ring.shape
    element = ring.element(k, "i", "j")
    form = w.pick(("add", "turned", "copy", "both"))
    if form == "turned":
        element = ring.element(k, f"{rows - 1} - i", f"{columns - 1} - j")
    value = f'T.cast(T.clamp({total}[i, j] + {element}, -64, 64), "{dtype}")'
    loop = f"for i, j in T.Parallel({rows}, {columns}):"
    steps = [] if form == "copy" else [Step(loop, (Step(f"{total}[i, j] = {value}"),))]
    if form in ("copy", "both"):
        steps.append(Step(f"T.copy({ring.tile(k)}, {mine})"))
    return [ring.wait(k, False), *steps, ring.arrive(k, False)]


@drawn
def rings(w: Writer, title: str) -> Program:
    """Roles that pass on more tiles than there are slots, one after the other or one to several;
    how many, a constant, a table or the call says."""
    grid, groups = w.pick((1, 2)), w.pick((2, 3))
    shape, dtype = w.pick(((16, 32), (4, 64), (32, 8))), w.pick(("float32", "float16", "int32"))
    own = [w.tile("shared", shape, dtype, grid) for _ in range(groups)]
    most = 6
    source = w.input((grid, most, *shape), dtype)
    count = str(w.rng.randrange(1, most + 1))
    if w.chance(0.3):
        count = f"{w.input((grid,), 'int32', 0, most)}[bx]"
    elif w.chance(0.4):
        w.sizes.append(("n", int(count)))
        w.input(("n",), "int32")
        count = "n"
    chain = groups == 3 and w.chance(0.5)
    rings = [_Ring(w, shape, dtype, 1 if chain else groups - 1)]
    rings += [_Ring(w, shape, dtype, 1)] if chain else []
    order = w.rng.sample(range(groups), groups)
    for place, group in enumerate(order):
        k, total = w.name("k"), w.name("F")
        inside: list[Step] = []
        reads = rings[place - 1 if chain else 0] if place else None
        writes = rings[place] if place < len(rings) else None
        if reads:
            inside += _emptied(w, reads, k, total, own[group], dtype)
        if writes and not (place and not chain):
            inside += _filled(w, writes, k, source, own[group], dtype)
        if w.chance(0.3):
            inside += _some(w, [own[group]], Scope(grid, {k: most - 1}, 1), 1)
        body = [
            Step(f'{total} = T.alloc_fragment({shape}, "{dtype}")'),
            Step(f"T.fill({total}, {w.rng.randrange(HIGH)})"),
            Step(f"for {k} in T.serial({count}):", tuple(inside)),
        ]
        if reads:
            body.append(Step(f"T.copy({total}, {own[group]})"))
        w.steps.append(Step(f"with T.ws({group}):", tuple(body)))
    return w.program(title, grid, 128 * groups)


@drawn
def warps(w: Writer, title: str) -> Program:
    """Branches of whole warps, in each other's order, on the same shared tiles."""
    grid, threads = w.pick((1, 2)), w.pick((64, 128, 256))
    shape, dtype = w.pick(((16, 32), (8, 64), (7, 33), (64,))), w.pick(("float32", "int32", "int8"))
    tiles = [w.tile("shared", shape, dtype, grid) for _ in range(3)]
    w.head.append(Step("tx = T.get_thread_binding()"))
    for _ in range(w.rng.randrange(1, 4)):
        cut = 32 * w.rng.randrange(1, threads // 32)
        condition = w.pick((f"tx < {cut}", f"tx >= {cut}", f"{cut} <= tx"))
        steps = [Step(f"if {condition}:", _some(w, tiles, Scope(grid), 2))]
        if w.chance(0.4):
            # The sides run side by side: what one writes, the other must not touch.
            split = w.rng.randrange(1, len(tiles))
            steps = [
                Step(f"if {condition}:", _some(w, tiles[:split], Scope(grid), 2)),
                Step("else:", _some(w, tiles[split:], Scope(grid), 2)),
            ]
        w.steps += [*steps, *_some(w, tiles, Scope(grid), 1)]
    return w.program(title, grid, threads)


@drawn
def bodies(w: Writer, title: str) -> Program:
    """One warp group fills slots, and others run one body of code, each with a number of its own:
    of slots, tiles and tensors."""
    grid, count, first = w.pick((1, 2)), w.pick((2, 3)), w.pick((0, 1))
    rows, columns = w.pick((4, 16)), w.pick((8, 32, 20))
    dtype = w.pick(("float32", "float16", "int32"))
    source, other = (w.input((grid, count, rows, columns), dtype) for _ in range(2))
    scale = w.input((rows, count + 1), "int32", -2, 2)
    w.head += [
        Step(f'P = T.alloc_shared(({count}, {rows}, {columns}), "{dtype}")'),
        Step(f'own = T.alloc_shared(({count}, {rows}, {columns}), "float32")'),
        Step(f"full = T.alloc_barrier([128] * {count})"),
    ]
    part = f"0:{rows}, 0:{columns}"
    filled = (
        Step(f"T.copy({source}[bx, k, {part}], P[k, {part}])"),
        Step("T.mbarrier_arrive(full[k])"),
    )
    producer = Step(
        f"with T.ws({count if first == 0 else 0}):",
        (Step(f"for k in T.serial({count}):", filled),),
    )
    each = f"for i, j in T.Parallel({rows}, {columns}):"
    read = w.pick((f"{other}[bx, s, i, j]", f"{scale}[i, s]", f"{scale}[i, s + 1]", "s"))
    steps = [
        Step(f'F = T.alloc_fragment(({rows}, {columns}), "float32")'),
        Step(f"T.fill(F, {w.rng.randrange(HIGH)})"),
    ]
    if w.chance(0.6):
        added = Step(each, (Step(f"F[i, j] += P[s, i, j] * 2 + {read}"),))
        steps += [Step("T.mbarrier_wait_parity(full[s], 0)"), added]
    else:
        added = Step(each, (Step(f"F[i, j] += P[k, i, j] + k * {read}"),))
        waited = (Step("T.mbarrier_wait_parity(full[k], 0)"), added)
        steps.append(Step(f"for k in T.serial({count}):", waited))
    if w.chance(0.5):
        turned = f"own[s, {rows - 1} - i, {columns - 1} - j]"
        steps += [
            Step(each, (Step("own[s, i, j] = F[i, j]"),)),
            Step(each, (Step(f"F[i, j] = {turned} - F[i, j]"),)),
        ]
    out = w.input((grid, count, rows, columns), "float32", 1, 0)
    steps.append(Step(f"T.copy(F, {out}[bx, s, {part}])"))
    groups = ", ".join(str(first + g) for g in range(count))
    body = Step(f"with T.ws({groups}, each=True) as s:", tuple(steps))
    parts = (producer, body)
    return Program(title, tuple(w.tensors), (*w.head, *parts), grid, 128 * (count + 1))
