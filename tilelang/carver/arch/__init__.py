"""Chips, where users look for them: properties of devices (`driver`, which are those of
`tilelang.compat.device_properties`), limits (`chip`) and speeds (`cuda`)."""

from typing import NoReturn

from tilelang.carver.arch import driver as driver
from tilelang.carver.arch.chip import Chip as Chip
from tilelang.carver.arch.cuda import CUDA as CUDA
from tilelang.env import env
from tilelang.utils.target import TargetLike, determine_target, kind_of, traced_for


class CDNA(Chip):
    """A chip of AMD, whose limits are known and whose speeds are not.

    `target` is what `determine_target` takes. Raises `ValueError` for a target of another kind.

    Example: ``CDNA("hip -mcpu=gfx942").smem_cap == 65536``
    """

    KIND = "hip"

    def __init__(self, target: TargetLike = "hip"):
        super().__init__(target)

    @property
    def speeds(self) -> NoReturn:
        """Raises `ValueError`: there is no cost model of these chips."""
        raise ValueError(
            f"found target hip {self.arch}, whose speeds are not known; wanted one of kind cuda"
        )


def auto_infer_current_arch() -> CUDA | CDNA:
    """The chip that kernels are compiled for here: in a function under `tilelang.jit` that of its
    target, elsewhere that of TILELANG_DEFAULT_TARGET. `tilelang.compile` takes a program that has
    been made before, so its target is not known here: write ``CUDA(target)``.

    Raises `ValueError` for a target that is neither cuda nor hip.

    Example: ``stages = auto_infer_current_arch().smem_cap // bytes_of_stage``
    """
    target = traced_for() or determine_target(env.TILELANG_DEFAULT_TARGET, return_object=True)
    return CDNA(target) if kind_of(target) == CDNA.KIND else CUDA(target)
