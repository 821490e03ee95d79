"""Mixed batches of all lanes of a pack: each example has its subnetwork, each lane its weights.

As `MixedBatch`, through the lane forms of layers: units are masked in all lanes alike, and a weight
gets its gradient from the examples of its own level alone.

Legend: P lanes, N examples with augmentation samples, C partitions, D features.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.errors import ConfigError
from tuneparts.models.layers import Bias, ScalarMultiplier
from tuneparts.partition.assign import Role
from tuneparts.partition.masked import Convolution, Masked, Masks, orders_of, segments_of
from tuneparts.partition.node import MixedBatch, of_level
from tuneparts.partition.subnetwork import Partitioned
from tuneparts.training.packed.forms import Act
from tuneparts.training.packed.layout import is_wide
from tuneparts.training.packed.net import LaneNet


class LaneMixedBatch:
    """A forward of all lanes in which each example has its own subnetwork; called as a `LaneNet`.

    Args:
        first: the partitioned net of the first lane, under the node scheme.
        net: of all lanes.
        levels_N: as of `MixedBatch`.
        trainable: as of `MixedBatch`.
    """

    def __init__(
        self, first: Partitioned, net: LaneNet, levels_N: Tensor, *, trainable: bool = True
    ) -> None:
        self._first, self._net, self._levels_N = first, net, levels_N
        self._trainable = trainable
        self.segments = segments_of(levels_N)
        self._leaves = self._tensors({Role.ENTRIES}, first.net.get_parameter)
        self._rows = self._tensors({Role.PRODUCT, Role.SUM}, first.parts_of)

    def _tensors(self, roles: set[Role], own: Callable[[str], Tensor]) -> dict[str, Tensor]:
        return {
            name: self._net.stack.of(own(name)).detach().requires_grad_(self._trainable)
            for name, role in self._first.roles.items()
            if role in roles
        }

    def __call__(self, x: Tensor, acts: Sequence[Act] = (), *, is_shared: bool = True) -> Tensor:
        """Outputs (P, N, K)."""
        held: dict[str, Tensor] = {}
        for name, role in self._first.roles.items():
            if role is Role.HELD:
                tensor = self._net.stack.of(self._first.net.get_parameter(name))
                held[name] = tensor.detach() if self._trainable else tensor
        instead = {}
        for name, layer in self._first.net.named_modules():
            forward = self._forward_of(name, layer, held)
            if forward is not None:
                instead[id(layer)] = forward
        tensors = {**held, **self._leaves}
        return self._net(x, acts, is_shared=is_shared, tensors=tensors, instead=instead)

    @property
    def leaves(self) -> list[Tensor]:
        """What losses of the outputs are differentiated by."""
        return [*self._leaves.values(), *self._rows.values()]

    def grads(self, found: Sequence[Tensor | None]) -> dict[int, list[Tensor | None]]:
        """By partition of the batch, one gradient per share, given those of `leaves`."""
        named = dict(zip([*self._leaves, *self._rows], found, strict=True))

        def of(name: str, level: int) -> Tensor | None:
            grad = named[name]
            return grad if grad is None or name in self._leaves else grad[:, level - 1]

        levels = [segment.level for segment in self.segments]
        return {k: [of(share.name, k) for share in self._first.shares(k)] for k in levels}

    def _forward_of(
        self, name: str, layer: nn.Module, held: dict[str, Tensor]
    ) -> Callable[[Tensor], Tensor] | None:
        """What a layer does in place of its lane form; None where it is not partitioned."""
        own = [f"{name}.{n}" if name else n for n, _ in layer.named_parameters(recurse=False)]
        roles = [self._first.roles.get(n, Role.HELD) for n in own]
        if all(role is Role.HELD for role in roles):
            return None
        if isinstance(layer, nn.Linear | nn.Conv2d):
            assert self._first.wiring is not None
            lanes = self._net.stack.lanes
            rule = LaneProduct(lanes) if isinstance(layer, nn.Linear) else Convolution(layer, lanes)
            units, like = self._first.wiring.layers[name], layer.weight
            masks = Masks(units, self.segments, self._levels_N, rule, like=like)
            every = {**held, **self._leaves}
            weight = every[f"{name}.weight"]
            bias = every[f"{name}.bias"] if layer.bias is not None else None
            orders = orders_of(self._first, name)
            return partial(_masked, weight, bias, rule, masks, orders)
        if not isinstance(layer, nn.GroupNorm | Bias | ScalarMultiplier):
            raise ConfigError(
                "a mixed batch of a pack knows linear layers, convolutions of images, GroupNorm "
                f"and FixUp's scalars, but `{name}` is a {type(layer).__name__}. Use `packed=1`, "
                "or set `mixed` to false."
            )
        kinds = {n.rpartition(".")[2]: n for n in own if n in self._rows}
        return partial(_affine, layer, {kind: self._of_rows(n) for kind, n in kinds.items()})

    def _of_rows(self, name: str) -> Tensor:
        """A scale or shift (N, P, ...) of each row and lane."""
        is_product = self._first.roles[name] is Role.PRODUCT
        rows_CP = self._rows[name].transpose(0, 1)
        return of_level(rows_CP, is_product=is_product)[self._levels_N - 1]


class LaneProduct:
    """The linear layers of all lanes: rows (P, N, D), and a weight (P, O, D)."""

    axis = -1
    row_axis = 1

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        weight_PDO = weight.transpose(1, 2)
        if bias is None:
            return torch.bmm(x, weight_PDO)
        return torch.baddbmm(bias[:, None], x, weight_PDO)

    def by_input(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG002
        return torch.bmm(grad, weight)

    def by_weight(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG002
        return torch.bmm(grad.transpose(1, 2), x)

    def by_bias(self, grad: Tensor) -> Tensor:
        return grad.sum(1)


def _masked(
    weight: Tensor, bias: Tensor | None, rule: Any, masks: Masks, orders: Any, h: Tensor
) -> Tensor:
    """Wide images through a convolution, or stacked vectors through a product."""
    if is_wide(h):
        weight, bias = weight.flatten(0, 1), None if bias is None else bias.flatten()
    found: Tensor = Masked.apply(  # type: ignore[no-untyped-call]
        h, weight, bias, rule, masks, orders
    )
    return found


def _affine(layer: nn.Module, by_row: dict[str, Tensor], h: Tensor) -> Tensor:
    """A norm or scalar layer whose scale and shift differ between examples and lanes."""
    lanes = next(iter(by_row.values())).shape[1]
    if isinstance(layer, nn.GroupNorm):
        h = nn.functional.group_norm(h, lanes * layer.num_groups, None, None, layer.eps)
    x = torch.unflatten(h, 1, (lanes, -1)) if is_wide(h) else h.transpose(0, 1)  # (N, P, ...)
    for kind, values_NP in by_row.items():
        fitted = values_NP.view(*values_NP.shape, *[1] * (x.dim() - values_NP.dim()))
        x = x + fitted if kind == "bias" else x * fitted
    return x.flatten(1, 2) if is_wide(h) else x.transpose(0, 1)


@torch.no_grad()
def check_mixed(lanes: Sequence[Partitioned], net: LaneNet, x: Tensor) -> None:
    """Compare a mixed batch of all lanes with those of each: what is wrong must not train.

    Args:
        lanes: the partitioned nets.
        net: of all lanes.
        x: a few inputs (N, ...).

    Raises:
        ConfigError: The net has no mixed batches, or none in a pack.
    """
    levels = torch.ones(len(x), dtype=torch.long, device=x.device)
    levels[len(x) // 2 :] = lanes[0].num_partitions
    wanted = torch.stack([MixedBatch(parts, levels).run(x) for parts in lanes])
    found = LaneMixedBatch(lanes[0], net, levels)(x)
    if not torch.allclose(found, wanted, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise ConfigError(
            "a mixed batch in a pack must give what it gives alone, but that of "
            f"{type(lanes[0].net).__name__} does not. Use `packed=1`, or set `mixed` to false."
        )
