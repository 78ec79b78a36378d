"""Draws scores that weigh values of up to 256 columns, in so many blocks as the call says: wide
accumulators, which leave a multiprocessor few registers, and what else uses them."""

from __future__ import annotations

from drawn import Program, Step, Tensor, Writer, drawn
from drawn_waves import _SUMS, _each, _tile

_ROWS = 64


def _changed(w: Writer, sums: str, total: str, columns: int) -> list[Step]:
    """What an iteration does to the sums in front of its product."""
    kept = f"{sums}[i, j]"
    form = w.pick(("none", "none", "rows", "mask"))
    if form == "rows":
        tensor, row = w.input((_ROWS,), total, 1, 2), _tile(w, "fragment", (_ROWS,), total)
        w.head.append(Step(f"T.copy({tensor}, {row})"))
        return [_each(_ROWS, columns, Step(f"{kept} = {kept} * {row}[i]"))]
    if form == "mask":
        return [_each(_ROWS, columns, Step(f"{kept} = T.if_then_else(i + k * 64 >= j, {kept}, 1)"))]
    return []


def _end(w: Writer, sums: str, dtype: str, columns: int) -> list[Step]:
    """Where the sums go."""
    total = _SUMS.get(dtype, "float32")
    clamped = _each(_ROWS, columns, Step(f"{sums}[i, j] = T.clamp({sums}[i, j], -4, 4)"))
    form = w.pick(("straight", "straight", "narrow", "most", "sum of columns", "next product"))
    if form == "next product" and dtype.endswith("float16"):
        tensor = w.input((columns, 64), dtype, -1, 1)
        right, out = _tile(w, "shared", (columns, 64), dtype), _tile(w, "fragment", (64, 64), total)
        left = _tile(w, "fragment", (_ROWS, columns), dtype)
        w.tensors.append(Tensor("Out", ("blocks", _ROWS, 64), total))
        return [
            *(Step(f"T.copy({tensor}, {right})"), clamped, Step(f"T.copy({sums}, {left})")),
            Step(f"T.gemm({left}, {right}, {out}, clear_accum=True)"),
            Step(f"T.copy({out}, Out[bx, 0:{_ROWS}, 0:64])"),
        ]
    if form == "sum of columns":
        line = _tile(w, "fragment", (columns,), total)
        w.tensors.append(Tensor("Out", ("blocks", columns), total))
        return [
            Step(f"T.reduce_sum({sums}, {line}, dim=0)"),
            Step(f"T.copy({line}, Out[bx, 0:{columns}])"),
        ]
    steps: list[Step] = []
    if form == "most":
        most = _tile(w, "fragment", (_ROWS,), total)
        less = Step(f"{sums}[i, j] = {sums}[i, j] - {most}[i]")
        steps = [Step(f"T.reduce_max({sums}, {most}, dim=1)"), _each(_ROWS, columns, less)]
    place = f"Out[bx, 0:{_ROWS}, 0:{columns}]"
    if form == "narrow":
        shared = _tile(w, "shared", (_ROWS, columns), dtype)
        w.tensors.append(Tensor("Out", ("blocks", _ROWS, columns), dtype))
        copies = Step(f"T.copy({sums}, {shared})"), Step(f"T.copy({shared}, {place})")
        return [clamped, *copies]
    w.tensors.append(Tensor("Out", ("blocks", _ROWS, columns), total))
    return [*steps, Step(f"T.copy({sums}, {place})")]


@drawn
def values(w: Writer, title: str) -> Program:
    """Sums of values by scores, whose accumulators are the widest that a product has."""
    dtype = w.pick(("float16", "float16", "bfloat16", "int8", "float8_e4m3fn"))
    total = _SUMS.get(dtype, "float32")
    turned = w.chance(0.3) or not dtype.endswith("float16")
    columns = w.pick((256, 256, *range(144, 257, 16)))
    steps, stages = w.rng.randrange(1, 4), w.pick((1, 1, 1, 2, 3))
    long = 64 * steps
    q, keys = w.input((_ROWS, 64), dtype, -1, 1), w.input((long, 64), dtype, -1, 1)
    all_values = w.input((columns, long) if turned else (long, columns), dtype, -1, 1)
    left, right = (_tile(w, "shared", (64, 64), dtype) for _ in range(2))
    value = _tile(w, "shared", (columns, 64) if turned else (64, columns), dtype)
    scores, weights = (_tile(w, "fragment", (64, 64), t) for t in (total, dtype))
    sums = _tile(w, "fragment", (_ROWS, columns), total)
    w.head += [Step(f"T.copy({q}, {left})"), Step(f"T.fill({sums}, {w.pick((0, 0, 1))})")]
    place = f"{all_values}[{'0, k * 64' if turned else 'k * 64, 0'}]"
    product = Step(f"T.gemm({weights}, {value}, {sums}, transpose_B={turned})")
    body = [
        Step(f"T.copy({keys}[k * 64, 0], {right})"),
        Step(f"T.gemm({left}, {right}, {scores}, transpose_B=True, clear_accum=True)"),
        _each(64, 64, Step(f"{scores}[i, j] = T.clamp({scores}[i, j] + bx, -2, 2)")),
        Step(f"T.copy({scores}, {weights})"),
        Step(f"T.copy({place}, {value})"),
        *_changed(w, sums, total, columns),
        *([product] * w.pick((1, 1, 1, 2))),
    ]
    loop = Step(f"for k in T.Pipelined({steps}, num_stages={stages}):", tuple(body))
    end = _end(w, sums, dtype, columns)
    w.sizes.append(("blocks", w.rng.randrange(1, 4)))
    program = (*w.head, loop, *end)
    return Program(title, tuple(w.tensors), program, "blocks", 128, tuple(w.sizes))
