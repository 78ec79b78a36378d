"""What NVIDIA chips can do in a second: the tables of the cost model and of rooflines."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, replace

import torch

from tilelang.carver.arch.chip import Chip
from tilelang.utils.target import TargetLike

SHARED_BYTES_PER_CLOCK = 128
"""What a multiprocessor reads or writes: 32 banks of 4 bytes (CUDA Programming Guide, "Shared
Memory")."""
L2_BYTES_PER_CLOCK = 5120
"""What all multiprocessors read from L2 ("NVIDIA A100 Tensor Core GPU Architecture", "A100 L2
cache"); later papers give none, and it is taken for the same."""
L2_PORT_BYTES_PER_CLOCK = 64
"""What a multiprocessor receives. Neighbours that read the same lines at about the same time cost
L2 one read (Nsight Compute documentation, "L2 Request Coalescer"), so that all of them together
receive more than L2 reads. Blocks of 1300 GEMMs on an H200 received up to 65."""

CONSUMER_REGISTERS = 240
"""What setmaxnreg gives a consumer's thread at most: kMostRegisters of src/target/registers.h."""
L2_LINE_BYTES = 128
"""A line, of which TMA asks for a row of a swizzled tile (CUDA Programming Guide, "Device Memory
Accesses")."""
ACROSS_LINES_BYTES_PER_CLOCK = 4200
"""What all multiprocessors receive of rows of tiles that lie in two lines of L2 each: tiles of 192
x 160 of 6328 x 6328 x 6328 kept L2 of an H100 busy for 93 % of the time (ncu), while 4170 bytes a
clock came to shared memory."""
ISSUED_PER_CLOCK = 1.3
"""Instructions that a multiprocessor issues, of the four that it can, in loops that load, shift and
convert: 3 and 8 x 10176 x 10306 in 8-bit floats take an H200 53 us."""
ADDING_CLOCKS = 4000
"""What a kernel that adds up shares of another one's takes besides their bytes: its launch, which
does not wait for the end of the other kernel, and its loads. Assumed: on an H200 products of eleven
to twelve shares (328 x 832 x 26752, 1256 x 128 x 29120) agree with it."""


@dataclass(frozen=True)
class Speeds:
    """A row of the table: a product with this chip.

    Attributes:
        sms: multiprocessors.
        clock: of these, in Hz, the boost clock.
        tensor_flop: dense FLOP per clock of a multiprocessor's tensor cores, for operands of 16
            bits that are added in float32.
        fma_flop: FLOP per clock of its float32 units.
        bandwidth: of the memory, in bytes per second.
        l2_bytes: size of the L2 cache.
        mma_share: of the tensor cores' speed, that products of warps reach where the peak is that
            of warp groups or of larger instructions (W. Luo and others, "Benchmarking and
            Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", 2024, throughput
            of mma and wgmma); taken for sm_100, too.
        sustained_flops: FLOP/s of operands of 16 bits that the limit of power allows for long,
            of random numbers; infinite where it was not measured.
    """

    sms: int
    clock: float
    tensor_flop: int
    fma_flop: int
    bandwidth: float
    l2_bytes: int
    mma_share: float = 1.0
    sustained_flops: float = math.inf


_SPEEDS = {
    75: Speeds(40, 1.59e9, 1024, 128, 0.32e12, 4 << 20),
    80: Speeds(108, 1.41e9, 2048, 128, 2.039e12, 40 << 20),
    86: Speeds(84, 1.74e9, 1024, 256, 0.696e12, 6 << 20),
    87: Speeds(16, 1.30e9, 1024, 256, 0.205e12, 4 << 20),
    89: Speeds(142, 2.52e9, 1024, 256, 0.864e12, 96 << 20),
    90: Speeds(132, 1.83e9, 4096, 256, 4.8e12, 50 << 20, mma_share=0.63, sustained_flops=7.2e14),
    100: Speeds(148, 1.85e9, 8192, 256, 8.0e12, 126 << 20, mma_share=0.63),
    103: Speeds(160, 1.85e9, 8192, 256, 8.0e12, 126 << 20, mma_share=0.63),
    120: Speeds(188, 2.41e9, 1024, 256, 1.79e12, 128 << 20),
}
"""T4, A100 80GB SXM, A40, Jetson AGX Orin, L40S, H200 SXM, B200, B300, RTX PRO 6000: NVIDIA's data
sheets and architecture papers. Tensor FLOP per clock are the sheet's dense FLOP/s over
multiprocessors and boost clock, rounded to a power of two. What the H200's power allows is from
searches of all tiles of a GEMM and from `benchmark/mla_limit.py`."""
_NEAREST = {110: 100, 121: 120}


@dataclass(frozen=True, init=False)
class CUDA(Chip):
    """A chip of NVIDIA: its limits from `src/target`, its speeds from the table, and what the
    driver says where the chip is the GPU of this machine.

    `target` is what `determine_target` takes. Raises `ValueError` for a chip that is not known, and
    for a target of another kind.

    Example: ``CUDA("cuda -arch=sm_90a").tensor_flops("float16")``
    """

    KIND = "cuda"

    speeds: Speeds

    def __init__(self, target: TargetLike = "cuda"):
        super().__init__(target)
        object.__setattr__(self, "speeds", _speeds(self.sm))

    @property
    def sm(self) -> int:
        """The architecture's number, such as 90."""
        return int(re.sub(r"\D", "", self.arch))

    @property
    def compute_max_core(self) -> int:
        """Multiprocessors."""
        return self.speeds.sms

    def most_registers(self, by_warp_groups: bool) -> int:
        """Registers that a thread has at most; setmaxnreg gives a consumer's thread fewer than
        ptxas gives another one."""
        return CONSUMER_REGISTERS if by_warp_groups else self._limit("registers_per_thread")

    def tensor_flop_per_clock(self, dtype: str) -> float:
        """FLOP of a multiprocessor's tensor cores for products of operands of `dtype`: twice as
        many for half the bits, as the data sheets have it; those of the float32 units for what
        tensor cores do not take."""
        bits = _bits(dtype)
        if dtype == "float32":
            return self.speeds.fma_flop
        if dtype == "tfloat32":
            return self.speeds.tensor_flop / 2
        if dtype == "float64":
            return (
                self.speeds.tensor_flop / 16 if self.sm in (80, 90) else self.speeds.fma_flop / 64
            )
        return self.speeds.tensor_flop * 16 / bits

    @property
    def power_share(self) -> float:
        """The share of the tensor cores' peak that the limit of power allows for long: at most
        1."""
        peak = self.speeds.tensor_flop * self.speeds.sms * self.speeds.clock
        return min(1.0, self.speeds.sustained_flops / peak)

    def tensor_flops(self, dtype: str) -> float:
        """FLOP/s of all multiprocessors, for products of operands of `dtype`."""
        return self.tensor_flop_per_clock(dtype) * self.speeds.sms * self.speeds.clock

    @property
    def bandwidth(self) -> float:
        """The memory's bandwidth, in bytes per second."""
        return self.speeds.bandwidth


def _bits(dtype: str) -> int:
    from tilelang.utils import dtypes

    return dtypes.bits(dtype)


def _speeds(sm: int) -> Speeds:
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        if major * 10 + minor == sm:
            return _here(sm, torch.cuda.current_device())
    return listed_speeds(sm)


def listed_speeds(sm: int) -> Speeds:
    """The table's row for an architecture's number, such as 90, whatever GPU is here.

    Raises `ValueError` for one that is not known.

    Example: ``listed_speeds(90).sms``
    """
    found = _SPEEDS.get(_NEAREST.get(sm, sm))
    if found is None:
        known = ", ".join(f"sm_{number}" for number in sorted({*_SPEEDS, *_NEAREST}))
        raise ValueError(
            f"found target arch sm_{sm}, whose speeds are not known; wanted one of {known}"
        )
    return found


@functools.cache
def _here(sm: int, number: int) -> Speeds:
    """The speeds of a GPU of this machine, as the driver says."""
    from cuda.bindings import driver

    attribute = driver.CUdevice_attribute
    torch.cuda.init()

    def ask(what: driver.CUdevice_attribute) -> int:
        error, value = driver.cuDeviceGetAttribute(what, number)
        if error != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuDeviceGetAttribute({what.name}): {error.name}")
        return int(value)

    row = listed_speeds(sm)
    # Twice a clock, and a bus in bits; both rates are in kHz.
    width = ask(attribute.CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)
    bandwidth = 2e3 * ask(attribute.CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE) * width / 8
    clock = 1e3 * ask(attribute.CU_DEVICE_ATTRIBUTE_CLOCK_RATE)
    return replace(
        row,
        sms=ask(attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        clock=clock or row.clock,
        bandwidth=bandwidth or row.bandwidth,
        l2_bytes=ask(attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE) or row.l2_bytes,
    )
