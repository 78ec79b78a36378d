"""Draws loops with products whose results are masked, scaled, or go to tensors tile after tile:
blocks that stay, two accumulators, causal and other masks, weights that are unpacked."""

from __future__ import annotations

from drawn import HIGH, LOW, Program, Step, Tensor, Writer, drawn

_SUMS = {"int8": "int32"}


def _tile(w: Writer, scope: str, shape: tuple[int, ...], dtype: str) -> str:
    name = w.name(scope[0].upper())
    w.head.append(Step(f'{name} = T.alloc_{scope}({shape}, "{dtype}")'))
    return name


def _each(rows: int, columns: int, *inside: Step) -> Step:
    return Step(f"for i, j in T.Parallel({rows}, {columns}):", inside)


class _Waves:
    """What the statements of one program have in common."""

    def __init__(self, w: Writer):
        self.w = w
        self.dtype = w.pick(("float16", "float16", "bfloat16", "bfloat16", "int8", "float8_e4m3fn"))
        self.sum = _SUMS.get(self.dtype, "float32")
        self.rows, self.columns = w.pick((64, 64, 128)), w.pick((16, 64, 64, 64, 128))
        self.depth, steps = w.pick((32, 32, 64)), w.rng.randrange(1, 5)
        self.down, self.across = w.rng.randrange(1, 4), w.rng.randrange(1, 4)
        self.blocks = w.rng.randrange(1, 6)
        self.m = self._extent("tall", self.rows * self.down)
        self.n = self._extent("wide", self.columns * self.across)
        self.k = self._extent("deep", self.depth * steps)
        self.kept: list[str] = []
        """Accumulators that a loop has made."""

    def _extent(self, name: str, full: int) -> int | str:
        extent = full - (self.w.pick((8, 8, 16, 3)) if self.w.chance(0.25) else 0)
        if self.w.chance(0.15):
            self.w.sizes.append((name, extent))
            return name
        return extent

    def product(self, a: str, bs: list[str], stages: int) -> list[Step]:
        """Accumulators of one left operand and some right ones."""
        w = self.w
        left = _tile(w, "shared", (self.rows, self.depth), self.dtype)
        steps = [Step(f"T.copy({a}[y * {self.rows}, k * {self.depth}], {left})")]
        clears: list[Step] = []
        products: list[Step] = []
        for b in bs:
            right = _tile(w, "shared", (self.columns, self.depth), self.dtype)
            c = _tile(w, "fragment", (self.rows, self.columns), self.sum)
            self.kept.append(c)
            steps.append(Step(f"T.copy({b}[x * {self.columns}, k * {self.depth}], {right})"))
            clear = w.pick(("statement", "statement", "first"))
            of_first = ", clear_accum=k == 0" if clear == "first" else ""
            if clear == "statement":
                clears.append(Step(f"T.clear({c})"))
            products.append(Step(f"T.gemm({left}, {right}, {c}, transpose_B=True{of_first})"))
        loop = f"for k in T.Pipelined(T.ceildiv({self.k}, {self.depth}), num_stages={stages}):"
        return [*clears, Step(loop, (*steps, *products))]

    def stored(self, c: str) -> list[Step]:
        """Accumulators become a tensor's tile."""
        w = self.w
        sixteen = self.dtype if self.dtype in ("float16", "bfloat16") else "float16"
        out = w.pick((sixteen, sixteen, sixteen, self.sum))
        form = w.pick((*["straight"] * 6, "staged", "added", "again"))
        if form == "added":
            out = self.sum
        name = w.name("O")
        # Without a loop over tiles some of them stay.
        w.tensors.append(Tensor(name, (self.m, self.n), out, LOW, HIGH))
        place = f"{name}[y * {self.rows}, x * {self.columns}]"
        steps: list[Step] = []
        if w.chance(0.3):
            value = w.pick(("T.max({}, 0)", "{} + 1", "-{}")).format(f"{c}[i, j]")
            steps.append(_each(self.rows, self.columns, Step(f"{c}[i, j] = {value}")))
        if form == "staged":
            shared = _tile(w, "shared", (self.rows, self.columns), out)
            return [*steps, Step(f"T.copy({c}, {shared})"), Step(f"T.copy({shared}, {place})")]
        if form == "added":
            return [*steps, Step(f"T.atomic_add({place}, {c})")]
        steps.append(Step(f"T.copy({c}, {place})"))
        if form == "again":
            other = _tile(w, "fragment", (self.rows, self.columns), out)
            w.tensors.append(Tensor(w.name("O"), (self.m, self.n), out, LOW, HIGH))
            to = f"{w.tensors[-1].name}[y * {self.rows}, x * {self.columns}]"
            steps += [Step(f"T.copy({place}, {other})"), Step(f"T.copy({other}, {to})")]
        return steps

    def over_tiles(self, body: list[Step]) -> list[Step]:
        """The loop over all tiles, of which each block has some."""
        w = self.w
        down, across = f"T.ceildiv({self.m}, {self.rows})", f"T.ceildiv({self.n}, {self.columns})"
        domain = f"[{down}, {across}], {self.blocks}, bx, group_size={w.pick((1, 2, 8))}"
        form = w.pick(("persistent", "persistent", "counter", "counter", "waves", "if"))
        if form == "counter":
            counter = w.input((1,), "int32", 0, 0)
            return [Step(f"for y, x in T.Persistent({domain}, counter={counter}):", tuple(body))]
        if form == "persistent":
            return [Step(f"for y, x in T.Persistent({domain}):", tuple(body))]
        names = [Step(f"y = t // {across}"), Step(f"x = t % {across}")]
        if form == "waves":
            names = [Step(f"t = v * {self.blocks} + bx"), *names]
            waves = f"T.ceildiv({down} * {across} - bx, {self.blocks})"
            return [Step(f"for v in T.serial({waves}):", (*names, *body))]
        names = [Step(f"t = v * {self.blocks} + bx"), Step(f"y = t // {across}"), names[1]]
        waves = f"T.ceildiv({down} * {across}, {self.blocks})"
        guarded = Step(f"if t < {down} * {across}:", tuple(body))
        return [Step(f"for v in T.serial({waves}):", (*names, guarded))]


@drawn
def waves(w: Writer, title: str) -> Program:
    """Blocks that stay: tile after tile, a pipelined loop, sums or others, results to tensors."""
    p = _Waves(w)
    a = w.input((p.m, p.k), p.dtype, -1, 1)
    bs = [w.input((p.n, p.k), p.dtype, -1, 1) for _ in range(w.pick((1, 1, 2)))]
    stages = w.pick((0, 1, 2, 3, 3, 4))
    body = p.product(a, bs, stages)
    if w.chance(0.2):
        body += p.product(a, bs[:1], w.rng.randrange(4))
    if len(p.kept) > 1 and w.chance(0.4):
        # The last results are made of others.
        c, other = p.kept[-1], p.kept[0]
        body.append(_each(p.rows, p.columns, Step(f"{c}[i, j] += {other}[i, j]")))
    for c in p.kept if w.chance(0.7) else p.kept[-1:]:
        body += p.stored(c)
    if w.chance(0.6):
        # Of few blocks a multiprocessor has room for one, with more memory, too.
        w.head.append(Step(f'{w.name("P")} = T.alloc_shared((50000,), "float16")'))
        w.head.append(Step("T.fill(P0, 1)"))
        w.tensors.append(Tensor("Ones", (8,), "float16"))
        ones = [Step("T.copy(P0[0:8], Ones)")]
    else:
        ones = []
    loop = p.over_tiles(body) if w.chance(0.9) else [Step("y = bx // 2"), Step("x = bx % 2"), *body]
    threads = w.pick((128, 128, 256))
    return Program(
        title, tuple(w.tensors), (*w.head, *loop, *ones), p.blocks, threads, tuple(w.sizes)
    )


def _condition(w: Writer, rows: int, keys: int, steps: int, table: str) -> str:
    """Of row i, column j, the loop's k and the block: what a mask keeps."""
    row, key = f"bx * {rows} + i", f"k * {keys} + j"
    low, high = w.rng.randrange(-keys, rows), w.rng.randrange(0, steps * keys)
    factor, narrow = w.pick((1, 40, 90)), w.pick(("int8", "uint8"))
    forms = [
        f"{row} >= {key}",
        f"{key} < {row}",
        f"{row} + {low} >= {key}",
        f"{key} < {high}",
        f"{key} < {table}[bx]",
        f"T.And({row} >= {key}, {key} + {high} > {row})",
        f"T.Or({row} < {low}, {row} >= {key})",
        f"T.Not({key} > {row})",
        f"{row} // {w.pick((3, 8, 64))} >= {key} // {w.pick((3, 8, 64))}",
        f"{keys - 1} - j + {high} > k * {keys} - i",
        f"({key}) % {w.pick((7, 64))} > {low}",
        f"{row} != {key}",
        # What a type does not hold is somewhere else in it.
        f'T.cast({row} - {key}, "uint32") < T.cast({high}, "uint32")',
        f'T.cast(T.cast({row} + k * {factor}, "{narrow}"), "int32") >= j',
    ]
    return str(w.pick(forms))


@drawn
def masks(w: Writer, title: str) -> Program:
    """Loops over keys whose scores are masked in front of their product or behind it, whole loops,
    or split in two; then rows that a condition changes."""
    dtype = w.pick(("float16", "bfloat16"))
    rows, keys = w.pick((64, 64, 128)), w.pick((16, 32, 64, 64))
    depth, steps, grid = w.pick((32, 64)), w.rng.randrange(2, 6), w.pick((1, 2, 3))
    q, all_k = (
        w.input((grid * rows, depth), dtype, -1, 1),
        w.input((steps * keys, depth), dtype, -1, 1),
    )
    table = w.input((grid,), "int32", 0, steps * keys)
    w.tensors.append(Tensor("Scores", (grid * rows, steps * keys), "float32", LOW, HIGH))
    w.tensors.append(Tensor("Sums", (grid * rows,), "float32"))
    left, right = _tile(w, "shared", (rows, depth), dtype), _tile(w, "shared", (keys, depth), dtype)
    scores = _tile(w, "fragment", (rows, keys), "float32")
    most, sums = _tile(w, "fragment", (rows,), "float32"), _tile(w, "fragment", (rows,), "float32")
    w.head += [Step(f"T.copy({q}[bx * {rows}, 0], {left})"), Step(f"T.fill({sums}, 0)")]
    stages = w.rng.randrange(4)

    def loop(bounds: str, masked: bool) -> Step:
        form = w.pick(("front", "front", "behind")) if masked else "none"
        seen = _condition(w, rows, keys, steps, table)
        named = w.chance(0.3)
        shown = "seen" if named else seen
        kept = f"{scores}[i, j]"
        value = {
            "front": w.pick(
                (f"T.if_then_else({shown}, 0, -4096)", f"T.if_then_else({shown}, -4096, 0)")
            ),
            "behind": w.pick(
                (f"T.if_then_else({shown}, {kept}, -4096)", f"T.if_then_else({shown}, 5, {kept})")
            ),
        }.get(form, "0")
        names = (Step(f"seen = {seen}"),) if named else ()
        mask = _each(rows, keys, *names, Step(f"{kept} = {value}"))
        copy = Step(f"T.copy({all_k}[k * {keys}, 0], {right})")
        clear = ", clear_accum=True" if form != "front" else ""
        product = Step(f"T.gemm({left}, {right}, {scores}, transpose_B=True{clear})")
        steps_of = {"front": [mask, product], "behind": [product, mask]}.get(form, [product])
        ends = [Step(f"T.copy({scores}, Scores[bx * {rows}, k * {keys}])")]
        if w.chance(0.6):
            ends += [
                Step(f"T.reduce_max({scores}, {most}, dim=1)"),
                Step(f"for i in T.Parallel({rows}):", (Step(f"{sums}[i] += {most}[i]"),)),
            ]
        if w.chance(0.4):
            # Rows that a register's condition changes.
            limit = w.pick((0, 3, -4096))
            change = Step(f"{kept} = {w.pick((f'{kept} + 1', f'{kept} * 2', '7'))}")
            ends.insert(0, _each(rows, keys, Step(f"if {sums}[i] > {limit}:", (change,))))
        body = [copy, *steps_of, *ends]
        if w.chance(0.15):
            body = [Step(f"if k * {keys} < {table}[bx]:", tuple(body))]
        return Step(f"for k in T.Pipelined({bounds}, num_stages={stages}):", tuple(body))

    form = w.pick(("whole", "whole", "split", "causal", "persistent"))
    if form == "split":
        cut = w.rng.randrange(steps + 1)
        cut_text = w.pick((str(cut), f"T.min({cut}, bx + 1)"))
        loops = [loop(f"0, {cut_text}", w.chance(0.3)), loop(f"{cut_text}, {steps}", True)]
    elif form == "causal":
        loops = [loop(f"T.min({steps}, T.ceildiv((bx + 1) * {rows}, {keys}))", True)]
    else:
        loops = [loop(str(steps), True)]
    if form == "persistent":
        loops = [Step("for repeat in T.serial(2):", tuple(loops))]
    end = Step(f"T.copy({sums}, Sums[bx * {rows}])")
    threads = 128 if rows == 64 else w.pick((128, 256))
    return Program(title, tuple(w.tensors), (*w.head, *loops, end), grid, threads)


@drawn
def scaled(w: Writer, title: str) -> Program:
    """Products of steps that are scaled and added up, whose accumulators are begun anew."""
    dtype = w.pick(("float16", "bfloat16", "float8_e4m3fn"))
    rows, columns, threads = w.pick(
        ((128, 128, 256), (128, 128, 256), (64, 128, 128), (64, 32, 128))
    )
    depth, steps, stages = 32, w.pick((4, 4, 6, 8, 5)), w.pick((2, 3, 4, 4))
    grid = w.pick((1, 1, 2))
    k = steps * depth
    a, b = w.input((rows, k), dtype, -1, 1), w.input((grid * columns, k), dtype, -1, 1)
    of_rows, of_steps = (
        w.input((steps + 1, rows), "float32", -2, 2),
        w.input((steps + 1,), "float32", -2, 2),
    )
    left, right = (
        _tile(w, "shared", (rows, depth), dtype),
        _tile(w, "shared", (columns, depth), dtype),
    )
    scale = _tile(w, "shared", (rows,), "float32")
    part, total = (_tile(w, "fragment", (rows, columns), "float32") for _ in range(2))
    out = w.pick(("float16", "float32"))
    w.tensors.append(Tensor("Out", (rows, grid * columns), out))
    first = w.pick((0, 0, 1))
    begin = w.pick(("keyword", "keyword", "in front", "behind"))
    body = [
        Step(f"T.copy({a}[0, k * {depth}], {left})"),
        Step(f"T.copy({b}[bx * {columns}, k * {depth}], {right})"),
        Step(f"T.copy({of_rows}[k, 0], {scale})"),
    ]
    w.rng.shuffle(body)
    if begin == "in front":
        body.append(Step(f"T.clear({part})"))
    clear = ", clear_accum=True" if begin == "keyword" else ""
    body.append(Step(f"T.gemm({left}, {right}, {part}, transpose_B=True{clear})"))
    number = w.pick((f"{of_steps}[k]", f"{of_steps}[0]", f"{of_steps}[k + 1]", "both"))
    if number == "both":
        body.insert(w.pick((0, len(body))), Step(f"both = {of_steps}[k] * 2"))
    factor = w.pick(
        (f"{scale}[i] * {number}", number, f"{scale}[i]", f"{of_rows}[k, i] * {number}")
    )
    value = f"{part}[i, j] * ({factor})"
    if w.chance(0.3):
        value = f"T.if_then_else(i + k > 60, {value}, {part}[i, j])"
    uses = [Step(f"{total}[i, j] += {value}")]
    if w.chance(0.2):
        uses = [Step(f"if j > {of_steps}[k]:", tuple(uses))]
    body.append(_each(rows, columns, *uses))
    if w.chance(0.25):
        sign = w.pick(("+", "-"))
        body.append(
            _each(rows, columns, Step(f"{total}[i, j] = {part}[i, j] {sign} {total}[i, j]"))
        )
    if begin == "behind":
        w.head.append(Step(f"T.clear({part})"))
        body.append(Step(f"T.clear({part})"))
    loop = Step(f"for k in T.Pipelined({first}, {steps}, num_stages={stages}):", tuple(body))
    limit = _each(rows, columns, Step(f"{total}[i, j] = T.clamp({total}[i, j], -1024, 1024)"))
    end = [*([limit] if out == "float16" else []), Step(f"T.copy({total}, Out[0, bx * {columns}])")]
    w.head.append(Step(f"T.clear({total})"))
    steps_of = [loop, *end]
    return Program(title, tuple(w.tensors), (*w.head, *steps_of), grid, threads)


@drawn
def unpacked(w: Writer, title: str) -> Program:
    """Products of a tile that a loop makes of narrower elements, with scales, on either side."""
    dtype, stored = w.pick(("float16", "bfloat16")), w.pick(("int8", "uint8"))
    rows, columns = w.pick((64, 64, 128)), w.pick((16, 64, 128))
    depth, steps, stages = w.pick((32, 64)), w.rng.randrange(1, 5), w.rng.randrange(5)
    packed, sides = w.chance(0.5), w.pick(("left", "right", "right"))
    high, other = (rows, columns) if sides == "left" else (columns, rows)
    k = depth * steps
    x = w.input((other, k), dtype, -1, 1)
    source = w.input((high, k // 2 if packed else k), "uint8" if packed else stored, -2, 2)
    scale = w.input((high, steps), "float32", -1, 1)
    tile = _tile(w, "shared", (other, depth), dtype)
    narrow = (high, depth // 2 if packed else depth)
    raw = _tile(w, "shared", narrow, "uint8" if packed else stored)
    made = _tile(w, "shared", (high, depth), dtype)
    scales = _tile(w, w.pick(("shared", "fragment")), (high,), "float32")
    c = _tile(w, "fragment", (rows, columns), "float32")
    element = f"{raw}[i, j]"
    taken: list[Step] = []
    if w.chance(0.4):
        local = _tile(w, "fragment", narrow, "uint8" if packed else stored)
        taken = [Step(f"T.copy({raw}, {local})")]
        element = f"{local}[i, j]"
    if packed:
        byte = element.replace("j]", "j // 2]")
        element = f'T.cast({byte} >> T.cast(j % 2 * 4, "uint8") & 15, "int32")'
    value = f'T.cast({element}, "float32")'
    value = w.pick((value, f"{value} * {scales}[i]", f"({value} - 8) * {scales}[i]"))
    made_of = _each(high, depth, Step(f'{made}[i, j] = T.cast({value}, "{dtype}")'))
    loads = [
        Step(f"T.copy({x}[0, k * {depth}], {tile})"),
        Step(f"T.copy({source}[0, k * {narrow[1]}], {raw})"),
        Step(f"for i in T.Parallel({high}):", (Step(f"{scales}[i] = {scale}[i, k]"),)),
    ]
    w.rng.shuffle(loads)
    operands = f"{made}, {tile}" if sides == "left" else f"{tile}, {made}"
    body = [*loads, *taken, made_of, Step(f"T.gemm({operands}, {c}, transpose_B=True)")]
    if w.chance(0.2):
        body.append(_each(rows, columns, Step(f"{c}[i, j] = T.clamp({c}[i, j], -64, 64)")))
    loop = Step(f"for k in T.Pipelined({steps}, num_stages={stages}):", tuple(body))
    out = w.input((rows, columns), "float32")
    ends = [
        [Step(f"T.copy({c}, {out})")],
        [Step(f"T.atomic_add({out}[0, 0], {c})")],
        [_each(rows, columns, Step(f"{out}[i, j] = {c}[i, j] - {out}[i, j]"))],
        [_each(rows, columns // 2, Step(f"{out}[i, j] = {c}[i, j * 2] - {c}[i, j * 2 + 1]"))],
    ]
    w.head.append(Step(f"T.fill({c}, {w.pick((0, 0, 1))})"))
    return Program(title, tuple(w.tensors), (*w.head, loop, *w.pick(ends)), 1, w.pick((128, 256)))


@drawn
def chosen(w: Writer, title: str) -> Program:
    """Two products of a step, in those steps that a table, its bits or the block choose."""
    rows, steps, stages = 64, w.rng.randrange(2, 8), w.pick((1, 2, 2, 3))
    grid, keys = w.pick((1, 2)), w.pick((32, 64))
    q, all_k = w.input((rows, 64), "float16", -1, 1), w.input((steps * keys, 64), "float16", -1, 1)
    table = w.input((grid, steps), w.pick(("int32", "uint8")), 0, w.pick((1, 2)))
    left = _tile(w, "shared", (rows, 64), "float16")
    k_tile, v_tile = (_tile(w, "shared", (keys, 64), "float16") for _ in range(2))
    scores, out = (_tile(w, "fragment", s, "float32") for s in ((rows, keys), (rows, 64)))
    weights = _tile(w, "fragment", (rows, keys), "float16")
    w.tensors.append(Tensor("Out", (grid * rows, 64), "float32"))
    w.head += [Step(f"T.copy({q}, {left})"), Step(f"T.clear({out})")]
    body = [
        Step(f"T.copy({all_k}[k * {keys}, 0], {k_tile})"),
        Step(f"T.gemm({left}, {k_tile}, {scores}, transpose_B=True, clear_accum=True)"),
        Step(f"T.copy({scores}, {weights})"),
        Step(f"T.copy({all_k}[k * {keys}, 0], {v_tile})"),
        Step(f"T.gemm({weights}, {v_tile}, {out})"),
    ]
    if w.chance(0.3):
        mask = f"T.if_then_else(i + bx >= k * {keys} - j, {scores}[i, j], 3)"
        body.insert(2, _each(rows, keys, Step(f"{scores}[i, j] = {mask}")))
    element = f"{table}[bx, k]"
    names: list[Step] = []
    if w.chance(0.4):
        names, element = [Step(f"number = {element}")], "number"
    condition = w.pick(
        (
            f"{element} != 0",
            f"{element} == 1 and k < {w.rng.randrange(1, steps + 1)}",
            f"{element} + bx > 1",
            f"k % 2 == 0 or {element} > 0",
            f"{table}[0, k // 2] >= k % 2",
        )
    )
    first = w.pick((0, 0, 1))
    guarded = (*names, Step(f"if {condition}:", tuple(body)))
    loop = Step(f"for k in T.Pipelined({first}, {steps}, num_stages={stages}):", guarded)
    end = Step(f"T.copy({out}, Out[bx * {rows}, 0])")
    return Program(title, tuple(w.tensors), (*w.head, loop, end), grid, 128)
