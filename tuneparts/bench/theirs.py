"""What Optuna and Ray make of the ideas that our algorithms stand on, driven without training."""

import itertools
import random
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuneparts.search.algorithms.sampler import SAMPLERS


class Curves(NamedTuple):
    """What recorded trials scored on their way."""

    passes: tuple[int, ...]
    scores: NDArray[np.float64]
    """Trial x passes."""

    def at(self, trial: int, passes: int) -> float:
        """The score of a trial after so many passes."""
        return float(self.scores[trial, self.passes.index(passes)])


class Judge(Protocol):
    """Says of trials that run one after the other which goes on."""

    def goes_on(self, number: int, passes: int, loss: float) -> bool:
        """Hear what a trial has after so many passes."""

    def finish(self, number: int, passes: int, loss: float) -> None:
        """Hear of a trial that has spent its budget."""


Stopper: TypeAlias = Callable[[], Judge]
"""Makes the judge of one replicate."""


def optuna_values(
    sampler: str,
    function: Callable[[Mapping[str, Any]], float],
    names: Sequence[str],
    trials: int,
    seed: int,
    *,
    window: int,
) -> list[float]:
    """What a sampler finds in a study, with so many trials at once; any of them may end first."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    options: dict[str, Any] = {"scramble": True} if sampler == "qmc" else {}
    if sampler == "tpe":
        options = {"multivariate": True, "constant_liar": True}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = getattr(optuna.samplers, SAMPLERS[sampler])(seed=seed, **options)
        study = optuna.create_study(sampler=made)
        space = {name: optuna.distributions.FloatDistribution(0.0, 1.0) for name in names}
        rng, values, running = random.Random(seed), list[float](), list[Any]()
        for number in range(trials + window - 1):
            if number < trials:
                running.append(study.ask(space))
            if len(running) == window or number >= trials - 1:
                trial = running.pop(rng.randrange(len(running)))
                values.append(function(trial.params))
                study.tell(trial, values[-1])
    return values


def stopped(
    losses: Sequence[NDArray[np.float64]], table: Curves, stopper: Stopper, at: Sequence[int]
) -> Iterator[tuple[int, int, float]]:
    """Run trials one after the other, each until it is stopped.

    Yields:
        Of each trial: passes spent, passes reached, and the loss there.
    """
    judge = stopper()
    budget = table.passes[-1]
    for number, curve in enumerate(losses):
        reached = next(
            (p for p in at if not judge.goes_on(number, p, float(curve[table.passes.index(p)]))),
            budget,
        )
        loss = float(curve[table.passes.index(reached)])
        if reached == budget:
            judge.finish(number, budget, loss)
        yield reached, reached, loss


def ray_asha(max_passes: int, *, min_passes: int, reduction: int) -> Stopper:
    """Ray's `AsyncHyperBandScheduler` with one bracket."""

    def make() -> Judge:
        from ray.tune.schedulers.async_hyperband import AsyncHyperBandScheduler

        scheduler = AsyncHyperBandScheduler(
            time_attr="passes",
            metric="loss",
            mode="min",
            max_t=max_passes,
            grace_period=min_passes,
            reduction_factor=reduction,
        )
        return _RayJudge(scheduler)

    return make


def ray_median(grace: int) -> Stopper:
    """Ray's `MedianStoppingRule`."""

    def make() -> Judge:
        from ray.tune.schedulers import MedianStoppingRule

        rule = MedianStoppingRule(
            time_attr="passes",
            metric="loss",
            mode="min",
            grace_period=grace,
            min_samples_required=5,
        )
        return _RayJudge(rule)

    return make


@dataclass(frozen=True)
class _Trial:
    """All that a scheduler of Ray asks of a trial."""

    trial_id: str
    status: str = "RUNNING"


class _Controller:
    """All that it asks of a `Tuner`: whether others wait."""

    @staticmethod
    def get_live_trials() -> list[_Trial]:
        return []


class _RayJudge:
    """A scheduler of Ray, told of trials that are names only."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler = scheduler
        self._trials: dict[int, Any] = {}

    def goes_on(self, number: int, passes: int, loss: float) -> bool:
        if number not in self._trials:
            self._trials[number] = _Trial(str(number))
            self._scheduler.on_trial_add(_Controller, self._trials[number])
        result = {"passes": passes, "loss": loss}
        trial = self._trials[number]
        is_kept = self._scheduler.on_trial_result(_Controller, trial, result) == "CONTINUE"
        if not is_kept:
            self._scheduler.on_trial_complete(_Controller, trial, result)
        return bool(is_kept)

    def finish(self, number: int, passes: int, loss: float) -> None:
        result = {"passes": passes, "loss": loss}
        self._scheduler.on_trial_complete(_Controller, self._trials[number], result)


def optuna_pruner(name: str, min_resource: int, reduction: int) -> Stopper:
    """Optuna's successive halving, which judges a trial against those before it."""

    def make() -> Judge:
        import optuna

        pruner = getattr(optuna.pruners, name)
        return _OptunaJudge(pruner(min_resource=min_resource, reduction_factor=reduction))

    return make


def optuna_hyperband(min_resource: int, max_resource: int, reduction: int) -> Stopper:
    """Optuna's `HyperbandPruner`."""

    def make() -> Judge:
        import optuna

        return _OptunaJudge(
            optuna.pruners.HyperbandPruner(
                min_resource=min_resource, max_resource=max_resource, reduction_factor=reduction
            )
        )

    return make


def optuna_quantile(keep: float) -> Stopper:
    """Optuna's `PercentilePruner`; with a half its `MedianPruner`."""

    def make() -> Judge:
        import optuna

        return _OptunaJudge(optuna.pruners.PercentilePruner(100 * keep, n_startup_trials=5))

    return make


class _OptunaJudge:
    """A pruner of Optuna in a study."""

    def __init__(self, pruner: Any) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        sampler = optuna.samplers.RandomSampler(seed=0)
        self._study = optuna.create_study(study_name="bench", pruner=pruner, sampler=sampler)
        self._trials: dict[int, Any] = {}

    def goes_on(self, number: int, passes: int, loss: float) -> bool:
        from optuna.trial import TrialState

        if number not in self._trials:
            self._trials[number] = self._study.ask()
        trial = self._trials[number]
        trial.report(loss, passes)
        is_pruned = bool(trial.should_prune())
        if is_pruned:
            self._study.tell(trial, state=TrialState.PRUNED)
        return not is_pruned

    def finish(self, number: int, passes: int, loss: float) -> None:  # noqa: ARG002
        self._study.tell(self._trials[number], loss)


class _Member:
    """All that Ray's population schedulers ask of a trial, which waits for the others."""

    status = "PAUSED"
    experiment_tag = ""
    checkpoint = "a checkpoint"
    temporary_state = SimpleNamespace(saving_to=None)
    run_metadata = SimpleNamespace(
        checkpoint_manager=SimpleNamespace(checkpoint_config=SimpleNamespace(num_to_keep=None))
    )

    def __init__(self, number: int, config: Mapping[str, float]) -> None:
        self.trial_id, self.number = str(number), number
        self.config: dict[str, float] = dict(config)
        self.evaluated_params: dict[str, float] = {}
        self.donor = number

    @staticmethod
    def is_finished() -> bool:
        return False

    def __str__(self) -> str:
        return f"member_{self.trial_id}"


def ray_population(
    members: Sequence[Mapping[str, float]], seed: int
) -> Generator[tuple[list[dict[str, float]], list[int]], Sequence[float], None]:
    """Drive Ray's synchronous `PopulationBasedTraining` over values from 0 to 1.

    Yields:
        Before each round the values of the members, and whose state each starts from. Send the
        losses of the round.
    """
    from ray import tune
    from ray.tune.schedulers import PopulationBasedTraining

    names = list(members[0])
    common: dict[str, Any] = {
        "time_attr": "round", "metric": "loss", "mode": "min", "perturbation_interval": 1,
        "synch": True, "log_config": False,
    }  # fmt: skip
    space = {name: tune.uniform(0, 1) for name in names}

    class Noted(PopulationBasedTraining):  # type: ignore[misc]
        def _exploit(self, _: Any, trial: _Member, other: _Member) -> None:
            trial.config = self._get_new_config(trial, other)[0]
            trial.donor = other.number

    trials = [_Member(number, config) for number, config in enumerate(members)]
    controller = SimpleNamespace(
        search_alg=None, get_trials=lambda: trials, get_live_trials=lambda: trials
    )
    with _seeded(seed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scheduler = Noted(**common, hyperparam_mutations=space)
        for trial in trials:
            scheduler.on_trial_add(controller, trial)
        for number in itertools.count(1):
            # PBT perturbs beyond the bounds; whoever runs it clips.
            values = [{n: min(1.0, max(0.0, t.config[n])) for n in names} for t in trials]
            losses = yield values, [trial.donor for trial in trials]
            for trial in trials:
                trial.donor = trial.number
            for trial, loss in zip(trials, losses, strict=True):
                scheduler.on_trial_result(controller, trial, {"round": number, "loss": loss})


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the generators that Ray draws from, and put them back."""
    states = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
