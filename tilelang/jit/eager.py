"""Calls of functions in eager style: from arguments to the kernel that is compiled for them.

A call finds its kernel in two steps: the compile-time arguments, and what else the trace reads,
select a `_Variant`, which knows where the constants of the other arguments are, and their values
select the kernel.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
import tvm

from tilelang._signatures import advice, bind
from tilelang.jit.cache_key import copied, hashable, is_comparable, is_constant
from tilelang.jit.kernel import JITKernel
from tilelang.jit.reads import Reads, Versions
from tilelang.language.constants import missing_constant
from tilelang.language.dtypes import dtype as data_type
from tilelang.language.eager import Declarations, EagerFunction, Place
from tilelang.language.tensors import Tensor
from tilelang.language.tracer import add_location
from tilelang.runtime.adapter.cython._adapter import Version
from tilelang.utils import dtypes


class _Absent:
    """The value of an argument of the run that was not passed."""

    def __repr__(self) -> str:
        return "<absent>"


ABSENT = _Absent()
Compiler = Callable[[tvm.tirx.PrimFunc], JITKernel]
Bound = tuple[Any, ...]
"""A call's arguments in the order of the signature; `ABSENT` for an argument of the run that was
left out."""
_Kernels = dict[tuple[tuple[Any, ...], Hashable], JITKernel]
"""By the values of the constants and the surroundings."""
_Key = TypeVar("_Key", bound=Hashable)


def deferred_kernel(
    kernels: dict[_Key, JITKernel],
    key: _Key,
    trace: Callable[[], tvm.tirx.PrimFunc],
    compiler: Callable[[], Compiler],
    lock: threading.Lock,
    origin: tuple[Any, tuple[Any, ...], dict[str, Any]],
) -> Callable[[], JITKernel]:
    """Traces, unless `kernels` has the key; what is returned compiles, in any thread, and gives the
    same kernel each time. `origin` is what the kernel says that it is from."""
    kernel = kernels.get(key)
    if kernel is not None:
        return lambda: kernel
    program = trace()
    compile = compiler()

    def finish() -> JITKernel:
        compiled = compile(program)
        compiled.origin = origin
        # Of two threads that compile the same, both use the kernel of the first.
        with lock:
            return kernels.setdefault(key, compiled)

    return finish


class _Variant(Version):
    """One set of compile-time arguments: its declarations and its kernels."""

    def __init__(
        self,
        declarations: Declarations,
        values: Mapping[str, Any],
        overrides: Mapping[str, int],
        order: Sequence[str],
        key: Hashable,
        kernels: _Kernels,
        versions: Versions[_Variant],
        where: str,
    ):
        inputs = [order.index(name) for name in declarations.kinds]
        names = [name for name in declarations.places if name not in overrides]
        super().__init__(_reads(declarations, names, order), inputs)
        self.key = key
        self.versions = versions
        self.values = values
        self.overrides = overrides
        self.kernels = kernels
        self.inputs = _select(inputs)
        """Takes the arguments of the run out of a call's."""
        self._declarations = declarations
        self._where = where
        self._order = order
        self._names = names

    def read(self, bound: Bound) -> tuple[Any, ...]:
        """The values of the constants in `bound`, in the order of the declarations."""
        return tuple([self._read(name, bound) for name in self._names])

    def _read(self, name: str, bound: Bound) -> Any:
        places = self._declarations.places[name]
        for place in places:
            argument = bound[self._order.index(place[0])]
            if argument is not ABSENT:
                return self._at(place, argument)
        if name in self._declarations.spans:
            error: Exception = missing_constant(name)
            add_location(error, self._declarations.spans[name])
            raise error
        raise TypeError(
            f"{self._where}: missing the argument {places[0][0]!r}, whose {places[0][1]} is "
            f"constant at compile time; pass it, T.Tensor(shape, dtype) in its place, or {name}=..."
        )

    def _at(self, place: Place, argument: Any) -> Any:
        parameter, what, dim = place
        kind = self._declarations.kinds[parameter]
        assert isinstance(kind, Tensor)
        if not isinstance(argument, torch.Tensor | Tensor):
            raise TypeError(
                f"{self._where}: parameter `{parameter}`: expected a torch.Tensor, got "
                f"{type(argument).__name__}"
            )
        if what == "dtype":
            return _dtype_of(argument.dtype)
        if len(argument.shape) != len(kind.shape):
            raise ValueError(
                f"{self._where}: parameter `{parameter}`: rank mismatch: expected "
                f"{len(kind.shape)} dimensions, got {len(argument.shape)} {tuple(argument.shape)}. "
                "Pass a tensor of that rank."
            )
        is_torch = isinstance(argument, torch.Tensor)
        strides = argument.stride() if isinstance(argument, torch.Tensor) else argument.strides
        value = argument.shape[dim] if what == "shape" else strides[dim]
        if isinstance(value, torch.SymInt):
            value = int(value)  # torch's tracer has a graph for each value from now on
        if not isinstance(value, int):
            raise TypeError(
                f"{self._where}: parameter `{parameter}`: its {what} at index {dim} is {value}, "
                "wanted an int: it is constant at compile time"
            )
        # Elements of 4 and 6 bits share those of torch.
        is_last = dim == len(kind.shape) - 1
        dtype = _dtype_of(argument.dtype) if kind.dtype is Any else kind.dtype
        is_packed = is_torch and is_last == (what == "shape")
        return dtypes.elements(str(dtype), value) if is_packed else value

    def constants(self, read: tuple[Any, ...]) -> dict[str, Any]:
        """The values of all constants by name."""
        return {**dict(zip(self._names, read, strict=True)), **self.overrides}


def _reads(
    declarations: Declarations, names: Sequence[str], order: Sequence[str]
) -> list[tuple[int, int, str, int]]:
    """Where the adapter finds what decides about the values of the constants `names`."""
    found = set()
    for name in names:
        for parameter, what, dim in declarations.places[name][:1]:
            kind = declarations.kinds[parameter]
            assert isinstance(kind, Tensor)
            found.add((order.index(parameter), len(kind.shape), what, dim))
            if kind.dtype is Any:
                # It says how many elements share one of torch's.
                found.add((order.index(parameter), len(kind.shape), "dtype", 0))
    return list(found)


class _Layout(NamedTuple):
    """How calls of one form are read."""

    select: Callable[[Bound], Bound]
    """Takes the parameters' values out of positional arguments, keywords and defaults."""
    extra: tuple[str, ...]
    """The keywords that are no parameters."""
    positions: list[int]
    """Where the parameters' values are among arguments and keywords; -1 for defaults."""


def _select(positions: Sequence[int]) -> Callable[[Bound], Bound]:
    """A function that takes the elements at `positions` out of a tuple."""
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    if not positions:
        return lambda values: ()
    (position,) = positions
    return lambda values: (values[position],)


@functools.cache
def _dtype_of(dtype: Any) -> data_type:
    """A tensor's dtype in the language; two elements of 4 bits are one element for torch."""
    return data_type(str(dtype).removeprefix("torch.").removesuffix("_x2"))


class EagerCalls:
    """Kernels of one function in eager style."""

    def __init__(
        self,
        function: EagerFunction,
        compiler: Callable[[], Compiler],
        surroundings: Callable[[], Hashable],
        tracing: Callable[[], contextlib.AbstractContextManager[None]],
        owner: Any,
        keep: Callable[..., None],
    ):
        """`surroundings` is the key of what `compiler` goes by besides the program; `tracing` is
        around each trace, `owner` is the function under `tilelang.jit`, `keep` its
        `Dispatcher._keep`."""
        self._owner = owner
        self._keep = keep
        self.function = function
        self._compiler = compiler
        self._surroundings = surroundings
        self._tracing = tracing
        self._lock = threading.Lock()
        self._variants: dict[Hashable, Versions[_Variant]] = {}
        self._kernels: dict[Hashable, _Kernels] = {}
        self._layouts: dict[tuple[Any, ...], _Layout] = {}
        parameters = function.signature.parameters
        self._order = list(parameters)
        self._defaults = tuple(
            ABSENT if p.default is p.empty else p.default for p in parameters.values()
        )
        self._constants = [
            i
            for i, name in enumerate(parameters)
            if name not in function.annotations and name not in function.declared
        ]
        self._dtypes = [self._order.index(name) for name in function.dtypes]
        # Declared on some paths only: what is passed may be a constant.
        self._perhaps = [
            i for i, name in enumerate(parameters) if not function.declared.get(name, True)
        ]

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the kernel for the arguments; compiles it where there is none yet."""
        bound, overrides = self._bind(args, kwargs, complete=True)
        surroundings = self._surroundings()
        variant = self._variant(bound, overrides)
        read = variant.read(bound)
        kernel = variant.kernels.get((read, surroundings))
        if kernel is None:
            kernel = self._deferred(variant, read)()
        if not self._perhaps and variant.kernels.get((read, surroundings)) is kernel:
            self._keep_call(args, kwargs, variant, surroundings, kernel)
        return kernel(*variant.inputs(bound))

    def _keep_call(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        variant: _Variant,
        surroundings: Hashable,
        kernel: JITKernel,
    ) -> None:
        """Has the adapter find the kernel of such a call."""
        positions = self._layouts[_form(args, kwargs, complete=True)].positions
        run = {at for i, at in enumerate(positions) if i not in self._constants}
        passed = [value for i, value in enumerate((*args, *kwargs.values())) if i not in run]
        defaults = [self._defaults[i] for i in self._constants if positions[i] < 0]
        if all(map(is_comparable, passed)) and all(map(is_constant, defaults)):
            call = (args, kwargs, positions, self._defaults, copied(tuple(passed)))
            self._keep(*call, variant.versions.recent, variant, surroundings, kernel)

    def kernel(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JITKernel:
        """The kernel for the arguments; those of the run may be left out."""
        return self.deferred(args, kwargs)()

    def deferred(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], JITKernel]:
        """Traces; what is returned compiles, in any thread, once for each key."""
        return self._deferred(*self._specialized(args, kwargs))

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tvm.tirx.PrimFunc:
        """The program for the arguments."""
        variant, read = self._specialized(args, kwargs)
        return self._trace(variant, read)

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
        """Equal for arguments with the same kernel."""
        variant, read = self._specialized(args, kwargs)
        return (variant.key, read, self._surroundings())

    def _specialized(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[_Variant, tuple[Any, ...]]:
        bound, overrides = self._bind(args, kwargs, complete=False)
        variant = self._variant(bound, overrides)
        return variant, variant.read(bound)

    # From arguments to a variant.

    def _bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], complete: bool
    ) -> tuple[Bound, dict[str, Any]]:
        """The arguments in the signature's order, and the keywords that name constants."""
        form = _form(args, kwargs, complete)
        layout = self._layouts.get(form)
        if layout is None:
            layout = self._layouts[form] = self._layout(args, kwargs, complete)
        bound = layout.select((*args, *kwargs.values(), *self._defaults))
        if self._dtypes:
            bound = tuple([data_type(v) if i in self._dtypes else v for i, v in enumerate(bound)])
        return bound, _overrides(kwargs, layout.extra)

    def _layout(self, args: tuple[Any, ...], kwargs: dict[str, Any], complete: bool) -> _Layout:
        """How a call with as many arguments and these keywords is read."""
        signature = self.function.signature
        own = {name: value for name, value in kwargs.items() if name in signature.parameters}
        where = self.function.where()
        given = bind(signature, where, args, own, partial=True).arguments
        names = [name for name, p in signature.parameters.items() if p.kind is not p.KEYWORD_ONLY]
        positions: list[int] = []
        for i, name in enumerate(self._order):
            if name in own:
                positions.append(len(args) + list(kwargs).index(name))
            elif name in given:
                positions.append(names.index(name))
            elif self._defaults[i] is ABSENT and (complete or i in self._constants):
                missing = f"missing a required argument: {name!r}"
                raise TypeError(f"{where}: {missing}; {advice(missing, signature)}")
            else:
                positions.append(-1)
        first_default = len(args) + len(kwargs)
        places = [first_default + i if at < 0 else at for i, at in enumerate(positions)]
        extra = tuple(name for name in kwargs if name not in own)
        return _Layout(_select(places), extra, positions)

    def _variant_key(self, bound: Bound, overrides: Mapping[str, Any]) -> Hashable:
        key = [hashable(bound[i]) for i in self._constants]
        if self._perhaps:
            key += [
                torch.Tensor if isinstance(bound[i], _RUN) else hashable(bound[i])
                for i in self._perhaps
            ]
        if overrides:
            key.append(tuple(sorted(overrides.items())))
        return tuple(key)

    def _variant(self, bound: Bound, overrides: dict[str, Any]) -> _Variant:
        key = self._variant_key(bound, overrides)
        versions = self._variants.get(key)
        if versions is None:
            versions = self._variants.setdefault(key, Versions())
        variant = versions.current()
        if variant is None:
            values = {self._order[i]: bound[i] for i in self._constants}
            for i in self._perhaps:
                if not isinstance(bound[i], _RUN):
                    values[self._order[i]] = bound[i]
            reads = self._reads(values)
            variant = versions.renew(
                reads, lambda: self._new_variant(bound, overrides, values, versions, reads.key)
            )
        return variant

    def _reads(self, values: Mapping[str, Any]) -> Reads:
        return Reads(self.function.function, values, self.function.local)

    def _new_variant(
        self,
        bound: Bound,
        overrides: dict[str, Any],
        values: dict[str, Any],
        versions: Versions[_Variant],
        reads: Hashable,
    ) -> _Variant:
        for name, value in values.items():
            if isinstance(value, torch.Tensor | Tensor):
                raise TypeError(
                    f"{self.function.where()}: parameter `{name}` is passed a tensor and is not "
                    f"declared as one; put {name}: T.Tensor[shape, dtype] into the signature or "
                    "before the kernel"
                )
        declarations = self.function.declarations(values)
        # A number that turned out to be an argument of the run selects no kernel.
        run = [i for i in self._perhaps if self._order[i] in declarations.kinds]
        key = self._variant_key(
            tuple([ABSENT if i in run else value for i, value in enumerate(bound)]), overrides
        )
        kernels = self._kernels.setdefault((key, reads), {})
        key = (key, reads)
        return _Variant(
            *(declarations, values, overrides, self._order, key, kernels, versions),
            self.function.where(),
        )

    # From a variant to a kernel.

    def _deferred(self, variant: _Variant, read: tuple[Any, ...]) -> Callable[[], JITKernel]:
        return deferred_kernel(
            variant.kernels,
            (read, self._surroundings()),
            lambda: self._trace(variant, read),
            self._compiler,
            self._lock,
            (self._owner, (), {**variant.values, **variant.constants(read)}),
        )

    def _trace(self, variant: _Variant, read: tuple[Any, ...]) -> tvm.tirx.PrimFunc:
        with self._tracing():
            program = self.function.trace(variant.values, variant.constants(read))
        variant.versions.traced(variant, self._reads(variant.values))
        return program


def _form(args: tuple[Any, ...], kwargs: Mapping[str, Any], complete: bool) -> tuple[Any, ...]:
    """How a call is written."""
    return len(args), complete, *kwargs


def _overrides(kwargs: Mapping[str, Any], names: Sequence[str]) -> dict[str, int]:
    """The keywords that are no parameters: values of constants."""
    for name in names:
        if not isinstance(kwargs[name], int) or isinstance(kwargs[name], bool):
            raise TypeError(
                f"{name}={kwargs[name]!r}: expected an int, the value of a T.const, or a parameter"
            )
    return {name: kwargs[name] for name in names}


_RUN = (torch.Tensor, Tensor, _Absent)
