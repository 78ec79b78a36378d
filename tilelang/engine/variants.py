"""The variants of a program with dynamic extents: the same program, each under other guards.

A *guard* is a condition on the sizes of a call (`src/analysis/size_facts.cc` finds those that the
compiler can use). It is kept once, in the function attribute `tilelang_guards`: `AssumeGuards`
makes assumptions of it, as if the program said ``T.assume``, and the launch plan its check. So what
a variant assumes is what its call has checked.

A call takes the first variant whose condition holds: its guards, and that tensors begin at
multiples of 16 bytes. The last variant takes every call.
"""

from __future__ import annotations

import dataclasses

import tvm
from tvm import tirx

from tilelang._ffi import get_function
from tilelang.engine.launch_plan import Condition, Guard

GUARDS = "tilelang_guards"
ANY_ADDRESS = "tilelang_any_address"


def variants_of(func: tvm.tirx.PrimFunc) -> list[tvm.tirx.PrimFunc]:
    """The program under the guards that it is worth compiling for, the most first; then `func`
    itself, which takes any sizes; last the program that takes tensors at any address, unless it may
    rely on their alignment by itself (`src/transform/tile/offset_tensors.cc`).

    Example: ``[condition_of(variant) for variant in variants_of(main)]``
    """
    facts = get_function("analysis.SizeFacts")(func)
    guarded = [func.with_attr(GUARDS, conditions) for conditions in facts]
    anywhere = get_function("transform.OffsetTensors")(func)
    return [*guarded, func, *([anywhere] if condition_of(anywhere).any_address else [])]


def condition_of(func: tvm.tirx.PrimFunc) -> Condition:
    """Which calls a variant takes."""
    return Condition(guards_of(func), ANY_ADDRESS in (func.attrs or {}))


def guards_of(func: tvm.tirx.PrimFunc) -> tuple[Guard, ...]:
    """The guards of a variant, those on the same number as one."""
    found: dict[tuple[tuple[str, ...], int], Guard] = {}
    for condition in (func.attrs or {}).get(GUARDS, ()):
        guard = _guard(condition)
        key = guard.variables, guard.modulus
        other = found.get(key, guard)
        found[key] = dataclasses.replace(
            guard,
            least=guard.least if other.least is None else other.least,
            most=guard.most if other.most is None else other.most,
        )
    return tuple(found.values())


def _guard(condition: tvm.ir.Expr) -> Guard:
    """The guard that a condition is: ``v % c == 0``, ``v >= c`` or ``product of v <= c``."""
    left, bound = condition.a, int(condition.b.value)
    if isinstance(condition, tirx.EQ) and isinstance(left, tirx.FloorMod):
        return Guard(_factors(left.a), int(left.b.value), bound, bound)
    if isinstance(condition, tirx.GE):
        return Guard(_factors(left), least=bound)
    if isinstance(condition, tirx.LE):
        return Guard(_factors(left), most=bound)
    raise AssertionError(f"{condition} is no guard; this is a bug in tilelang (SizeFacts)")


def _factors(product: tvm.ir.Expr) -> tuple[str, ...]:
    if isinstance(product, tirx.Mul):
        return (*_factors(product.a), *_factors(product.b))
    if isinstance(product, tirx.Cast):
        return _factors(product.value)
    return (str(product.name),)
