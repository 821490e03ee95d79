"""Bench of timing: how long adaptive searches take on many slots, beside stock Ray Tune.

All sides run the same trials for the same times: intervals only sleep, for a time that is
log-normal over trials (5 to 95 % span a factor of 10). Which trial is kept to the end decides much,
so ASHA has several draws, 0, 1, ..., and a ratio is that of the sums over them; TPE stops no trial,
and has one. The clock runs from when all workers are there to the last interval. A simulation on a
clock of its own, with many draws and without any overhead, stands beside it.
"""

import contextlib
import heapq
import itertools
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tuneparts.bench import machine
from tuneparts.bench.sleeping import (
    Law,
    NumberedAsha,
    NumberedHalving,
    NumberedOptuna,
    SleepingConfig,
    factor,
    place,
)
from tuneparts.bench.stock_trials import opened, score, trainable
from tuneparts.journal import Event, Journal, Row
from tuneparts.search.algorithms import Algorithm, RandomSearch
from tuneparts.search.algorithms.asha import Rung
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Arm, Scale, Search

Kind: TypeAlias = Literal["asha", "halving", "tpe"]
Timing: TypeAlias = Literal["free", "exact"]
Way: TypeAlias = tuple[Kind, Timing]
Tell: TypeAlias = Callable[[dict[str, Any]], None]
WAYS: tuple[Way, ...] = (("asha", "free"), ("asha", "exact"), ("tpe", "free"), ("tpe", "exact"))
_PASSES: Mapping[str, int] = {"asha": 16, "halving": 16, "tpe": 2}
_RUNGS = (1, 4)
"""Passes after which trials of ASHA compete."""
_LENGTHS: Mapping[str, float] = {"tpe": 2.0}
"""Median seconds of an interval, in units of a case, where it is not one."""


@dataclass(frozen=True)
class Case:
    """How large a comparison is."""

    slots: int
    trials: int
    unit: float
    """Seconds of the median interval of ASHA; one of TPE takes twice as long."""
    draws: int = 1
    """Of the durations; 0, 1, ..."""
    law: Law = "normal"

    def draws_of(self, kind: str) -> range:
        """The draws that an algorithm is timed on."""
        return range(1 if kind == "tpe" else self.draws)

    def lengths(self, draw: int) -> list[float]:
        """The length of an interval of each trial, in medians."""
        return [factor(i, draw=draw, law=self.law) for i in range(self.trials)]


CASES = (
    Case(slots=8, trials=64, unit=0.1, draws=3),
    Case(slots=32, trials=96, unit=0.15),
)
QUICK = (Case(slots=2, trials=8, unit=0.01),)


def run(*, quick: bool = False) -> dict[str, Any]:
    """Stock wall clock over ours, for both timings; rows are printed as they come."""
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    cases = QUICK if quick else CASES
    for case in cases:
        with _ray(case.slots), tempfile.TemporaryDirectory() as folder:
            found = measured(case, Path(folder), WAYS, tell=tell)
        rows += found
        for kind, timing in WAYS:
            ratio = stock_over_ours(found, kind, f"ours, {kind}, {timing}")
            ratios[f"{kind}.{timing}.{case.slots}"] = ratio
    for case in cases:
        for row in simulated(case, draws=2 if quick else 20):
            tell(row)
            rows.append(row)
    return {"bench": "timing", "ratios": ratios, "rows": rows, "machine": machine.describe()}


def stock_over_ours(rows: Sequence[Mapping[str, Any]], kind: str, ours: str) -> float:
    """Wall clock of stock Ray over ours, each summed over the draws."""
    walls = {
        way: sum(r["wall s"] for r in rows if r["way"] == way) for way in (f"ray, {kind}", ours)
    }
    return float(walls[f"ray, {kind}"] / walls[ours])


def algorithm(kind: Kind, timing: Timing, case: Case) -> Algorithm:
    """What is timed, as it would be on so many slots."""
    if kind == "asha":
        return NumberedAsha(num_trials=case.trials, min_passes=1, reduction=4, timing=timing)
    if kind == "halving":
        return NumberedHalving(num_trials=case.trials, min_passes=1, reduction=4)
    return NumberedOptuna(num_trials=case.trials, timing=timing).for_width(case.slots)


def search(
    algorithms: Mapping[str, Algorithm], case: Case, *, draw: int = 0, folder: Path | None = None
) -> Search:
    """A search with an arm for each of these, of which the seed is the draw."""
    arms = []
    for name, own in algorithms.items():
        kind = name.partition("_")[0]
        fields: dict[str, Any] = {
            "passes": _PASSES.get(kind, 1),
            "seconds": case.unit * _LENGTHS.get(kind, 1.0),
            "slots": case.slots,
            "law": case.law,
            "folder": "" if folder is None else str(folder),
        }
        arms.append(
            Arm(
                name=name,
                config=SleepingConfig(**fields),
                algorithm=own,
                space={"x": Uniform(low=0.0, high=1.0)},
                at_once=case.slots,
                budget_note="a bench",
            )
        )
    return Search(
        name="timing",
        question="How long does it take?",
        scale=Scale.SMOKE,
        data={"name": "digits", "num_train": 10, "num_val": 10, "num_test": 10, "seed": 0},
        metric="val/accuracy",
        passes=16,
        seeds=(draw,),
        arms=tuple(arms),
    )


def measured(case: Case, folder: Path, ways: Sequence[Way], *, tell: Tell) -> list[dict[str, Any]]:
    """Time stock Ray and all ways of ours on the Ray that this process has joined.

    Args:
        case: slots, trials, durations.
        folder: for what both write.
        ways: of ours; stock Ray runs each kind of them that it has.
        tell: is called with each row, as it comes.
    """
    rows: list[dict[str, Any]] = []
    kinds = [kind for kind in dict.fromkeys(kind for kind, _ in ways) if kind != "halving"]
    stock = (_stock(kind, case, draw, folder) for kind in kinds for draw in case.draws_of(kind))
    for row in itertools.chain(stock, _ours(ways, case, folder)):
        tell(row)
        rows.append(row)
    return rows


def tell(row: Mapping[str, Any]) -> None:
    """Say a row as soon as it is there."""
    cells = [f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()]
    print(", ".join(cells), file=sys.stderr, flush=True)


def _ours(ways: Sequence[Way], case: Case, folder: Path) -> Iterator[dict[str, Any]]:
    """One search after another on workers that all have started."""
    from tuneparts.executors.ray.pool import Pool
    from tuneparts.executors.worker import TrialSetting

    marks = folder / "ours"
    marks.mkdir()
    warm = {"warm": RandomSearch(num_trials=case.slots)}
    named = {f"{kind}_{timing}": algorithm(kind, timing, case) for kind, timing in ways}
    whole = search({**warm, **named}, case)
    needs = {arm.name: [{"CPU": 1.0}] for arm in whole.arms}
    with Pool(needs, cpus=case.slots) as pool:
        pool.use(TrialSetting.of(whole, str(folder / "trials")))
        _drive(pool, search(warm, case, folder=marks), folder / "warm.jsonl", Ends(case, 0))
        timed = [(name, draw) for name in named for draw in case.draws_of(name.partition("_")[0])]
        for name, draw in timed:
            own = named[name]
            ends, start = Ends(case, draw), time.time()
            _drive(pool, search({name: own}, case, draw=draw), folder / f"{name}{draw}.jsonl", ends)
            yield ends.row(f"ours, {', '.join(name.split('_'))}", start)


def _drive(pool: Any, one: Search, path: Path, ends: "Ends") -> None:
    from tuneparts.executors.worker import deliver

    plan = Plan(one, Journal(path), [ends])
    while not plan.done:
        pool.hand_out(plan)
        for worker, segment, report in pool.news():
            if report is None or report.leave:
                pool.drop(worker)
            if report is None:
                plan.lost(segment)
            else:
                deliver(plan, segment, report)
    plan.journal.close()


class Ends:
    """When the intervals of a search ended."""

    def __init__(self, case: Case, draw: int) -> None:
        self._case, self._draw = case, draw
        self._lengths = case.lengths(draw)
        self.count, self.last, self.slept = 0, 0.0, 0.0

    def on_event(self, event: Event) -> None:
        """Observe a search of ours."""
        if isinstance(event, Row):
            self.add(event.trial.index)

    def add(self, number: int) -> None:
        """Take an interval of the trial of this number."""
        self.count, self.last = self.count + 1, time.time()
        self.slept += self._lengths[number]

    def row(self, way: str, start: float) -> dict[str, Any]:
        """Make the row of a table."""
        wall = self.last - start
        unit = self._case.unit * _LENGTHS.get(way.split(", ")[1], 1.0)
        return {
            "way": way,
            "slots": self._case.slots,
            "trials": self._case.trials,
            "draw": self._draw,
            "median interval s": unit,
            "intervals": self.count,
            "wall s": wall,
            "utilisation": self.slept * unit / (self._case.slots * wall),
        }


def _stock(kind: Kind, case: Case, draw: int, folder: Path) -> dict[str, Any]:
    """Ray's own `ASHAScheduler` on the same configs, or its `OptunaSearch`."""
    from ray import tune

    from tuneparts.testing.null_trials import quiet

    name = f"stock-{kind}-{draw}"
    ends, marks = Ends(case, draw), folder / name
    marks.mkdir()

    class Listener(tune.Callback):  # type: ignore[misc]
        def on_trial_result(self, *, trial: Any, result: Mapping[str, Any], **_: Any) -> None:
            if "score" in result:
                ends.add(trial.config["drawn"]["number"])

    seconds = [case.unit * _LENGTHS.get(kind, 1.0) * length for length in case.lengths(draw)]
    make = _stock_asha if kind == "asha" else _stock_optuna
    space, options = make(seconds, draw)
    tuner = tune.Tuner(
        trainable(str(marks), case.slots, _PASSES[kind]),
        param_space=space,
        tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=case.slots, **options),
        run_config=tune.RunConfig(
            name=name, storage_path=str(folder), verbose=0, callbacks=[Listener()]
        ),
    )
    with quiet():
        tuner.fit()
    return ends.row(f"ray, {kind}", opened(marks))


def _stock_asha(seconds: Sequence[float], draw: int) -> tuple[Any, dict[str, Any]]:
    """The space and the options of a `Tuner`."""
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    configs = [
        {"x": place(i, draw), "number": i, "seconds": length} for i, length in enumerate(seconds)
    ]
    scheduler = ASHAScheduler(
        metric="score", mode="max", max_t=_PASSES["asha"], grace_period=1, reduction_factor=4
    )
    return {"drawn": tune.grid_search(configs)}, {"scheduler": scheduler}


def _stock_optuna(seconds: Sequence[float], draw: int) -> tuple[Any, dict[str, Any]]:
    """The same for `OptunaSearch`, which is stock but for the numbers of its trials."""
    from optuna.distributions import FloatDistribution
    from ray.tune.search.optuna import OptunaSearch

    numbers = iter(enumerate(seconds))

    class Numbered(OptunaSearch):  # type: ignore[misc]
        def suggest(self, trial_id: str) -> Any:
            found = super().suggest(trial_id)
            if isinstance(found, dict):
                number, length = next(numbers)
                return {"drawn": {"x": found["x"], "number": number, "seconds": length}}
            return found

    searcher = Numbered({"x": FloatDistribution(0.0, 1.0)}, metric="score", mode="max", seed=draw)
    return None, {"search_alg": searcher, "num_samples": len(seconds)}


def simulated(case: Case, *, draws: int) -> list[dict[str, Any]]:
    """Wall clocks on slots without any overhead, in median intervals: our plans and Ray's rule.

    Args:
        case: slots, trials and law of durations.
        draws: of the durations of trials; rows have means over them.
    """
    walls: dict[str, list[float]] = {}
    for draw in range(draws):
        lengths = case.lengths(draw)
        walls.setdefault("ray, asha", []).append(stock_makespan(case.slots, lengths, draw))
        for kind, timing in (*WAYS[:2], ("halving", "exact")):
            one = search({kind: algorithm(kind, timing, case)}, case, draw=draw)
            way = f"{kind}, {timing}"
            walls.setdefault(way, []).append(makespan(one, case.slots, lengths))
    stock = sum(walls["ray, asha"])
    return [
        {
            "way": f"simulated, {way}",
            "slots": case.slots,
            "trials": case.trials,
            "draws": draws,
            "wall in medians": statistics.fmean(own),
            "ray asha over it": stock / sum(own),
        }
        for way, own in walls.items()
    ]


def stock_makespan(slots: int, lengths: Sequence[float], draw: int) -> float:
    """When Ray's `ASHAScheduler` would end: a trial keeps its slot until it is stopped."""
    rungs = {passes: Rung(4) for passes in _RUNGS}
    clock, budget, waiting = 0.0, _PASSES["asha"], iter(range(len(lengths)))
    running = [(lengths[i], i, 1) for i in itertools.islice(waiting, slots)]
    heapq.heapify(running)
    while running:
        clock, number, passes = heapq.heappop(running)
        reward = score(place(number, draw), passes / budget)
        goes_on = passes < budget and (passes not in rungs or rungs[passes]([reward]))
        if goes_on:
            heapq.heappush(running, (clock + lengths[number], number, passes + 1))
        elif (new := next(waiting, None)) is not None:
            heapq.heappush(running, (clock + lengths[new], new, 1))
    return clock


def makespan(one: Search, slots: int, lengths: Sequence[float]) -> float:
    """When a search ends on so many slots, by a clock of its own.

    Args:
        one: a search over trials with an `x`.
        slots: segments that run at once.
        lengths: what a pass of each trial takes.
    """
    clock, order = 0.0, itertools.count()
    running: list[tuple[float, int, Segment]] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Journal(Path(folder) / "journal.jsonl")) as journal,
    ):
        plan = Plan(one, journal)
        while not plan.done:
            while len(running) < slots and (segment := plan.next()) is not None:
                end = clock + lengths[segment.trial.index] * (segment.until - segment.start)
                heapq.heappush(running, (end, next(order), segment))
            clock, _, segment = heapq.heappop(running)
            part = segment.until / segment.config["passes"]
            row = {"val/accuracy": score(segment.config["x"], part), "cost/passes": segment.until}
            plan.report(segment, [row])
            plan.complete(segment, finished=part >= 1)
    return clock


@contextlib.contextmanager
def _ray(slots: int) -> Iterator[None]:
    """A Ray of so many logical CPUs, or the one that this process has joined."""
    from tuneparts.executors.ray import cluster

    for name, value in cluster.ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    import ray

    if ray.is_initialized():
        yield
        return
    ray.init(address="local", num_cpus=slots, log_to_driver=False, include_dashboard=False)
    try:
        yield
    finally:
        ray.shutdown()
