"""Bench of the search algorithms themselves, each beside what Optuna or Ray make of the same idea.

Samplers minimise standard functions. Algorithms that stop trials run on tabulated learning curves:
102 nets on rotated digits, recorded with this package. Populations train a toy whose best values
move. Both sides see the same trials in the same order, so what differs is the algorithm. Nothing is
trained, and Ray is not started.
"""

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
import torch

from tuneparts.bench import machine, theirs
from tuneparts.bench.functions import FUNCTIONS, SCHEDULE_DIMS, trained
from tuneparts.testing.null import NullConfig
from tuneparts.schema import lookup
from tuneparts.search import curves
from tuneparts.search.algorithms import (
    Algorithm,
    Asha,
    Hyperband,
    MedianStopping,
    Optuna,
    Pb2,
    Pbt,
    PercentileStopping,
    RandomSearch,
    SuccessiveHalving,
    draw,
)
from tuneparts.search.curves import Curves
from tuneparts.search.replicate import Replicate
from tuneparts.search.segment import Result, Segment
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Arm
from tuneparts.search.states import States
from tuneparts.seeding import derive, numpy_generator

MARGIN = 0.1
"""Differences within this part of random search's regret count as none."""
METRIC = lookup("val/nll")
TABLE = "digits_mlp.csv"
_WINDOW = 8
_FIRST, _REDUCTION = 9, 3
"""Passes of the first rung on tables, and the factor from one to the next."""
Path: TypeAlias = Sequence[tuple[float, float]]
"""Passes spent so far, and the regret then; one for each trial that ends."""


@dataclass(frozen=True)
class Case:
    """An algorithm of ours and what it is compared with, on one problem."""

    name: str
    problem: str
    ours: Callable[[int], Path]
    """Seed -> how regret fell."""
    theirs: Callable[[int], Path]
    random: Callable[[int], Path]
    budget: float
    """Passes at which regrets are compared; a side that spends less is compared at its end."""
    seeds: int


def run(*, quick: bool = False) -> dict[str, Any]:
    """Compare all; rows are printed as they come."""
    torch.set_num_threads(1)  # Gaussian processes of a few points are slower on several
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    makers = (table_cases, population_cases, function_cases)
    cases = itertools.chain.from_iterable(make(quick=quick) for make in makers)
    for case in cases:
        found = list(compared(case))
        for row in found:
            print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()})
        rows += found
        last = found[-1]
        ratios[f"{case.name}.{case.problem}"] = 1 - last["difference"] / last["random"]
    return {"bench": "algorithms", "ratios": ratios, "rows": rows, "machine": machine.describe()}


def compared(case: Case) -> Iterator[dict[str, Any]]:
    """Regrets of both sides at a quarter, a half and all of the budget, over seeds.

    The interval is for the mean of paired differences, at 95 %.
    """
    paths = [(case.ours(s), case.theirs(s), case.random(s)) for s in range(case.seeds)]
    for share in (0.25, 0.5, 1.0):
        ours, other, chance = (
            [regret_at(path[side], share * case.budget) for path in paths] for side in range(3)
        )
        differences = [a - b for a, b in zip(ours, other, strict=True)]
        mean, half = statistics.fmean(differences), _half_interval(differences)
        margin = MARGIN * statistics.fmean(chance)
        yield {
            "algorithm": case.name,
            "problem": case.problem,
            "seeds": case.seeds,
            "budget": share,
            "ours": statistics.fmean(ours),
            "theirs": statistics.fmean(other),
            "random": statistics.fmean(chance),
            "difference": mean,
            "low": mean - half,
            "high": mean + half,
            "verdict": verdict(mean - half, mean + half, margin),
            "passes ours": statistics.fmean(path[0][-1][0] for path in paths),
            "passes theirs": statistics.fmean(path[1][-1][0] for path in paths),
        }


def verdict(low: float, high: float, margin: float) -> str:
    """What an interval of regret, ours minus theirs, says.

    Example:
        >>> verdict(-0.01, 0.02, 0.05), verdict(-0.2, -0.1, 0.05), verdict(-0.2, 0.2, 0.05)
        ('equal', 'better', 'undecided')
    """
    if -margin <= low and high <= margin:
        return "equal"
    if high < 0:
        return "better"
    if low > 0:
        return "worse"
    return "not worse" if high <= margin else "undecided"


def regret_at(path: Path, budget: float) -> float:
    """The regret when so many passes are spent; before the first trial ends that of the first."""
    return min((regret for spent, regret in path if spent <= budget), default=path[0][1])


def ended(
    algorithm: Algorithm, arm: Arm, seed: int, score: Callable[[Segment], float], *, slots: int = 1
) -> list[tuple[Segment, float]]:
    """Run an algorithm, and list its segments with their scores in the order in which they end.

    Args:
        algorithm: what decides.
        arm: whose space it draws from.
        seed: of the replicate.
        score: of a segment.
        slots: how many run at once; of several any may end first.
    """
    replicate = Replicate(arm, seed, States(METRIC))
    replicate.proposals = algorithm.proposals(arm, seed, METRIC)
    rng, found = random.Random(seed), list[tuple[Segment, float]]()
    results: Any = None
    while True:
        try:
            batch = replicate.proposals.send(results)
        except StopIteration:
            break
        replicate.begin(batch)
        while (news := replicate.next_news()) is None:
            # Those that have begun go on first, as in the queue of a search.
            waiting = sorted(replicate.running.values(), key=lambda s: (-s.start, s.trial))
            one = waiting[rng.randrange(min(slots, len(waiting)))]
            found.append((one, score(one)))
            replicate.end(one, Result({METRIC.name: found[-1][1]}))
        results = news.results
    for one in replicate.running.values():
        found.append((one, score(one)))
    return found


def function_cases(*, quick: bool) -> Iterator[Case]:
    """Every sampler on every function, one trial at a time; TPE also with eight at once."""
    trials, seeds = (12, 2) if quick else (48, 50)
    sizes: Mapping[str, tuple[int, int]] = {"gp": (6, 2) if quick else (16, seeds)}
    for problem in ["branin"] if quick else FUNCTIONS:
        for sampler in ("random", "qmc", "tpe", "cmaes", "nsgaii", "gp"):
            count, own_seeds = sizes.get(sampler, (trials, seeds))
            yield _function_case(sampler, problem, count, own_seeds, window=1)
        yield _function_case("tpe", problem, trials, seeds, window=_WINDOW)


def _function_case(sampler: str, problem: str, trials: int, seeds: int, *, window: int) -> Case:
    function, dims = FUNCTIONS[problem]
    names = [f"x{i}" for i in range(dims)]
    arm = Arm(
        name=sampler,
        config=FunctionConfig(),
        algorithm=RandomSearch(num_trials=1),
        space={name: Uniform(low=0.0, high=1.0) for name in names},
    )
    algorithm = Optuna(sampler=sampler, num_trials=trials, window=window)

    def value(config: Mapping[str, Any]) -> float:
        return function([config[name] for name in names])

    def ours(seed: int) -> Path:
        return _falling(
            [value(s.config) for s, _ in ended(algorithm, arm, seed, lambda s: value(s.config))]
        )

    def other(seed: int) -> Path:
        own = derive(seed, sampler, arm.name) % 2**32
        return _falling(theirs.optuna_values(sampler, value, names, trials, own, window=window))

    def chance(seed: int) -> Path:
        rng = numpy_generator(seed, "bench", problem)
        return _falling([function(rng.uniform(size=dims).tolist()) for _ in range(trials)])

    name = sampler if window == 1 else f"{sampler} x{window}"
    return Case(name, problem, ours, other, chance, budget=trials, seeds=seeds)


class FunctionConfig(NullConfig):
    """A config with coordinates of its own."""

    method: Any = "tuneparts.bench.algorithms:FunctionConfig"
    x0: float = 0.5
    x1: float = 0.5
    x2: float = 0.5
    x3: float = 0.5
    x4: float = 0.5
    x5: float = 0.5


def _falling(values: Sequence[float]) -> Path:
    """The best value so far, after each trial."""
    return [(i + 1.0, best) for i, best in enumerate(itertools.accumulate(values, min))]


def table_cases(*, quick: bool) -> Iterator[Case]:
    """Every algorithm that stops trials, on recorded curves."""
    table, seeds = recorded(), 3 if quick else 50
    budget, trials = table.passes[-1], 36
    levels = [_FIRST * _REDUCTION**k for k in range(10) if _FIRST * _REDUCTION**k < budget]
    steps = range(_FIRST, budget, _FIRST)
    rungs = {"min_passes": _FIRST, "reduction": _REDUCTION}
    rule = {"every": _FIRST, "min_trials": 5}
    ways: list[tuple[str, Algorithm, theirs.Stopper, Sequence[int]]] = [
        ("asha, ray", Asha(num_trials=trials, **rungs), theirs.ray_asha(budget, **rungs), levels),
        (
            "asha, optuna",
            Asha(num_trials=trials, **rungs),
            theirs.optuna_pruner("SuccessiveHalvingPruner", _FIRST, _REDUCTION),
            levels,
        ),
        (
            "halving, optuna",
            SuccessiveHalving(num_trials=trials, **rungs),
            theirs.optuna_pruner("SuccessiveHalvingPruner", _FIRST, _REDUCTION),
            levels,
        ),
        (
            "hyperband, optuna",
            Hyperband(num_trials=trials, **rungs),
            theirs.optuna_hyperband(_FIRST, budget, _REDUCTION),
            levels,
        ),
        (
            "median, ray",
            MedianStopping(num_trials=trials, **rule),
            theirs.ray_median(_FIRST),
            steps,
        ),
        (
            "median, optuna",
            MedianStopping(num_trials=trials, **rule),
            theirs.optuna_quantile(0.5),
            steps,
        ),
        (
            "percentile, optuna",
            PercentileStopping(num_trials=trials, keep=0.25, **rule),
            theirs.optuna_quantile(0.25),
            steps,
        ),
    ]
    for name, algorithm, stopper, at in ways:
        yield _table_case(name, table, algorithm, stopper, at, seeds)


def _table_case(
    name: str,
    table: Curves,
    algorithm: Algorithm,
    stopper: theirs.Stopper,
    at: Sequence[int],
    seeds: int,
) -> Case:
    budget, trials = table.passes[-1], algorithm.trials_per_seed({})
    config = NullConfig(passes=budget, interval=_FIRST)
    space = {"x": Uniform(low=0.0, high=1.0)}
    arm = Arm(name="table", config=config, algorithm=algorithm, space=space)
    best = float(table.scores[:, -1].min())

    def order(seed: int) -> list[int]:
        rows = numpy_generator(seed, "bench", "table").permutation(len(table.scores))
        return [int(row) for row in rows[:trials]]

    def path(pieces: Iterator[tuple[int, int, float]]) -> Path:
        """Passes and regret of what was selected so far: the best trial that finished."""
        spent, low, found = 0.0, math.inf, []
        for length, until, score in pieces:
            spent += length
            if until == budget:
                low = min(low, score - best)
                found.append((spent, low))
        return found

    def ours(seed: int) -> Path:
        rows = order(seed)
        work = ended(algorithm, arm, seed, lambda s: table.at(rows[s.trial.index], s.until))
        return path((s.until - s.start, s.until, score) for s, score in work)

    def other(seed: int) -> Path:
        return path(theirs.stopped([table.scores[row] for row in order(seed)], table, stopper, at))

    def chance(seed: int) -> Path:
        return path((budget, budget, table.at(row, budget)) for row in order(seed))

    # A quarter of what random search would spend, which is about what these spend at most.
    return Case(name, "digits", ours, other, chance, budget=trials * budget / 4, seeds=seeds)


def population_cases(*, quick: bool) -> Iterator[Case]:
    """PBT and PB2 beside Ray's, both in rounds, with the same members at the start.

    A seed of PBT takes a hundredth of a second, so there are many; one of Ray's PB2 takes seconds.
    """
    sizes = {"pbt": (4, 2), "pb2": (3, 2)} if quick else {"pbt": (12, 1000), "pb2": (8, 25)}
    for kind, algorithm in (("pbt", Pbt), ("pb2", Pb2)):
        rounds, seeds = sizes[kind]
        yield _population_case(kind, algorithm(population=8, num_rounds=rounds), seeds)


def _population_case(kind: str, algorithm: Pbt, seeds: int) -> Case:
    rounds, size = algorithm.num_rounds, algorithm.population
    names = [f"x{i}" for i in range(SCHEDULE_DIMS)]
    arm = Arm(
        name="population",
        config=FunctionConfig(passes=rounds),
        algorithm=algorithm,
        space={name: Uniform(low=0.0, high=1.0) for name in names},
    )

    def path(losses: Iterator[float]) -> Path:
        """The best loss so far, round by round."""
        best = itertools.accumulate(losses, min)
        return [(i + 1.0, loss) for i, loss in enumerate(best) if (i + 1) % size == 0]

    def ours(seed: int) -> Path:
        states: dict[tuple[Any, int], float] = {}

        def loss(one: Segment) -> float:
            before = states.get((one.donor or one.trial, one.round - 1), 1.0)
            after = trained(before, [one.config[n] for n in names], one.start / rounds)
            states[one.trial, one.round] = after
            return after

        return path(score for _, score in ended(algorithm, arm, seed, loss))

    def other(seed: int) -> Path:
        members = [draw(arm, seed, i) for i in range(size)]
        population = theirs.ray_population(kind, members, seed)
        values, donors = next(population)
        losses, all_losses = [1.0] * size, list[float]()
        for number in range(rounds):
            points = [[one[n] for n in names] for one in values]
            before = [losses[donor] for donor in donors]
            losses = [trained(b, p, number / rounds) for b, p in zip(before, points, strict=True)]
            all_losses += losses
            values, donors = population.send(losses)
        population.close()
        return path(iter(all_losses))

    def chance(seed: int) -> Path:
        """The same members, none of which changes."""
        points = [[draw(arm, seed, i)[n] for n in names] for i in range(size)]
        losses, all_losses = [1.0] * size, list[float]()
        for number in range(rounds):
            losses = [trained(b, p, number / rounds) for b, p in zip(losses, points, strict=True)]
            all_losses += losses
        return path(iter(all_losses))

    name = f"{kind}, ray"
    return Case(name, "schedule", ours, other, chance, budget=size * rounds, seeds=seeds)


@cache
def recorded() -> Curves:
    """The curves that come with the package."""
    with resources.as_file(resources.files("tuneparts.bench") / "tables" / TABLE) as path:
        return curves.read(path)


def _half_interval(values: Sequence[float]) -> float:
    from scipy import stats

    if len(values) < 2:
        return math.inf
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1)) * error
