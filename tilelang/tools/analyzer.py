"""What a program has to do and how long a chip takes for it, as `tilelang.profiler.roofline`, under
the names that scripts use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilelang.carver.arch.cuda import CUDA
from tilelang.profiler.roofline import roofline


@dataclass(frozen=True)
class AnalysisResult:
    """The work of a call.

    Attributes:
        total_flops: of its products.
        total_global_bytes: that copies move between global memory and the chip.
        estimated_time: seconds at least: of the products at the chip's peak, or of the tensors at
            the memory's bandwidth.
        expected_tflops: TFLOP/s in that time.
        expected_bandwidth_GBps: GB/s of the copies in that time.
    """

    total_flops: float
    total_global_bytes: float
    estimated_time: float
    expected_tflops: float
    expected_bandwidth_GBps: float

    def __str__(self) -> str:
        return (
            f"{self.total_flops:.4g} FLOP, {self.total_global_bytes:.4g} bytes copied, at least "
            f"{self.estimated_time * 1e3:.4g} ms: {self.expected_tflops:.4g} TFLOP/s, "
            f"{self.expected_bandwidth_GBps:.4g} GB/s"
        )


class Analyzer:
    """Counts work in programs."""

    @staticmethod
    def analysis(
        fn: Any, device: CUDA | None = None, sizes: Mapping[str, int] | None = None
    ) -> AnalysisResult:
        """The work of a PrimFunc or a kernel on a chip, by default the one compiled for here.
        `sizes` gives symbolic dimensions and scalars by name.

        Raises what `roofline` raises, and `ValueError` for a program without products and tensors,
        which takes no time that is known.

        Example: ``Analyzer.analysis(main, CUDA("cuda")).expected_tflops``
        """
        found = roofline(fn, sizes, device)
        seconds = found.milliseconds / 1e3
        if seconds == 0:
            raise ValueError(
                "Analyzer.analysis: found a program without T.gemm whose parameters are no tensors "
                "of a known size, wanted something to count; declare its tensors"
            )
        flop = sum(found.flop.values())
        return AnalysisResult(
            flop, found.copied, seconds, flop / seconds / 1e12, found.copied / seconds / 1e9
        )
