"""Universally slimmable networks: one set of weights at any width (Yu & Huang 2019).

A narrower net takes the first channels of everything that the widest has, norms and biases
included. Each step trains the widest net, the narrowest, and a few of random width between (the
sandwich rule); the widest learns from labels and teaches the others (in-place distillation). Only
BatchNorm statistics belong to a width: they are taken anew before nets are scored.

Legend: M members, B examples, K classes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts import seeding
from tuneparts.data.batches import Batches
from tuneparts.ensembles.thin import narrowed
from tuneparts.errors import ConfigError
from tuneparts.models import DigitsCnn, Net, NetConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.members.learner import MembersConfig, MembersLearner
from tuneparts.training.members.model import Members
from tuneparts.training.recalibration import recalibrate

STEPS = 64
"""Random widths are multiples of this part of the full one, so that few nets have to be made."""


class UniversallySlimmableConfig(MembersConfig):
    """A net, and the widths at which it is scored."""

    method: Literal["universally_slimmable"] = "universally_slimmable"
    net: Net = DigitsCnn()
    """At full width."""
    widths: tuple[float, ...] = Field(default=(1.0, 0.5), min_length=2)
    """Members, as multiples of the full width: 1 first, then ever narrower."""
    num_trained: int = Field(default=4, ge=2)
    """Widths that each step trains, the widest and the narrowest among them."""
    recalibrate: int = Field(default=20, gt=0)
    """Batches from which the statistics of every member are taken before it is scored."""

    @field_validator("widths")
    @classmethod
    def _fall_from_one(cls, widths: tuple[float, ...]) -> tuple[float, ...]:
        falls = all(a > b for a, b in zip(widths, (*widths[1:], 0.0), strict=True))
        if widths[0] != 1 or not falls:
            raise ValueError(f"widths fall from exactly 1 to above 0, but got {widths}")
        return widths

    def build(self, context: Context) -> Learner:
        return UniversallySlimmableLearner(self, context)


class UniversallySlimmable(Members):
    """Nets that cut all their parameters from the first one's.

    Args:
        nets: the widest first.
        flops: of each net for one example.
    """

    def __init__(self, nets: Sequence[nn.Module], flops: Sequence[int]) -> None:
        super().__init__()
        for member, net in enumerate(nets):
            _check_fits(net, nets[0], member)
        self._shapes = [_give_up_parameters(net) for net in nets[1:]]
        self.nets = nn.ModuleList(nets)
        self._flops = list(flops)

    @property
    def num_members(self) -> int:
        return len(self.nets)

    def member_flops(self) -> list[int]:
        return list(self._flops)

    def forward(self, x: Tensor) -> Tensor:
        with ExitStack() as stack:
            for net, shapes in zip(self.nets[1:], self._shapes, strict=True):
                stack.enter_context(_filled(net, self.cut(shapes)))
            return torch.stack([net(x) for net in self.nets])

    def at_width(self, x: Tensor, empty: "Empty") -> Tensor:
        """Logits (B, K) of a net of any width between, by statistics of the batch."""
        with _filled(empty.net, self.cut(empty.shapes)):
            logits_BK: Tensor = empty.net(x)
        return logits_BK

    def plain(self, member: int) -> nn.Module:
        net = deepcopy(self.nets[member])
        if member:
            for name, value in self.cut(self._shapes[member - 1]).items():
                layer, _, kind = name.rpartition(".")
                own = nn.Parameter(value.detach().clone())
                net.get_submodule(layer).register_parameter(kind, own)
        return net

    def cut(self, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
        """The first entries of the widest net's parameters, by name."""
        widest = self.nets[0]
        return {
            name: widest.get_parameter(name)[tuple(slice(size) for size in shape)]
            for name, shape in shapes.items()
        }


class Empty:
    """A net of which there is only the form: no parameters, and norms without a memory."""

    def __init__(self, config: NetConfig, in_shape: tuple[int, ...], num_classes: int) -> None:
        with seeding.isolated(0, "shapes"), torch.device("meta"):
            self.net = config.build(in_shape, num_classes)
        self.shapes = _give_up_parameters(self.net)
        for norm in self.net.modules():
            if isinstance(norm, nn.modules.batchnorm._BatchNorm):
                norm.running_mean = norm.running_var = norm.num_batches_tracked = None


class UniversallySlimmableLearner(MembersLearner, parts=("_widths",)):
    """The sandwich rule with in-place distillation."""

    config: UniversallySlimmableConfig
    model: UniversallySlimmable

    def __init__(self, config: UniversallySlimmableConfig, context: Context) -> None:
        super().__init__(config, context)
        members = [config.net, *(narrowed(config.net, width) for width in config.widths[1:])]
        self.model = UniversallySlimmable(*self.initial_nets(members)).to(context.device)
        self.optimiser = config.optimiser.build(self.model)
        self._narrowest = members[-1]
        self._empty: dict[NetConfig, Empty] = {}
        self._widths = seeding.torch_generator(context.seed, "widths")

    def losses(self, x: Tensor, y_B: Tensor) -> Tensor:
        """Of the widest net under labels, then of the others under its predictions."""
        teacher_BK: Tensor = self.model.nets[0](x)
        taught_BK = teacher_BK.detach().softmax(dim=1)
        losses = [F.cross_entropy(teacher_BK, y_B)]
        for config in (self._narrowest, *self._between()):
            logits_BK = self.model.at_width(x, self._empty_net(config))
            losses.append(F.cross_entropy(logits_BK, taught_BK))
        return torch.stack(losses)

    def evaluate(self) -> dict[str, float]:
        stream = Batches(
            len(self.train_data),
            self.config.batch_size,
            seed=self.context.seed,
            stream=("recalibrate", self.passes),
            replacement=False,
        )
        augmentation = self.generator("recalibrate", str(self.passes))
        recalibrate(
            self.model,
            (
                self.config.augmentation(self.train_data.take(stream.next())[0], augmentation)
                for _ in range(self.config.recalibrate)
            ),
            self.model,
        )
        return super().evaluate()

    def _between(self) -> list[NetConfig]:
        """Nets of random width, no narrower than the narrowest."""
        least = math.ceil(STEPS * self.config.widths[-1])
        num = self.config.num_trained - 2
        drawn = torch.randint(least, STEPS + 1, (num,), generator=self._widths).tolist()
        return [narrowed(self.config.net, steps / STEPS) for steps in drawn]

    def _empty_net(self, config: NetConfig) -> Empty:
        task = self.context.task
        if config not in self._empty:
            self._empty[config] = Empty(config, task.in_shape, task.num_classes)
        return self._empty[config]


def _check_fits(net: nn.Module, widest: nn.Module, member: int) -> None:
    full = {name: parameter.shape for name, parameter in widest.named_parameters()}
    for name, parameter in net.named_parameters():
        own = parameter.shape
        if name not in full or any(a > b for a, b in zip(own, full[name], strict=True)):
            raise ConfigError(
                "the full width must have every parameter of narrower nets, at least as large, but "
                f"`{name}` has shape {tuple(own)} in member {member} and {full.get(name)} at full "
                "width. Use a net whose layers do not depend on its width, such as a WideResNet "
                "wider than 1, whose first block then always has a shortcut."
            )


def _give_up_parameters(net: nn.Module) -> dict[str, torch.Size]:
    """Remove all parameters of a net, which then works inside `_filled` only; their shapes."""
    shapes = {name: parameter.shape for name, parameter in net.named_parameters()}
    for name in shapes:
        layer, _, kind = name.rpartition(".")
        del net.get_submodule(layer)._parameters[kind]
    return shapes


@contextmanager
def _filled(net: nn.Module, values: Mapping[str, Tensor]) -> Iterator[None]:
    """Let an empty net hold these tensors, which may be part of a graph, inside the block."""
    places = [(*name.rpartition("."), value) for name, value in values.items()]
    try:
        for layer, _, kind, value in places:
            # Past `nn.Module.__setattr__`: neither a parameter nor a buffer.
            net.get_submodule(layer).__dict__[kind] = value
        yield
    finally:
        for layer, _, kind, _ in places:
            net.get_submodule(layer).__dict__.pop(kind, None)
