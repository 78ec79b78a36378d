"""``T.Kernel``: a grid of blocks of threads, and which of them runs the program."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tvm import ir, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder.base import IRBuilderFrame
from tvm.tirx.script.builder import ir as tir_builder

from tilelang._ffi import get_function
from tilelang.language.scalars import as_dtype, as_expr, as_int, describe, is_scalar_expr
from tilelang.language.tracer import BuilderFrame, Frame, Tracer, current_tracer, innermost_tracer
from tilelang.layout import Layout

if TYPE_CHECKING:
    from tilelang.language.ws_roles import RoleProgram

# CUDA C++ Programming Guide, "Thread Block Clusters": 8 everywhere, 16 with an opt-in that the
# launch gives.
_MAX_CLUSTER_BLOCKS = 16
# CUDA C++ Programming Guide, "Compute Capabilities": threads of a block.
_MAX_THREADS, _MAX_THREADS_Z = 1024, 64


class KernelLaunchFrame(Frame):
    """An open ``T.Kernel``: extents and variables of its blocks and threads, each in order x, y,
    z.

    Example
    -------
    ``T.KernelLaunchFrame.Current().num_threads``
    """

    kind = "kernel"

    def __init__(
        self,
        grid: Sequence[Any],
        threads: Sequence[int],
        prelude: str | None,
        cluster_dims: Sequence[int],
    ):
        self._grid = list(grid)
        self.blocks: list[ir.Var] = []
        """Index of this block in the grid."""
        self.threads: list[ir.Var] = []
        """Index of this thread in the block."""
        self._block_extents = [*grid, *[1] * (3 - len(grid))]
        self._thread_extents = [*threads, *[1] * (3 - len(threads))]
        self.preludes = [] if prelude is None else [prelude]
        """Source texts that are put before the kernel's."""
        self._cluster_dims = list(cluster_dims)
        self._frames: list[IRBuilderFrame] = []
        self.layouts: dict[ir.Var, Layout] = {}
        """Layouts that the program gives to its buffers."""
        self.tensor_layouts: dict[ir.Var, Layout] = {}
        """Layouts that it gives to tensors in global memory."""
        self.tensor_layout_places: dict[ir.Var, ir.Expr] = {}
        """Lines on which it does, as constants that have their spans."""
        self.random_state: tuple[str, ir.Var] | None = None
        """Generator of random numbers, and its state in each thread."""
        self.safe_values: dict[ir.Var, ir.Expr] = {}
        """Values that reads of global tensors out of bounds give, if not zero."""
        self.barriers: dict[ir.Var, list[ir.Expr]] = {}
        """Arrival counts of the mbarriers of each buffer."""
        self.counters: list[ir.Var] = []
        """Tensors from which the kernel's persistent loops fetch their tiles."""
        self.ws_schedule: dict[str, Any] | None = None
        """The program's own warp specialisation."""
        self.ws_roles: RoleProgram | None = None
        """The same by bodies of roles."""
        self.ws_depths: list[dict[str, Any]] = []
        """Versions of buffers that the compiler's warp specialisation loads."""

    @classmethod
    def Current(cls) -> KernelLaunchFrame | None:
        """Return the innermost kernel that is being traced, None outside of kernels."""
        tracer = innermost_tracer()
        if tracer is None or not tracer.kernels:
            return None
        kernel = tracer.kernels[-1]
        assert isinstance(kernel, cls)
        return kernel

    @property
    def cluster_dims(self) -> list[int]:
        """Number of blocks of a cluster in every dimension."""
        return list(self._cluster_dims)

    @property
    def cluster_blocks(self) -> int:
        """Number of blocks of a cluster."""
        return math.prod(self._cluster_dims)

    @property
    def num_threads(self) -> int:
        """Number of threads of a block."""
        return math.prod(self._thread_extents)

    def open(self, tracer: Tracer) -> Any:
        """Enter the loops over blocks and threads and the block that holds the allocations."""
        if tracer.kernels:
            raise ValueError(
                "T.Kernel is inside of another kernel; put it after the other one's end"
            )
        for axis, extent in zip("xyz", self._block_extents, strict=True):
            self.blocks.append(self._bind(tracer, "b" + axis, extent, f"blockIdx.{axis}"))
        for axis, extent in zip("xyz", self._thread_extents, strict=True):
            self.threads.append(self._bind(tracer, "t" + axis, extent, f"threadIdx.{axis}"))
        block = tir_builder.sblock("tilelang_root")
        block.__enter__()
        self._frames.append(block)
        tir_builder.reads([])
        tir_builder.writes([])
        if self.cluster_blocks > 1:
            dims = [tirx.const(extent, "int32") for extent in self._cluster_dims]
            tir_builder.sblock_attr({"cluster_dims": dims})
        tracer.kernels.append(self)
        for tensor in tracer.header.symmetric:  # other ranks write to it, too
            frame = tir_builder.attr(tensor.name, "tl.aliased_buffer", tensor.name)
            tracer.enter(BuilderFrame(frame), rest=True)
        variables = self.blocks[: len(self._grid)]
        return variables[0] if len(variables) == 1 else variables

    def _bind(self, tracer: Tracer, name: str, extent: Any, tag: str) -> ir.Var:
        frame = tir_builder.thread_binding(0, extent, tag)
        var = frame.__enter__()
        self._frames.append(frame)
        IRBuilder.name(name, var)
        tracer.own(var)
        return var

    def close(self) -> None:
        """Leave on the block what holds for all of it; TVM makes the block when its frame exits."""
        if self.ws_roles is not None:
            self.ws_roles.close()
        if self.preludes:
            tir_builder.sblock_attr({"pragma_import_c": "\n".join(self.preludes)})
        if self.layouts:
            tir_builder.sblock_attr(get_function("LayoutMapAnnotations")(self.layouts))
        if self.tensor_layouts:
            annotations = get_function("TensorLayoutAnnotations")
            tir_builder.sblock_attr(annotations(self.tensor_layouts, self.tensor_layout_places))
        if self.safe_values:
            tir_builder.sblock_attr({"safe_value_map": self.safe_values})
        if self.barriers:
            tir_builder.sblock_attr({"barrier_init": self.barriers})
        if self.ws_schedule is not None:
            tir_builder.sblock_attr({"tl.ws_schedule": self.ws_schedule})
        if self.ws_depths:
            tir_builder.sblock_attr({"tl.ws_pipeline_depths": self.ws_depths})

    def builder_frames(self) -> list[IRBuilderFrame]:
        """Return TVM's loops and block."""
        return self._frames

    def get_block_binding(self, dim: int = 0) -> ir.Var:
        """Return the block's index in dimension ``dim``."""
        return self.blocks[axis_of(dim)]

    def get_block_bindings(self) -> list[ir.Var]:
        """Return the block's index in every dimension."""
        return list(self.blocks)

    def get_thread_binding(self, dim: int = 0) -> ir.Var:
        """Return the thread's index in dimension ``dim``."""
        return self.threads[axis_of(dim)]

    def get_thread_bindings(self) -> list[ir.Var]:
        """Return the thread's index in every dimension."""
        return list(self.threads)

    def threads_have_one_dimension(self) -> bool:
        """Return whether the threads of a block are numbered by x alone."""
        return self._thread_extents[1] == self._thread_extents[2] == 1

    def linear_thread_index(self) -> Any:
        """Return the number of the thread in its block, x fastest."""
        index: Any = 0
        for dim in (2, 1, 0):
            if self._thread_extents[dim] != 1:
                index = index * self._thread_extents[dim] + self.threads[dim]
        return index

    def get_block_extent(self, dim: int = 0) -> Any:
        """Return the number of blocks in dimension ``dim``."""
        return self._block_extents[axis_of(dim)]

    def get_block_extents(self) -> list[Any]:
        """Return the number of blocks in every dimension."""
        return list(self._block_extents)

    def get_thread_extent(self, dim: int = 0) -> int:
        """Return the number of threads in dimension ``dim``."""
        return self._thread_extents[axis_of(dim)]

    def get_thread_extents(self) -> list[int]:
        """Return the number of threads in every dimension."""
        return list(self._thread_extents)


def axis_of(dim: int) -> int:
    """Return ``dim``; ValueError if it is not 0, 1 or 2."""
    if dim not in (0, 1, 2):
        raise ValueError(f"dim is {dim!r}, wanted 0, 1 or 2 for x, y or z")
    return dim


def Kernel(
    *blocks: Any,
    threads: int | Sequence[int] | None = None,
    prelude: str | None = None,
    is_cpu: bool = False,
    cluster_dims: int | Sequence[int] | None = None,
) -> KernelLaunchFrame:
    """Launch a grid of blocks; the ``with`` body is the program of one of them.

    Parameters
    ----------
    blocks
        Number of blocks in x, y and z: up to three ints or integer expressions.
    threads
        Number of threads of a block: an int or up to three of them; 128 by default.
    prelude
        Source text that is put before the kernel's.
    is_cpu
        No effect: the target decides.
    cluster_dims
        Number of blocks of a cluster in x, y and z, 1 where not given: an int or up to three of
        them (sm_90 or later). The numbers of blocks have to be multiples.

    Returns
    -------
    The block's index: a variable for one dimension, else a list.

    Raises
    ------
    JITNoBuilderError
        Outside of a traced function.
    ValueError, TypeError
        If a number of blocks is negative, or one of threads not positive, or one is not an integer;
        if there are more than three.

    Example
    -------
    ``with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=128) as (bx, by): ...``
    """
    current_tracer("T.Kernel")
    if len(blocks) > 3:
        raise ValueError(f"T.Kernel found {len(blocks)} dimensions of blocks, wanted at most 3")
    return KernelLaunchFrame(
        [_block_extent(d, b) for d, b in enumerate(blocks)],
        _thread_extents(threads),
        prelude,
        _cluster_extents(cluster_dims, blocks),
    )


def ClusterKernel(
    *blocks: Any,
    cluster_dims: int | Sequence[int],
    threads: int | Sequence[int] | None = None,
    prelude: str | None = None,
) -> KernelLaunchFrame:
    """Launch a grid of clusters of blocks; `Kernel` with ``cluster_dims``.

    Raises
    ------
    ValueError
        If ``cluster_dims`` is not one to three positive ints with a product of at most 16, or does
        not divide a constant number of blocks; when it is compiled for a chip before sm_90.

    Example
    -------
    ``with T.ClusterKernel(16, cluster_dims=2, threads=128) as bx: ...``
    """
    return Kernel(*blocks, threads=threads, prelude=prelude, cluster_dims=cluster_dims)


def _cluster_extents(cluster_dims: Any, blocks: Sequence[Any]) -> list[int]:
    if cluster_dims is None:
        return [1, 1, 1]
    given = list(cluster_dims) if isinstance(cluster_dims, list | tuple) else [cluster_dims]
    extents = [e for e in map(as_int, given) if e is not None and e > 0]
    if len(extents) != len(given) or not 1 <= len(given) <= 3:
        raise ValueError(
            f"cluster_dims of T.Kernel is {cluster_dims!r}, wanted a positive int or one to three "
            "of them"
        )
    if math.prod(extents) > _MAX_CLUSTER_BLOCKS:
        raise ValueError(
            f"cluster_dims of T.Kernel is {cluster_dims!r}, which is {math.prod(extents)} blocks, "
            f"wanted at most {_MAX_CLUSTER_BLOCKS}"
        )
    counts = [*map(as_int, blocks), 1, 1, 1]
    for count, extent in zip(counts, extents, strict=False):
        if count is not None and count % extent != 0:
            raise ValueError(
                f"T.Kernel has {count} blocks in a dimension where cluster_dims is {extent}, "
                "wanted a multiple; round the number of blocks up"
            )
    return [*extents, 1, 1][:3]


def _block_extent(dim: int, value: Any) -> Any:
    constant = as_int(value)
    if constant is not None:
        if constant < 0:
            raise ValueError(f"dimension {dim} of T.Kernel has {constant} blocks, wanted 0 or more")
        return constant
    value = as_expr(value)
    if is_scalar_expr(value) and value.ty.dtype.startswith(("int", "uint")):
        return as_dtype(value, "int32")
    raise TypeError(
        f"the number of blocks in dimension {dim} of T.Kernel is {describe(value)}, wanted an "
        "integer; T.ceildiv(n, tile) divides to one"
    )


def _thread_extents(threads: Any) -> list[int]:
    if threads is None:
        return [128]
    given = list(threads) if isinstance(threads, list | tuple) else [threads]
    extents = [as_int(t) for t in given]
    if not 1 <= len(extents) <= 3 or any(e is None for e in extents):
        raise ValueError(
            f"threads of T.Kernel is {threads!r}, wanted an int or one to three of them"
        )
    if any(e < 1 for e in extents if e is not None):
        raise ValueError(f"threads must be positive, found {threads!r}; wanted at least 1")
    checked = [e for e in extents if e is not None]
    if math.prod(checked) > _MAX_THREADS or (len(checked) == 3 and checked[2] > _MAX_THREADS_Z):
        raise ValueError(
            f"threads of T.Kernel is {threads!r}, {math.prod(checked)} threads of a block, wanted "
            f"at most {_MAX_THREADS}, and at most {_MAX_THREADS_Z} in z; let each thread do "
            "more, or launch more blocks"
        )
    return checked


def enclosing_kernel(what: str) -> KernelLaunchFrame:
    """Return the kernel around a use of ``what``, ValueError outside of kernels."""
    current_tracer(what).kernel_scope(what)
    frame = KernelLaunchFrame.Current()
    assert frame is not None
    return frame


def get_block_binding(dim: int = 0) -> ir.Var:
    """Return the index of this block in dimension ``dim`` (0, 1, 2 for x, y, z); ValueError
    outside of a kernel.

    Example
    -------
    ``bx = T.get_block_binding()``
    """
    return enclosing_kernel("T.get_block_binding").get_block_binding(dim)


def get_block_bindings() -> list[ir.Var]:
    """Return the indices of this block, [bx, by, bz].

    Example
    -------
    ``bx, by, bz = T.get_block_bindings()``
    """
    return enclosing_kernel("T.get_block_bindings").get_block_bindings()


def get_thread_binding(dim: int = 0) -> ir.Var:
    """Return the index of this thread in dimension ``dim`` (0, 1, 2 for x, y, z); ValueError
    outside of a kernel.

    Example
    -------
    ``tx = T.get_thread_binding()``
    """
    return enclosing_kernel("T.get_thread_binding").get_thread_binding(dim)


def get_thread_bindings() -> list[ir.Var]:
    """Return the indices of this thread, [tx, ty, tz].

    Example
    -------
    ``tx, ty, tz = T.get_thread_bindings()``
    """
    return enclosing_kernel("T.get_thread_bindings").get_thread_bindings()


def get_block_extent(dim: int = 0) -> Any:
    """Return the number of blocks in dimension ``dim``.

    Example
    -------
    ``T.get_block_extent(1)``
    """
    return enclosing_kernel("T.get_block_extent").get_block_extent(dim)


def get_block_extents() -> list[Any]:
    """Return the numbers of blocks in x, y and z.

    Example
    -------
    ``blocks = math.prod(T.get_block_extents())``
    """
    return enclosing_kernel("T.get_block_extents").get_block_extents()


def get_thread_extent(dim: int = 0) -> int:
    """Return the number of threads of a block in dimension ``dim``.

    Example
    -------
    ``threads = T.get_thread_extent(0)``
    """
    return enclosing_kernel("T.get_thread_extent").get_thread_extent(dim)


def get_thread_extents() -> list[int]:
    """Return the numbers of threads of a block in x, y and z.

    Example
    -------
    ``threads = math.prod(T.get_thread_extents())``
    """
    return enclosing_kernel("T.get_thread_extents").get_thread_extents()
