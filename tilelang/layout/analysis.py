"""How many transactions memory accesses take, counted from the addresses.

Shared memory has 32 banks of 4 bytes. A warp's access is served in groups of lanes: all 32 up to 4
bytes a lane, 16 for 8 bytes, 8 for 16 bytes (also a matrix of ldmatrix). A group takes as many
wavefronts as the bank with the most different 4-byte words has; lanes that want the same word share
it. Source: CUDA C++ Programming Guide, "Shared Memory"; "Optimizing CUDA Applications" (GTC) on
wide accesses. Global memory is moved in sectors of 32 bytes.

AMD's LDS has as many banks, and serves a wavefront of 64 lanes by as many bytes at a time: 32 lanes
of 4 bytes, 16 of 8, 8 of 16. They are consecutive but for reads of 16 bytes, whose groups are four
lanes and four of the next sixteen: 0-3 with 20-23, 4-7 with 16-19, 8-11 with 28-31, 12-15 with
24-27, and so on from lane 32. Source: AMD, "Avoiding LDS Bank Conflicts on AMD GPUs Using CK-Tile
Framework", and Composable Kernel's documentation, "Understanding AMD GPU LDS and Bank Conflicts".

gfx950 has 64 banks and serves twice as many lanes at once: all of 4 bytes, 32 of 8, 16 of 16. Reads
of 16 bytes: 0-3 with 12-15, 20-23 and 24-27; 4-7 with 8-11, 16-19 and 28-31. Source: LLVM,
AMDGPU.td, FeatureLDSBankCount64; Triton's AMD backend, which takes these groups (pull request
11365). Nobody says how ds_read_tr is served; it is counted as other reads of 8 bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, tirx
from tvm.tirx.analysis import undefined_vars

from tilelang._ffi import get_function
from tilelang.layout.arguments import as_int, of_class, sequence

WARP = 32
WAVEFRONT = 64
BANKS = 32
WIDE_BANKS = 64
"""Banks of gfx950."""
WORD_BYTES = 4
SECTOR_BYTES = 32


class Wavefronts(NamedTuple):
    """Transactions that accesses take, and the least that so many bytes could take."""

    found: int
    least: int

    @property
    def conflicts(self) -> int:
        """Transactions beyond the least."""
        return self.found - self.least


def shared_wavefronts(
    addresses: Sequence[int],
    width: int,
    warp: int = WARP,
    reads: bool = False,
    banks: int = BANKS,
) -> Wavefronts:
    """Count the wavefronts of one access of shared memory by one warp.

    Parameters
    ----------
    addresses
        Byte address of each active lane, in lane order, at most `warp`.
    width
        Bytes of a lane: 1, 2, 4, 8 or 16.
    warp
        Lanes of a warp: 64 for AMD's rules, else 32.
    reads
        Whether the lanes read, which matters for AMD.
    banks
        64 for gfx950, else 32.

    Raises
    ------
    ValueError
        If there are more lanes, another width, or an address that is no multiple of it.

    Example
    -------
    ``shared_wavefronts([128 * lane for lane in range(32)], 4)`` is 32 wavefronts, 1 at least.
    """
    _check(addresses, width, warp)
    found = least = 0
    for group in _groups(len(addresses), width, warp, reads, banks):
        words = _units([addresses[lane] for lane in group], width, WORD_BYTES)
        found += int(np.max(np.bincount(words % banks)))
        least += -(-len(words) // banks)
    return Wavefronts(found, least)


def _groups(active: int, width: int, warp: int, reads: bool, banks: int) -> list[list[int]]:
    """The lanes that are served together."""
    lanes = min(banks, banks * WORD_BYTES // width)
    if warp == WAVEFRONT and width == 16 and reads and banks == WIDE_BANKS:
        # Fours of lanes, by the parity of the upper three of the five bits of their number.
        halves = [range(base, base + 8) for base in range(0, warp // 4, 8)]
        pairs = [[f for f in half if f.bit_count() % 2 == odd] for half in halves for odd in (0, 1)]
        groups = [[4 * four + lane for four in fours for lane in range(4)] for fours in pairs]
    elif warp == WAVEFRONT and width == 16 and reads:
        # Fours of lanes; the third bit of their number tells which fours of the next sixteen.
        fours = [
            (base + i, base + 4 + (i ^ 1)) for base in range(0, warp // 4, 8) for i in range(4)
        ]
        groups = [[4 * four + lane for four in pair for lane in range(4)] for pair in fours]
    else:
        groups = [list(range(start, start + lanes)) for start in range(0, warp, lanes)]
    kept = ([lane for lane in group if lane < active] for group in groups)
    return [group for group in kept if group]


def global_sectors(addresses: Sequence[int], width: int, warp: int = WARP) -> Wavefronts:
    """Count the sectors of one access of global memory by one warp; parameters and errors are those
    of :func:`shared_wavefronts`, up to 32 bytes a lane.

    Example
    -------
    ``global_sectors([16 * lane for lane in range(32)], 16)`` is 16 sectors, 16 at least.
    """
    _check(addresses, width, warp)
    found = len(_units(addresses, width, SECTOR_BYTES))
    least = -(-len(_units(addresses, width, 1)) // SECTOR_BYTES)
    return Wavefronts(found, least)


def _check(addresses: Sequence[int], width: int, warp: int) -> None:
    sequence(addresses, "addresses")
    if width not in (1, 2, 4, 8, 16, 32) or not 0 < len(addresses) <= warp:
        raise ValueError(
            f"found {len(addresses)} lanes of {width} bytes, wanted 1 to {warp} lanes and a power "
            "of two up to 32 bytes"
        )
    if any(as_int(a, "an address") % width for a in addresses):
        raise ValueError(
            f"found an address that is not a multiple of {width}, the access's width, wanted "
            "aligned ones; take a smaller width"
        )


def _units(addresses: Sequence[int], width: int, unit: int) -> np.ndarray:
    """The different units of memory that accesses touch, by number."""
    starts: np.ndarray = np.asarray(addresses, dtype=np.int64)
    return np.unique((starts[:, None] + np.arange(width)) // unit)


@dataclass
class Access:
    """An access of shared or global memory in a program, by every warp that makes it."""

    buffer: str
    scope: str
    """``shared`` or ``global``."""
    op: str
    """``load``, ``store``, or the instruction."""
    width: int
    """Bytes that a lane moves at once."""
    warps: list[list[int]]
    """Byte addresses in the buffer, of the lanes of each warp in each iteration of the loops."""
    warp: int = WARP
    """Lanes of a warp."""
    banks: int = BANKS
    """Banks of shared memory."""

    def count(self) -> Wavefronts:
        """Wavefronts (shared memory) or sectors (global memory) of all warps."""
        counts = [self._count(w) for w in self.warps]
        return Wavefronts(sum(c.found for c in counts), sum(c.least for c in counts))

    def _count(self, addresses: list[int]) -> Wavefronts:
        if self.scope == "global":
            return global_sectors(addresses, self.width, self.warp)
        reads = self.op == "load" or _READS.fullmatch(self.op) is not None
        return shared_wavefronts(addresses, self.width, self.warp, reads, self.banks)


def memory_accesses(func: tirx.PrimFunc) -> list[Access]:
    """List the accesses of shared and global memory of a thread program, in program order.

    What engines touch (TMA, wgmma) and the state of mbarriers are none of the threads' accesses.
    Conditions are taken to hold, blocks to be the first one, buffers to start at multiples of 128
    bytes.

    Parameters
    ----------
    func
        A program after ``LowerAsyncCopy``: physical shapes, vectors, no tile operators.

    Raises
    ------
    ValueError
        If an address depends on something that is no thread, block or loop of constant extent; if
        an instruction accesses memory in a way that is not known here.
    TypeError
        If ``func`` is no PrimFunc.

    Example
    -------
    ``[access.count().conflicts for access in memory_accesses(func)]``
    """
    of_class(func, tirx.PrimFunc, "func of memory_accesses", "pass one that passes have lowered")
    return _Collector(func).accesses


_MATRICES = re.compile(r"tl\.ptx_(?:ld|st)matrix_x([124])(?:_trans)?")
_MATRIX_ROW_BYTES = 16
_READS = re.compile(r"tl\.ds_read_tr(?:16|8|4)")
_READ_BYTES = 8
_ENGINES = ("TMA load", "TMA store", "wgmma")


class _Collector:
    """Walks a program; knows the extent of each loop and thread, and the value of each name."""

    def __init__(self, func: tirx.PrimFunc):
        self.accesses: list[Access] = []
        target = func.attrs.get("target")
        self._warp = int(target.attrs.get("thread_warp_size", WARP)) if target else WARP
        wide = target is not None and target.attrs.get("mcpu") == "gfx950"
        self._banks = WIDE_BANKS if wide else BANKS
        self._extents: dict[ir.Var, int] = {}
        self._starts: dict[ir.Var, Any] = {}
        self._values: dict[ir.Var, Any] = {}
        self._threads: dict[str, ir.Var] = {}
        tvm_ffi.structural_walk(
            func, [(tirx.For, self._loop), (tirx.AttrStmt, self._attr), (tirx.Bind, self._bind)]
        )
        self._addressed: set[int] = set()
        tvm_ffi.structural_walk(func, [(ir.Call, self._note_address)])
        tvm_ffi.structural_walk(
            func,
            [
                (tirx.BufferStore, lambda s: self._add("store", s.buffer, s.indices)),
                (ir.TensorLoad, self._load),
                (ir.Call, self._call),
            ],
        )

    def _loop(self, loop: tirx.For) -> None:
        if isinstance(loop.extent, tirx.IntImm):
            self._extents[loop.loop_var] = int(loop.extent.value)
            if not (isinstance(loop.min, tirx.IntImm) and int(loop.min.value) == 0):
                self._starts[loop.loop_var] = loop.min

    def _attr(self, attr: tirx.AttrStmt) -> None:
        if attr.attr_key != "thread_extent":
            return
        var = attr.node.var
        tag = attr.node.thread_tag
        if tag.startswith("blockIdx"):
            self._values[var] = tirx.const(0, "int32")
        else:
            self._extents[var] = int(attr.value.value)
            self._threads[tag] = var

    def _bind(self, bind: tirx.Bind) -> None:
        self._values[bind.var] = bind.value

    def _note_address(self, call: ir.Call) -> None:
        if _op_name(call) == "tirx.address_of":
            self._addressed.add(hash(call.args[0]))

    def _load(self, load: ir.TensorLoad) -> None:
        if hash(load) not in self._addressed:
            self._add("load", load.source, load.indices)

    def _call(self, call: ir.Call) -> None:
        name = _op_name(call)
        pointers = [
            a.args[0]
            for a in call.args
            if isinstance(a, ir.Call) and _op_name(a) == "tirx.address_of"
        ]
        far = [p for p in pointers if not p.source.scope().startswith("local")]
        effects = get_function("op.IntrinsicEffects")(name) or {"queue": "", "schedules": False}
        matrices, reads = _MATRICES.fullmatch(name), _READS.fullmatch(name)
        rows = matrices or reads
        # An mbarrier is no memory of a tile.
        if not far or effects["queue"] in _ENGINES or (effects["schedules"] and not rows):
            return
        if rows is None and effects["queue"] != "cp.async":
            raise ValueError(
                f"memory_accesses found {name} on {far[0].source.name}, wanted loads, stores, "
                "ldmatrix, stmatrix, ds_read_tr or cp.async"
            )
        lanes = 8 * int(matrices[1]) if matrices else self._warp
        bytes_of_row = _MATRIX_ROW_BYTES if matrices else _READ_BYTES
        width = bytes_of_row if rows else int(call.args[0].value)
        for pointer in far:
            self._add(name, pointer.source, pointer.indices, width, lanes)

    def _add(
        self,
        op: str,
        buffer: ir.Var,
        indices: Sequence[Any],
        width: int | None = None,
        lanes: int | None = None,
    ) -> None:
        """Evaluate an access by all threads in all iterations; `width` is that of its dtype and
        vector by default, and the first `lanes` of a warp make it, by default all."""
        scope = buffer.scope().partition(".")[0]
        if scope not in ("shared", "global"):
            return
        bits = tvm.DataType(buffer.dtype).bits
        elements, bases = 1, []
        for index in indices:
            if isinstance(index, tirx.Ramp):
                elements *= int(index.lanes)
                index = index.base
            bases.append(index)
        address = self._resolve(_flat(buffer, bases) * bits // 8)
        axes = [self._threads[f"threadIdx.{a}"] for a in "zyx" if f"threadIdx.{a}" in self._threads]
        loops = [v for v in undefined_vars(address) if not any(v.same_as(a) for a in axes)]
        unknown = [v for v in loops if v not in self._extents]
        if unknown:
            raise ValueError(
                f"the address of {buffer.name} depends on {unknown[0].name}, wanted threads and "
                "loops of constant extent only; give the program constant shapes"
            )
        variables = [*loops, *axes]
        extents = [self._extents[v] for v in variables]
        table = get_function("LayoutTable")(get_function("Layout")(variables, extents, [address]))
        threads = int(np.prod(extents[len(loops) :]))
        rows = np.asarray(list(table), dtype=np.int64).reshape(-1, threads)
        warps = [
            row[first : first + self._warp][:lanes].tolist()
            for row in rows
            for first in range(0, threads, self._warp)
        ]
        bytes_of_lane = width or max(1, elements * bits // 8)
        self.accesses.append(
            Access(buffer.name, scope, op, bytes_of_lane, warps, self._warp, self._banks)
        )

    def _resolve(self, address: Any) -> Any:
        """Replace names by their values, and loop variables by the minimum plus what runs from
        0."""
        while any(v in self._values for v in undefined_vars(address)):
            address = tvm_ffi.structural_map(address, [(ir.Var, lambda v: self._values.get(v, v))])
        return tvm_ffi.structural_map(
            address, [(ir.Var, lambda v: v + self._starts[v] if v in self._starts else v)]
        )


def _op_name(call: ir.Call) -> str:
    return call.op.name if isinstance(call.op, ir.Op) else ""


def _flat(buffer: ir.Var, indices: Sequence[Any]) -> Any:
    """The element's number in the buffer's memory."""
    kind = buffer.ty
    flat: Any = 0
    for d, index in enumerate(indices):
        flat = flat + index * kind.strides[d] if kind.strides else flat * kind.shape[d] + index
    return flat
