"""Anytime prediction by a Multi-Scale Dense Network (MSDNet, Huang et al. 2018).

One net has a classifier every few layers, and its prediction is that of the last one that was
reached. All classifiers learn from the labels of each batch, with equal weights: the loss is their
sum. Members are the exits; they are not averaged.

Legend: E exits, B examples, K classes.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tuneparts.core import seeding
from tuneparts.data.target import Classes
from tuneparts.methods.ensembles.config import MsdNetEnsemble
from tuneparts.nets.msdnet import MultiScaleDense
from tuneparts.nets.sizes import shape_of_one, shapes_of
from tuneparts.training.learner import Context
from tuneparts.training.members import Members, MembersLearner, OperatingPoint, nested_points


class Exits(Members):
    """The exits of a net as members; each costs what it adds to the operations before it."""

    def __init__(self, net: MultiScaleDense, flops: list[int]) -> None:
        super().__init__(net.num_exits, [b - a for a, b in pairwise([0, *flops])])
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack(list(self.net.exits(x)))


class MsdNetLearner(MembersLearner):
    config: MsdNetEnsemble
    model: Exits

    def __init__(self, config: MsdNetEnsemble, context: Context) -> None:
        super().__init__(config, context)
        task = context.task
        with seeding.isolated(context.seed, "init"):
            net = config.sizes.build(task.in_shape, task.num_outputs)
        assert isinstance(net, MultiScaleDense)
        self.model = Exits(net, exit_flops(net, task.in_shape)).to(context.device)
        self.laid_out(self.model)
        self.optimiser = self.new_optimiser(self.model)

    def combined(self, outputs_MBK: Tensor) -> Tensor:
        return outputs_MBK[-1]

    def predictor(self) -> nn.Module:
        return self.model.net

    def points(self, logits_MNK: Tensor, labels_N: Tensor) -> list[OperatingPoint]:
        if not isinstance(self.target, Classes):
            return []
        reached = [((exit_,), logits_NK) for exit_, logits_NK in enumerate(logits_MNK)]
        return nested_points(reached, labels_N, self.model.flops)


def exit_flops(net: MultiScaleDense, in_shape: tuple[int, ...]) -> list[int]:
    """Count operations up to each exit for one example, all classifiers on the way included."""
    shapes = shapes_of(net)
    assert isinstance(shapes, MultiScaleDense)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        exits = shapes.exits(shape_of_one(net, in_shape))
        return [counter.get_total_flops() for _ in exits]
