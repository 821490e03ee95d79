"""One step that updates several partitions: a mixed batch under the node scheme.

Units are masked instead of weights, so every example of a batch can run in a subnetwork of its own
through the same weights (Mlodozeniec et al. 2023, appendix C). A weight gets its gradient from the
examples of its own level alone. The paper's trick takes it as a difference of two products over the
batch; here it is summed level by level, which costs one product in all, and leaves no rounding
residue of later chunks in earlier partitions.

Shapes: N examples with augmentation samples, I input and O output units, C partitions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned._assign import Role
from tuneparts.methods.partitioned.subnetwork import PartitionedNet
from tuneparts.nets.layers import Bias, ScalarMultiplier, scaled_by_row
from tuneparts.nets.surgery import reweighted

_Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
_SCALARS = Bias | ScalarMultiplier


class MixedBatch:
    """A forward in which each example has its own subnetwork.

    The net must treat every row of a batch by itself, and read weights in the calls of their layers
    only: `tuneparts.methods.partitioned._isolation.check_mixable` refuses one that does not.
    `levels_N` are the subnetworks, 1..C, of the rows, ascending. If `trainable`, the weights are
    differentiable; otherwise only held parameters are.
    """

    def __init__(self, parts: PartitionedNet, levels_N: Tensor, *, trainable: bool = True) -> None:
        if parts.unmixable is not None:
            raise ConfigError(
                f"`{parts.unmixable}` is used by several layers, or by none: a mixed batch takes "
                "the gradients of each layer apart by level. Set `mixed` to false."
            )
        levels, counts = torch.unique_consecutive(levels_N, return_counts=True)
        if sorted(levels.tolist()) != levels.tolist() or not len(levels):
            raise ConfigError("the rows of a mixed batch must ascend in level. Sort them first.")
        self._parts = parts
        self._levels_N = levels_N
        ends = counts.cumsum(0)
        self._rows_of = {
            level: slice(end - count, end)
            for level, count, end in zip(*(t.tolist() for t in (levels, counts, ends)), strict=True)
        }
        self._tensors: dict[str, Tensor] = {}
        """What stands in for the net's own parameters, unless these differ between rows."""
        self.named_leaves: dict[str, Tensor] = {}
        """What a loss of the outputs is differentiated by; norms have a row for each partition."""
        for name, role in parts.roles.items():
            parameter = parts.net.get_parameter(name)
            if role is Role.HELD:
                self._tensors[name] = parameter.detach() if trainable else parameter
            elif role is Role.ENTRIES:
                self._tensors[name] = parameter.detach().requires_grad_(trainable)
                self.named_leaves[name] = self._tensors[name]
            else:
                self.named_leaves[name] = parts.parts_of(name).detach().requires_grad_(trainable)

    def __call__(self, x: Tensor) -> Any:
        """The net's own forward on inputs (N, ...)."""
        net = reweighted(self._parts.net, self._tensors)
        for name, layer in net.named_modules():
            forward = self._forward_of(name, layer)
            if forward is not None:
                layer.forward = forward  # of this copy alone
        return net(x)

    @property
    def leaves(self) -> list[Tensor]:
        return list(self.named_leaves.values())

    def grads(self) -> dict[int, list[Tensor | None]]:
        """By partition of the batch, one gradient per share, as its optimiser takes them."""

        def of(name: str, level: int) -> Tensor | None:
            grad = self.named_leaves[name].grad
            if grad is None or self._parts.roles[name] is Role.ENTRIES:
                return grad
            return grad[level - 1]

        return {k: [of(share.name, k) for share in self._parts.shares(k)] for k in self._rows_of}

    def _forward_of(self, name: str, layer: nn.Module) -> Callable[[Tensor], Tensor] | None:
        """A forward of the layer that knows the levels; None where the layer is not partitioned."""
        own = [f"{name}.{n}" if name else n for n, _ in layer.named_parameters(recurse=False)]
        dealt = [n for n in own if self._parts.roles.get(n, Role.HELD) is not Role.HELD]
        reason = ""
        if isinstance(layer, nn.modules.batchnorm._NormBase):
            reason = "it shares statistics between examples or mixes them"
        elif not dealt:
            return None
        elif isinstance(layer, _Convolution):
            if layer.padding_mode != "zeros" or isinstance(layer.padding, str):
                reason = "its padding is not by a number of zeros"
        elif not isinstance(layer, nn.Linear | nn.GroupNorm | nn.LayerNorm | _SCALARS):
            reason = "its affine parameters cannot differ between examples"
        if reason:
            raise ConfigError(
                f"`{name}` is a {type(layer).__name__}: {reason}, and a mixed batch runs each "
                "example in its own subnetwork. Use GroupNorm or no norm, or set `mixed` to false."
            )
        if isinstance(layer, nn.Linear | _Convolution):
            return partial(_masked_layer, self._map_of(name, layer), layer.weight, layer.bias)
        per_example = {}
        for full in dealt:
            # Scale or shift of each subnetwork (C, ...); only its own part is differentiated.
            rows_C, is_product = self.named_leaves[full], self._parts.roles[full] is Role.PRODUCT
            fixed = rows_C.detach()
            neutral = torch.ones_like(fixed[:1]) if is_product else torch.zeros_like(fixed[:1])
            before = fixed[:-1].cumprod(0) if is_product else fixed[:-1].cumsum(0)
            before = torch.cat([neutral, before])
            of_level = before * rows_C if is_product else before + rows_C
            per_example[full.rpartition(".")[2]] = of_level[self._levels_N - 1]
        return partial(scaled_by_row, layer, values=per_example)

    def _map_of(self, name: str, layer: Any) -> "_Map":
        """The layer between masked units. It may be held in part: what is held has no order."""
        assert self._parts.units is not None
        units = self._parts.units[name]

        def active(labels: Tensor) -> Tensor | None:
            """1 where a row's subnetwork has a unit, else 0: (N, units); None if all have all."""
            # A product with it is one step in any layout; filling unit by unit takes longer.
            weight = layer.weight
            is_active = labels.to(weight.device) <= self._levels_N.to(weight.device)[:, None]
            return None if bool(is_active.all()) else is_active.to(weight.dtype)

        orders = {
            kind: self._parts.order_of(f"{name}.{kind}")
            for kind in ("weight", "bias")
            if self._parts.roles.get(f"{name}.{kind}") is Role.ENTRIES
        }
        conv = None if isinstance(layer, nn.Linear) else layer
        inputs = None if units.is_silent else active(units.in_labels)
        return _Map(name, conv, self._rows_of, inputs, active(units.out_labels), orders)


@dataclass(frozen=True)
class _Map:
    """A linear or convolutional layer between masked units, and its gradients."""

    name: str
    conv: Any
    rows_of: dict[int, slice]
    inputs: Tensor | None
    """1 where a row has an input unit, else 0: (N, I); None where nothing needs to be masked."""
    outputs: Tensor | None
    """The same of output units (N, O)."""
    orders: dict[str, tuple[Tensor, tuple[int, ...]]]
    """`PartitionedNet.order_of` of `weight` and `bias`, where they are dealt out."""

    def masked(self, x: Tensor, active: Tensor | None, *, owned: bool = False) -> Tensor:
        """Units, or gradients by them, with masked ones at zero; in place if `owned`."""
        if active is None:
            return x
        gap = [1] * (x.dim() - 2)
        shape = (len(active), *gap, -1) if self.conv is None else (len(active), -1, *gap)
        mask = active.view(shape).to(x.dtype)
        return x.mul_(mask) if owned else x * mask

    def gradient(self, grad: Tensor, x: Tensor, weight: Tensor, *, by_weight: bool) -> Tensor:
        conv = self.conv
        if conv is None:
            return grad.flatten(0, -2).T @ x.flatten(0, -2) if by_weight else grad @ weight
        grads: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
            grad, x, weight, None, conv.stride, conv.padding, conv.dilation, False,
            [0] * len(conv.stride), conv.groups, [not by_weight, by_weight, False],
        )  # fmt: skip
        return grads[by_weight]

    def take_own(self, into: Tensor, given: Tensor, kind: str, level: int) -> None:
        order_n, offsets = self.orders[kind]
        own = order_n[offsets[level - 1] : offsets[level]].long()
        into.view(-1).scatter_(0, own, given.reshape(-1).index_select(0, own))


class _Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: _Map) -> Tensor:
        x = layer.masked(x, layer.inputs)
        ctx.save_for_backward(x, weight, bias)
        ctx.layer = layer
        call = nn.functional.linear if layer.conv is None else layer.conv._conv_forward
        return layer.masked(call(x, weight, bias), layer.outputs, owned=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias = ctx.saved_tensors
        layer: _Map = ctx.layer
        grad = layer.masked(grad, layer.outputs)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = layer.gradient(grad, x, weight, by_weight=False)
            grad_x = layer.masked(grad_x, layer.inputs, owned=True)
        has_weight = "weight" in layer.orders and ctx.needs_input_grad[1]
        has_bias = "bias" in layer.orders and ctx.needs_input_grad[2]
        grad_weight = torch.zeros_like(weight) if has_weight else None
        grad_bias = torch.zeros_like(bias) if has_bias else None
        for level, rows in layer.rows_of.items():
            own, seen = grad[rows], x[rows]
            if grad_weight is not None:
                found = layer.gradient(own, seen, weight, by_weight=True)
                layer.take_own(grad_weight, found, "weight", level)
            if grad_bias is not None:
                units = grad.dim() - 1 if layer.conv is None else 1
                found = own.sum([dim for dim in range(grad.dim()) if dim != units])
                layer.take_own(grad_bias, found, "bias", level)
        return grad_x, grad_weight, grad_bias, None


def _masked_layer(layer: _Map, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    num = max(rows.stop for rows in layer.rows_of.values())
    if len(x) != num:
        raise ConfigError(
            f"`{layer.name}` sees {len(x)} rows of a batch of {num}: every layer must see one row "
            "per example. Set `mixed` to false."
        )
    if torch.is_autocast_enabled(x.device.type):
        # Autocast does not look into a function with a backward of its own.
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    with torch.autocast(x.device.type, enabled=False):
        out: Tensor = _Masked.apply(x, weight, bias, layer)  # type: ignore[no-untyped-call]
    return out
