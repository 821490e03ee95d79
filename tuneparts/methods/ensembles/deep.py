"""Deep ensembles: independent nets, averaged (Lakshminarayanan et al. 2017).

Members differ by their initialisation and, as published, by the order of their batches; for
comparisons with methods whose members see the same batches, they can do so too. With a parameter
budget they are narrowed until they fit it together: the thin ensemble.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field
from torch import Tensor

from tuneparts.data.batches import Batches
from tuneparts.methods.ensembles.thin import thinned
from tuneparts.models import Net, NetConfig
from tuneparts.training.config import MembersConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.members import NetMembersLearner, PlainMembers


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
    """The net of each member."""
    parameter_budget: int | None = Field(default=None, gt=0)
    """Most parameters of all members together; members are narrowed to fit. None for no bound."""
    batches: Literal["shared", "own"] = "shared"
    """Whether members see the same batches, or each its own: another order and other draws of the
    augmentation, as nets that are trained apart do."""

    def build(self, context: Context) -> Learner:
        return DeepEnsembleLearner(self, context)


class DeepEnsembleLearner(NetMembersLearner, parts=("_own",)):
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
        self.model = PlainMembers(*self.initial_nets(nets)).to(context.device)
        self.optimiser = self.new_optimiser(self.model)
        self._own = {
            f"member_{number}": Batches(
                len(self.train_data),
                config.batch_size,
                seed=context.seed,
                stream=("batches", number),
                replacement=False,
            )
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
