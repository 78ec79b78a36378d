"""A `TileSchedule` as a picture: a row for each role, for the tensor cores and for each stage."""

from __future__ import annotations

from tilelang.tools import page
from tilelang.tools.tile_schedule import LENGTHS, Bar, TileSchedule

_STEP, _ROW, _LEFT = 11, 24, 200
_KINDS = {
    "issue": ("#8ecae6", "starts a copy or a product"),
    "compute": ("#a3d9a5", "computes"),
    "product": ("#e5a4cb", "tensor cores"),
    "store": ("#c9b6f2", "stores"),
    "wait": ("#d5d9dd", "waits"),
    "load": ("#ffb86b", "a stage is filled"),
    "read": ("#f2d16b", "a stage is read"),
}


def schedule_picture(schedule: TileSchedule) -> str:
    """A schedule as HTML. What stands in a bar is the number of the fill that it makes or uses.

    Example: ``page.page("main", [schedule_picture(tile_schedule(mod))])``
    """
    if not schedule.bars:
        return "<p>The kernel has no operators on tiles.</p>"
    drawing = page.Drawing()
    last = max(bar.end for bar in schedule.bars)
    places = {row: 18 + number * _ROW for number, row in enumerate(schedule.rows)}
    for step in range(0, last + 1, 5):
        x = _LEFT + step * _STEP
        drawing.line(x, 14, x, 14 + len(places) * _ROW)
        drawing.label(x, 10, str(step), "middle", "faint")
    for row, y in places.items():
        drawing.label(_LEFT - 8, y + 14, row, "end")
    # What a wait is about shows above what goes on at the same time in the row.
    for bar in sorted(schedule.bars, key=lambda bar: bar.kind == "read"):
        _draw(drawing, bar, places[bar.row])
    lengths = ", ".join(f"{name} {steps}" for name, steps in LENGTHS.items())
    notes = [
        "Order and waits are the program's; the lengths are a model, in steps: "
        f"{lengths}. Numbers count the fills of a tile. Rest the pointer on a bar for its line."
    ]
    if schedule.is_cut:
        notes.append(f"The kernel goes on behind step {last}.")
    if schedule.is_stuck:
        notes.append("Roles wait there for what this block does not do itself.")
    used = {bar.kind for bar in schedule.bars}
    return (
        page.legend(pair for kind, pair in _KINDS.items() if kind in used)
        + drawing.svg("schedule of roles and stages")
        + f'<p class="faint">{page.text(" ".join(notes))}</p>'
    )


def _draw(drawing: page.Drawing, bar: Bar, y: float) -> None:
    x, width = _LEFT + bar.begin * _STEP, (bar.end - bar.begin) * _STEP
    fill, _ = _KINDS[bar.kind]
    at = f" (line {bar.line})" if bar.line else ""
    inset = 6 if bar.kind == "wait" else 2
    drawing.rect(
        x + 0.5, y + inset, width - 1, _ROW - 4 - 2 * (inset - 2), fill, f"{bar.words}{at}", rx="2"
    )
    if bar.fill >= 0 and width >= 3 * _STEP:
        drawing.label(x + width / 2, y + 15, str(bar.fill), "middle", "cell")
