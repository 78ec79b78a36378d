"""`tilelang.jit`: kernels that are compiled once for each set of compile-time arguments."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import sys
import textwrap
import threading
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import tvm
from tvm.target import Target

import tilelang
from tilelang._signatures import bind, place_of
from tilelang.emulator.checks import Checks
from tilelang.jit.cache_key import copied, hashable, is_comparable, is_constant
from tilelang.jit.compile import compile, current_target, map_parallel
from tilelang.jit.eager import Compiler, EagerCalls, deferred_kernel
from tilelang.jit.exceptions import JITNoBuilderError
from tilelang.jit.kernel import JITKernel
from tilelang.jit.reads import Reads, Versions
from tilelang.jit.surroundings import Surroundings
from tilelang.language.eager import EagerFunction
from tilelang.language.function import as_kind
from tilelang.language.rewrite import declarations
from tilelang.language.source import definition_text, resolve_annotation
from tilelang.language.syntax_trees import parse
from tilelang.language.tensors import Tensor
from tilelang.language.texts import remember
from tilelang.runtime.adapter.cython._adapter import Dispatcher, Version
from tilelang.utils.target import TargetLike, tracing_for


class _State(Version):
    """A set of arguments, and what a trace with them reads besides; each is one key."""

    def __init__(self, arguments: Hashable, reads: Hashable):
        super().__init__()
        self.key = (arguments, reads)


class JITImpl(Dispatcher):
    """What `tilelang.jit` makes of a function.

    In *lazy* mode the function returns a PrimFunc, and a call gives the `JITKernel` for its
    arguments, compiled at the first call with them. In *eager* mode its body is the kernel, and a
    call runs it on the arguments and returns its outputs, one as a tensor, several as a list, none
    as None. The first use decides which (`mode`).

    ``__tune_params``, a dict, is merged into the keyword arguments of a call. A call raises
    `TypeError` where the arguments do not fit the function's signature, what `compile` raises, and
    what `JITKernel` raises of wrong arguments.
    """

    def __init__(
        self,
        func: Callable[..., Any],
        out_idx: int | Sequence[int] | None,
        target: TargetLike | None,
        target_host: TargetLike | None,
        execution_backend: str | None,
        verbose: bool | None,
        pass_configs: Mapping[Any, Any] | None,
        debug_root_path: str | Path | None,
        compile_flags: str | Sequence[str] | None,
        local: Mapping[str, Any],
        checks: Checks | None,
    ):
        if isinstance(func, tvm.tirx.PrimFunc):
            name = func.attrs["global_symbol"]
            raise TypeError(
                f"tilelang.jit found the program {name}, wanted a function that returns one, or "
                "whose body is the kernel; leave out @T.prim_func, or call "
                f"tilelang.compile({name})"
            )
        self.func = func
        self.signature = inspect.signature(func)
        unwrapped = inspect.unwrap(func)
        if isinstance(unwrapped, types.FunctionType):
            remember(unwrapped)
        self.func_source = _source(unwrapped)
        self.out_idx = out_idx
        self.target = target
        self.target_host = target_host
        self.execution_backend = execution_backend
        self.verbose = verbose
        self.pass_configs = pass_configs
        self.debug_root_path = _debug_root(debug_root_path)
        self.compile_flags = compile_flags
        self.checks = checks
        self.mode = "auto"
        self.__name__ = func.__name__
        self.__qualname__ = func.__qualname__
        self._local = local
        self._eager: EagerCalls | None = None
        self._kernels: dict[Hashable, JITKernel] = {}
        self._versions: dict[Hashable, Versions[_State]] = {}
        self._surroundings = Surroundings(self, self._states)
        self._lock = threading.Lock()
        functools.update_wrapper(self, func)
        self._annotations = _annotations(func, local)
        func.annot = self._annotations  # type: ignore[attr-defined]

    def _dispatch(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that the adapter does not find."""
        if _TUNED in kwargs:
            kwargs.update(kwargs.pop(_TUNED))
        if self.initialize_jit_mode(*args, **kwargs) == "eager":
            return self._calls(args, kwargs)
        return self._lazy_kernel(args, kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """The function with its first argument bound, as a method has it."""
        return self if instance is None else BoundJIT(self, instance)

    def __copy__(self) -> JITImpl:
        return self

    def __deepcopy__(self, memo: Any) -> JITImpl:
        return self

    def __reduce__(self) -> str:
        """It is pickled by its name in its module, as Python functions are."""
        found: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is not self:
            raise TypeError(
                f"{self._where()}: cannot pickle a function under @tilelang.jit that is not found "
                f"as {self.__module__}.{self.__qualname__}; define it at the top of a module"
            )
        return self.__qualname__

    def compile(self, /, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel for these arguments, without running it.

        In eager mode an argument of the run may be a tensor, `T.Tensor(shape, dtype)` in the place
        of one, or left out; then the constants that it would have given are keyword arguments.

        Example: ``matmul.compile(M=1024, N=1024, K=512, block_M=128)``
        """
        kwargs.update(kwargs.pop(_TUNED, {}))
        if self.initialize_jit_mode(*args, **kwargs) == "eager":
            return self._calls.kernel(args, kwargs)
        return self._lazy_kernel(args, kwargs)

    def get_tir(self, /, *args: Any, **kwargs: Any) -> tvm.tirx.PrimFunc:
        """The PrimFunc for these arguments, given as to `compile`; nothing is compiled."""
        if self.initialize_jit_mode(*args, **kwargs) == "eager":
            return self._calls.trace(args, kwargs)
        return self._lazy_program(args, kwargs)

    @overload
    def par_compile(
        self,
        configs: Iterable[Mapping[str, Any] | tuple[Any, ...]],
        num_workers: int | None = None,
        ignore_error: Literal[False] = False,
    ) -> list[JITKernel]: ...
    @overload
    def par_compile(
        self,
        configs: Iterable[Mapping[str, Any] | tuple[Any, ...]],
        num_workers: int | None = None,
        *,
        ignore_error: bool,
    ) -> list[JITKernel | Exception]: ...
    def par_compile(
        self,
        configs: Iterable[Mapping[str, Any] | tuple[Any, ...]],
        num_workers: int | None = None,
        ignore_error: bool = False,
    ) -> list[JITKernel] | list[JITKernel | Exception]:
        """Compiles for several sets of arguments, given as to `compile`: dicts of keyword, or
        tuples of positional arguments. All are traced, one after the other, and then compiled in
        `num_workers` threads (one a processor by default).

        Returns the kernels in order. The first failure is raised; with `ignore_error` the
        exceptions take the place of the kernels that failed.
        """
        pairs = [((*c,), {}) if isinstance(c, tuple) else ((), dict(c)) for c in configs]

        def elaborate(pair: tuple[tuple[Any, ...], dict[str, Any]]) -> Callable[[], JITKernel]:
            args, kwargs = pair
            if self.initialize_jit_mode(*args, **kwargs) == "eager":
                return self._calls.deferred(args, kwargs)
            return self._lazy_deferred(args, kwargs)

        elaborated = map_parallel(elaborate, pairs, 1, ignore_error, "Elaborating")
        return map_parallel(_finish, elaborated, num_workers, ignore_error, "Parallel Compiling")

    def get_kernel_source(self, /, *args: Any, **kwargs: Any) -> str:
        """The device code for these arguments, given as to `compile`."""
        return self.compile(*args, **kwargs).get_kernel_source()

    def initialize_jit_mode(self, /, *args: Any, **kwargs: Any) -> str:
        """The mode, found out from the function's source, or by a call of it with these arguments
        where that does not tell.

        Raises `ValueError` for a function in eager style with `out_idx`, `TypeError` for one that
        is of neither style.
        """
        if self.mode == "auto":
            mode = self._mode_of_source() or self._mode_of_call(args, kwargs)
            if mode == "eager":
                self._become_eager()
            self.mode = mode
        return self.mode

    def is_lazy_mode(self) -> bool:
        """Whether the function is known to return a PrimFunc."""
        return self.mode == "lazy"

    def parse_cache_key(self, /, *args: Any, **kwargs: Any) -> Hashable:
        """The hashable key of a set of arguments: equal for those with the same kernel, however
        they are spelled. It has the target, the options and the environment of now.

        Raises `TypeError` where they do not fit the function's signature.
        """
        if self.initialize_jit_mode(*args, **kwargs) == "eager":
            return self._calls.key(args, kwargs)
        _, state = self._lazy_state(self._lazy_arguments(args, kwargs))
        return (state.key, self._surroundings().key)

    # Lazy mode.

    def _lazy_state(self, arguments: Mapping[str, Any]) -> tuple[Versions[_State], _State]:
        """What a call with `arguments` is known by, except for its surroundings."""
        key = tuple((name, hashable(value)) for name, value in arguments.items())
        versions = self._versions.get(key)
        if versions is None:
            versions = self._versions.setdefault(key, Versions())
        state = versions.current()
        if state is None:
            reads = Reads(self.func, arguments, self._local)
            state = versions.renew(reads, lambda: _State(key, reads.key))
        return versions, state

    def _lazy_deferred(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], JITKernel]:
        bound = self._lazy_arguments(args, kwargs)
        versions, state = self._lazy_state(bound)

        def trace() -> tvm.tirx.PrimFunc:
            program = self._lazy_program(args, kwargs)
            versions.traced(state, Reads(self.func, bound, self._local))
            return program

        key = (state, self._surroundings())
        origin = (self, args, kwargs)
        return deferred_kernel(self._kernels, key, trace, self._compiler, self._lock, origin)

    def _lazy_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        bound = bind(self.signature, self._where(), args, kwargs)
        bound.apply_defaults()
        return bound.arguments

    def _lazy_kernel(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JITKernel:
        surroundings = self._surroundings()
        kernel = self._lazy_deferred(args, kwargs)()
        passed = (*args, *kwargs.values())
        given = self.signature.bind(*args, **kwargs).arguments
        defaults = [p.default for n, p in self.signature.parameters.items() if n not in given]
        if all(map(is_comparable, passed)) and all(map(is_constant, defaults)):
            versions, state = self._lazy_state(self._lazy_arguments(args, kwargs))
            if self._kernels.get((state, surroundings)) is kernel:
                call = (args, kwargs, (), (), copied(passed))
                self._keep(*call, versions.recent, state, surroundings, kernel)
        return kernel

    def _lazy_program(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tvm.tirx.PrimFunc:
        with self._tracing():
            found = self.func(*args, **kwargs)
        if isinstance(found, tvm.tirx.PrimFunc):
            return found
        raise TypeError(
            f"{self._where()}: expected the function to return its PrimFunc, got "
            f"{type(found).__name__}. End it with `return <name of the function under "
            "@T.prim_func>`."
        )

    # Eager mode.

    @property
    def _calls(self) -> EagerCalls:
        assert self._eager is not None
        return self._eager

    def _become_eager(self) -> None:
        if self.out_idx is not None:
            raise ValueError(
                f"{self._where()}: out_idx={self.out_idx} is given and the function's body is the "
                "kernel. Leave out out_idx; make outputs with T.empty and return them."
            )
        if inspect.unwrap(self.func) is not self.func:
            raise TypeError(
                f"{self._where()}: found another decorator under @tilelang.jit, and the function's "
                "body is the kernel, which @tilelang.jit reads; put @tilelang.jit under the other "
                "decorator"
            )
        function = EagerFunction(self.func, self._local)
        with self._lock:
            self._eager = self._eager or EagerCalls(
                function, self._compiler, self._surroundings, self._tracing, self, self._keep
            )

    def _tracing(self) -> contextlib.AbstractContextManager[None]:
        """Around what traces: which target the program is for."""
        return tracing_for(current_target(self.target))

    def _compiler(self) -> Compiler:
        """`_compile` for the target of now: other threads have no target scope."""
        return functools.partial(self._compile, current_target(self.target))

    def _compile(self, target: Target, func: tvm.tirx.PrimFunc) -> JITKernel:
        kernel = compile(
            func,
            out_idx=self.out_idx,
            execution_backend=self.execution_backend,
            target=target,
            target_host=self.target_host,
            verbose=self.verbose,
            pass_configs=self.pass_configs,
            compile_flags=self.compile_flags,
            checks=self.checks,
        )
        if self.debug_root_path is not None:
            self.debug_root_path.mkdir(parents=True, exist_ok=True)
            source = self.debug_root_path / f"tilelang_jit_kernel_{self.__name__}.c"
            program = self.debug_root_path / f"tilelang_jit_program_{self.__name__}.py"
            source.write_text(kernel.get_kernel_source())
            program.write_text(func.script())
        return kernel

    # Which mode.

    def _mode_of_source(self) -> str | None:
        """The mode as far as the source tells."""
        if not self.func_source:
            # A program that is returned declares its arguments itself.
            return "eager" if self._annotations else None
        (definition,) = parse(self.func_source).body
        if not isinstance(definition, ast.FunctionDef):
            return None
        calls = list(_called(definition.body))
        decorators = [
            decorator
            for node in ast.walk(definition)
            if isinstance(node, ast.FunctionDef)
            for decorator in node.decorator_list
        ]
        if "prim_func" in map(_last_name, [*calls, *decorators]):
            return "lazy"
        names = {_last_name(c) for c in calls if _is_of_language(c, self.func)}
        declared, _ = declarations(definition)
        if names & _KERNEL_NAMES or declared or self._annotations:
            return "eager"
        return None

    def _mode_of_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        try:
            self._lazy_program(args, kwargs)
        except JITNoBuilderError:
            return "eager"
        return "lazy"

    def _where(self) -> str:
        return place_of(self.func)


class BoundJIT:
    """A method under `tilelang.jit`: the object that it is called on is the first argument."""

    def __init__(self, function: JITImpl, instance: Any):
        self.__func__ = function
        self.__self__ = instance
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """As a call of `JITImpl`."""
        return self.__func__(self.__self__, *args, **kwargs)

    def compile(self, /, *args: Any, **kwargs: Any) -> JITKernel:
        """As `JITImpl.compile`."""
        return self.__func__.compile(self.__self__, *args, **kwargs)

    def get_tir(self, /, *args: Any, **kwargs: Any) -> tvm.tirx.PrimFunc:
        """As `JITImpl.get_tir`."""
        return self.__func__.get_tir(self.__self__, *args, **kwargs)

    def get_kernel_source(self, /, *args: Any, **kwargs: Any) -> str:
        """As `JITImpl.get_kernel_source`."""
        return self.__func__.get_kernel_source(self.__self__, *args, **kwargs)

    def par_compile(
        self, configs: Iterable[Mapping[str, Any] | tuple[Any, ...]], **options: Any
    ) -> list[JITKernel] | list[JITKernel | Exception]:
        """As `JITImpl.par_compile`."""
        name = next(iter(self.__func__.signature.parameters))
        own = self.__self__
        bound = [(own, *c) if isinstance(c, tuple) else {name: own, **c} for c in configs]
        return self.__func__.par_compile(bound, **options)


_TUNED = "__tune_params"
_KERNEL_NAMES = {"Kernel", "ClusterKernel", "CUDASourceCodeKernel", "const", "empty"}
"""Functions of the language that only kernel code calls."""


def _finish(deferred: Callable[[], JITKernel] | Exception) -> JITKernel | Exception:
    if isinstance(deferred, Exception):
        return deferred
    kernel = deferred()
    kernel.build()
    return kernel


def _called(statements: Iterable[ast.AST]) -> Iterator[ast.expr]:
    """What is called, but not in the functions that are defined."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Call):
            yield node.func
        yield from _called(ast.iter_child_nodes(node))


def _last_name(node: ast.expr) -> str:
    """`prim_func` of ``T.prim_func`` and of ``T.prim_func(...)``."""
    while isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _is_of_language(node: ast.expr, func: Callable[..., Any]) -> bool:
    """Whether ``T.name`` or ``name`` in `func` is tilelang's, as ``torch.empty`` is not."""
    variables = inspect.getclosurevars(inspect.unwrap(func))
    root = node.value if isinstance(node, ast.Attribute) else node
    if not isinstance(root, ast.Name):
        return False
    found = {**variables.globals, **variables.nonlocals}.get(root.id)
    module = getattr(found, "__name__" if inspect.ismodule(found) else "__module__", None)
    return str(module).split(".")[0] == "tilelang"


def _annotations(func: Callable[..., Any], local: Mapping[str, Any]) -> dict[str, str]:
    """The arguments of the run that the signature declares, as text; a name that is not known
    here is none of the language."""
    found = {}
    for name, parameter in inspect.signature(func).parameters.items():
        annotation = parameter.annotation
        if isinstance(annotation, str):
            try:
                annotation = resolve_annotation(annotation, inspect.unwrap(func), local)
            except NameError:
                continue
        kind = as_kind(annotation)
        if kind is not None:
            found[name] = kind.describe(name) if isinstance(kind, Tensor) else f"T.{kind}"
    return found


@overload
def jit(func: Callable[..., Any], /) -> JITImpl: ...
@overload
def jit(
    func: None = None,
    /,
    *,
    out_idx: int | Sequence[int] | None = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    debug_root_path: str | Path | None = None,
    compile_flags: str | Sequence[str] | None = None,
    checks: Checks | None = None,
) -> Callable[[Callable[..., Any]], JITImpl]: ...
def jit(
    func: Callable[..., Any] | None = None,
    /,
    *,
    out_idx: int | Sequence[int] | None = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    execution_backend: str | None = None,
    verbose: bool | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    debug_root_path: str | Path | None = None,
    compile_flags: str | Sequence[str] | None = None,
    checks: Checks | None = None,
) -> JITImpl | Callable[[Callable[..., Any]], JITImpl]:
    """Compiles kernels at the first call with each set of compile-time arguments.

    Used as ``@tilelang.jit`` or ``@tilelang.jit(...)``, on a function that returns a PrimFunc (a
    call returns the `JITKernel`), or whose body is the kernel (a call runs it). The options are
    those of `tilelang.compile`; `debug_root_path` is a directory, relative to the one that holds
    the package, to which every kernel's device code and program are written. `out_idx` goes with a
    function that returns a PrimFunc.

    Example of a body that is the kernel; ``c = add(a, b)`` runs it::

        @tilelang.jit
        def add(A, B, block: int = 256):
            N = T.const("N")
            A: T.Tensor[[N], T.float32]
            B: T.Tensor[[N], T.float32]
            C = T.empty((N,), T.float32)
            with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
                for i in T.Parallel(block):
                    C[bx * block + i] = A[bx * block + i] + B[bx * block + i]
            return C

    Example of a function that returns a PrimFunc::

        @tilelang.jit(out_idx=-1)
        def matmul(M, N, K):
            @T.prim_func
            def main(A: T.Tensor((M, K), "float16"), ...): ...
            return main

        c = matmul(1024, 1024, 1024)(a, b)
    """

    local = sys._getframe(1).f_locals

    def wrap(function: Callable[..., Any]) -> JITImpl:
        return JITImpl(
            function,
            out_idx=out_idx,
            target=target,
            target_host=target_host,
            execution_backend=execution_backend,
            verbose=verbose,
            pass_configs=pass_configs,
            debug_root_path=debug_root_path,
            compile_flags=compile_flags,
            local=local,
            checks=checks,
        )

    return wrap if func is None else wrap(func)


def _source(func: Any) -> str:
    """The definition of a function; none if it cannot be read."""
    try:
        return textwrap.dedent(definition_text(func))
    except (OSError, TypeError):
        return ""


def _debug_root(path: str | Path | None) -> Path | None:
    return None if path is None else Path(tilelang.__file__).parents[1] / path


lazy_jit = jit
"""Former name of `jit`."""
