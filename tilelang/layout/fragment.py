"""`Fragment`: from the indices of a tile to a thread and a register."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Expr

from tilelang._ffi import get_function
from tilelang.layout.arguments import found, positive
from tilelang.layout.layout import (
    Layout,
    as_index,
    indices_of,
    placeholders,
    static_shape,
    takes,
)


def _call(fn: Callable[..., Any], variables: list[Any], replica: Any, what: str) -> Any:
    """Call `fn` with the indices, and with the replica's number if it takes one more."""
    if takes(fn, len(variables)) and not (takes(fn, len(variables) + 1) and replica is not None):
        return fn(*variables)
    if not takes(fn, len(variables) + 1):
        raise TypeError(
            f"{what} is {found(fn)}, which does not take {len(variables)} indices, wanted one "
            "parameter for each dimension, and one for the replica's number if it needs it"
        )
    return fn(*variables, 0 if replica is None else replica)


@tvm_ffi.register_object("tl.Fragment")
class Fragment(Layout):
    """A tile spread over the registers of a block's threads.

    Parameters
    ----------
    shape
        Extents of the indices, positive ints.
    forward_fn
        Takes an index variable for each dimension, and the replica's number in [0, replicate) if it
        has one more parameter; returns (thread, register).
    forward_thread_fn, forward_index_fn
        Instead of `forward_fn`: takes the same and returns the thread; takes the indices and
        returns the register.
    replicate
        Number of threads that hold each element.

    Raises
    ------
    TypeError
        If the functions are not given as one of the two forms, or return no integer expressions;
        if the shape is no sequence or ``replicate`` no int.
    ValueError
        If an extent or `replicate` is not a positive constant.

    Example
    -------
    ``Fragment((8, 8), lambda i, j: (i * 4 + j // 2, j % 2))``
    """

    def __init__(
        self,
        shape: Sequence[int],
        forward_fn: Callable[..., Any] | None = None,
        forward_thread_fn: Callable[..., Any] | None = None,
        replicate: int = 1,
        forward_index_fn: Callable[..., Any] | None = None,
    ):
        extents = static_shape(shape)
        replicate = positive(replicate, "replicate of Fragment")
        variables, replica = placeholders(len(extents)), tirx.Var("rep", "int32")
        given = replica if replicate > 1 else None
        parts = (forward_thread_fn, forward_index_fn)
        if forward_fn is not None and parts == (None, None):
            pair = _call(forward_fn, variables, given, "forward_fn")
            if not isinstance(pair, (list, tuple)) or len(pair) != 2:
                raise TypeError(
                    f"forward_fn of Fragment returns {pair!r}, wanted (thread, register)"
                )
            thread, register = pair
        elif forward_fn is None and forward_thread_fn is not None and forward_index_fn is not None:
            thread = _call(forward_thread_fn, variables, given, "forward_thread_fn")
            register = _call(forward_index_fn, variables, None, "forward_index_fn")
        else:
            raise TypeError(
                "found no function of a Fragment's threads and registers, wanted forward_fn, or "
                "forward_thread_fn together with forward_index_fn"
            )
        if isinstance(register, (list, tuple)) and len(register) == 1:
            register = register[0]
        self.__init_handle_by_constructor__(
            get_function("Fragment"),
            variables,
            extents,
            as_index(register, "the register"),
            as_index(thread, "the thread"),
            replica,
            replicate,
        )

    def get_thread_size(self) -> int:
        """The highest thread that holds an element, plus one."""
        return int(get_function("FragmentThreadExtent")(self))

    def map_forward_thread(self, indices: Sequence[Any], replica: Any = None) -> Expr:
        """The thread of one element, of replica number `replica` (by default the field
        `replica`, a variable). Raises `ValueError` for a wrong rank."""
        at = indices_of(indices)
        if len(at) != len(self.shape):
            raise ValueError(
                f"fragment takes {len(self.shape)} indices, found {len(at)}; give one for each "
                "dimension"
            )
        number = self.replica if replica is None else as_index(replica, "replica")
        return get_function("FragmentMapThread")(self, at, number)

    def thread_table(self) -> list[int]:
        """The thread of every (element, replica), the replica fastest."""
        return list(get_function("FragmentThreadTable")(self))

    def repeat(  # type: ignore[override]
        self,
        repeats: Sequence[int],
        repeat_on_thread: bool = False,
        lower_dim_first: bool = True,
    ) -> Fragment:
        """Tile a larger tile with this one.

        Block number q is counted with the last dimension fastest if `lower_dim_first`, else with
        the first; it adds q times this fragment's threads if `repeat_on_thread`, else q times its
        registers.

        Parameters
        ----------
        repeats
            Number of blocks in each dimension.

        Raises
        ------
        ValueError
            If there is not one positive number for each dimension.

        Example
        -------
        ``make_gemm_fragment_8x8().repeat([2, 1])`` is the 16x8 accumulator of mma.m16n8k16.
        """
        counts = static_shape(repeats)
        if len(counts) != len(self.shape):
            raise ValueError(
                f"repeat found {len(counts)} numbers for {len(self.shape)} dimensions; give one "
                "for each"
            )
        return get_function("FragmentRepeat")(self, counts, repeat_on_thread, not lower_dim_first)

    def replicate(self, n: int) -> Fragment:
        """Hold each element `n` times as often, in new threads above the old ones."""
        return get_function("FragmentReplicate")(self, positive(n, "n of replicate"))

    def condense_rep_var(self) -> Fragment:
        """Drop the part of the replica's number that no thread depends on."""
        return get_function("FragmentCondense")(self)
