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
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from tuneparts.augment.dropout_slot import DropoutSlot
from tuneparts.errors import ConfigError
from tuneparts.models.layout import overruns
from tuneparts.models.resnet9 import Multiply

Act = Callable[[Tensor, int], Tensor]
"""What the hypers of one trial do to activations (N, ...) at the dropout layer of this number."""
Form = Callable[[Tensor], Tensor]
_AS_THEY_ARE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus,
    nn.Hardswish, nn.Identity, Multiply,
    nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
"""Layers that do to stacked vectors and wide images what they do to those of one net."""
_WRITES_ANEW = (nn.Conv2d, nn.Linear, nn.MaxPool2d)
"""Layers whose output their own gradient does not need: a ReLU after them can work in place."""


class PackedNet:
    """P nets in one.

    Args:
        nets: slot -> net. Their parameters and buffers become views of `tensors`.
        width: P. Slots without a net hold copies of the first net, which nobody reads.
        x: a few inputs (N, ...), on which the packed net must agree with the nets.

    Raises:
        ConfigError: The net cannot be packed.

    Example:
        >>> nets = {slot: nn.Sequential(nn.Linear(3, 4), nn.Tanh()) for slot in range(5)}
        >>> PackedNet(nets, 5, torch.randn(2, 3))(torch.randn(7, 3)).shape
        torch.Size([5, 7, 4])
    """

    def __init__(self, nets: Mapping[int, nn.Module], width: int, x: Tensor) -> None:
        self.width = width
        self.tensors: dict[str, Tensor] = {}
        """Parameters and buffers (P, ...) by name; the parameters of nets are leaves."""
        self._first = next(iter(nets.values()))
        self._acts: Sequence[Act | None] = ()
        named = {slot: _tensors(net) for slot, net in nets.items()}
        filled = [named.get(slot, _tensors(self._first)) for slot in range(width)]
        for name, own in _tensors(self._first).items():
            joined = torch.stack([each[name].detach() for each in filled]).contiguous()
            for slot, each in named.items():
                each[name].data = joined[slot]
            self.tensors[name] = joined.requires_grad_(own.requires_grad)
        self._forms = self._known_forms() if x.dim() in (2, 4) else None
        try:
            self._check(nets, x)
        except Exception as error:  # whatever `vmap` cannot map
            raise ConfigError(
                f"net {type(self._first).__name__} cannot be packed: {error}. Leave `packed` out."
            ) from error

    @property
    def has_slots(self) -> bool:
        """Whether hypers can act at its dropout layers."""
        return self._forms is not None

    def __call__(
        self, x: Tensor, acts: Sequence[Act | None] = (), *, is_shared: bool = True
    ) -> Tensor:
        """Outputs (P, N, O).

        Args:
            x: what all slots see (N, ...); or what each sees, (P, N, ...) or wide images.
            acts: what happens at dropout layers, slot by slot; empty for nothing.
            is_shared: whether `x` is what all slots see.
        """
        if self._forms is None:
            x = x.expand(self.width, *x.shape) if is_shared else self._stacked(x)
            return vmap(self._call_first, randomness="error")(self.tensors, x)
        self._acts = acts
        _, layer = next(_leaves(self._first))
        if is_shared and not (type(layer) is nn.Conv2d and layer.groups == 1):
            x = x.expand(self.width, *x.shape)
        if x.dim() == 5 and type(layer) is not nn.Flatten:
            x = wide(x)
        if x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        for form in self._forms:
            x = form(x)
        return x

    def _call_first(self, tensors: dict[str, Tensor], x: Tensor) -> Tensor:
        found: Tensor = functional_call(self._first, tensors, (x,))
        return found

    def _known_forms(self) -> list[Form] | None:
        """What to do layer by layer; None if one of the layers is not known."""
        found: list[Form] = []
        before: nn.Module | None = None
        for prefix, layer in _leaves(self._first):
            own = {name: self.tensors.get(f"{prefix}{name}") for name in _tensors(layer)}
            is_tied = any(tensor is None for tensor in own.values())
            form = None if is_tied else self._form(layer, own)
            if form is None:
                return None
            is_free = type(layer) is nn.ReLU and isinstance(before, _WRITES_ANEW)
            found.append(nn.ReLU(inplace=True) if is_free else form)
            before = layer
        return found

    def _form(self, layer: Any, own: Mapping[str, Any]) -> Form | None:
        kind, found = type(layer), None
        if kind is DropoutSlot:
            found = partial(self._at_slot, layer.slot)
        elif kind in _AS_THEY_ARE or (kind is nn.Dropout and layer.p == 0):
            found = nn.Identity() if kind is nn.Dropout else layer
        elif kind is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
            found = lambda h: self._stacked(h).flatten(2)
        elif kind is nn.Linear:
            found = lambda h: _Linear.apply(h, own["weight"], own.get("bias"))
        elif kind is nn.Conv2d and layer.padding_mode == "zeros" and not overruns(layer):
            found = partial(self._convolved, layer, own)
        elif kind is nn.BatchNorm2d and layer.momentum is not None:
            found = partial(_batch_normed, layer, own)
        elif kind is nn.GroupNorm:
            groups = self.width * layer.num_groups
            found = lambda h: functional.group_norm(
                h, groups, *_flat(own, "weight", "bias"), layer.eps
            )
        return found

    def _convolved(self, layer: nn.Conv2d, own: Mapping[str, Any], h: Tensor) -> Tensor:
        # Images that all slots see have as many channels as the layer: more outputs of one group.
        copies = 1 if h.shape[1] == layer.in_channels else self.width
        bias = own.get("bias")
        return functional.conv2d(
            h,
            own["weight"].flatten(0, 1),
            None if bias is None else bias.flatten(),
            layer.stride,
            layer.padding,
            layer.dilation,
            copies * layer.groups,
        )

    def _at_slot(self, number: int, h: Tensor) -> Tensor:
        if not self._acts:
            return h
        each = zip(self._acts, self._stacked(h), strict=True)
        found = torch.stack([own if act is None else act(own, number) for act, own in each])
        return wide(found) if h.dim() == 4 else found

    def _stacked(self, h: Tensor) -> Tensor:
        """Activations of either layout as (P, N, ...)."""
        return h.unflatten(1, (self.width, -1)).transpose(0, 1) if h.dim() == 4 else h

    @torch.no_grad()
    def _check(self, nets: Mapping[int, nn.Module], x: Tensor) -> None:
        """Compare with what the nets give alone, and see that the training mode can be computed."""
        for net in nets.values():
            net.eval()
        found = self(x)[list(nets)]
        wanted = torch.stack([net(x) for net in nets.values()])
        for net in nets.values():
            net.train()
        kept = {name: self.tensors[name].clone() for name, _ in self._first.named_buffers()}
        self(x)
        for name, value in kept.items():
            self.tensors[name].copy_(value)
        if found.shape != wanted.shape or not torch.allclose(
            found, wanted, rtol=1e-3, atol=1e-4, equal_nan=True
        ):
            raise ValueError("it gives other numbers than alone")


def wide(x_PNCHW: Tensor) -> Tensor:
    """Stacked images in the wide layout.

    Example:
        >>> wide(torch.zeros(3, 2, 1, 4, 5)).shape
        torch.Size([2, 3, 4, 5])
    """
    P, N, C, H, W = x_PNCHW.shape
    return x_PNCHW.permute(1, 3, 4, 0, 2).reshape(N, H, W, P * C).permute(0, 3, 1, 2)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict((*module.named_parameters(), *module.named_buffers()))


def _leaves(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The layers of nested sequences in order, each with the beginning of its tensors' names."""
    if type(module) is not nn.Sequential:
        yield prefix, module
        return
    for name, child in module._modules.items():
        assert child is not None
        yield from _leaves(child, f"{prefix}{name}.")


def _flat(own: Mapping[str, Tensor], *names: str) -> list[Tensor | None]:
    return [own[name].view(-1) if name in own else None for name in names]


def _batch_normed(layer: nn.BatchNorm2d, own: Mapping[str, Tensor], h: Tensor) -> Tensor:
    """Over P times the channels: a batch norm looks at each channel by itself."""
    if layer.training and "num_batches_tracked" in own:
        own["num_batches_tracked"].add_(1)
    mean, variance, weight, bias = _flat(own, "running_mean", "running_var", "weight", "bias")
    by_batch, momentum = layer.training or mean is None, layer.momentum
    assert momentum is not None
    return functional.batch_norm(h, mean, variance, weight, bias, by_batch, momentum, layer.eps)


class _Linear(torch.autograd.Function):
    """h W^T + b of each slot; the gradient of W comes in the layout of W, and needs no copy."""

    @staticmethod
    def forward(ctx: Any, h_PND: Tensor, weight_POD: Tensor, bias_PO: Tensor | None) -> Tensor:
        ctx.save_for_backward(h_PND, weight_POD)
        weight_PDO = weight_POD.transpose(1, 2)
        if bias_PO is None:
            return torch.bmm(h_PND, weight_PDO)
        return torch.baddbmm(bias_PO[:, None], h_PND, weight_PDO)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g_PNO,) = gradients
        h_PND, weight_POD = ctx.saved_tensors
        needs_h, needs_weight, needs_bias = ctx.needs_input_grad
        return (
            torch.bmm(g_PNO, weight_POD) if needs_h else None,
            torch.bmm(g_PNO.transpose(1, 2), h_PND) if needs_weight else None,
            g_PNO.sum(1) if needs_bias else None,
        )
