"""Subnetworks of all lanes of a pack at once, and steps of one partition in each of them.

Lanes of a pack have one seed, so that their weights are dealt out alike: a map, an order or a
default of one lane is that of all of them.

Legend: P lanes, C partitions, n entries of a parameter, m of them owned by one partition.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tuneparts.errors import ConfigError
from tuneparts.partition.assign import Role
from tuneparts.partition.optimisers import PartitionedOptimiser
from tuneparts.partition.subnetwork import STATISTICS, Partitioned, View
from tuneparts.training.packed.stack import Stack


@dataclass(frozen=True)
class _Share:
    """What one partition owns of one parameter, in all lanes."""

    name: str
    flat_Pn: Tensor
    """The memory that holds the values."""
    index_m: Tensor | None
    """Owned positions; None for all of them."""

    def gather(self, dense_Pn: Tensor) -> Tensor:
        """The owned entries (P, m)."""
        if self.index_m is None:
            return dense_Pn
        return dense_Pn.gather(1, self.index_m.expand(len(dense_Pn), -1))

    def scatter(self, values_Pm: Tensor) -> None:
        """Write the owned entries; where all are owned, they were moved in place."""
        if self.index_m is not None:
            self.flat_Pn.scatter_(1, self.index_m.expand(len(values_Pm), -1), values_Pm)


class LaneParts:
    """The partitions of all lanes.

    Args:
        lanes: the partitioned nets; what they learn lies in `stack`.
        stack: the tensors of all lanes.

    Raises:
        ConfigError: The weights of lanes are dealt out differently.
    """

    def __init__(self, lanes: Sequence[Partitioned], stack: Stack) -> None:
        self._first = first = lanes[0]
        self._stack = stack
        self._own = {name: first.net.get_parameter(name) for name in first.roles}
        self._shares: dict[int, list[_Share]] = {}
        self._norms = [first.net.get_submodule(name) for name in first.normed]
        entries = [name for name, role in first.roles.items() if role is Role.ENTRIES]
        for other in lanes[1:]:
            if not all(torch.equal(first.map_of(name), other.map_of(name)) for name in entries):
                raise ConfigError(
                    "lanes of a pack deal out their weights alike, but the maps of these differ: "
                    "they come from runs of different seeds. Use `packed=1`."
                )

    def view(self, level: int, *, trainable: bool = False) -> View:
        """Subnetwork `level` of all lanes: tensors (P, ...), as of `Partitioned.view`."""
        first = self._first
        level = first.same_as(level)
        initial = first.initial_net(level)
        tensors: dict[str, Tensor] = {}
        leaves: list[Tensor] = []
        for name, role in first.roles.items():
            if role is Role.HELD:
                held = self._stack.of(self._own[name])
                tensors[name] = held.detach() if trainable else held
            elif role is Role.ENTRIES:
                tensors[name] = self._entries(name, level, initial)
                offsets = first.order_of(name)[1]
                if trainable and offsets[level - 1] < offsets[level]:
                    leaves.append(tensors[name].requires_grad_())
            else:
                tensors[name], leaf = self._combined(name, level, trainable=trainable)
                if trainable:
                    leaves.append(leaf)
        if level:
            for key, rows_PC in self._statistics():
                tensors[key] = rows_PC[:, level - 1].contiguous()
        return View(level, tensors, leaves)

    def keep_statistics(self, view: View) -> None:
        """Write down the running statistics that a pass under a view has moved."""
        for key, rows_PC in self._statistics():
            rows_PC[:, view.level - 1].copy_(view.tensors[key])

    @contextmanager
    def fixed_norms(self) -> Iterator[None]:
        """A block in which norms with running statistics use them, and do not track a batch."""
        modes = [norm.training for norm in self._norms]
        for norm in self._norms:
            norm.training = False
        try:
            yield
        finally:
            for norm, mode in zip(self._norms, modes, strict=True):
                norm.training = mode

    @torch.no_grad()
    def step(
        self,
        k: int,
        grads: Sequence[Tensor | None],
        optimisers: Mapping[int, PartitionedOptimiser],
        rates: Mapping[int, float],
    ) -> None:
        """Move what partition k owns in some lanes.

        Args:
            k: the partition.
            grads: (P, ...) for each share of it; None where no loss depends on it.
            optimisers: of the lanes that move, by number.
            rates: their learning rates at this moment.
        """
        pairs = zip(self._shares_of(k), grads, strict=True)
        owned = [(share, grad) for share, grad in pairs if grad is not None]
        names = [share.name for share, _ in owned]
        values = [share.gather(share.flat_Pn) for share, _ in owned]
        # torch's fused kernels read gradients in memory order, whatever their strides.
        moves = [share.gather(grad.reshape(len(grad), -1)).contiguous() for share, grad in owned]
        for lane, optimiser in optimisers.items():
            own = [value_Pm[lane] for value_Pm in values]
            by = [grad_Pm[lane] for grad_Pm in moves]
            optimiser.update(k, names, own, by, lr=rates[lane])
        for (share, _), value_Pm in zip(owned, values, strict=True):
            share.scatter(value_Pm)

    def _shares_of(self, k: int) -> list[_Share]:
        if k not in self._shares:
            self._shares[k] = [
                self._share(k, one.name, one.index_m) for one in self._first.shares(k)
            ]
        return self._shares[k]

    def _share(self, k: int, name: str, index_m: Tensor | None) -> _Share:
        if self._first.roles[name] is Role.ENTRIES:
            flat_Pn = self._stack.of(self._own[name]).detach().view(self._stack.lanes, -1)
        else:
            rows_PC = self._stack.of(self._first.parts_of(name)).detach()
            flat_Pn = rows_PC[:, k - 1].view(self._stack.lanes, -1)
        return _Share(name, flat_Pn, None if index_m is None else index_m.long())

    def _entries(self, name: str, level: int, initial: nn.Module | None) -> Tensor:
        weight_P = self._stack.of(self._own[name]).detach()
        if self._first.order_of(name)[1][level] == weight_P[0].numel():
            return weight_P  # every entry is active: the weights themselves, without a copy
        default = self._first.default_of(name, initial)
        is_active = self._first.map_of(name) <= level
        if default is None:
            return weight_P * is_active.to(weight_P.dtype)
        return torch.where(is_active, weight_P, default)

    def _combined(self, name: str, level: int, *, trainable: bool) -> tuple[Tensor, Tensor]:
        """Product or sum of the first `level` parts, and the last of them as a leaf."""
        parts_PC = self._stack.of(self._first.parts_of(name)).detach()
        is_product = self._first.roles[name] is Role.PRODUCT
        if level == 0:
            like = parts_PC[:, 0].contiguous()
            neutral = torch.ones_like(like) if is_product else torch.zeros_like(like)
            return neutral, neutral
        leaf = parts_PC[:, level - 1].contiguous().requires_grad_(trainable)
        if level == 1:
            return leaf, leaf
        before = parts_PC[:, : level - 1]
        return (before.prod(1) * leaf if is_product else before.sum(1) + leaf), leaf

    def _statistics(self) -> Iterator[tuple[str, Tensor]]:
        for name in self._first.normed:
            for statistic in STATISTICS:
                rows_C = self._first.statistic_of(statistic, name)
                yield f"{name}.{statistic}", self._stack.of(rows_C)
