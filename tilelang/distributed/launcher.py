"""The call of a kernel that several ranks run together: what it gets beside the caller's arguments,
and what is checked before its first launch."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Sequence
from typing import Any

import torch

from tilelang.distributed.memory import ALIGNMENT, Allocation, allocation_of
from tilelang.distributed.team import Team, current_team
from tilelang.engine.launch_plan import LaunchPlan, TensorParam
from tilelang.runtime.adapter import errors
from tilelang.runtime.adapter.cython._adapter import Launcher
from tilelang.runtime.adapter.peer_tables import refuse_capture


class TeamLauncher:
    """Calls the kernels of a plan with a team: ``launcher(*arguments)``.

    `launcher` takes the arguments of the program, then the rank, the number of ranks and the tables
    of addresses. `source` is what all ranks have to have compiled.

    Raises, beside what `Launcher` does, `ValueError` where a tensor for a ``T.SymmetricTensor`` is
    not symmetric, or two of them are of different teams; at the first call with such tensors,
    which waits for all ranks, `RuntimeError` where ranks differ in the kernel, in shapes or dtypes,
    or one does not come in time, or it is in the capture of a CUDA graph. Nothing runs after an
    error. A call after a launch that waits for a rank in vain is a `RuntimeError`, too.
    """

    def __init__(self, launcher: Launcher, source: str):
        self.launcher = launcher
        self.plan: LaunchPlan = launcher.plan
        names = [self.plan.params[i].name for i in self.plan.arguments]
        self._symmetric = [names.index(name) for name in self.plan.symmetric]
        # Variants have sources of their own; who has the same source has the same plan.
        text = source.replace(self.plan.location, "")
        self._digest = hashlib.sha256(text.encode()).hexdigest()
        inputs = [self.plan.params[i] for i in self.plan.inputs]
        tables = [param.name for param in inputs[len(names) + 2 :]]
        self._tables = [names.index(name.removesuffix("_peers")) for name in tables]
        self._agreed: weakref.WeakKeyDictionary[Team, set[tuple[Any, ...]]] = (
            weakref.WeakKeyDictionary()
        )

    def __call__(self, *args: Any) -> Any:
        if len(args) != len(self.plan.arguments):
            raise errors.wrong_count(self.plan, len(args))
        found = {i: self._allocation(args[i], i) for i in self._symmetric}
        team = self._team(list(found.values()))
        self._agree(team, args)
        tables = [found[i].table(args[i]) for i in self._tables]
        if team.watch is None:
            return self.launcher(*args, team.rank, team.size, *tables)
        team.watch.check()
        try:
            results = self.launcher(*args, team.rank, team.size, *tables)
        except RuntimeError as error:
            raise team.watch.explained(error) from error
        team.watch.launched(self.plan.where())
        return results

    def _allocation(self, arg: Any, index: int) -> Allocation:
        name = self.plan.params[self.plan.arguments[index]].name
        if not isinstance(arg, torch.Tensor):
            raise errors.not_a_tensor(self.plan, self.plan.arguments[index], arg)
        found = allocation_of(arg)
        if found is None:
            raise ValueError(
                f"{self.plan.where()}: argument `{name}`: expected a symmetric tensor, got one "
                "that other ranks have no address of. Allocate it by tilelang.distributed.empty or "
                "zeros, on all ranks"
            )
        if arg.data_ptr() % ALIGNMENT:
            raise errors.misaligned(self.plan, self.plan.arguments[index], arg.data_ptr())
        return found

    def _team(self, allocations: Sequence[Allocation]) -> Team:
        if not allocations:
            return current_team()
        team = allocations[0].team
        for index, other in zip(self._symmetric, allocations, strict=True):
            if other.team is not team:
                name = self.plan.params[self.plan.arguments[index]].name
                raise ValueError(
                    f"{self.plan.where()}: argument `{name}`: expected a tensor of the same group "
                    f"as `{self.plan.symmetric[0]}`, of {team.size} ranks, got one of another "
                    f"group, of {other.team.size} ranks. Allocate both in one group"
                )
        return team

    def _agree(self, team: Team, args: Sequence[Any]) -> None:
        """Compares at the first call what has to be the same on all ranks."""
        tensors = []
        for index in self._symmetric:
            param = self.plan.params[self.plan.arguments[index]]
            assert isinstance(param, TensorParam)
            arg = args[index]
            tensors.append((param.name, tuple(arg.shape), str(arg.dtype), self._offset(arg)))
        agreed = self._agreed.setdefault(team, set())
        signature = tuple(tensors)
        if signature in agreed:
            return
        refuse_capture()
        what = f"the first launch of {self.plan.where()}"
        all_ranks = team.exchange(what, (self._digest, tensors))
        digest, mine = all_ranks[team.rank]
        for rank, (theirs, described) in enumerate(all_ranks):
            if theirs != digest:
                raise RuntimeError(
                    f"{self.plan.where()}: rank {rank} has compiled another kernel than rank "
                    f"{team.rank}. Compile it from the same constants, for the same target, on all "
                    "ranks; a constant such as the rank is T.rank() in a kernel"
                )
            for (name, *own), (_, *other) in zip(mine, described, strict=True):
                if own != other:
                    raise RuntimeError(
                        f"{self.plan.where()}: argument `{name}`: rank {team.rank} passes shape "
                        f"{own[0]}, dtype {own[1]}, {own[2]} bytes into its allocation, rank "
                        f"{rank} shape {other[0]}, dtype {other[1]}, {other[2]} bytes. Pass the "
                        "same on all ranks"
                    )
        agreed.add(signature)

    def _offset(self, tensor: torch.Tensor) -> int:
        found = allocation_of(tensor)
        assert found is not None
        return tensor.data_ptr() - found.addresses[found.team.rank]
