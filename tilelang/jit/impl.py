"""`tilelang.jit`: a Python function that returns a PrimFunc, compiled once for each set of
arguments.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import tvm

import tilelang
from tilelang.jit.compile import compile, map_parallel
from tilelang.jit.exceptions import JITNoBuilderError
from tilelang.jit.kernel import JITKernel
from tilelang.utils.target import TargetLike


class JITImpl:
    """What `tilelang.jit` makes of a function; a call gives the `JITKernel` for the arguments."""

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
    ):
        self.func = func
        self.signature = inspect.signature(func)
        self.func_source = _source(func)
        self.out_idx = out_idx
        self.target = target
        self.target_host = target_host
        self.execution_backend = execution_backend
        self.verbose = verbose
        self.pass_configs = pass_configs
        self.debug_root_path = _debug_root(debug_root_path)
        self.compile_flags = compile_flags
        self.mode = "auto"
        self._kernels: dict[Hashable, JITKernel] = {}
        self._lock = threading.Lock()
        self.__name__ = func.__name__
        self.__doc__ = func.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The kernel for these arguments, compiled at the first call with them.

        ``__tune_params``, a dict, is merged into the keyword arguments. Raises `TypeError` where
        the arguments do not fit the function's signature, `NotImplementedError` where the function
        is kernel code itself.
        """
        kwargs.update(kwargs.pop("__tune_params", {}))
        key = self.parse_cache_key(*args, **kwargs)
        kernel = self._kernels.get(key)
        if kernel is None:
            compiled = self._compile(args, kwargs)
            # Of two threads that compile the same, both return the kernel of the first.
            with self._lock:
                kernel = self._kernels.setdefault(key, compiled)
        return kernel

    def compile(self, *args: Any, **kwargs: Any) -> JITKernel:
        """The same as a call."""
        return self(*args, **kwargs)

    def get_tir(self, *args: Any, **kwargs: Any) -> tvm.tirx.PrimFunc:
        """The PrimFunc for these arguments; nothing is compiled."""
        try:
            found = self.func(*args, **kwargs)
        except JITNoBuilderError as error:
            if self._has_inner_prim_func():
                raise
            raise self._eager_style() from error
        if isinstance(found, tvm.tirx.PrimFunc):
            self.mode = "lazy"
            return found
        if self._has_inner_prim_func():
            raise TypeError(
                f"{self._where()}: expected the function to return its PrimFunc, got "
                f"{type(found).__name__}. End it with `return <name of the function under "
                "@T.prim_func>`."
            )
        raise self._eager_style()

    def par_compile(
        self,
        configs: Iterable[Mapping[str, Any] | tuple[Any, ...]],
        num_workers: int | None = None,
        ignore_error: bool = False,
    ) -> list[JITKernel | Exception]:
        """Compiles for several sets of arguments in threads: dicts of keyword, or tuples of
        positional arguments.

        Returns the kernels in order. The first failure is raised; with `ignore_error` the
        exceptions take the place of the kernels that failed.
        """

        def compile_one(config: Mapping[str, Any] | tuple[Any, ...]) -> JITKernel:
            return self(*config) if isinstance(config, tuple) else self(**config)

        return map_parallel(compile_one, list(configs), num_workers, ignore_error)

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        """The device code for these arguments."""
        return self(*args, **kwargs).get_kernel_source()

    def initialize_jit_mode(self, *args: Any, **kwargs: Any) -> str:
        """The mode, found out by a call with these arguments where it is not known yet."""
        if self.mode == "auto":
            self.get_tir(*args, **kwargs)
        return self.mode

    def is_lazy_mode(self) -> bool:
        """Whether a call has returned a PrimFunc."""
        return self.mode == "lazy"

    def parse_cache_key(self, *args: Any, **kwargs: Any) -> Hashable:
        """The hashable key of a set of arguments: equal however they are spelled.

        Raises `TypeError` where they do not fit the function's signature.
        """
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return tuple((name, _hashable(value)) for name, value in bound.arguments.items())

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JITKernel:
        func = self.get_tir(*args, **kwargs)
        kernel = compile(
            func,
            out_idx=self.out_idx,
            execution_backend=self.execution_backend,
            target=self.target,
            target_host=self.target_host,
            verbose=self.verbose,
            pass_configs=self.pass_configs,
            compile_flags=self.compile_flags,
        )
        if self.debug_root_path is not None:
            self.debug_root_path.mkdir(parents=True, exist_ok=True)
            source = self.debug_root_path / f"tilelang_jit_kernel_{self.__name__}.c"
            program = self.debug_root_path / f"tilelang_jit_program_{self.__name__}.py"
            source.write_text(kernel.get_kernel_source())
            program.write_text(func.script())
        return kernel

    def _has_inner_prim_func(self) -> bool:
        """Whether the source defines a function under a decorator named prim_func."""
        if not self.func_source:
            return False
        functions = [
            n for n in ast.walk(ast.parse(self.func_source)) if isinstance(n, ast.FunctionDef)
        ]
        decorators = [ast.unparse(decorator) for f in functions for decorator in f.decorator_list]
        return any(text.split("(")[0].split(".")[-1] == "prim_func" for text in decorators)

    def _where(self) -> str:
        code = inspect.unwrap(self.func).__code__
        return f"Function `{self.__name__}` ({code.co_filename}:{code.co_firstlineno})"

    def _eager_style(self) -> NotImplementedError:
        return NotImplementedError(
            f"{self._where()}: expected a function that returns a PrimFunc, found kernel code in "
            "the body of a function under @tilelang.jit, which is not supported yet. Define the "
            "kernel in an inner function under @T.prim_func and return it."
        )


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
) -> JITImpl | Callable[[Callable[..., Any]], JITImpl]:
    """Turns a function that returns a PrimFunc into one that returns the compiled `JITKernel`.

    Used as ``@tilelang.jit`` or ``@tilelang.jit(out_idx=-1, ...)``. Kernels are kept for each set
    of arguments. The options are those of `tilelang.compile`; `debug_root_path` is a directory,
    relative to the one that holds the package, to which every kernel's device code and program are
    written.

    Example::

        @tilelang.jit(out_idx=-1)
        def matmul(M, N, K):
            @T.prim_func
            def main(A: T.Tensor((M, K), "float16"), ...): ...
            return main

        c = matmul(1024, 1024, 1024)(a, b)
    """

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
        )

    return wrap if func is None else wrap(func)


def _source(func: Callable[..., Any]) -> str:
    try:
        return textwrap.dedent(inspect.getsource(func))
    except (OSError, TypeError):
        return ""


def _debug_root(path: str | Path | None) -> Path | None:
    return None if path is None else Path(tilelang.__file__).parents[1] / path


def _hashable(value: Any) -> Hashable:
    """A key that tells apart what is equal but traces differently, such as 1, 1.0 and True."""
    if isinstance(value, tuple):
        return (type(value), tuple(_hashable(element) for element in value))
    try:
        hash(value)
    except TypeError:
        return (type(value), repr(value))
    return (type(value), value)
