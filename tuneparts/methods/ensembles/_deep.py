"""Deep ensembles: independent nets, averaged (Lakshminarayanan et al. 2017).

Members differ by their initialisation and, as published, by the order of their batches; for
comparisons with methods whose members see the same batches, they can do so too. With a parameter
budget they are narrowed until they fit it together: the thin ensemble.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.ensembles.config import DeepEnsemble
from tuneparts.nets import DigitsCnn, Mlp, MobileNetV2, NetConfig, WideResNet
from tuneparts.nets.sizes import count_parameters
from tuneparts.training.learner import Context
from tuneparts.training.members import NetMembers, NetMembersLearner

_STEPS = 1024
"""Widths are tried in this many steps between nothing and the full width."""


def narrowed(net: NetConfig, factor: float) -> NetConfig:
    """Multiply all widths of a net by a factor, at least one unit each."""

    def units(number: int) -> int:
        return max(1, round(factor * number))

    match net:
        case WideResNet() | MobileNetV2():
            return net.replaced({"width": factor * net.width})
        case Mlp():
            return net.replaced({"widths": tuple(map(units, net.widths))})
        case DigitsCnn():
            channels = tuple(map(units, net.channels))
            return net.replaced({"channels": channels, "hidden": units(net.hidden)})
    raise ConfigError(
        f"a thin ensemble is made of nets with a width, but `{net.name}` has none. "
        "Use `wide_resnet`, `mobilenet_v2`, `digits_cnn` or `mlp`."
    )


def thinned(
    nets: Sequence[NetConfig], budget: int, in_shape: tuple[int, ...], num_classes: int
) -> list[NetConfig]:
    """Narrow nets, all by the largest factor up to 1 with which their parameters fit a budget."""

    def size(step: int) -> int:
        chosen = [narrowed(net, step / _STEPS) for net in nets] if step < _STEPS else nets
        # Shapes are all that counts; initialisation on the meta device writes nothing.
        with seeding.isolated(0, "sizes"), torch.device("meta"):
            return sum(count_parameters(net.build(in_shape, num_classes)) for net in chosen)

    if size(_STEPS) <= budget:
        return list(nets)
    fitting = bisect_right(range(1, _STEPS), budget, key=size)
    if not fitting:
        raise ConfigError(
            f"{len(nets)} nets need at least {size(1)} parameters, but the budget is {budget}. "
            "Raise it, or use fewer members."
        )
    return [narrowed(net, fitting / _STEPS) for net in nets]


class DeepEnsembleLearner(NetMembersLearner, parts=("_own",)):
    """Minimises the sum of the members' losses, which trains each of them as if it were alone."""

    config: DeepEnsemble

    def __init__(self, config: DeepEnsemble, context: Context) -> None:
        super().__init__(config, context)
        task = context.task
        nets: Sequence[NetConfig] = config.members
        if config.parameter_budget is not None:
            nets = thinned(nets, config.parameter_budget, task.in_shape, task.num_outputs)
        self.model = NetMembers(*self.initial_nets(nets)).to(context.device)
        self.optimiser = self.new_optimiser(self.model)
        self._own = {
            f"member_{number}": self.new_batches("batches", number)
            for number in range(self.model.num_members)
            if config.batches == "own"
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        # States that were written before members could have batches of their own have no such key.
        super().restore({"own": {}, **state})

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        if not self._own:
            return super().batches()
        return [self.augmented(stream.next()) for stream in self._own.values()]
