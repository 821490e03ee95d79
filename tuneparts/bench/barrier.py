"""Bench of an arm with barriers: successive halving on our pool beside Ray's own scheduler.

Both run the same configs on the same number of logical slots, and intervals only sleep, from 0.3 to
3 seconds. Ours decides a rung when all of it is there, Ray's as trials arrive.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuneparts.bench.null import NullConfig
from tuneparts.bench.null_trials import quiet
from tuneparts.journal import Event, Row, TrialId, TrialStarted


@dataclass(frozen=True)
class Case:
    """How large the bench is."""

    trials: int = 64
    slots: int = 8
    shortest: float = 0.3
    """Seconds of the shortest interval; the longest takes ten times as long."""
    passes: int = 16


QUICK = Case(trials=8, slots=2, shortest=0.02)


@dataclass
class Intervals:
    """When intervals ended, as the driver hears of it, and how long each slept."""

    ended: list[tuple[float, float]] = field(default_factory=list)
    lengths: dict[TrialId, float] = field(default_factory=dict)
    """Of the intervals of each trial."""

    def add(self, seconds: float) -> None:
        self.ended.append((time.time(), seconds))

    def on_event(self, event: Event) -> None:
        """Observe a search of ours."""
        if isinstance(event, TrialStarted):
            self.lengths[event.trial] = event.config["seconds"]
        elif isinstance(event, Row):
            self.add(self.lengths[event.trial])

    def row(self, way: str, slots: int, whole: float) -> dict[str, Any]:
        """Make the row of a table."""
        begin = min(end - seconds for end, seconds in self.ended)
        wall = max(end for end, _ in self.ended) - begin
        slept = sum(seconds for _, seconds in self.ended)
        return {
            "way": way,
            "intervals": len(self.ended),
            "first to last interval s": wall,
            "utilisation": slept / (slots * wall),
            "whole s": whole,
        }


def compare(
    case: Case, folder: Path, *, tell: Callable[[dict[str, Any]], None]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Run both ways on the Ray that this process has joined.

    Args:
        case: how large.
        folder: for what both write.
        tell: is called with each row, as it comes.
    """
    rows = []
    for way, run in (("ours_asha", _ours), ("ray_asha", _stock)):
        intervals, start = Intervals(), time.perf_counter()
        run(case, folder / way, intervals)
        rows.append(intervals.row(way, case.slots, time.perf_counter() - start))
        tell(rows[-1])
    ours, stock = (row["first to last interval s"] for row in rows)
    return rows, {"ray_asha_over_ours": stock / ours}


def search(case: Case) -> Any:
    """One arm of successive halving with rungs at 1, 4 and 16 passes."""
    from tuneparts.data.config import DataConfig
    from tuneparts.search.space import Uniform
    from tuneparts.search.spec import Arm, Asha, Scale, Search

    arm = Arm(
        name="asha",
        config=NullConfig(passes=case.passes),
        algorithm=Asha(num_trials=case.trials, min_passes=1, reduction=4),
        space={
            "x": Uniform(low=0.0, high=1.0),
            "seconds": Uniform(low=case.shortest, high=10 * case.shortest, log=True),
        },
        at_once=case.slots,
    )
    return Search(
        name="barrier",
        question="What do barriers cost?",
        scale=Scale.SMOKE,
        data=DataConfig(name="digits", num_train=10, num_val=10, num_test=10),
        metric="val/accuracy",
        passes=case.passes,
        seeds=(0,),
        arms=(arm,),
    )


def _ours(case: Case, folder: Path, intervals: Intervals) -> None:
    from tuneparts.executors import execute

    execute(search(case), folder=folder, observers=[intervals])


def _stock(case: Case, folder: Path, intervals: Intervals) -> None:
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    from tuneparts.search.algorithms import draw

    class Listener(tune.Callback):  # type: ignore[misc]
        def on_trial_result(self, *, result: dict[str, Any], **_: Any) -> None:
            if "seconds" in result:
                intervals.add(result["seconds"])

    arm = search(case).arm("asha")
    configs = [{**draw(arm, 0, i), "passes": case.passes} for i in range(case.trials)]
    tuner = tune.Tuner(
        _train,
        param_space={"drawn": tune.grid_search(configs)},
        tune_config=tune.TuneConfig(
            scheduler=ASHAScheduler(max_t=case.passes, grace_period=1, reduction_factor=4),
            metric="score",
            mode="max",
            reuse_actors=True,
            max_concurrent_trials=case.slots,
        ),
        run_config=tune.RunConfig(
            name="stock", storage_path=str(folder), verbose=0, callbacks=[Listener()]
        ),
    )
    with quiet():
        tuner.fit()


def _train(config: dict[str, Any]) -> None:
    from ray import tune

    drawn = config["drawn"]
    for number in range(1, drawn["passes"] + 1):
        time.sleep(drawn["seconds"])
        score = (1 - (drawn["x"] - 0.7) ** 2) * number / drawn["passes"]
        tune.report({"score": score, "seconds": drawn["seconds"]})
