"""Deep ensembles: independent nets, averaged (Lakshminarayanan et al. 2017).

Members differ by their initialisation and see the same batches. With a parameter budget they are
narrowed until they fit it together: the thin ensemble.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from tuneparts.ensembles.thin import thinned
from tuneparts.models import Net, NetConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.members.learner import MembersConfig, MembersLearner
from tuneparts.training.members.model import NetMembers


class DeepEnsembleConfig(MembersConfig):
    """Independent nets of any kind; with one member it is ordinary training of one net.

    Example:
        >>> len(DeepEnsembleConfig(members=("mlp", "digits_cnn")).members)
        2
    """

    method: Literal["deep_ensemble"] = "deep_ensemble"
    members: tuple[Net, ...] = Field(
        default=("digits_cnn",) * 4, min_length=1, validate_default=True
    )
    parameter_budget: int | None = Field(default=None, gt=0)
    """Most parameters of all members together; members are narrowed to fit. None for no bound."""

    def build(self, context: Context) -> Learner:
        return DeepEnsembleLearner(self, context)


class DeepEnsemble(NetMembers):
    """Nets side by side that share nothing."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([net(x) for net in self.nets])

    def plain(self, member: int) -> nn.Module:
        return self.nets[member]


class DeepEnsembleLearner(MembersLearner):
    """Minimises the sum of the members' losses, which trains each of them as if it were alone."""

    config: DeepEnsembleConfig

    def __init__(self, config: DeepEnsembleConfig, context: Context) -> None:
        super().__init__(config, context)
        task = context.task
        nets: Sequence[NetConfig] = config.members
        if config.parameter_budget is not None:
            nets = thinned(
                nets,
                config.parameter_budget,
                in_shape=task.in_shape,
                num_classes=task.num_outputs,
            )
        self.model = DeepEnsemble(*self.initial_nets(nets)).to(context.device)
        self.optimiser = config.optimiser.build(self.model)
