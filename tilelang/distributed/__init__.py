"""Kernels that several GPUs run together: the memory that they share, and who they are.

Under ``torchrun``, with a process for each GPU::

    torch.distributed.init_process_group("nccl")
    out = tilelang.distributed.zeros((ranks, n), torch.float16)
    kernel(x, out)

Without GPUs, with any number of ranks in one process, in the emulator::

    def program(rank):
        out = tilelang.distributed.zeros((4, n), torch.float16)
        kernel(x[rank], out)
        return out

    results = tilelang.distributed.emulate(4, program)
"""

from tilelang.distributed.emulated import emulate
from tilelang.distributed.memory import empty, zeros
from tilelang.distributed.team import Team, current_team

__all__ = ["Team", "current_team", "empty", "emulate", "zeros"]
