"""Bench of timing: how long adaptive searches take on many slots, beside stock Ray Tune.

All sides run the same trials for the same times: intervals only sleep, for a time that is
log-normal over trials (5 to 95 % span a factor of 10). The clock runs from when all workers are
there to the last interval. A simulation on a clock of its own, with more draws, stands beside it.
"""

import contextlib
import heapq
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tuneparts.bench import machine
from tuneparts.bench.sleeping import (
    NumberedAsha,
    NumberedOptuna,
    SleepingConfig,
    factor,
    opened,
    score,
    stock_trainable,
)
from tuneparts.journal import Event, Journal, Row
from tuneparts.search.algorithms import Algorithm, RandomSearch
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Arm, Scale, Search

Kind: TypeAlias = Literal["asha", "tpe"]
Timing: TypeAlias = Literal["free", "exact"]
KINDS: tuple[Kind, ...] = ("asha", "tpe")
TIMINGS: tuple[Timing, ...] = ("free", "exact")
_PASSES: Mapping[str, int] = {"asha": 16, "tpe": 2}
_LENGTHS: Mapping[str, float] = {"asha": 1.0, "tpe": 2.0}
"""Median seconds of an interval, in units of a case."""


@dataclass(frozen=True)
class Case:
    """How large a comparison is."""

    slots: int
    trials: int
    unit: float
    """Seconds."""


CASES = (Case(slots=8, trials=64, unit=0.25), Case(slots=32, trials=256, unit=0.3))
QUICK = (Case(slots=2, trials=8, unit=0.01),)


def run(*, quick: bool = False) -> dict[str, Any]:
    """Stock wall clock over ours, for both timings; rows are printed as they come."""
    rows: list[dict[str, Any]] = []
    ratios: dict[str, float] = {}
    for case in QUICK if quick else CASES:
        with _ray(case.slots), tempfile.TemporaryDirectory() as folder:
            for row in _measured(case, Path(folder)):
                print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()})
                rows.append(row)
        wall = {(row["way"], row["slots"]): row["wall s"] for row in rows if "wall s" in row}
        for kind, timing in itertools.product(KINDS, TIMINGS):
            ours = wall[f"ours, {kind}, {timing}", case.slots]
            ratios[f"{kind}.{timing}.{case.slots}"] = wall[f"ray, {kind}", case.slots] / ours
    rows += simulated(QUICK if quick else CASES, draws=2 if quick else 8)
    return {"bench": "timing", "ratios": ratios, "rows": rows, "machine": machine.describe()}


def algorithm(kind: Kind, timing: Timing, case: Case) -> Algorithm:
    """What is timed, as it would be on so many slots."""
    if kind == "asha":
        return NumberedAsha(num_trials=case.trials, min_passes=1, reduction=4, timing=timing)
    return NumberedOptuna(num_trials=case.trials, timing=timing).for_width(case.slots)


def search(algorithms: Mapping[str, Algorithm], case: Case, folder: Path | None = None) -> Search:
    """A search with an arm for each of these; all arms draw the same configs."""
    arms = []
    for name, own in algorithms.items():
        kind = name.partition("_")[0]
        fields: dict[str, Any] = {
            "passes": _PASSES.get(kind, 1),
            "seconds": case.unit * _LENGTHS.get(kind, 1.0),
            "slots": case.slots,
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
        data={"name": "digits", "num_train": 10, "num_val": 10, "num_test": 10},
        metric="val/accuracy",
        passes=16,
        seeds=(0,),
        arms=tuple(arms),
    )


def _measured(case: Case, folder: Path) -> Iterator[dict[str, Any]]:
    """All ways on the Ray that this process has joined."""
    ways: dict[str, Algorithm] = {
        f"{kind}_{timing}": algorithm(kind, timing, case)
        for kind, timing in itertools.product(KINDS, TIMINGS)
    }
    for kind in KINDS:
        yield _stock(kind, case, folder)
    yield from _ours(ways, case, folder)


def _ours(ways: Mapping[str, Algorithm], case: Case, folder: Path) -> Iterator[dict[str, Any]]:
    """One search after another on workers that all have started."""
    from tuneparts.executors.ray.pool import Pool
    from tuneparts.executors.worker import TrialSetting

    marks = folder / "ours"
    marks.mkdir()
    warm = {"warm": RandomSearch(num_trials=case.slots)}
    whole = search({**warm, **ways}, case)
    needs = {arm.name: [{"CPU": 1.0}] for arm in whole.arms}
    with Pool(needs, cpus=case.slots) as pool:
        setting = TrialSetting.of(whole, str(folder / "trials"))
        pool.use(setting)
        _drive(pool, search(warm, case, marks), folder / "warm.jsonl", Ends())
        for name, own in ways.items():
            ends, start = Ends(), time.time()
            _drive(pool, search({name: own}, case), folder / f"{name}.jsonl", ends)
            kind, _, timing = name.partition("_")
            yield ends.row(f"ours, {kind}, {timing}", case, start)


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

    def __init__(self) -> None:
        self.count, self.last, self.slept = 0, 0.0, 0.0

    def on_event(self, event: Event) -> None:
        """Observe a search of ours."""
        if isinstance(event, Row):
            self.add(event.trial.index)

    def add(self, number: int) -> None:
        """Take an interval of the trial of this number."""
        self.count, self.last = self.count + 1, time.time()
        self.slept += factor(number)

    def row(self, way: str, case: Case, start: float) -> dict[str, Any]:
        """Make the row of a table."""
        wall = self.last - start
        kind = way.split(", ")[1]
        slept = self.slept * case.unit * _LENGTHS[kind]
        return {
            "way": way,
            "slots": case.slots,
            "trials": case.trials,
            "intervals": self.count,
            "wall s": wall,
            "utilisation": slept / (case.slots * wall),
        }


def _stock(kind: Kind, case: Case, folder: Path) -> dict[str, Any]:
    """Ray's own `ASHAScheduler` on the same configs, or its `OptunaSearch`."""
    from ray import tune

    ends, marks = Ends(), folder / f"stock-{kind}"
    marks.mkdir()

    class Listener(tune.Callback):  # type: ignore[misc]
        def on_trial_result(self, *, trial: Any, result: Mapping[str, Any], **_: Any) -> None:
            if "score" in result:
                ends.add(trial.config["drawn"]["number"])

    passes, seconds = _PASSES[kind], case.unit * _LENGTHS[kind]
    space, options = _stock_asha(case) if kind == "asha" else _stock_optuna(case)
    tune.Tuner(
        stock_trainable(str(marks), case.slots, seconds, passes),
        param_space=space,
        tune_config=tune.TuneConfig(reuse_actors=True, max_concurrent_trials=case.slots, **options),
        run_config=tune.RunConfig(
            name=f"stock-{kind}", storage_path=str(folder), verbose=0, callbacks=[Listener()]
        ),
    ).fit()
    return ends.row(f"ray, {kind}", case, opened(marks))


def _stock_asha(case: Case) -> tuple[Any, dict[str, Any]]:
    """The space and the options of a `Tuner`."""
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    from tuneparts.search.algorithms import draw

    arm = search({"asha": algorithm("asha", "free", case)}, case).arms[0]
    configs = [{**draw(arm, 0, i), "number": i} for i in range(case.trials)]
    scheduler = ASHAScheduler(
        metric="score", mode="max", max_t=_PASSES["asha"], grace_period=1, reduction_factor=4
    )
    return {"drawn": tune.grid_search(configs)}, {"scheduler": scheduler}


def _stock_optuna(case: Case) -> tuple[Any, dict[str, Any]]:
    """The same for `OptunaSearch`, which is stock but for the numbers of its trials."""
    from optuna.distributions import FloatDistribution
    from ray.tune.search.optuna import OptunaSearch

    numbers = itertools.count()

    class Numbered(OptunaSearch):  # type: ignore[misc]
        def suggest(self, trial_id: str) -> Any:
            found = super().suggest(trial_id)
            if isinstance(found, dict):
                return {"drawn": {"x": found["x"], "number": next(numbers)}}
            return found

    searcher = Numbered({"x": FloatDistribution(0.0, 1.0)}, metric="score", mode="max", seed=0)
    return None, {"search_alg": searcher, "num_samples": case.trials}


def simulated(cases: tuple[Case, ...], *, draws: int) -> list[dict[str, Any]]:
    """Wall clocks of our plans on slots without any overhead, in units of a median interval.

    Args:
        cases: slots and trials.
        draws: of the durations of trials; rows have means over them.
    """
    rows = []
    for case, kind, timing in itertools.product(cases, KINDS, TIMINGS):
        one = search({kind: algorithm(kind, timing, case)}, case)
        walls = []
        for draw in range(draws):
            lengths = [factor(draw * case.trials + i) for i in range(case.trials)]
            walls.append(makespan(one, case.slots, lengths))
        rows.append(
            {
                "way": f"simulated, {kind}, {timing}",
                "slots": case.slots,
                "trials": case.trials,
                "wall in medians": statistics.fmean(walls),
            }
        )
    return rows


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
