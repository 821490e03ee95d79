"""Any sampler of Optuna as a search algorithm (Akiba et al. 2019), and the Parzen estimator."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from tuneparts.schema import Direction, Metric
from tuneparts.search.algorithms.base import Algorithm, Proposals, whole_trial
from tuneparts.search.segment import Batch
from tuneparts.search.space import Dimension
from tuneparts.seeding import derive

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from tuneparts.search.spec import Arm


class OptunaSearch(Algorithm):
    """An Optuna sampler, asked for a whole batch of trials at a time.

    A batch is told only when all of it has ended, so that the order in which trials end cannot
    change what is asked next. A subclass defines `sampler`.
    """

    is_adaptive = True
    keeps_first_trials = True  # a trial is asked for with what those before it found, however many

    num_trials: int = Field(gt=0)
    batch: int = Field(default=4, gt=0)
    """Trials per batch; they can run side by side, and each batch learns from all before it."""

    @abstractmethod
    def sampler(self, arm: "Arm", seed: int) -> "BaseSampler":
        """Make the sampler of one replicate, seeded by its arguments alone."""

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return self.num_trials

    def sequential_passes(self, arm: "Arm") -> int:
        return math.ceil(self.num_trials / self.batch) * arm.config.passes

    def check(self, arm: "Arm") -> None:
        # Asked of the class, because to call `distribution` would import Optuna.
        missing = [
            path
            for path, dim in arm.space.items()
            if type(dim).distribution is Dimension.distribution
        ]
        if missing:
            raise ValueError(
                f"Optuna needs a dimension's `distribution`, but {missing} of `{arm.name}` have "
                "none. Define it in their class, or take another algorithm."
            )

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        import optuna  # half a second that other algorithms need not pay

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        space = {path: dim.distribution() for path, dim in arm.space.items()}
        study = optuna.create_study(
            direction="maximize" if metric.direction is Direction.UP else "minimize",
            sampler=self.sampler(arm, seed),
        )
        for start in range(0, self.num_trials, self.batch):
            indices = range(start, min(start + self.batch, self.num_trials))
            asked = [study.ask(space) for _ in indices]
            segments = [
                whole_trial(arm, seed=seed, index=i, values=trial.params)
                for i, trial in zip(indices, asked, strict=True)
            ]
            results = yield Batch(tuple(segments))
            for one, trial in zip(segments, asked, strict=True):
                score = results[one.trial].score(metric)
                if math.isnan(score):
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                else:
                    study.tell(trial, score)


class Tpe(OptunaSearch):
    """Optuna's tree-structured Parzen estimator (Bergstra et al. 2011)."""

    num_startup: int = Field(default=10, ge=1)
    """Random trials before the estimator takes over."""

    def sampler(self, arm: "Arm", seed: int) -> "BaseSampler":
        from optuna.samplers import TPESampler

        return TPESampler(
            n_startup_trials=self.num_startup, seed=derive(seed, "tpe", arm.name) % 2**32
        )
