"""Deep ensembles: independent nets, averaged (Lakshminarayanan et al. 2017).

Members differ by their initialisation and, as published, by the order of their batches; for
comparisons with methods whose members see the same batches, they can do so too. With a parameter
budget they are narrowed until they fit it together: the thin ensemble.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from tuneparts.data.batches import Batches
from tuneparts.methods.ensembles.config import DeepEnsembleConfig
from tuneparts.methods.ensembles.thin import thinned
from tuneparts.models import NetConfig
from tuneparts.training.learner import Context
from tuneparts.training.members.learner import NetMembersLearner
from tuneparts.training.members.model import PlainMembers


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
