"""What the examples for several GPUs share: who runs them, and the comparison with float64.

Under torchrun each process is a rank with a GPU; without, the ranks are threads of this process and
the kernels run in the emulator.
"""

import argparse
import os

import torch

import tilelang

RANKS = (2, 3, 4, 8)


def is_distributed():
    """Whether torchrun has started this process."""
    return "LOCAL_RANK" in os.environ


def jit(function):
    """As `tilelang.jit`; kernels of threads are for the emulator, beside a GPU, too."""
    return tilelang.jit(function, execution_backend="auto" if is_distributed() else "emulate")


def device():
    return torch.device("cuda", torch.cuda.current_device()) if is_distributed() else "cpu"


def run(program, ranks):
    """Calls ``program(rank)`` on each of the ranks; the results of those of this process."""
    if not is_distributed():
        return tilelang.distributed.emulate(ranks, program)
    return [program(torch.distributed.get_rank())]


def numbers(rank, step, *shapes):
    """Tensors of float16 that a rank has in a step: every rank makes the same ones."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    made = (torch.randn(shape, generator=generator) for shape in shapes)
    return [x.half().to(device()) for x in made]


def error(found, wanted, scale=None):
    """Largest difference from float64, in units of the rounding of the largest value."""
    largest = wanted.abs().max() if scale is None else scale
    return float((found.double() - wanted).abs().max() / largest / torch.finfo(found.dtype).eps)


def main(check, bound):
    """Runs ``check(ranks)``, the largest error of an example, for each number of ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    ranks = parser.parse_args().ranks
    if is_distributed():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        torch.distributed.init_process_group("nccl")
        ranks = [torch.distributed.get_world_size()]
    for count in ranks:
        found = check(count)
        assert found <= bound, f"{count} ranks: {found:.2f} roundings off, wanted up to {bound}"
        print(f"{count} ranks: {found:.2f} roundings off")
    if is_distributed():
        torch.distributed.destroy_process_group()
