"""Any pruner of Optuna as a search algorithm: random trials that are stopped on their way."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from tuneparts.schema import Metric
from tuneparts.search.algorithms.base import Proposals, Timed, drawn_trials
from tuneparts.search.algorithms.judged import judged
from tuneparts.search.algorithms.sampler import optuna_part
from tuneparts.search.space import Dimension

if TYPE_CHECKING:  # an arm holds an algorithm
    from tuneparts.search.spec import Arm

PRUNERS = {
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "patient": "PatientPruner",
    "threshold": "ThresholdPruner",
    "wilcoxon": "WilcoxonPruner",
}
"""Short name -> class in `optuna.pruners`. Its halving and Hyperband are `Asha` and `Hyperband`
here, which decide the same whichever trial ends first."""


class Pruned(Timed):
    """Random trials that a pruner of Optuna judges every so many passes.

    At each point a pruner sees the trials that were there before as complete, with all that they
    had reported by then. With exact timing a trial waits for those before it to be judged at the
    same passes; with free timing it is judged when it arrives.

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

    def trials_per_seed(self, space: Mapping[str, Dimension]) -> int:  # noqa: ARG002
        return self.num_trials

    def sequential_passes(self, arm: "Arm") -> int:
        return arm.config.passes

    def check(self, arm: "Arm") -> None:
        if self.every % arm.config.interval:
            raise ValueError(
                f"`every` = {self.every}: trials are judged between intervals, so it must be a "
                f"multiple of `interval` = {arm.config.interval}"
            )

    def proposals(self, arm: "Arm", seed: int, metric: Metric) -> Proposals:
        trials = drawn_trials(arm, seed, range(self.num_trials))
        levels = [*range(self.every, arm.config.passes, self.every), arm.config.passes]
        judges = [_Point(self._made(), levels[: place + 1]) for place in range(len(levels) - 1)]
        yield from judged(trials, levels, judges, metric, is_free=self.is_free)

    def _made(self) -> Any:
        return optuna_part("pruner", self.pruner, PRUNERS, self.options)


class _Point:
    """Judges the trials that arrive at one number of passes, by a study of its own."""

    def __init__(self, pruner: Any, steps: Sequence[int]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(direction="maximize", pruner=pruner)
        self._steps = steps

    def __call__(self, rewards: Sequence[float]) -> bool:
        trial = self._study.ask()
        for step, reward in zip(self._steps, rewards, strict=True):
            trial.report(reward, step)
        goes_on = not trial.should_prune()
        self._study.tell(trial, rewards[-1])
        return goes_on
