"""Several nets of one architecture computed as one: small nets spend most of a step on calls.

Vectors of all slots are stacked, (P, N, D), so that P products are one batched product. Images are
wide, (N, P * C, H, W) in `channels_last` memory with the channels of a slot side by side, so that P
convolutions are one grouped convolution. Nets that are not sequences of known layers are mapped by
`torch.vmap`, which gives the same numbers but gains little.

What a slot computes depends on the number of slots and on which one it is, because kernels round by
where numbers lie in memory. It does not depend on what the other slots hold, not in a single bit.

Legend: P slots, N inputs of each, C channels, H height, W width, D features, O outputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from tuneparts.hypers.dropout_slot import Act, DropoutSlot

Acts = Sequence[tuple[Act, torch.Generator] | None]
"""What the hypers of each slot do at dropout layers, and what they draw from; empty for nothing."""
_Form = Callable[[Tensor], Tensor]
_AS_THEY_ARE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus,
    nn.Hardswish, nn.Identity,
    nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
"""Layers that do to stacked vectors and wide images what they do to those of one net."""


class PackedNet:
    """P nets in one.

    Args:
        nets: slot -> net. Their parameters and buffers become views of `tensors`.
        width: P. Slots without a net hold copies of the first net, whose outputs are not used.
        num_dims: of the inputs (N, ...) of a single net.

    Example:
        >>> nets = {slot: nn.Sequential(nn.Linear(3, 4), nn.Tanh()) for slot in range(5)}
        >>> PackedNet(nets, 5, 2)(torch.randn(7, 3)).shape
        torch.Size([5, 7, 4])
    """

    def __init__(self, nets: Mapping[int, nn.Module], width: int, num_dims: int) -> None:
        self._width, self._num_dims = width, num_dims
        self.tensors: dict[str, Tensor] = {}
        """Parameters and buffers (P, ...) by name; the parameters of nets are leaves."""
        self._first = next(iter(nets.values()))
        self._acts: Acts = ()
        named = {slot: _tensors(net) for slot, net in nets.items()}
        filled = [named.get(slot, _tensors(self._first)) for slot in range(width)]
        for name, own in _tensors(self._first).items():
            joined = torch.stack([each[name].detach() for each in filled]).contiguous()
            for slot, each in named.items():
                each[name].data = joined[slot]
            self.tensors[name] = joined.requires_grad_(own.requires_grad)
        forms = [self._form(*one) for one in _leaves(self._first)] if num_dims in (2, 4) else [None]
        self._forms = [form for form in forms if form is not None]
        self.has_forms = len(self._forms) == len(forms)
        """Whether all layers are known; only then can hypers act at dropout layers."""

    def __call__(self, x: Tensor, acts: Acts = ()) -> Tensor:
        """Outputs (P, N, O).

        Args:
            x: what all slots see (N, ...), or what each of them sees (P, N, ...).
            acts: what happens at dropout layers.
        """
        is_shared = x.dim() == self._num_dims
        if not self.has_forms:
            x = x.expand(self._width, *x.shape) if is_shared else x
            call = vmap(partial(functional_call, self._first), randomness="error")
            found: Tensor = call(self.tensors, (x,))
            return found
        self._acts = acts
        _, layer = next(_leaves(self._first))
        if is_shared and not (type(layer) is nn.Conv2d and layer.groups == 1):
            x = x.expand(self._width, *x.shape)
        if x.dim() == 5 and type(layer) is not nn.Flatten:
            x = _wide(x)
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        for form in self._forms:
            x = form(x)
        return x

    def _form(self, prefix: str, layer: Any) -> _Form | None:
        """How a layer is computed for all slots; None if it is not known."""
        kind = type(layer)
        if any(f"{prefix}{name}" not in self.tensors for name in _tensors(layer)):
            return None  # it shares tensors with a layer before it
        own = {name: self.tensors[f"{prefix}{name}"] for name in _tensors(layer)}
        if kind is DropoutSlot:
            return partial(self._at_slot, layer.slot)
        if kind is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            return lambda h: self._stacked(h).flatten(2)
        if kind is nn.Linear:
            return lambda h: _linear(h, own["weight"], own.get("bias"))
        # The gradient of strided 1 x 1 convolutions can crash in this layout: `models.layout`.
        is_safe = kind is nn.Conv2d and max(layer.stride) <= max(layer.kernel_size)
        if is_safe and layer.padding_mode == "zeros":
            return partial(self._convolved, layer, own)
        is_known = kind in _AS_THEY_ARE or (kind is nn.Dropout and layer.p == 0)
        return cast(_Form, layer) if is_known else None

    def _convolved(self, layer: nn.Conv2d, own: Mapping[str, Any], h: Tensor) -> Tensor:
        # Images that all slots see have as many channels as the layer: more outputs of one group.
        copies = 1 if h.shape[1] == layer.in_channels else self._width
        weight, bias = own["weight"].flatten(0, 1), own["bias"].flatten() if "bias" in own else None
        stride, padding, dilation = layer.stride, layer.padding, layer.dilation
        groups = copies * layer.groups
        return functional.conv2d(h, weight, bias, stride, padding, dilation, groups)

    def _at_slot(self, number: int, h: Tensor) -> Tensor:
        if not self._acts:
            return h
        each = zip(self._acts, self._stacked(h), strict=True)
        found = torch.stack([h if one is None else one[0](h, number, one[1]) for one, h in each])
        return _wide(found) if h.dim() == 4 else found

    def _stacked(self, h: Tensor) -> Tensor:
        """Activations of either layout as (P, N, ...)."""
        return torch.unflatten(h, 1, (self._width, -1)).transpose(0, 1) if h.dim() == 4 else h


def _wide(x_PNCHW: Tensor) -> Tensor:
    """Stacked images in the wide layout."""
    P, N, C, H, W = x_PNCHW.shape
    return x_PNCHW.permute(1, 3, 4, 0, 2).reshape(N, H, W, P * C).permute(0, 3, 1, 2)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict((*module.named_parameters(), *module.named_buffers()))


def _leaves(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested sequences in order, each with the beginning of its tensors' names."""
    if type(module) is not nn.Sequential:
        yield prefix, module
        return
    for name, child in module._modules.items():  # `named_children` leaves out repeated ones
        assert child is not None
        yield from _leaves(child, f"{prefix}{name}.")


class _Linear(torch.autograd.Function):
    """W h + b of each slot; the gradient of W comes in the layout of W, and needs no copy."""

    @staticmethod
    def forward(ctx: Any, h_PND: Tensor, weight_POD: Tensor, bias_PO: Tensor | None) -> Tensor:
        ctx.save_for_backward(h_PND, weight_POD)
        weight_PDO = weight_POD.transpose(1, 2)
        if bias_PO is None:
            return torch.bmm(h_PND, weight_PDO)
        return torch.baddbmm(bias_PO[:, None], h_PND, weight_PDO)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g_PNO,), (h_PND, weight_POD) = gradients, ctx.saved_tensors
        needs_h, _, needs_bias = ctx.needs_input_grad
        h_gradient = torch.bmm(g_PNO, weight_POD) if needs_h else None
        weight_gradient = torch.bmm(g_PNO.transpose(1, 2), h_PND)
        return h_gradient, weight_gradient, g_PNO.sum(1) if needs_bias else None


_linear = cast("Callable[..., Tensor]", _Linear.apply)
