"""Random numbers in a kernel: each thread has a generator of its own."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm.tirx.script.builder import ir as tir_builder

from tilelang.language.allocation import alloc_local
from tilelang.language.intrinsics import address_of
from tilelang.language.launch import enclosing_kernel
from tilelang.language.ops import intrinsic_call
from tilelang.language.scalars import as_dtype
from tilelang.language.tracer import current_tracer

_GENERATORS = {
    "curandStatePhilox4_32_10_t": "Philox",
    "curandStateXORWOW_t": "Xorwow",
    "curandStateMRG32k3a_t": "Mrg32k3a",
}
_STATE_WORDS = 12
_FUNCTIONS = {"uniform": "rng_uniform", "normal": "rng_normal"}


def rng_init(
    seed: Any, seq: Any = None, off: Any = 0, generator: str = "curandStatePhilox4_32_10_t"
) -> None:
    """Start this thread's generator of random numbers.

    The GPU and the emulator give the same integers (src/device/include/tl/random.h has the
    algorithms). The names are cuRAND's; Philox takes seed, sequence and offset as cuRAND's Philox
    does, the other two generators start from words of their own.

    Parameters
    ----------
    seed, seq, off
        64-bit integers: one stream for each seed and sequence, and how many of its numbers to skip
        (Philox at once, the others one by one). The sequence is ``tx + bx * blockDim.x`` by
        default.
    generator
        ``curandStatePhilox4_32_10_t``, ``curandStateXORWOW_t`` or ``curandStateMRG32k3a_t``.

    Raises
    ------
    AssertionError
        If there is no such generator.
    ValueError
        Outside of a kernel.

    Example
    -------
    ``T.rng_init(seed=42)``, then ``x = T.rng_rand_float()``
    """
    kernel = enclosing_kernel("T.rng_init")
    assert generator in _GENERATORS, (
        f"generator of T.rng_init is {generator!r}, wanted one of {', '.join(_GENERATORS)}"
    )
    if seq is None:
        seq = kernel.get_thread_binding() + kernel.get_block_binding() * kernel.get_thread_extent()
    if kernel.random_state is None:
        state = alloc_local((_STATE_WORDS,), "uint32")
        current_tracer("T.rng_init").name("rng_state", state)
    else:
        state = kernel.random_state[1]
    kernel.random_state = (_GENERATORS[generator], state)
    numbers = [as_dtype(value, "uint64") for value in (seed, seq, off)]
    arguments = [_GENERATORS[generator], address_of(state), *numbers]
    tir_builder.evaluate(intrinsic_call("rng_init", "void", arguments))


def _draw(name: str, function: str, dtype: str, words: list[str]) -> ir.Call:
    kernel = enclosing_kernel(name)
    if kernel.random_state is None:
        raise ValueError(f"{name} found no generator; call T.rng_init(seed) before it")
    generator, state = kernel.random_state
    arguments = [generator, *(ir.StringImm(word) for word in words), address_of(state)]
    return intrinsic_call(function, dtype, arguments)


def rng_rand() -> ir.Call:
    """Return a random uint32 of this thread's generator, which ``T.rng_init`` has started.

    Raises
    ------
    ValueError
        If it has not.

    Example
    -------
    ``bits = T.rng_rand()``
    """
    return _draw("T.rng_rand", "rng_next", "uint32", [])


def rng_rand_float(bit: int = 32, dist: str = "uniform") -> ir.Call:
    """Return a random float of this thread's generator.

    Parameters
    ----------
    bit
        32 for float32, of one number of the generator; 64 for float64, of two.
    dist
        ``uniform``: between 0 and 1, without 0. ``normal``: of mean 0 and variance 1, from two
        uniform ones.

    Raises
    ------
    AssertionError
        For another ``bit`` or ``dist``.
    ValueError
        If ``T.rng_init`` has not been called.

    Example
    -------
    ``noise = T.rng_rand_float(dist="normal")``
    """
    assert bit in (32, 64), f"bit of T.rng_rand_float is {bit!r}, wanted 32 or 64"
    assert dist in _FUNCTIONS, (
        f"dist of T.rng_rand_float is {dist!r}, wanted one of {', '.join(_FUNCTIONS)}"
    )
    word = "float" if bit == 32 else "double"
    return _draw("T.rng_rand_float", _FUNCTIONS[dist], f"float{bit}", [word])
