"""Search algorithms as generators: yield a batch of segments, receive how they ended.

Each algorithm sees results only in whole batches and in trial order, so what it does next
depends on the search and the seed, never on which worker was faster. That makes a search the
same after a crash: the generator is run again against the journal.

The decisions of successive halving and of population-based training are pure functions, below the
generators that use them.
"""

import dataclasses
import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tuneparts.journal import TrialId
from tuneparts.schema import Direction, Metric
from tuneparts.search.segment import Batch, Result, Segment
from tuneparts.search.space import Choice, Dimension, Value
from tuneparts.search.spec import Arm, Asha, Fixed, GridSearch, Pbt, RandomSearch, Tpe
from tuneparts.seeding import derive, numpy_generator

Proposals: TypeAlias = Generator[Batch, Mapping[TrialId, Result], None]


def proposals(arm: Arm, seed: int, metric: Metric) -> Proposals:
    """Start the algorithm of one replicate (one seed of an arm)."""
    return _GENERATORS[type(arm.algorithm)](arm, seed, metric)


def draw(arm: Arm, seed: int, index: int) -> dict[str, Value]:
    """Draw the values of one random trial; they do not depend on how many trials there are."""
    rng = numpy_generator(seed, "space", arm.name, index)
    return {path: dim.sample(rng) for path, dim in arm.space.items()}


def whole_trial(arm: Arm, *, seed: int, index: int, values: Mapping[str, Any]) -> Segment:
    """Make the segment that runs a trial of an arm from its start to its end.

    Args:
        arm: the method and its config.
        seed: of the replicate.
        index: number of the trial in the replicate.
        values: dotted path into the config to what the trial has there.
    """
    config = arm.config.replaced(values)
    return Segment(
        trial=TrialId(arm.name, seed, index),
        config=config.model_dump(mode="json"),
        until=config.passes,
    )


def _random_trial(arm: Arm, seed: int, index: int) -> Segment:
    return whole_trial(arm, seed=seed, index=index, values=draw(arm, seed, index))


def _fixed(arm: Arm, seed: int, metric: Metric) -> Proposals:  # noqa: ARG001
    yield Batch((whole_trial(arm, seed=seed, index=0, values={}),))


def _random(arm: Arm, seed: int, metric: Metric) -> Proposals:  # noqa: ARG001
    assert isinstance(arm.algorithm, RandomSearch)
    indices = range(arm.algorithm.num_trials)
    yield Batch(tuple(_random_trial(arm, seed, i) for i in indices))


def _grid(arm: Arm, seed: int, metric: Metric) -> Proposals:  # noqa: ARG001
    options = [dim.options for dim in arm.space.values() if isinstance(dim, Choice)]
    combinations = [
        dict(zip(arm.space, values, strict=True)) for values in itertools.product(*options)
    ]
    yield Batch(
        tuple(
            whole_trial(arm, seed=seed, index=i, values=values)
            for i, values in enumerate(combinations)
        )
    )


def _tpe(arm: Arm, seed: int, metric: Metric) -> Proposals:
    import optuna  # half a second that other algorithms need not pay

    assert isinstance(arm.algorithm, Tpe)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {
        path: optuna.distributions.CategoricalDistribution(dim.options)
        if isinstance(dim, Choice)
        else optuna.distributions.FloatDistribution(dim.low, dim.high, log=dim.log)
        for path, dim in arm.space.items()
    }
    study = optuna.create_study(
        direction="maximize" if metric.direction is Direction.UP else "minimize",
        sampler=optuna.samplers.TPESampler(
            n_startup_trials=arm.algorithm.num_startup,
            seed=derive(seed, "tpe", arm.name) % 2**32,
        ),
    )
    for start in range(0, arm.algorithm.num_trials, arm.algorithm.batch):
        indices = range(start, min(start + arm.algorithm.batch, arm.algorithm.num_trials))
        asked = [study.ask(space) for _ in indices]
        segments = [
            whole_trial(arm, seed=seed, index=i, values=trial.params)
            for i, trial in zip(indices, asked, strict=True)
        ]
        results = yield Batch(tuple(segments))
        for one, trial in zip(segments, asked, strict=True):
            value = results[one.trial].metrics.get(metric.name)
            if results[one.trial].failure is not None or value is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, value)


def _asha(arm: Arm, seed: int, metric: Metric) -> Proposals:
    assert isinstance(arm.algorithm, Asha)
    algorithm, passes = arm.algorithm, arm.config.passes
    alive = [_random_trial(arm, seed, i) for i in range(algorithm.num_trials)]
    stopped: tuple[TrialId, ...] = ()
    levels = rungs(algorithm.min_passes, algorithm.reduction, passes)
    for number, bounds in enumerate(itertools.pairwise([0, *levels])):
        alive = [stretch(one, number=number, bounds=bounds) for one in alive]
        results = yield Batch(tuple(alive), stopped)
        alive = [one for one in alive if results[one.trial].failure is None]
        if bounds[1] == passes:
            return
        scores = [results[one.trial].metrics[metric.name] for one in alive]
        kept = promoted(scores, algorithm.reduction, better=metric.better)
        stopped = tuple(one.trial for one, keep in zip(alive, kept, strict=True) if not keep)
        alive = [one for one, keep in zip(alive, kept, strict=True) if keep]


def _pbt(arm: Arm, seed: int, metric: Metric) -> Proposals:
    assert isinstance(arm.algorithm, Pbt)
    algorithm = arm.algorithm
    values = {i: draw(arm, seed, i) for i in range(algorithm.population)}
    donors: dict[int, int] = {}
    length = arm.config.passes // algorithm.num_rounds
    for number in range(algorithm.num_rounds):
        bounds = (number * length, (number + 1) * length)
        segments = {}
        for i, drawn in values.items():
            source = TrialId(arm.name, seed, donors[i]) if i in donors else None
            whole = whole_trial(arm, seed=seed, index=i, values=drawn)
            segments[i] = stretch(whole, number=number, bounds=bounds, donor=source)
        results = yield Batch(tuple(segments.values()))
        scores = {
            i: results[one.trial].metrics[metric.name]
            for i, one in segments.items()
            if results[one.trial].failure is None
        }
        values = {i: values[i] for i in scores}
        donors = exploit(
            scores,
            quantile=algorithm.quantile,
            better=metric.better,
            rng=numpy_generator(seed, "exploit", arm.name, number),
        )
        rng = numpy_generator(seed, "explore", arm.name, number)
        for loser, donor in sorted(donors.items()):
            values[loser] = explore(values[donor], arm.space, resample=algorithm.resample, rng=rng)


def stretch(
    whole: Segment, *, number: int, bounds: tuple[int, int], donor: TrialId | None = None
) -> Segment:
    """Cut the part of a trial between two numbers of passes out of the whole.

    Args:
        whole: the trial from its start to its end.
        number: of the round.
        bounds: passes at which the round starts and ends.
        donor: the trial whose state it starts from, when not its own.
    """
    return dataclasses.replace(whole, round=number, start=bounds[0], until=bounds[1], donor=donor)


def rungs(min_passes: int, reduction: int, passes: int) -> list[int]:
    """List the budgets at which trials are compared: m, m r, m r^2, ... and the full one."""
    levels = []
    level = min_passes
    while level < passes:
        levels.append(level)
        level *= reduction
    return [*levels, passes]


def promoted(
    scores: Sequence[float], reduction: int, *, better: Callable[[float, float], bool]
) -> list[bool]:
    """Decide which trials of a rung continue, one after the other (Li et al. 2020).

    A trial continues when it is not worse than the (1 - 1/reduction) quantile, linearly
    interpolated, of the trials before it; the first always does. Without NaN this is what Ray's
    asynchronous rule gives when trials arrive in order. A decision depends on earlier trials
    only, so a rung can run in any order and on any number of workers.
    """
    larger_is_better = better(1.0, 0.0)
    kept = []
    rewards = np.array(scores, dtype=float) * (1 if larger_is_better else -1)
    for i, reward in enumerate(rewards):
        before = rewards[:i]
        kept.append(i == 0 or bool(reward >= np.percentile(before, (1 - 1 / reduction) * 100)))
    return kept


def exploit(
    scores: Mapping[int, float],
    *,
    quantile: float,
    better: Callable[[float, float], bool],
    rng: np.random.Generator,
) -> dict[int, int]:
    """Choose for each of the worst trials one of the best to copy (Jaderberg et al. 2017).

    Ties are broken by index. With fewer than two trials left nothing is copied.

    Returns:
        Index of the trial that copies -> index of its donor.
    """
    sign = -1.0 if better(1.0, 0.0) else 1.0
    ranked = sorted(scores, key=lambda i: (sign * scores[i], i))
    count = min(round(len(ranked) * quantile) or 1, len(ranked) // 2)
    if count == 0:
        return {}
    best, worst = ranked[:count], ranked[-count:]
    return {loser: best[int(rng.integers(count))] for loser in sorted(worst)}


def explore(
    values: Mapping[str, Value],
    space: Mapping[str, Dimension],
    *,
    resample: float,
    rng: np.random.Generator,
) -> dict[str, Value]:
    """Vary a donor's values: each is perturbed, or drawn anew with probability `resample`."""
    return {
        path: dim.sample(rng) if rng.random() < resample else dim.perturb(values[path], rng)
        for path, dim in space.items()
    }


_GENERATORS: dict[type[Any], Callable[[Arm, int, Metric], Proposals]] = {
    Fixed: _fixed,
    RandomSearch: _random,
    GridSearch: _grid,
    Tpe: _tpe,
    Asha: _asha,
    Pbt: _pbt,
}
