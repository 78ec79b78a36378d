"""Suggested configurations: `template` has kinds of kernels, `cost` what they may take, `arch` the
chips."""

from tilelang.carver import arch as arch
from tilelang.carver import roller as roller
from tilelang.carver import template as template
from tilelang.carver.arch import CUDA as CUDA
from tilelang.carver.dequantized import DequantizedSchedule as DequantizedSchedule
from tilelang.carver.dequantized import dequantized_schedules_of as dequantized_schedules_of
from tilelang.carver.roller import Hint as Hint
from tilelang.carver.scaled import ScaledSchedule as ScaledSchedule
from tilelang.carver.scaled import scaled_schedules_of as scaled_schedules_of
from tilelang.carver.schedules import Schedule as Schedule
from tilelang.carver.schedules import schedules_of as schedules_of
from tilelang.carver.template import ElementwiseTemplate as ElementwiseTemplate
from tilelang.carver.template import FlashAttentionTemplate as FlashAttentionTemplate
from tilelang.carver.template import GEMVTemplate as GEMVTemplate
from tilelang.carver.template import GeneralReductionTemplate as GeneralReductionTemplate
from tilelang.carver.template import MatmulTemplate as MatmulTemplate

__all__ = [
    "CUDA",
    "DequantizedSchedule",
    "ElementwiseTemplate",
    "FlashAttentionTemplate",
    "GEMVTemplate",
    "GeneralReductionTemplate",
    "Hint",
    "MatmulTemplate",
    "ScaledSchedule",
    "Schedule",
    "arch",
    "dequantized_schedules_of",
    "roller",
    "scaled_schedules_of",
    "schedules_of",
    "template",
]
