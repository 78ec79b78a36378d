"""A compiled kernel that is called with torch tensors."""

from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tvm
from tvm.target import Target

from tilelang.cache.programs import LoweredProgram, find_program, keep_program, program_parts
from tilelang.emulator.checks import Checks, resolve_checks
from tilelang.engine.explain import Explanation
from tilelang.engine.launch_plan import Condition, LaunchPlan
from tilelang.engine.param import CompiledArtifact, KernelParam, arguments
from tilelang.engine.performance import warn
from tilelang.engine.target_compiler import compiler_keywords
from tilelang.engine.variants import condition_of, variants_of
from tilelang.env import env
from tilelang.jit.backend import (
    EMULATE,
    binary_arch,
    normalize_out_idx,
    resolve_backend,
    why_not_here,
)
from tilelang.jit.second_choice import Tried, choices_text, choose
from tilelang.runtime.adapter import cuda_adapter, emulated_adapter, fitted, hip_adapter
from tilelang.runtime.adapter.cython._adapter import Callee, Launcher
from tilelang.transform import PassContext, normalize_pass_configs
from tilelang.utils.arch import is_amd
from tilelang.utils.log import listening, logger, quiet
from tilelang.utils.target import TargetLike, arch_of, determine_target
from tilelang.utils.tensor import TensorSupplyType

if TYPE_CHECKING:
    from tilelang.cuda.nvrtc import Cubin
    from tilelang.emulator.compiler import EmulatedModule
    from tilelang.emulator.ranks import JoinedModule
    from tilelang.engine.resource_usage import ResourceUsage
    from tilelang.hip.compile import CodeObject
    from tilelang.profiler import Profiler
    from tilelang.runtime import Kernel


class JITKernel(Callee):
    """A compiled PrimFunc: ``kernel(*inputs)`` runs it.

    The outputs (`out_idx`, parameters of the PrimFunc, negative from the end) are allocated by the
    call and returned: one as a tensor, several as a list, none as None. The call runs on torch's
    current stream; it checks every argument first and raises `ValueError` (count, rank, dtype,
    shape, strides, device, alignment to 16 bytes) or `TypeError` (no tensor, no number) before
    anything is launched, and `RuntimeError` where the launch fails.

    A program has variants (`tilelang.engine.variants`) for calls with sizes and addresses of which
    the compiler makes use, and for those without: a call takes the first whose condition holds.
    This object is the first one; what it says of sources, plan, binary and explanation is said of
    this variant. Another one is compiled when a call needs it, or by `build_variants`.

    For the GPU the binary is built at once. For the emulator it is built by the first call, so that
    sources and resource usage are at hand without it. A GPU backend compiles for an architecture
    that no GPU of this machine runs, too: then a call is a `RuntimeError`.

    Example: ``kernel = JITKernel(main, out_idx=-1); c = kernel(a, b)``
    """

    latency: float | None = None
    config: dict[str, Any] | None = None
    ref_latency: float | None = None
    origin: tuple[Any, tuple[Any, ...], dict[str, Any]] | None = None
    """The function under `tilelang.jit` that made it, and arguments for its `compile`."""
    launch_plan: LaunchPlan
    """How a call is checked and launched."""
    kernel_source: str
    """The generated device code. For the emulator it is the compiler's first choice, which runs
    there, until something is asked that only a binary for the GPU knows, such as `resource_usage`:
    from then on it is the choice that a GPU would run, also in the emulator."""
    n_max_threads: int | None = None
    """None: no compiler for CUDA limits the threads of a block."""

    def __init__(
        self,
        func: tvm.tirx.PrimFunc,
        out_idx: int | Sequence[int] | None = None,
        execution_backend: str = "auto",
        target: TargetLike = "auto",
        target_host: TargetLike | None = None,
        verbose: bool = False,
        pass_configs: Mapping[Any, Any] | None = None,
        compile_flags: str | Sequence[str] | None = None,
        checks: Checks | None = None,
        first: JITKernel | None = None,
        number: int = 0,
        second_choice: str = "",
    ):
        """As `tilelang.compile`; `first` and `number` are those of a variant that is not the
        first, and `second_choice` is a key of `tilelang.jit.second_choice`."""
        self.prim_func = func
        self._programs: list[tvm.tirx.PrimFunc] = (
            variants_of(func) if first is None else first._programs
        )
        self._first, self._number = first, number
        self._variants: dict[int, JITKernel] = {}
        self._variant_locks = [threading.Lock() for _ in self._programs]
        self.target: Target = determine_target(target, return_object=True)
        self.target_host = target_host
        self.execution_backend = resolve_backend(execution_backend, self.target)
        self.out_idx = normalize_out_idx(out_idx, len(arguments(func)))
        self.pass_configs = {_key(key): value for key, value in (pass_configs or {}).items()}
        self.compile_flags = split_flags(compile_flags)
        self.checks = resolve_checks(checks)
        if checks and self.execution_backend != EMULATE:
            raise ValueError(
                f"checks: expected execution_backend='emulate', which has them, got "
                f"{self.execution_backend!r}. Leave out one of the two."
            )
        self.verbose = verbose
        self._lock = threading.Lock()
        self._adapter: Any = None  # a Launcher, or the TeamLauncher around it
        self._second_choice = second_choice
        self._is_settled = False
        name = func.attrs["global_symbol"]
        parts = program_parts(self._program, self.target, self._lowering_configs)
        self._kept = None if parts is None else find_program(parts)
        printed = env.TILELANG_PRINT_ON_COMPILATION and self._kept is None and not second_choice
        if printed:
            logger.info("TileLang begins to compile kernel `%s` with `out_idx=%s`", name, out_idx)
        if self._kept is None:
            self._compile(parts)
        else:
            self._take(self._kept)
        if self.execution_backend != EMULATE and not self._why_not_here:
            self._settle()
            number, tried = self._choices
            warn(self.launch_plan, tried[number].usage)
            self._build_adapter()
        if printed:
            logger.info("TileLang completes to compile kernel `%s`", name)

    @classmethod
    def from_tilelang_function(cls, func: tvm.tirx.PrimFunc, **options: Any) -> JITKernel:
        """The kernel of a program; `options` are those of the constructor."""
        return cls(func, **options)

    def _compile(self, parts: dict[str, Any] | None) -> None:
        """Lowers the program, and keeps what it becomes under `parts`."""
        with listening() as said:
            lowered = self._lower()
        if parts is not None:
            self._kept = keep_program(parts, self._program, lowered, said)
        self.artifact = self._with_outputs(lowered)
        self.launch_plan = self.artifact.launch_plan
        self.kernel_source = lowered.kernel_source

    def _take(self, kept: LoweredProgram) -> None:
        """Takes what the program became when it was lowered before, in this process or another."""
        # What it says of them was said to somebody else.
        normalize_pass_configs(self.pass_configs)
        for level, text in kept.said:
            logger.log(level, "%s", text)
        self.launch_plan = self._completed(kept.plan)
        self.kernel_source = kept.source
        if self.verbose:
            logger.info("kernel cache: `%s` was lowered before", kept.plan.name)

    @property
    def _lowering_configs(self) -> dict[str, Any]:
        second = {self._second_choice: True} if self._second_choice else {}
        return {**self.pass_configs, **second}

    @cached_property
    def _choices(self) -> tuple[int, list[Tried[JITKernel]]]:
        """The choices of the compiler that were compiled, and the number of the best."""
        return choose(
            self,
            self._with_choice,
            lambda kernel: kernel.kernel_source,
            lambda kernel: kernel._binary.resource_usage,
        )

    def _with_choice(self, key: str) -> JITKernel:
        """This kernel with another choice of the compiler's, for the emulator, which builds
        nothing."""
        with quiet():
            return type(self)(
                self.prim_func,
                out_idx=self.out_idx,
                execution_backend=EMULATE,
                target=self.target,
                target_host=self.target_host,
                pass_configs=self.pass_configs,
                compile_flags=self.compile_flags,
                first=self._first or self,
                number=self._number,
                second_choice=key,
            )

    def _settle(self) -> None:
        """Takes the best of the compiler's choices: what is said of registers, machine code and
        schedule, and the source from then on, is of what a GPU would run. The emulator, which needs
        no binary, runs the first choice until somebody asks."""
        if self._is_settled or self._second_choice:
            return
        number, tried = self._choices
        best = tried[number].lowered
        if best is not self:
            for name in ("artifact", "_binary"):
                self.__dict__.pop(name, None)
                if name in best.__dict__:
                    self.__dict__[name] = best.__dict__[name]
            self._second_choice, self._kept = best._second_choice, best._kept
            self.launch_plan, self.kernel_source = best.launch_plan, best.kernel_source
            self._adapter = None
        self._is_settled = True

    def _lower(self) -> CompiledArtifact:
        from tilelang.engine.lower import lower

        start = time.perf_counter()
        with PassContext(opt_level=3, config=self._lowering_configs), self.target:
            artifact = lower(self._program, target=self.target, target_host=self.target_host)
        if self.verbose:
            seconds = time.perf_counter() - start
            name = artifact.launch_plan.name
            logger.info("lowered `%s` for %s in %.3f s", name, arch_of(self.target), seconds)
        return artifact

    def _with_outputs(self, artifact: CompiledArtifact) -> CompiledArtifact:
        return dataclasses.replace(artifact, launch_plan=self._completed(artifact.launch_plan))

    @cached_property
    def artifact(self) -> CompiledArtifact:
        """The lowered program with its TVM modules. One that was lowered in another process is
        lowered here at first use."""
        return self._with_outputs(self._lower())

    def _build_adapter(self) -> Any:
        plan = self.launch_plan
        start = time.perf_counter()
        if self.execution_backend == EMULATE:
            from tilelang.emulator.compiler import build_emulated

            source = self.emulated_source
            module = build_emulated(
                source, self._kernel_names, checks=self.checks, warp_threads=plan.warp_threads
            )
            plan = fitted(plan, module.parameter_bytes)
            launched: EmulatedModule | JoinedModule = module
            if plan.team:
                from tilelang.emulator.ranks import JoinedModule

                launched = JoinedModule(module)
            adapter = emulated_adapter(plan, launched.address, launched.explain, self._otherwise)
        elif self._why_not_here:
            raise RuntimeError(f"{plan.where()}: {self._why_not_here}")
        elif is_amd(arch_of(self.target)):
            adapter = hip_adapter(plan, self.cubin, self._otherwise)
        else:
            adapter = cuda_adapter(plan, self._binary_for_gpu(), self._otherwise)
        if self.verbose:
            seconds = time.perf_counter() - start
            logger.info("built `%s` for %s in %.3f s", plan.name, self.execution_backend, seconds)
        # Assigned once: threads of other ranks call what stands there, without a lock.
        if plan.team:
            from tilelang.distributed.launcher import TeamLauncher

            self._adapter = TeamLauncher(adapter, self.kernel_source)
        else:
            self._adapter = adapter
        return self._adapter

    @property
    def emulated_source(self) -> str:
        """The device code with the places of the user's Python as ``#line``: what the emulator
        builds."""
        from tilelang.engine.callback import postprocess
        from tilelang.engine.device_codegen import emit_cuda

        if self._kept is not None:
            return self._kept.emulated_source
        return postprocess(emit_cuda(self.artifact.device_mod, line_directives=True), self.target)

    @property
    def device_type(self) -> str:
        """Where the tensors of a call are: ``"cuda"``, or ``"cpu"`` for the emulator."""
        return "cpu" if self.execution_backend == EMULATE else "cuda"

    @property
    def _why_not_here(self) -> str:
        return why_not_here(self.execution_backend, self.target)

    @property
    def adapter(self) -> Any:
        """What a call goes to. Built at first use where the constructor has not done it."""
        with self._lock:
            return self._adapter or self._build_adapter()

    def build(self) -> None:
        """Builds the binary if that is left to the first call; without effect where this machine
        cannot run it."""
        if not self._why_not_here:
            _ = self.adapter

    # Variants.

    @property
    def _program(self) -> tvm.tirx.PrimFunc:
        """What is compiled: the PrimFunc under the guards of this variant."""
        return self._programs[self._number]

    @property
    def variants(self) -> list[JITKernel]:
        """The kernels of the program, in the order in which a call tries them: this is the first
        one. Those that no call has needed are compiled here.

        Example: ``[variant.launch_plan.guards for variant in kernel.variants]``
        """
        return [self._variant(number) for number in range(len(self._programs))]

    @property
    def compiled_variants(self) -> list[JITKernel]:
        """The `variants` that are compiled already."""
        first = self._first or self
        return [first, *(kernel for _, kernel in sorted(first._variants.items()))]

    @property
    def for_any_sizes(self) -> JITKernel:
        """The variant without guards, whose tensors begin at multiples of 16 bytes; compiled here
        if no call has needed it."""
        conditions = [condition_of(program) for program in self._programs]
        return self._variant(conditions.index(Condition()))

    def build_variants(self, background: bool = False) -> threading.Thread | None:
        """Compiles all variants, so that no call has to wait for one.

        With `background` it is done in a thread, which is returned and need not be joined: a call
        that needs a variant on the way waits for that one.

        Example: ``kernel.build_variants(background=True)``
        """
        if background:
            thread = threading.Thread(target=self.build_variants, daemon=True)
            thread.start()
            return thread
        for number in range(len(self._programs)):
            self._variant(number).build()
        return None

    def _variant(self, number: int) -> JITKernel:
        """A variant, compiled at first use, in whichever thread that is; others wait for it."""
        first = self._first or self
        if number == 0:
            return first
        with first._variant_locks[number]:
            if number not in first._variants:
                first._variants[number] = type(self)(
                    self._programs[number],
                    out_idx=self.out_idx,
                    execution_backend=self.execution_backend,
                    target=self.target,
                    target_host=self.target_host,
                    verbose=self.verbose,
                    pass_configs=self.pass_configs,
                    compile_flags=self.compile_flags,
                    checks=self.checks if self.execution_backend == EMULATE else None,
                    first=first,
                    number=number,
                )
            return first._variants[number]

    def other_variant(self, number: int) -> JITKernel:
        """The kernel of ``launch_plan.others[number]``, compiled here if no call has needed it."""
        return self._variant(self._number + 1 + number)

    def _otherwise(self, number: int) -> Launcher:
        other = self.other_variant(number)
        # The first variant's TeamLauncher has added its arguments by then.
        launcher: Launcher = other.adapter.launcher if other.launch_plan.team else other.adapter
        return launcher

    def _completed(self, plan: LaunchPlan) -> LaunchPlan:
        """The plan with what lowering does not know: outputs, and the other variants."""
        others = tuple(condition_of(program) for program in self._programs[self._number + 1 :])
        return dataclasses.replace(plan, outputs=tuple(self.out_idx), others=others)

    @property
    def torch_function(self) -> Any:
        """The same as `adapter`."""
        return self.adapter

    # Copies and pickles.

    def __copy__(self) -> JITKernel:
        return self

    def __deepcopy__(self, memo: Any) -> JITKernel:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """A kernel of a function under `tilelang.jit` is pickled as that function, by its name, and
        the arguments; it is compiled again where it is loaded. Others are refused (`TypeError`)."""
        if self.origin is not None:
            return _compiled_again, self.origin
        raise TypeError(
            f"{self.launch_plan.where()}: cannot pickle a kernel that is not made by a "
            "function under @tilelang.jit alone: it is code of this process. Pickle the arguments "
            "that it is made from and compile it again where they are loaded; leave it out of a "
            "module's state by `__getstate__`, or save `module.state_dict()`"
        )

    # What was compiled.

    @property
    def params(self) -> list[KernelParam]:
        """The parameters of the PrimFunc in order, outputs included."""
        return [KernelParam.of(variable) for variable in arguments(self.prim_func)]

    @property
    def host_source(self) -> str:
        """The launch plan in words: checks, allocations and launches of a call."""
        return self.launch_plan.script()

    @property
    def _kernel_names(self) -> list[str]:
        return [kernel.name for kernel in self.launch_plan.kernels]

    @property
    def _compiled(self) -> Cubin | CodeObject:
        self._settle()
        return self._binary

    @cached_property
    def _binary(self) -> Cubin | CodeObject:
        # Guards of which the compiler makes no use leave the text as it is.
        for variant in self.compiled_variants:
            if variant._number < self._number and variant.kernel_source == self.kernel_source:
                return variant._binary
        return self.compile_for(arch_of(self.target))

    def compile_for(self, arch: str) -> Cubin | CodeObject:
        """The binary of this kernel's source for another architecture than the target's; see
        `tilelang.utils.target.compiled_for`."""
        from tilelang.cache.cubins import cached_binary

        return cached_binary(
            self.kernel_source, arch, self._kernel_names, **self._compiler_keywords
        )

    def _binary_for_gpu(self) -> bytes:
        """The cubin that runs here: of the target, or of a later GPU from the same source."""
        own = arch_of(self.target)
        arch = binary_arch(own) or own
        return self.cubin if arch == own else self.compile_for(arch).cubin

    @property
    def _compiler_keywords(self) -> dict[str, Any]:
        found = compiler_keywords(self.target, self.pass_configs.get)
        return {
            **found,
            "options": [*self.compile_flags, *found["options"]],
            "location": self.launch_plan.location,
        }

    @property
    def cubin(self) -> bytes:
        """The binary for the GPU: a cubin, or a code object of AMD. Compiled by NVRTC or clang at
        first use; needs no GPU."""
        return self._compiled.cubin

    @cached_property
    def ptx(self) -> str:
        """PTX of the kernels for the target. Compiled by NVRTC at first use; needs no GPU. Raises
        `RuntimeError` for an AMD GPU, which has none.
        """
        from tilelang.cuda.nvrtc import compile_ptx

        self._settle()
        if is_amd(arch_of(self.target)):
            raise RuntimeError(
                f"found a kernel for {arch_of(self.target)}, wanted one for an NVIDIA GPU: there "
                "is no PTX of it. Its assembly is `kernel.sass`"
            )
        return compile_ptx(
            self.kernel_source,
            arch_of(self.target),
            **self._compiler_keywords,
        )

    @cached_property
    def sass(self) -> str:
        """Machine code of the kernels for the target as text: SASS by nvdisasm, or AMD's assembly;
        needs no GPU. Raises `RuntimeError` where nvdisasm is missing.
        """
        from tilelang.cuda.disassembler import disassemble
        from tilelang.hip.compile import CodeObject

        compiled = self._compiled
        if isinstance(compiled, CodeObject):
            return compiled.assembly
        return disassemble(compiled.cubin)

    @property
    def resource_usage(self) -> dict[str, ResourceUsage]:
        """Registers, spills, stack and static shared memory of each kernel on the GPU, by name.
        Needs no GPU.
        """
        return self._compiled.resource_usage

    @property
    def n_regs(self) -> int:
        """Registers of one thread, the most of all kernels."""
        return max(usage.registers for usage in self.resource_usage.values())

    @property
    def n_spills(self) -> int:
        """Bytes of spill stores and loads of one thread, the most of all kernels."""
        return max(usage.spill_stores + usage.spill_loads for usage in self.resource_usage.values())

    def explain(self, format: str = "text", path: str | Path | None = None) -> str:
        """What became of the program; needs no GPU.

        As ``"text"``, for each kernel: grid, block, registers, shared memory and what lies where in
        it; for each ``T.Pipelined`` its statements with stage, place in the order and engine, the
        versions of buffers and the barriers of a step, or why the loop is a plain one; which
        instructions each matrix product became. Of a program with dynamic extents, the conditions
        of its variants.

        As ``"html"`` a page, with that text and pictures: the schedule of roles and stages,
        layouts, shared memory over the program, instructions chosen and refused (docs/tools.md).
        The program is lowered once more for it.

        The text or page is written to `path`, too, if one is given.

        Raises `ValueError` for another format.

        Example: ``kernel.explain("html", "main.html")``
        """
        if format not in ("text", "html"):
            raise ValueError(f"format={format!r}: expected 'text' or 'html'")
        self._settle()
        said = self._explanation()
        if format == "html":
            from tilelang.tools.explain_page import explain_page
            from tilelang.tools.lower_trace import lower_trace

            with lower_trace() as traces, quiet():
                self._lower()
            said = explain_page(traces[0], said)
        if path is not None:
            Path(path).write_text(said)
        return said

    def _explanation(self) -> str:
        kept = self._kept
        found = Explanation.of(self.artifact.device_mod) if kept is None else kept.explanation
        conditions = [condition_of(program) for program in self._programs]
        text = "\n".join([found.text(self.resource_usage), *choices_text(*self._choices)])
        if not any(condition.guards for condition in conditions):
            return text
        lines = [
            f"variant {number} of {len(conditions)}: {condition.script()}"
            + (", which is this one" if number == self._number + 1 else "")
            for number, condition in enumerate(conditions, 1)
        ]
        return "\n".join([text.rstrip("\n"), *lines])

    # Sources.

    def get_kernel_source(self, kernel_only: bool = True) -> str:
        """The device code; with `kernel_only=False` the launch plan follows it."""
        return self.kernel_source if kernel_only else f"{self.kernel_source}\n{self.host_source}"

    def get_host_source(self) -> str:
        """The launch plan in words, as `host_source`."""
        return self.host_source

    def show_source(self, which: str = "kernel") -> None:
        """Prints a source: `which` is ``"kernel"``, ``"host"`` or ``"both"``, else `ValueError`."""
        sources = {
            "kernel": self.kernel_source,
            "host": self.host_source,
            "both": self.get_kernel_source(kernel_only=False),
        }
        if which not in sources:
            raise ValueError(f"which={which!r}: expected one of {', '.join(sources)}")
        sys.stdout.write(sources[which])

    def export_sources(
        self, kernel_path: str | Path | None = None, host_path: str | Path | None = None
    ) -> None:
        """Writes the sources to the paths that are given. Raises `ValueError` where none is."""
        if kernel_path is None and host_path is None:
            raise ValueError("expected kernel_path, host_path or both, got neither")
        for path, source in ((kernel_path, self.kernel_source), (host_path, self.host_source)):
            if path is not None:
                Path(path).write_text(source)

    def print_source_code(self, which: str = "kernel", file: str | Path | None = None) -> None:
        """Deprecated: `show_source`, or with `file` writes the kernel's or the host's source there,
        as `export_sources` does.
        """
        if file is None:
            self.show_source(which)
        elif which == "host":
            self.export_sources(host_path=file)
        else:
            self.export_sources(kernel_path=file)

    def show_ptx(self) -> None:
        """Prints `ptx`."""
        sys.stdout.write(self.ptx)

    def export_ptx(self, path: str | Path) -> None:
        """Writes `ptx` to `path`."""
        Path(path).write_text(self.ptx)

    def show_sass(self) -> None:
        """Prints `sass`."""
        sys.stdout.write(self.sass)

    def export_sass(self, path: str | Path) -> None:
        """Writes `sass` to `path`."""
        Path(path).write_text(self.sass)

    # Shipping.

    def export(self, path: str | Path, archs: Sequence[str] | None = None) -> None:
        """Writes the kernel to a file that `tilelang.runtime.load` calls without the compiler, and
        `tilelang_kernel.h` without Python (docs/shipping.md).

        `archs` are architectures such as ``["sm_90a", "sm_100a"]``, for each of which the program
        is compiled, without a GPU, and ``"emulate"``, which stands for its source, run by the
        emulator. By default it is the kernel's architecture, and with it the emulator where the
        kernel is one of the emulator. Of a program with dynamic extents the file has the variant
        for any sizes: state in the program what you know of them (`T.assume`).

        Raises `ValueError` for another name, `OSError` where the file cannot be written, and what
        the compiler raises about the program.

        Example: ``kernel.export("matmul.tlk", archs=["sm_90a", "sm_100a"])``
        """
        from tilelang.jit.export import export_kernel

        export_kernel(self, path, archs)

    def export_library(self, path: str | Path) -> None:
        """The same as `export` for the kernel's own architecture."""
        self.export(path)

    @staticmethod
    def from_database(path: str | Path) -> Kernel:
        """The kernel that `export` wrote to `path`, as `tilelang.runtime.load`."""
        from tilelang.runtime import load

        return load(path)

    # Measurements.

    def update_tuner_result(
        self, latency: float, config: dict[str, Any], ref_latency: float | None
    ) -> JITKernel:
        """Notes what tuning has found: the latencies of the kernel and of the reference in
        milliseconds, and the configuration. Returns the kernel.
        """
        self.latency, self.config, self.ref_latency = latency, config, ref_latency
        return self

    def get_tuner_result(self) -> dict[str, Any]:
        """The keys ``latency``, ``config`` and ``ref_latency``. Raises `ValueError` for a kernel
        that was not tuned.
        """
        if self.latency is None:
            raise ValueError(
                f"kernel `{self.prim_func.attrs['global_symbol']}` was not tuned; call the "
                "function under @tilelang.autotune"
            )
        return {
            "latency": self.latency,
            "config": self.config,
            "ref_latency": self.ref_latency,
        }

    def get_profiler(
        self, tensor_supply_type: TensorSupplyType = TensorSupplyType.Auto
    ) -> Profiler:
        """A `Profiler` for this kernel, whose inputs are generated as `tensor_supply_type` says."""
        from tilelang.profiler import Profiler

        return Profiler(self.params, self.out_idx, tensor_supply_type, self.adapter)

    def run_once(self, func: Callable[..., Any] | None = None) -> Any:
        """Runs the kernel, or `func`, once with generated inputs; returns its result."""
        return self.get_profiler().run_once(func)


def split_flags(flags: str | Sequence[str] | None) -> list[str]:
    """Compiler flags as a list; a string is split at white space."""
    if flags is None:
        return []
    return flags.split() if isinstance(flags, str) else list(flags)


def _compiled_again(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> JITKernel:
    kernel: JITKernel = function.compile(*args, **kwargs)
    return kernel


def _key(key: Any) -> str:
    """The string of a pass configuration key, which may be a `PassConfigKey`."""
    return str(getattr(key, "value", key))
