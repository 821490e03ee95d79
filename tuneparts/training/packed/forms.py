"""Lane forms: layers that compute what P layers of different weights do, in one call each.

A net becomes its lane form layer by layer. Known layers have a form here, known blocks run their
own code on the forms of their layers, and any other module is mapped over lanes by `torch.vmap`.

Legend: P lanes, N inputs of each, C channels, H height, W width, D features, O outputs.
"""

import copy
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from tuneparts.augment.dropout_slot import DropoutSlot
from tuneparts.errors import ConfigError
from tuneparts.models.fixup_resnet import FixupBlock
from tuneparts.models.layers import Bias, PaddedShortcut, ScalarMultiplier
from tuneparts.models.mobilenet_v2 import InvertedResidual
from tuneparts.models.resnet9 import Multiply, ResidualPair
from tuneparts.models.resnet18 import BasicBlock
from tuneparts.models.wide_resnet import PreActivationBlock
from tuneparts.training.packed.layout import in_layout_of, is_wide, stacked, wide
from tuneparts.training.packed.stack import Stack

_BLOCKS = (FixupBlock, PreActivationBlock, BasicBlock, ResidualPair, InvertedResidual)
"""Modules whose own code is right for wide images, once their layers are lane forms."""
_ELEMENTWISE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus,
    nn.Hardswish, nn.Identity, Multiply,
)  # fmt: skip
_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
_WRITES_ANEW = (nn.Conv2d, nn.Linear, nn.MaxPool2d)
"""Layers whose output their own gradient does not need, so that it can be changed in place."""

Act = Callable[[Tensor, int], Tensor]
"""What a lane's hypers do to activations (N, ...) at a dropout slot of this number."""


class Form(nn.Module):
    """The lane form of one layer.

    Args:
        layer: of the first lane, for its settings and its train or eval mode.
        stack: the weights of all lanes.
    """

    def __init__(self, layer: nn.Module, stack: Stack) -> None:
        super().__init__()
        self._held = (layer,)  # in a tuple, so that its weights do not become ours
        self._stack = stack
        self.lanes = stack.lanes

    @property
    def layer(self) -> Any:
        """The layer of the first lane."""
        return self._held[0]

    def __call__(self, h: Tensor) -> Tensor:
        """What the layer does in all lanes, or what stands in for it in the present pass."""
        forward = self._stack.instead_of(self._held[0]) or super().__call__
        found: Tensor = forward(h)
        return found

    def used(self, name: str) -> Any:
        """A parameter or buffer of all lanes (P, ...), as the present pass reads it, or None."""
        own = getattr(self._held[0], name)
        return None if own is None else self._stack.used(own)


class LaneLinear(Form):
    """One batched product."""

    def forward(self, h_PND: Tensor) -> Tensor:
        """(P, N, D) to (P, N, O)."""
        found: Tensor = _Linear.apply(  # type: ignore[no-untyped-call]
            h_PND, self.used("weight"), self.used("bias")
        )
        return found


class _Linear(torch.autograd.Function):
    """h W^T + b of each lane; the gradient of W comes in the layout of W, and needs no copy."""

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


class LaneConv2d(Form):
    """One grouped convolution."""

    def forward(self, h: Tensor) -> Tensor:
        """Wide images to wide images."""
        return self._convolved(h, groups=self.lanes * self.layer.groups)

    def of_shared(self, x_NCHW: Tensor) -> Tensor:
        """Wide images from inputs that all lanes have in common, as more output channels."""
        return self._convolved(x_NCHW, groups=1)

    def _convolved(self, h: Tensor, groups: int) -> Tensor:
        layer, bias = self.layer, self.used("bias")
        return functional.conv2d(
            h,
            self.used("weight").flatten(0, 1),
            None if bias is None else bias.flatten(),
            layer.stride,
            layer.padding,
            layer.dilation,
            groups,
        )


class LaneBatchNorm(Form):
    """BatchNorm over P times the channels: it looks at each channel alone."""

    def forward(self, h: Tensor) -> Tensor:
        """Wide images of the same shape."""
        layer, counts_P = self.layer, self.used("num_batches_tracked")
        tensors = map(self.used, ("weight", "bias", "running_mean", "running_var"))
        weight, bias, mean, var = (None if t is None else t.view(-1) for t in tensors)
        if layer.training and counts_P is not None:
            counts_P.add_(1)
        by_batch = layer.training or mean is None
        return functional.batch_norm(
            h, mean, var, weight, bias, by_batch, layer.momentum, layer.eps
        )


class LaneGroupNorm(Form):
    """GroupNorm over P times the groups; no group reaches over two lanes."""

    def forward(self, h: Tensor) -> Tensor:
        """Wide images of the same shape."""
        tensors = map(self.used, ("weight", "bias"))
        weight, bias = (None if t is None else t.view(-1) for t in tensors)
        num_groups = self.lanes * self.layer.num_groups
        return functional.group_norm(h, num_groups, weight, bias, self.layer.eps)


class LaneScalar(Form):
    """FixUp's learnable number, one for each lane."""

    def forward(self, h: Tensor) -> Tensor:
        """Any activations, the same shape out."""
        adds = isinstance(self.layer, Bias)
        by_lane = torch.unflatten(h, 1, (self.lanes, -1)) if is_wide(h) else h
        number_P1 = self.used("bias" if adds else "scale")
        number = number_P1.view(-1, *[1] * (3 if is_wide(h) else h.dim() - 1))
        found: Tensor = by_lane + number if adds else by_lane * number
        return found.flatten(1, 2) if is_wide(h) else found


class LaneShortcut(PaddedShortcut):
    """The shortcut without weights: every lane's own channels get zeros behind them."""

    def __init__(self, layer: PaddedShortcut, stack: Stack) -> None:
        super().__init__(layer.stride, layer.num_new)
        self.lanes = stack.lanes

    def forward(self, h: Tensor) -> Tensor:
        """Wide images to wide images of more channels."""
        return wide(super().forward(torch.unflatten(h, 1, (self.lanes, -1))).transpose(0, 1))


class LaneFlatten(Form):
    """Images to vectors."""

    def forward(self, h: Tensor) -> Tensor:
        """Wide images, or stacked vectors, to stacked vectors (P, N, D)."""
        return stacked(h, self.lanes).flatten(2)


class LaneSlot(Form):
    """A dropout slot: each lane's hypers act on its own activations, by its own stream."""

    def __init__(self, layer: DropoutSlot, stack: Stack, acts: list[Act]) -> None:
        super().__init__(layer, stack)
        self._acts = acts

    def forward(self, h: Tensor) -> Tensor:
        """Any activations, the same shape out."""
        if not self._acts:
            return h
        each = zip(self._acts, stacked(h, self.lanes), strict=True)
        found = torch.stack([act(lane, self.layer.slot) for act, lane in each])
        return in_layout_of(h, found)


class Mapped(Form):
    """Any other module, mapped over its lanes by `torch.vmap`.

    Args:
        layer: of the first lane.
        stack: the weights of all lanes.
        is_net: whether it is the whole net, which takes and gives stacked tensors of any shape.
    """

    def __init__(self, layer: nn.Module, stack: Stack, *, is_net: bool = False) -> None:
        super().__init__(layer, stack)
        self._is_net = is_net
        self._named = dict((*layer.named_parameters(), *layer.named_buffers()))
        if any(isinstance(module, DropoutSlot) for module in layer.modules()):
            raise ConfigError(
                f"dropout in a pack must stand in a layer list that is known, but "
                f"`{type(layer).__name__}` has code of its own around it. Use `packed=1`."
            )

    def forward(self, h: Tensor) -> Tensor:
        """Activations of either layout; images come out wide."""

        def call(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
            found: Tensor = functional_call(self.layer, tensors, (x,))
            return found

        given = h if self._is_net else stacked(h, self.lanes)
        tensors = {name: self._stack.used(own) for name, own in self._named.items()}
        found: Tensor = torch.func.vmap(call, randomness="error")(tensors, given)
        if found.dim() == 4 and not self._is_net:
            raise ConfigError(
                f"layers in a pack give vectors or images, but `{type(self.layer).__name__}` gives "
                f"{tuple(found.shape[1:])}. Use `packed=1`."
            )
        return wide(found) if found.dim() == 5 and not self._is_net else found


def form(module: nn.Module, stack: Stack, acts: list[Act]) -> nn.Module:
    """The lane form of a module.

    Args:
        module: of the first lane.
        stack: the weights of all lanes.
        acts: filled for the length of a call with what each lane does at dropout slots.
    """
    if isinstance(module, DropoutSlot):
        return LaneSlot(module, stack, acts)
    if type(module) in _BLOCKS or type(module) is nn.Sequential:
        return _block(module, stack, acts)
    return _layer(module, stack)


def _layer(module: nn.Module, stack: Stack) -> nn.Module:
    kind = type(module)
    is_silent = isinstance(module, nn.Dropout) and module.p == 0
    if is_silent or kind in _ELEMENTWISE or kind in _POOLS:
        return nn.Identity() if is_silent else copy.copy(module)
    made = _FORMS.get(kind)
    return Mapped(module, stack) if made is None or _is_unusual(module) else made(module, stack)


_FORMS: dict[type[nn.Module], Callable[[Any, Stack], nn.Module]] = {
    nn.Linear: LaneLinear,
    nn.Conv2d: LaneConv2d,
    nn.BatchNorm2d: LaneBatchNorm,
    nn.GroupNorm: LaneGroupNorm,
    nn.Flatten: LaneFlatten,
    Bias: LaneScalar,
    ScalarMultiplier: LaneScalar,
    PaddedShortcut: LaneShortcut,
}


def _is_unusual(module: Any) -> bool:
    """Whether a layer has a setting that its lane form does not know."""
    if isinstance(module, nn.Conv2d):
        return module.padding_mode != "zeros"
    if isinstance(module, nn.BatchNorm2d):
        return module.momentum is None
    return isinstance(module, nn.Flatten) and (module.start_dim, module.end_dim) != (1, -1)


def _block(module: nn.Module, stack: Stack, acts: list[Act]) -> nn.Module:
    """A module with the forms of its layers in their places."""
    block = copy.copy(module)
    children = list(module._modules.items())
    forms: OrderedDict[str, nn.Module | None] = OrderedDict(
        (name, None if child is None else form(child, stack, acts)) for name, child in children
    )
    if type(module) is nn.Sequential:
        forms = _quickened(OrderedDict(children), forms)
    block._modules = dict(forms)
    return block


def _quickened(
    layers: "OrderedDict[str, nn.Module | None]", forms: "OrderedDict[str, nn.Module | None]"
) -> "OrderedDict[str, nn.Module | None]":
    """A sequence with pooling before ReLU, and ReLU in place where nobody needs its input.

    ReLU keeps order, so the largest of four is the same before and after it, and costs a quarter
    behind. Wide activations do not fit into the cache, so that each pass over them counts.
    """
    names = list(layers)
    for place in range(len(names) - 1):
        this, after = names[place], names[place + 1]
        if type(layers[this]) is nn.ReLU and type(layers[after]) is nn.MaxPool2d:
            names[place], names[place + 1] = after, this
    found: OrderedDict[str, nn.Module | None] = OrderedDict()
    before: nn.Module | None = None
    for name in names:
        is_free = type(layers[name]) is nn.ReLU and isinstance(before, _WRITES_ANEW)
        found[name] = nn.ReLU(inplace=True) if is_free else forms[name]
        before = layers[name]
    return found
