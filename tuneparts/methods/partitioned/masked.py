"""Layers between masked units: each row of a batch has a subnetwork of its own.

Shapes: N rows, units of a layer on one axis.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned.assign import Role
from tuneparts.methods.partitioned.subnetwork import Partitioned
from tuneparts.methods.partitioned.wiring import Units


@dataclass(frozen=True)
class LevelRows:
    """The examples of one level: rows `start` to `end` of the batch."""

    level: int
    start: int
    end: int


def segments_of(levels_N: Tensor) -> list[LevelRows]:
    """The rows of each level, given the level of each row; refuses rows that do not ascend."""
    levels, counts = torch.unique_consecutive(levels_N, return_counts=True)
    if sorted(levels.tolist()) != levels.tolist() or not len(levels):
        raise ConfigError("the rows of a mixed batch must ascend in level. Sort them first.")
    ends = counts.cumsum(0)
    return [
        LevelRows(int(level), int(end - count), int(end))
        for level, count, end in zip(levels, counts, ends, strict=True)
    ]


class Rule(Protocol):
    """How a layer maps rows to rows, and its gradients."""

    axis: int
    """Of the units."""

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """What the layer makes of its inputs."""
        ...

    def by_input(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """The gradient of its inputs."""
        ...

    def by_weight(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """The gradient of its weight."""
        ...

    def by_bias(self, grad: Tensor) -> Tensor:
        """The gradient of its bias."""
        ...


class Product:
    """A linear layer."""

    axis = -1

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return nn.functional.linear(x, weight, bias)

    def by_input(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG002
        return grad @ weight

    def by_weight(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:  # noqa: ARG002
        return grad.flatten(0, -2).T @ x.flatten(0, -2)

    def by_bias(self, grad: Tensor) -> Tensor:
        return grad.sum(list(range(grad.dim() - 1)))


class Convolution:
    """A convolution.

    Args:
        layer: its settings.
    """

    axis = 1

    def __init__(self, layer: Any) -> None:
        self._layer = layer

    def outputs(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        found: Tensor = self._layer._conv_forward(x, weight, bias)
        return found

    def by_input(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return self._backward(grad, x, weight, [True, False, False])[0]

    def by_weight(self, grad: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return self._backward(grad, x, weight, [False, True, False])[1]

    def by_bias(self, grad: Tensor) -> Tensor:
        return grad.sum([dim for dim in range(grad.dim()) if dim != 1])

    def _backward(
        self, grad: Tensor, x: Tensor, weight: Tensor, wanted: list[bool]
    ) -> tuple[Tensor, ...]:
        layer = self._layer
        no_output_padding = [0] * len(layer.stride)
        grads: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
            grad, x, weight, None, layer.stride, layer.padding, layer.dilation, False,
            no_output_padding, layer.groups, wanted,
        )  # fmt: skip
        return grads


class Masks:
    """Which units of a layer are silenced in which rows.

    Args:
        units: before and after the layer.
        segments: the rows of each level.
        levels_N: the level of each row.
        rule: of the layer.
        like: a tensor of the kind of the masks.
    """

    def __init__(
        self, units: Units, segments: list[LevelRows], levels_N: Tensor, rule: Rule, *, like: Tensor
    ) -> None:
        self.segments = segments
        self._rule = rule
        self._inputs = None if units.is_silent else _active(units.in_labels, levels_N, like)
        self._outputs = _active(units.out_labels, levels_N, like)

    def inputs(self, x: Tensor, *, owned: bool = False) -> Tensor:
        """Inputs, or gradients by them, with masked units at zero."""
        return self._fill(x, self._inputs, owned=owned)

    def outputs(self, x: Tensor, *, owned: bool = False) -> Tensor:
        """Outputs, or gradients by them, with masked units at zero."""
        return self._fill(x, self._outputs, owned=owned)

    def _fill(self, x: Tensor, active: Tensor | None, *, owned: bool) -> Tensor:
        if active is None:
            return x
        gap = [1] * (x.dim() - 2)
        shape = (len(active), *gap, -1) if self._rule.axis == -1 else (len(active), -1, *gap)
        mask = active.view(shape).to(x.dtype)
        return x.mul_(mask) if owned else x * mask


def _active(labels: Tensor, levels_N: Tensor, like: Tensor) -> Tensor | None:
    """1 where a row's subnetwork has a unit, else 0: (N, units); None where all have all.

    A product with it is one pass in any layout. Filling unit by unit takes three times as long
    where the channels of a pixel lie beside each other.
    """
    is_active = labels.to(like.device) <= levels_N.to(like.device)[:, None]
    return None if bool(is_active.all()) else is_active.to(like.dtype)


Orders = dict[str, tuple[Tensor, tuple[int, ...]]]
"""Of weight and bias of a layer, where they are dealt out: as of `Partitioned.order_of`."""


def orders_of(parts: Partitioned, name: str) -> Orders:
    """The orders of a layer. It may be held in part: what is held has none."""
    return {
        kind: parts.order_of(f"{name}.{kind}")
        for kind in ("weight", "bias")
        if parts.roles.get(f"{name}.{kind}") is Role.ENTRIES
    }


class Masked(torch.autograd.Function):
    """A linear map between masked units, with gradients level by level."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        rule: Rule,
        masks: Masks,
        orders: Orders,
    ) -> Tensor:
        x = masks.inputs(x)
        ctx.save_for_backward(x, weight, bias)
        ctx.rule, ctx.masks, ctx.orders = rule, masks, orders
        return masks.outputs(rule.outputs(x, weight, bias), owned=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        rule: Rule = ctx.rule
        masks: Masks = ctx.masks
        grad = masks.outputs(grad)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = masks.inputs(rule.by_input(grad, x, weight), owned=True)
        has_weight = "weight" in ctx.orders and ctx.needs_input_grad[1]
        has_bias = "bias" in ctx.orders and ctx.needs_input_grad[2]
        grad_weight = torch.zeros_like(weight) if has_weight else None
        grad_bias = torch.zeros_like(bias) if has_bias else None
        for segment in masks.segments:
            own, seen = (tensor[segment.start : segment.end] for tensor in (grad, x))
            if grad_weight is not None:
                by_weight = rule.by_weight(own, seen, weight)
                _take_own(grad_weight, by_weight, ctx.orders["weight"], segment.level)
            if grad_bias is not None:
                by_bias = rule.by_bias(own)
                _take_own(grad_bias, by_bias, ctx.orders["bias"], segment.level)
        return grad_x, grad_weight, grad_bias, None, None, None


def _take_own(
    into: Tensor, given: Tensor, order: tuple[Tensor, tuple[int, ...]], level: int
) -> None:
    """Copy the entries that a partition owns."""
    order_n, offsets = order
    own = order_n[offsets[level - 1] : offsets[level]].long()
    into.view(-1).scatter_(0, own, given.reshape(-1).index_select(0, own))
