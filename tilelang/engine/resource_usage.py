"""What a compiled kernel needs of the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Advisory:
    """What ptxas says that costs time, as of products that it does not let run beside each other.

    Attributes:
        code: ptxas's number of it, such as ``"C7514"``.
        text: its words, without the function's name.
    """

    code: str
    text: str


@dataclass(frozen=True)
class ResourceUsage:
    """What one thread or block of a kernel needs, as ptxas reports it, or the metadata of AMD's
    code objects.

    Attributes:
        registers: 32-bit registers of a thread; on AMD vector registers, of which some may be
            accumulation registers.
        spill_stores: bytes that a thread's code stores because registers ran out; on AMD those of
            the vector registers that did not fit, however often they are stored.
        spill_loads: bytes that it loads back; on AMD as `spill_stores`.
        stack: bytes of local memory of a thread, spills included.
        static_shared: bytes of a block's shared memory that the kernel declares; dynamic shared
            memory is chosen at launch.
        advisories: what ptxas advises; of AMD's compiler nothing is known.
        spills_in_loops: instructions that move spilled registers in the kernel's loops, in those
            alone that multiply matrices if some do, in all of the kernel if it has no loop; 0
            without spills, and on AMD.
        instructions_in_loops: all instructions there; 0 where `spills_in_loops` is.
    """

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    static_shared: int
    advisories: tuple[Advisory, ...] = ()
    spills_in_loops: int = 0
    instructions_in_loops: int = 0


def select(usage: dict[str, ResourceUsage], names: Sequence[str]) -> dict[str, ResourceUsage]:
    """What the kernels `names` need. Raises `RuntimeError` where the program lacks one of them."""
    missing = [name for name in names if name not in usage]
    if missing:
        raise RuntimeError(
            f"the compiled program has no kernel {', '.join(missing)}; "
            f'it has {", ".join(usage) or "none"}. Declare them extern "C" __global__.'
        )
    return {name: usage[name] for name in names}
