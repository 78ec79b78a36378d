"""Small kernels: compiled, and what the dtypes of 4 bits hold."""

import pytest
import torch

import tilelang

E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
VALUES = {
    "int4": [*range(8), *range(-8, 0)],
    "uint4": [*range(16)],
    "float4_e2m1fn": [*E2M1, *(-v for v in E2M1)],
}


@pytest.fixture
def compiled():
    """A compiled function, for the GPU if there is one; `options` are those of tilelang.compile."""
    return lambda func, **options: tilelang.compile(func, execution_backend="auto", **options)


@pytest.fixture
def unpacked():
    """The values in float64 of a tensor of bytes, two elements of `dtype` in each."""

    def values(packed, dtype):
        codes = packed.view(torch.uint8).to(torch.int64)
        pairs = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)
        return torch.tensor(VALUES[dtype], dtype=torch.float64, device=packed.device)[pairs]

    return values
