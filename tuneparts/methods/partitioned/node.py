"""One pass that updates several partitions: a mixed batch under the node scheme.

Units are masked instead of weights, so every example of a batch can run in a subnetwork of its own
through the same weights (Mlodozeniec et al. 2023, appendix C). A weight gets its gradient from the
examples of its own level alone. The paper's trick takes it as a difference of two products over the
batch; here it is summed level by level, which costs one product in all, and leaves no rounding
residue of later chunks in earlier partitions.

Shapes: N examples with augmentation samples, I input and O output units, C partitions.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned.assign import Role
from tuneparts.methods.partitioned.masked import (
    Convolution,
    Masked,
    Masks,
    Orders,
    Product,
    Rule,
    orders_of,
    segments_of,
)
from tuneparts.methods.partitioned.subnetwork import Partitioned
from tuneparts.models.layers import Bias, ScalarMultiplier
from tuneparts.models.reweighted import reweighted
from tuneparts.training.step import gradients

_Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


class MixedBatch:
    """A forward in which each example has its own subnetwork.

    The net must treat every row of a batch by itself, and read weights in the calls of their layers
    only: `tuneparts.methods.partitioned.isolation.check_mixable` refuses one that does not.

    Args:
        parts: under the node scheme; norms over the batch are refused.
        levels_N: the subnetwork, 1..C, of each row of the inputs; ascending.
        trainable: make the weights differentiable; otherwise only held parameters are.
    """

    def __init__(self, parts: Partitioned, levels_N: Tensor, *, trainable: bool = True) -> None:
        if parts.unmixable is not None:
            raise ConfigError(
                "a mixed batch takes the gradients of each layer apart by level, but "
                f"`{parts.unmixable}` is used by several layers, or by none. Set `mixed` to false."
            )
        self._parts = parts
        self._levels_N = levels_N
        self._trainable = trainable
        self.segments = segments_of(levels_N)
        self._leaves = {
            name: parts.net.get_parameter(name).detach().requires_grad_(trainable)
            for name, role in parts.roles.items()
            if role is Role.ENTRIES
        }
        self._rows = {
            name: parts.parts_of(name).detach().requires_grad_(trainable)
            for name, role in parts.roles.items()
            if role in {Role.PRODUCT, Role.SUM}
        }

    def run(self, x: Tensor) -> Any:
        """The net's own forward on inputs (N, ...)."""
        held: dict[str, Tensor] = {}
        for name, role in self._parts.roles.items():
            if role is Role.HELD:
                parameter = self._parts.net.get_parameter(name)
                held[name] = parameter.detach() if self._trainable else parameter
        net = reweighted(self._parts.net, {**held, **self._leaves})
        for name, layer in net.named_modules():
            forward = self._forward_of(name, layer)
            if forward is not None:
                layer.forward = forward  # of this copy alone
        return net(x)

    __call__ = run

    @property
    def leaves(self) -> list[Tensor]:
        """What a loss of the outputs is differentiated by."""
        return list(self.named_leaves.values())

    @property
    def named_leaves(self) -> dict[str, Tensor]:
        """The same by the names of the net's parameters; norms have a row for each partition."""
        return {**self._leaves, **self._rows}

    def gradients(self, loss: Tensor) -> dict[int, list[Tensor | None]]:
        """Differentiate a loss; returns what `grads` does."""
        gradients(loss, self.leaves)
        return self.grads()

    def grads(self) -> dict[int, list[Tensor | None]]:
        """By partition of the batch, one gradient per share, as its optimiser takes them."""

        def of(name: str, level: int) -> Tensor | None:
            if name in self._leaves:
                return self._leaves[name].grad
            grad = self._rows[name].grad
            return None if grad is None else grad[level - 1]

        levels = [segment.level for segment in self.segments]
        return {k: [of(share.name, k) for share in self._parts.shares(k)] for k in levels}

    def _forward_of(self, name: str, layer: nn.Module) -> Callable[[Tensor], Tensor] | None:
        """A forward of the layer that knows the levels; None where the layer is not partitioned."""
        own = [f"{name}.{n}" if name else n for n, _ in layer.named_parameters(recurse=False)]
        if isinstance(layer, nn.modules.batchnorm._NormBase):
            self._refuse(name, layer, "it shares statistics between examples or mixes them")
        if not any(self._parts.roles.get(n, Role.HELD) is not Role.HELD for n in own):
            return None
        if isinstance(layer, nn.Linear | _Convolution):
            if isinstance(layer, _Convolution) and (
                layer.padding_mode != "zeros" or isinstance(layer.padding, str)
            ):
                self._refuse(name, layer, "its padding is not by a number of zeros")
            assert self._parts.wiring is not None
            rule = Product() if isinstance(layer, nn.Linear) else Convolution(layer)
            units = self._parts.wiring.layers[name]
            masks = Masks(units, self.segments, self._levels_N, rule, like=layer.weight)
            return partial(_masked_layer, name, layer, rule, masks, orders_of(self._parts, name))
        if not isinstance(layer, nn.GroupNorm | nn.LayerNorm | Bias | ScalarMultiplier):
            self._refuse(name, layer, "its affine parameters cannot differ between examples")
        rows = {n.rpartition(".")[2]: self._rows[n] for n in own if n in self._rows}
        per_example = {
            kind: of_level(row, is_product=self._parts.roles[f"{name}.{kind}"] is Role.PRODUCT)[
                self._levels_N - 1
            ]
            for kind, row in rows.items()
        }
        return partial(_affine_layer, layer, per_example)

    def _refuse(self, name: str, layer: nn.Module, reason: str) -> NoReturn:
        raise ConfigError(
            f"a mixed batch runs each example in its own subnetwork, but `{name}` is a "
            f"{type(layer).__name__}: {reason}. Use GroupNorm or no norm, or set `mixed` to false."
        )


def _masked_layer(
    name: str, layer: Any, rule: Rule, masks: Masks, orders: Orders, x: Tensor
) -> Tensor:
    if len(x) != masks.segments[-1].end:
        raise ConfigError(
            f"every layer must see one row per example, but `{name}` sees {len(x)} rows of a batch "
            f"of {masks.segments[-1].end}. Set `mixed` to false."
        )
    weight, bias = layer.weight, layer.bias
    if torch.is_autocast_enabled(x.device.type):
        # Autocast does not look into a function with a backward of its own.
        dtype = torch.get_autocast_dtype(x.device.type)
        x, weight = x.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    with torch.autocast(x.device.type, enabled=False):
        out: Tensor = Masked.apply(  # type: ignore[no-untyped-call]
            x, weight, bias, rule, masks, orders
        )
    return out


def _affine_layer(layer: nn.Module, per_example: dict[str, Tensor], x: Tensor) -> Tensor:
    """A norm or scalar layer whose scale and shift differ between examples."""
    if isinstance(layer, nn.GroupNorm):
        x = nn.functional.group_norm(x, layer.num_groups, None, None, layer.eps)
    elif isinstance(layer, nn.LayerNorm):
        x = nn.functional.layer_norm(x, layer.normalized_shape, None, None, layer.eps)

    def fitted(values: Tensor) -> Tensor:
        """(N, ...) so that it meets the channels of (N, C, ...), or the end of (N, ..., D)."""
        gap = [1] * (x.dim() - values.dim())
        if isinstance(layer, nn.LayerNorm):
            return values.view(len(values), *gap, *values.shape[1:])
        return values.view(*values.shape, *gap)

    for kind, values in per_example.items():
        x = x + fitted(values) if kind == "bias" else x * fitted(values)
    return x


def of_level(rows_C: Tensor, *, is_product: bool) -> Tensor:
    """Scale or shift of each subnetwork (C, ...); only its own part is differentiated."""
    fixed = rows_C.detach()
    neutral = torch.ones_like(fixed[:1]) if is_product else torch.zeros_like(fixed[:1])
    before = torch.cat([neutral, fixed[:-1].cumprod(0) if is_product else fixed[:-1].cumsum(0)])
    return before * rows_C if is_product else before + rows_C
