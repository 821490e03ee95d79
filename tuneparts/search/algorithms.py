"""Search algorithms as generators: yield a batch of segments, receive how they ended.

Each algorithm sees results only in whole batches and in trial order, so what it does next
depends on the search and the seed, never on which worker was faster. That makes a search the
same after a crash: the generator is run again against the journal.
"""

import itertools
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeAlias

from tuneparts.journal import TrialId
from tuneparts.schema import Direction, Metric
from tuneparts.search import schedulers
from tuneparts.search.segment import Batch, Result, Segment
from tuneparts.search.space import Choice, Value
from tuneparts.search.spec import Arm, Asha, Fixed, GridSearch, Pbt, RandomSearch, Tpe
from tuneparts.seeding import derive, numpy_generator

Proposals: TypeAlias = Generator[Batch, Mapping[TrialId, Result], None]


def proposals(arm: Arm, seed: int, metric: Metric) -> Proposals:
    """The batches of one replicate of an arm."""
    return _TABLE[type(arm.algorithm)](arm, seed, metric)


def draw(arm: Arm, seed: int, index: int) -> dict[str, Value]:
    """The values of the space for one random trial; independent of how many are drawn."""
    rng = numpy_generator(seed, "space", arm.name, index)
    return {path: dim.sample(rng) for path, dim in arm.space.items()}


def segment(arm: Arm, seed: int, index: int, values: Mapping[str, Any]) -> Segment:
    """The whole of a trial at these values."""
    config = arm.config.replaced(values)
    return Segment(
        trial=TrialId(arm.name, seed, index),
        config=config.model_dump(mode="json"),
        until=config.passes,
    )


def _fixed(arm: Arm, seed: int, metric: Metric) -> Proposals:  # noqa: ARG001
    yield Batch((segment(arm, seed, 0, {}),))


def _random(arm: Arm, seed: int, metric: Metric) -> Proposals:  # noqa: ARG001
    assert isinstance(arm.algorithm, RandomSearch)
    indices = range(arm.algorithm.num_trials)
    yield Batch(tuple(segment(arm, seed, i, draw(arm, seed, i)) for i in indices))


def _grid(arm: Arm, seed: int, metric: Metric) -> Proposals:  # noqa: ARG001
    options = [dim.options for dim in arm.space.values() if isinstance(dim, Choice)]
    combinations = [
        dict(zip(arm.space, values, strict=True)) for values in itertools.product(*options)
    ]
    yield Batch(tuple(segment(arm, seed, i, values) for i, values in enumerate(combinations)))


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
            segment(arm, seed, i, trial.params) for i, trial in zip(indices, asked, strict=True)
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
    drawn = [segment(arm, seed, i, draw(arm, seed, i)) for i in range(algorithm.num_trials)]
    stopped: tuple[TrialId, ...] = ()
    alive = drawn
    levels = schedulers.rungs(algorithm.min_passes, algorithm.reduction, passes)
    for number, bounds in enumerate(itertools.pairwise([0, *levels])):
        alive = [schedulers.stretch(one, number=number, bounds=bounds) for one in alive]
        results = yield Batch(tuple(alive), stopped)
        alive = [one for one in alive if results[one.trial].failure is None]
        if bounds[1] == passes:
            return
        scores = [results[one.trial].metrics[metric.name] for one in alive]
        kept = schedulers.promoted(scores, algorithm.reduction, better=metric.better)
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
            whole = segment(arm, seed, i, drawn)
            segments[i] = schedulers.stretch(whole, number=number, bounds=bounds, donor=source)
        results = yield Batch(tuple(segments.values()))
        scores = {
            i: results[one.trial].metrics[metric.name]
            for i, one in segments.items()
            if results[one.trial].failure is None
        }
        values = {i: values[i] for i in scores}
        donors = schedulers.exploit(
            scores,
            quantile=algorithm.quantile,
            better=metric.better,
            rng=numpy_generator(seed, "exploit", arm.name, number),
        )
        rng = numpy_generator(seed, "explore", arm.name, number)
        for loser, donor in sorted(donors.items()):
            values[loser] = schedulers.explore(
                values[donor], arm.space, resample=algorithm.resample, rng=rng
            )


_TABLE: dict[type[Any], Callable[[Arm, int, Metric], Proposals]] = {
    Fixed: _fixed,
    RandomSearch: _random,
    GridSearch: _grid,
    Tpe: _tpe,
    Asha: _asha,
    Pbt: _pbt,
}
