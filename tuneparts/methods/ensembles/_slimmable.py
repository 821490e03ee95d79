"""Slimmable networks: one set of weights at several widths, or at any width.

A narrower member takes the first channels of every layer of the widest one.

- `slimmable` (Yu et al. 2019): a few given widths. Norms and biases are a member's own, and all
  members learn from the labels of each batch.
- `universally_slimmable` (Yu & Huang 2019): any width. Norms and biases are cut as well. Each step
  trains the widest net, the narrowest, and a few of random width between (the sandwich rule); the
  widest learns from labels and teaches the others (in-place distillation). Only BatchNorm
  statistics belong to a width: they are taken anew before nets are scored.

Legend: M members, B examples, K classes.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.ensembles._deep import narrowed
from tuneparts.methods.ensembles.config import Slimmable, UniversallySlimmable
from tuneparts.nets import NetConfig
from tuneparts.nets.surgery import give_up, reweighted
from tuneparts.training.forward import run
from tuneparts.training.learner import Context
from tuneparts.training.members import MembersLearner, NetMembers, NetMembersLearner
from tuneparts.training.step import recalibrate

STEPS = 64
"""Random widths are multiples of this part of the full one, so that few nets have to be made."""

Shapes = dict[str, torch.Size]


class SlimmableNets(NetMembers):
    """Nets that cut weights of convolution and linear layers, or all parameters, from the first."""

    def __init__(
        self, nets: Sequence[nn.Module], flops: Sequence[int], *, cuts_all: bool = False
    ) -> None:
        shapes = [_shapes(net) if cuts_all else _weight_shapes(net) for net in nets]
        cure = (
            "Use a net whose layers do not depend on its width, such as a WideResNet wider than 1, "
            "whose first block then always has a shortcut."
            if cuts_all
            else "Use one net at several widths, the widest first."
        )
        for member, own in enumerate(shapes):
            missing = sorted(shapes[0].keys() - own.keys())
            if missing and not cuts_all:
                raise ConfigError(
                    f"`{missing[0]}` is in the first member and not in member {member}: members "
                    f"must have the same layers. {cure}"
                )
            for name, shape in own.items():
                full = shapes[0].get(name)
                if full is None or any(a > b for a, b in zip(shape, full, strict=True)):
                    raise ConfigError(
                        f"`{name}` has shape {tuple(shape)} in member {member} and {full} in the "
                        f"widest, which must be at least as large. {cure}"
                    )
        super().__init__(nets, flops)
        for net, own in zip(nets[1:], shapes[1:], strict=True):
            give_up(net, own)
        self._shapes: list[Shapes] = [{}, *shapes[1:]]

    def lent(self) -> list[dict[str, Tensor]]:
        return [self.cut(shapes) for shapes in self._shapes]

    def cut(self, shapes: Shapes) -> dict[str, Tensor]:
        """Take the first entries of the widest net's parameters, by name."""
        widest = self.nets[0]
        return {
            name: widest.get_parameter(name)[tuple(slice(size) for size in shape)]
            for name, shape in shapes.items()
        }


class SlimmableLearner(NetMembersLearner):
    config: Slimmable

    def __init__(self, config: Slimmable, context: Context) -> None:
        super().__init__(config, context)
        self.model = SlimmableNets(*self.initial_nets(config.members)).to(context.device)
        self.optimiser = self.new_optimiser(self.model)


class UniversallySlimmableLearner(MembersLearner, parts=("_widths",)):
    config: UniversallySlimmable
    model: SlimmableNets

    def __init__(self, config: UniversallySlimmable, context: Context) -> None:
        super().__init__(config, context)
        members = [config.net, *(narrowed(config.net, width) for width in config.widths[1:])]
        model = SlimmableNets(*self.initial_nets(members), cuts_all=True)
        self.model = model.to(context.device)
        self.optimiser = self.new_optimiser(self.model)
        self._narrowest = members[-1]
        self._skeletons: dict[NetConfig, tuple[nn.Module, Shapes]] = {}
        self._widths = seeding.torch_generator(context.seed, "widths")

    def losses(self, x: Tensor, y_B: Tensor) -> Tensor:
        """Compute the loss of the widest net on labels, then of the others on its predictions."""
        teacher_BK = run(self.model.nets[0], x)
        taught_BK = teacher_BK.detach().softmax(dim=1)
        losses = [self.training_loss(teacher_BK, y_B)]
        for config in (self._narrowest, *self._between()):
            net, shapes = self._skeleton(config)
            logits_BK = run(reweighted(net, self.model.cut(shapes)), x)
            losses.append(self.target.loss(logits_BK, taught_BK))
        return torch.stack(losses)

    def evaluate(self) -> dict[str, float]:
        stream = self.new_batches("recalibrate", self.steps)
        augmentation = self.generator("recalibrate", str(self.steps))
        batches = (
            self.config.augmentation(self.train_data.take(stream.next())[0], augmentation)
            for _ in range(self.config.recalibrate)
        )
        recalibrate(self.model, batches, self.model)
        return super().evaluate()

    def _between(self) -> list[NetConfig]:
        least = math.ceil(STEPS * self.config.widths[-1])
        num = self.config.num_trained - 2
        drawn = torch.randint(least, STEPS + 1, (num,), generator=self._widths).tolist()
        return [narrowed(self.config.net, steps / STEPS) for steps in drawn]

    def _skeleton(self, config: NetConfig) -> tuple[nn.Module, Shapes]:
        """Make a net without parameters, whose norms use the batch, and the shapes it lacks."""
        if config not in self._skeletons:
            task = self.context.task
            with seeding.isolated(0, "shapes"), torch.device("meta"):
                net = config.build(task.in_shape, task.num_outputs)
            shapes = _shapes(net)
            give_up(net, shapes)
            for norm in net.modules():
                if isinstance(norm, nn.modules.batchnorm._BatchNorm):
                    norm.running_mean = norm.running_var = norm.num_batches_tracked = None
            self._skeletons[config] = self.laid_out(net), shapes
        return self._skeletons[config]


def _weight_shapes(net: nn.Module) -> Shapes:
    return {
        f"{name}.weight": module.weight.shape
        for name, module in net.named_modules()
        if isinstance(module, nn.Conv2d | nn.Linear)
    }


def _shapes(net: nn.Module) -> Shapes:
    return {name: parameter.shape for name, parameter in net.named_parameters()}
