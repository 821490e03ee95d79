"""Any pruner of Optuna as a search algorithm: random trials that are stopped on their way."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from tuneparts.core.schema import Direction, Metric
from tuneparts.search.algorithms.base import Cost, Proposals, Timed, drawn_trials
from tuneparts.search.algorithms.halving import judged
from tuneparts.search.algorithms.sampler import optuna_part

if TYPE_CHECKING:  # an arm holds an algorithm
    from optuna.pruners import BasePruner
    from optuna.trial import FrozenTrial, TrialState

    from tuneparts.search.arm import Arm


class Pruned(Timed):
    """Random trials that a pruner of Optuna judges every so many passes.

    At each point a pruner sees a study of Optuna whose trials last that long: those that were
    judged there before are complete, those that were stopped earlier are pruned. With exact timing
    trials are judged in their order, each as soon as those before it have been judged at the same
    point, and never wait for one to end; with free timing in the order in which they arrive.

    Example:
        >>> Pruned(num_trials=20, every=100, options={"n_startup_trials": 4}).pruner
        'median'
    """

    takes_points = True
    keeps_first_trials = True  # a trial is judged against those before it, however many come

    num_trials: int = Field(gt=0)
    every: int = Field(gt=0)
    """Passes from one judgement to the next; the steps of Optuna are passes."""
    pruner: str = "median"
    """`median`, `percentile`, `patient`, `threshold`, `wilcoxon`; or the import path
    `package.module:name` of a pruner's class, or of a function that makes one."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the pruner, under the names that Optuna gives them: `n_startup_trials`,
    `n_warmup_steps`, `percentile`."""

    @model_validator(mode="after")
    def _check_pruner(self) -> Self:
        if self.options or self.pruner != "median":  # which needs no look into Optuna
            self._made()
        return self

    def cost(self, arm: "Arm") -> Cost:
        return dataclasses.replace(super().cost(arm), sequential=arm.config.passes)

    def check(self, arm: "Arm") -> None:
        if self.every % arm.config.interval:
            raise ValueError(
                f"`every` = {self.every}: trials are judged between intervals, so it must be a "
                f"multiple of `interval` = {arm.config.interval}"
            )

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        trials = drawn_trials(arm, seed, range(self.num_trials))
        levels = [*range(self.every, arm.config.passes, self.every), arm.config.passes]
        last: dict[int, FrozenTrial] = {}
        points = [
            _Point(self._made(), levels[: place + 1], metric, last, is_free=self.is_free)
            for place in range(len(levels) - 1)
        ]
        yield from judged(trials, levels, points, metric, is_free=self.is_free)

    def _made(self) -> "BasePruner":
        made: BasePruner = optuna_part("pruner", self.pruner, self.options)
        return made


class _Point:
    """Judges the trials that arrive at one number of passes, by a pruner and a study of its own.

    `steps` are the passes of the points up to this one, and `last` has, by index, a trial as it was
    when it was last judged, at whichever point.
    """

    def __init__(
        self,
        pruner: "BasePruner",
        steps: Sequence[int],
        metric: Metric,
        last: "dict[int, FrozenTrial]",
        *,
        is_free: bool,
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._sign = 1.0 if metric.direction is Direction.UP else -1.0
        direction = "maximize" if metric.direction is Direction.UP else "minimize"
        # Optuna's Hyperband draws brackets from the name, which is random unless it is given.
        self._study = optuna.create_study(direction=direction, study_name="pruned")
        self._pruner, self._steps, self._last, self._is_free = pruner, steps, last, is_free

    def __call__(self, rewards: Sequence[float], index: int) -> bool:
        from optuna.trial import TrialState

        if not self._is_free:  # those between ended before this point
            for number in range(len(self._trials()), index):
                before = self._last.get(number)
                state = TrialState.PRUNED if before else TrialState.FAIL
                self._add(state, before.intermediate_values if before else {}, before)
        values = {n: self._sign * reward for n, reward in zip(self._steps, rewards, strict=True)}
        trial = self._add(TrialState.RUNNING, values, self._last.get(index))
        goes_on = not self._pruner.prune(self._study, trial)
        self._study.tell(trial.number, values[self._steps[-1]])
        self._last[index] = self._trials()[trial.number]
        return goes_on

    def _trials(self) -> "list[FrozenTrial]":
        found: list[FrozenTrial] = self._study.get_trials(deepcopy=False)
        return found

    def _add(
        self, state: "TrialState", values: dict[int, float], before: "FrozenTrial | None"
    ) -> "FrozenTrial":
        """Add a trial, with what a pruner wrote down about it at an earlier point."""
        from optuna.trial import create_trial

        notes = before.system_attrs if before else {}
        self._study.add_trial(
            create_trial(state=state, intermediate_values=values, system_attrs=notes)
        )
        return self._trials()[-1]
