"""Chips, where users look for them: properties of devices (`driver`, which are those of
`tilelang.compat.device_properties`) and speeds (`cuda`)."""

from tilelang.carver.arch import driver as driver
from tilelang.carver.arch.cuda import CUDA as CUDA
from tilelang.carver.arch.cuda import auto_infer_current_arch as auto_infer_current_arch


class CDNA:
    """AMD's chips, for which nothing is compiled: scripts that choose between both import the name.
    Raises `ValueError`.

    Example: ``arch = CDNA("hip") if torch.version.hip else CUDA("cuda")``
    """

    def __init__(self, target: object = "hip"):
        raise ValueError(f"found target {target!r}, wanted cuda: use CUDA('cuda')")
