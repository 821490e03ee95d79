"""Training of several trials at once, each in a slot of one packed net.

A slot draws what its trial draws alone, from the same generators in the same order, and its
optimiser makes the same step; only the arithmetic of the net is common. So a packed trial has the
numbers of the same trial alone up to rounding, and its state is that of its own learner.

Small nets spend most of a step on calls, so P nets are computed as one: vectors are stacked,
(P, N, D), for one batched product, and images wide, (N, P * C, H, W) in `channels_last` memory, for
one grouped convolution. Nets that are not sequences of known layers are mapped by `torch.vmap`,
which gives the same numbers but gains little.

Legend: P slots, C channels, H height, W width, D features, O outputs, B examples, S samples of
each, N = B * S, K outputs.
"""

import dataclasses
import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

from tuneparts.core.errors import ConfigError, DivergedError
from tuneparts.data.target import Binary, Classes, Values
from tuneparts.hypers.affine import AffineModule, resample
from tuneparts.hypers.parts import Act, DropoutSlot
from tuneparts.training.config import Runtime, SupervisedMethod
from tuneparts.training.loop import Step, SupervisedLearner
from tuneparts.training.process import keep_freed_memory
from tuneparts.training.state import _lay_out_moments
from tuneparts.training.step import Batch, set_lr

Acts = Sequence[tuple[Act, torch.Generator] | None]
"""What each slot does at dropout layers, and what it draws from; empty for nothing."""
_Form = Callable[[Tensor], Tensor]
_AS_THEY_ARE = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.ELU, nn.Tanh, nn.Sigmoid, nn.Softplus,
    nn.Hardswish, nn.Identity,
    nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d,
)  # fmt: skip
"""Layers that do to stacked vectors and wide images what they do to those of one net."""
_SHARED = {"kind", "momentum", "nesterov", "scalar_lr_factor"}
"""Fields of the optimiser that are the same in a pack; rates, schedules and decay may differ."""


def pack_key(config: SupervisedMethod) -> str:
    """What the configs of one pack have in common, as text.

    The numbers of hyperparameters may differ, but not whether they do something. Where several
    samples are averaged, those at an end of their range may not: one there may draw nothing.
    """
    hypers, parts = config.hypers, {}
    for name, hyper in hypers.parts.items():
        numbers, ends, is_still = hyper.numbers(), {}, True
        for field, number in numbers.items():
            value = getattr(hyper, field)
            for place, one in enumerate(value if isinstance(value, tuple) else (value,)):
                is_still &= one == number.identity
                is_end = one in (number.link.low, number.link.high, number.identity)
                if is_end and hypers.samples > 1:
                    ends[f"{field}.{place}"] = one
        fixed = hyper.model_dump(mode="json", exclude=set(numbers))
        parts[name] = [type(hyper).__qualname__, fixed, is_still, ends]
    tree = config.model_dump(mode="json", exclude={"hypers", "optimiser"})
    tree["optimiser"] = config.optimiser.model_dump(mode="json", include=_SHARED)
    tree |= {"hypers": [hypers.samples, hypers.averaging], "parts": parts}
    return json.dumps(tree, sort_keys=True)


class PackableLearner(SupervisedLearner):
    """A learner of one net whose step is one of `optimiser`, by the loss on `batch`."""

    optimiser: torch.optim.Optimizer
    augmentation: torch.Generator

    @abstractmethod
    def batch(self) -> Batch: ...

    @abstractmethod
    def skip_to(self, other: Any) -> None:
        """Draw batches from where another learner of the same class and seed has come to."""


class Pack:
    """Learners of one seed and `pack_key` that have spent the same steps, trained together.

    The number of slots and the slot of a trial decide how its numbers are rounded; what other slots
    hold does not, so those without a learner are computed as well.
    """

    def __init__(self, learners: Mapping[int, PackableLearner], width: int) -> None:
        keep_freed_memory()  # a step of a pack frees blocks that a net by itself never has
        self._learners, self._width = learners, width
        first = self._first = next(iter(learners.values()))
        nets = {slot: learner.net for slot, learner in learners.items()}
        self._net = _PackedNet(nets, width, 1 + len(first.context.task.in_shape))
        acts = {slot: learner.hypers.at_slots(training=True) for slot, learner in learners.items()}
        each = {s: (act, learners[s].augmentation) for s, act in acts.items() if act is not None}
        self._acts: Acts = [each.get(slot) for slot in range(width)] if each else []
        if first.hypers.draws_globally or (self._acts and not self._net.has_forms):
            raise ConfigError(
                f"net {type(first.net).__name__}: every trial has draws of its own, but there is "
                "dropout inside of code of its own"
            )
        hypers = [learner.hypers for learner in learners.values()]
        self._parts = [list(one.acting("inputs")) for one in hypers]
        is_plain = not any(any(one.acting("outputs", "loss")) for one in hypers)
        self._is_plain = is_plain and type(first.target) in (Classes, Binary, Values)
        """Whether the losses of all slots are those of one larger batch."""
        named = dict(first.net.named_parameters())
        self._all = [self._net.tensors[name] for name in named]
        names = [name for name, one in named.items() if one.requires_grad]
        self._moving = [self._net.tensors[name] for name in names]
        self._moved = {
            slot: [net.get_parameter(name) for name in names] for slot, net in nets.items()
        }
        for learner in learners.values():
            _lay_out_moments(learner.optimiser)  # the weights have become views of larger tensors

    def advance(self) -> dict[int, dict[str, float] | DivergedError]:
        """Train for one interval; returns what each slot reports, or why it cannot go on."""
        first, start = self._first, self._first.steps
        common = dataclasses.replace(first.context, stream=())  # the same, whichever is first
        losses: list[Tensor] = []
        found: dict[int, dict[str, float] | DivergedError] = {}
        with Runtime().numerics(first.context.device, is_training=False):
            with common.seeded_globals(start):
                while not (first.finished or first.interval_is_over(start)):
                    losses.append(self.step())
                    for learner in self._learners.values():
                        learner.count(Step(cost=1, losses={"train/loss": losses[-1]}))
            for slot, learner in self._learners.items():
                learner.skip_to(first)
                own = torch.stack(losses)[:, slot]
                try:
                    with learner.context.seeded_globals(start):
                        found[slot] = learner.report({"train/loss": list(own)}, start)
                except DivergedError as error:
                    found[slot] = error
        return found

    def step(self) -> Tensor:
        """One update of all slots; returns their losses (P,)."""
        x, y_B = self._first.batch()
        losses_P = self._losses(self._net(self._inputs(x), self._acts), y_B)
        objective = losses_P.sum()
        for slot, learner in self._learners.items():
            weights = (weight[slot] for weight in self._all)
            objective = learner.hypers.penalised(objective, weights)
        found = torch.autograd.grad(objective, self._moving, allow_unused=True)
        # torch's fused kernels read gradients in memory order, whatever their strides.
        each = [None if one is None else one.contiguous().unbind() for one in found]
        for slot, learner in self._learners.items():
            for parameter, gradient in zip(self._moved[slot], each, strict=True):
                parameter.grad = None if gradient is None else gradient[slot]
            set_lr(learner.optimiser, learner.config.optimiser.lr_at(learner.progress))
            learner.optimiser.step()
        return losses_P.detach()

    def _inputs(self, x: Tensor) -> Tensor:
        """What all slots see (N, ...), or what each of them sees (P, N, ...)."""
        if not any(self._parts):
            return self._first.hypers.inputs(x, self._first.augmentation, training=True)
        if all(len(one) == 1 and isinstance(one[0], AffineModule) for one in self._parts):
            # All samples of an image stand together: one call that takes half as long.
            B, S = len(x), self._first.hypers.num_samples(training=True)
            streams = [learner.augmentation for learner in self._learners.values()]
            drawn = [p.sample(B * S, s) for (p,), s in zip(self._parts, streams, strict=True)]
            A_BPS23 = torch.unflatten(self._filled(drawn), 1, (B, S)).transpose(0, 1)
            moved = resample(x, A_BPS23.reshape(-1, 2, 3))
            return torch.unflatten(moved, 0, (B, self._width, S)).transpose(0, 1).flatten(1, 2)
        each = self._learners.values()
        return self._filled([o.hypers.inputs(x, o.augmentation, training=True) for o in each])

    def _filled(self, drawn: Sequence[Tensor]) -> Tensor:
        """What was drawn for each learner as (P, ...); others have the first's."""
        by_slot = dict(zip(self._learners, drawn, strict=True))
        return torch.stack([by_slot.get(slot, drawn[0]) for slot in range(self._width)])

    def _losses(self, outputs_PNK: Tensor, y_B: Tensor) -> Tensor:
        target, P = self._first.target, self._width
        if self._is_plain:
            outputs = self._first.hypers.combined(outputs_PNK.flatten(0, 1), training=True)
            labels = y_B.repeat(P, *[1] * (y_B.dim() - 1))
            return target.losses(outputs, labels).view(P, -1).mean(1)
        losses = list(outputs_PNK.new_zeros(P))
        for slot, learner in self._learners.items():
            outputs_BK = learner.hypers.combined(outputs_PNK[slot], training=True)
            losses[slot] = learner.hypers.loss(outputs_BK, y_B, target.loss)
        return torch.stack(losses)


class _PackedNet:
    """P nets in one, whose tensors become views; slots without a net hold copies of the first."""

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
        """Whether all layers are known; only then can hyperparameters act at dropout layers."""

    def __call__(self, x: Tensor, acts: Acts = ()) -> Tensor:
        """Outputs (P, N, O)."""
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
