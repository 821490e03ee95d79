"""How long adaptive searches take on many slots, compared with stock Ray Tune.

All sides run the same trials for the same times: intervals only sleep, for a time that is
log-normal over trials (5 to 95 % span a factor of 10). Which trial is kept to the end decides much,
so ASHA has several draws, 0, 1, ..., and a ratio is that of the sums over them; TPE stops no trial,
and has one. The clock runs from when all workers are there to the last interval.
"""

import contextlib
import io
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from benchmarks import sleeping
from benchmarks.results import Result, Row, result, tell
from benchmarks.stock_trials import began, trainable
from tuneparts.executors import Place, execute
from tuneparts.executors.ray import cluster
from tuneparts.search.algorithms.base import Algorithm
from tuneparts.search.events import Event
from tuneparts.search.events import Row as Interval

Kind: TypeAlias = Literal["asha", "halving", "tpe"]
Timing: TypeAlias = Literal["free", "exact"]
_TIMINGS = {"free": "asynchronous", "exact": "deterministic"}
"""What keys of results are called -> timing of an algorithm."""
Way: TypeAlias = tuple[Kind, Timing]
_WAYS: tuple[Way, ...] = (("tpe", "exact"), ("tpe", "free"), ("asha", "exact"), ("asha", "free"))
_STEPS: Mapping[Kind, int] = {"asha": 16, "halving": 16, "tpe": 2}


@dataclass(frozen=True)
class Case:
    """How large a comparison is."""

    slots: int
    trials: int
    unit: float
    """Seconds of the median interval of ASHA; one of TPE takes twice as long."""
    draws: int = 1
    """Of the durations, 0, 1, ...; TPE has one."""
    law: sleeping.Law = "normal"

    def median(self, kind: Kind) -> float:
        return self.unit * (2.0 if kind == "tpe" else 1.0)

    def lengths(self, draw: int) -> list[float]:
        """The length of an interval of each trial, in medians."""
        return [sleeping.factor(i, draw=draw, law=self.law) for i in range(self.trials)]


_CASES = (Case(slots=8, trials=64, unit=0.1, draws=3), Case(slots=32, trials=96, unit=0.15))
_QUICK = (Case(slots=2, trials=8, unit=0.01),)


def run(*, quick: bool) -> Result:
    """Stock wall clock over ours, for both timings: `KIND.TIMING.SLOTS`."""
    rows: list[Row] = []
    ratios: dict[str, float] = {}
    for case in _QUICK if quick else _CASES:
        found = measured(case, _WAYS)
        rows += found
        for kind, timing in _WAYS:
            ratio = stock_over_ours(found, kind, f"ours, {kind}, {timing}")
            ratios[f"{kind}.{timing}.{case.slots}"] = ratio
    return result("timing", ratios, rows)


def stock_over_ours(rows: Sequence[Row], kind: str, ours: str) -> float:
    """Wall clock of stock Ray over ours, each summed over the draws."""
    stock, own = (
        sum(row["wall s"] for row in rows if row["way"] == way) for way in (f"ray, {kind}", ours)
    )
    return float(stock / own)


def measured(case: Case, ways: Sequence[Way]) -> list[Row]:
    """Time stock Ray and all ways of ours; stock Ray runs each kind of them that it has."""
    rows: list[Row] = []
    with joined_ray(case.slots), tempfile.TemporaryDirectory() as folder:
        for kind in dict.fromkeys(kind for kind, _ in ways):
            for draw in range(1 if kind == "tpe" else case.draws):
                if kind != "halving":
                    rows.append(_stock(kind, case, draw, Path(folder)))
                    tell(rows[-1])
                for timing in [how for own, how in ways if own == kind]:
                    rows.append(_ours(kind, timing, case, draw, Path(folder)))
                    tell(rows[-1])
    return rows


def joined_ray(cpus: int) -> contextlib.AbstractContextManager[None]:
    """A Ray of so many logical CPUs, or the one that this process has joined."""
    cluster.prepare(None)
    import ray

    return contextlib.nullcontext() if ray.is_initialized() else cluster.joined(None, cpus=cpus)


def algorithm(kind: Kind, timing: Timing, case: Case) -> Algorithm:
    """What is timed, as it would be on so many slots."""
    rungs = {"num_trials": case.trials, "min_steps": 1, "reduction": 4}
    if kind == "asha":
        return sleeping.NumberedAsha(**rungs, timing=_TIMINGS[timing])
    if kind == "halving":
        return sleeping.NumberedHalving(**rungs)
    own = sleeping.NumberedOptuna(num_trials=case.trials, timing=_TIMINGS[timing])
    return own.for_width(case.slots)


def _ours(kind: Kind, timing: Timing, case: Case, draw: int, folder: Path) -> Row:
    name = f"{kind}, {timing}"
    ends, marks = Ends(kind, case, draw), folder / f"{name}, {draw}"
    marks.mkdir()
    config = sleeping.SleepingConfig(
        steps=_STEPS[kind],
        seconds=case.median(kind),
        slots=case.slots,
        law=case.law,
        folder=str(marks),
    )
    own = algorithm(kind, timing, case)
    search = sleeping.search(kind, own, config, seed=draw, at_once=case.slots)
    folder = folder / f"run {name}, {draw}"
    execute(search, folder=folder, place=Place("ray"), observers=[ends])
    return ends.row(f"ours, {name}", began(marks))


class Ends:
    """When the intervals of a search ended."""

    def __init__(self, kind: Kind, case: Case, draw: int) -> None:
        self._case, self._draw, self._median = case, draw, case.median(kind)
        self._lengths = case.lengths(draw)
        self._count, self._last, self._slept = 0, 0.0, 0.0

    def on_event(self, event: Event) -> None:
        if isinstance(event, Interval):
            self.add(event.trial.index)

    def add(self, number: int) -> None:
        """Count an interval of the trial of this number."""
        self._count, self._last = self._count + 1, time.time()
        self._slept += self._lengths[number] * self._median

    def row(self, way: str, start: float) -> Row:
        wall = self._last - start
        return {
            "way": way,
            "slots": self._case.slots,
            "trials": self._case.trials,
            "draw": self._draw,
            "median interval s": self._median,
            "intervals": self._count,
            "wall s": wall,
            "utilisation": self._slept / (self._case.slots * wall),
        }


def _stock(kind: Kind, case: Case, draw: int, folder: Path) -> Row:
    """Ray's own `ASHAScheduler` on the same configs, or its `OptunaSearch`."""
    ends, marks = Ends(kind, case, draw), folder / f"stock-{kind}-{draw}"
    marks.mkdir()
    seconds = [case.median(kind) * length for length in case.lengths(draw)]
    run_tuner(
        trainable(str(marks), case.slots, _STEPS[kind]),
        folder / f"run-{marks.name}",
        on_result=lambda config: ends.add(config["drawn"]["number"]),
        max_concurrent_trials=case.slots,
        **(_stock_asha if kind == "asha" else _stock_optuna)(seconds, draw),
    )
    return ends.row(f"ray, {kind}", began(marks))


def run_tuner(
    objective: Callable[..., Any],
    folder: Path,
    *,
    on_result: Callable[[Any], None],
    space: Any = None,
    **options: Any,
) -> None:
    """Run stock Ray Tune with actors that are used again, without what it prints.

    `on_result` is called with the config of a trial that has reported; `options` are those of
    `TuneConfig`.
    """
    from ray import tune

    class Listener(tune.Callback):  # type: ignore[misc]
        def on_trial_result(self, *, trial: Any, result: Mapping[str, Any], **_: Any) -> None:
            if "score" in result:
                on_result(trial.config)

    files = {"name": folder.name, "storage_path": str(folder.parent)}
    with contextlib.redirect_stdout(io.StringIO()):
        tune.Tuner(
            objective,
            param_space=space,
            tune_config=tune.TuneConfig(reuse_actors=True, **options),
            run_config=tune.RunConfig(**files, verbose=0, callbacks=[Listener()]),
        ).fit()


def _stock_asha(seconds: Sequence[float], draw: int) -> dict[str, Any]:
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    configs = [
        {"x": sleeping.place(number, draw), "number": number, "seconds": length}
        for number, length in enumerate(seconds)
    ]
    scheduler = ASHAScheduler(
        metric="score", mode="max", max_t=_STEPS["asha"], grace_period=1, reduction_factor=4
    )
    return {"space": {"drawn": tune.grid_search(configs)}, "scheduler": scheduler}


def _stock_optuna(seconds: Sequence[float], draw: int) -> dict[str, Any]:
    """Options of `OptunaSearch`, which is stock but for the numbers of its trials."""
    from optuna.distributions import FloatDistribution
    from ray.tune.search.optuna import OptunaSearch

    numbers = iter(enumerate(seconds))

    class Numbered(OptunaSearch):  # type: ignore[misc]
        def suggest(self, trial_id: str) -> Any:
            number, length = next(numbers)
            drawn = {"x": super().suggest(trial_id)["x"], "number": number, "seconds": length}
            return {"drawn": drawn}

    searcher = Numbered({"x": FloatDistribution(0.0, 1.0)}, metric="score", mode="max", seed=draw)
    return {"search_alg": searcher, "num_samples": len(seconds)}
