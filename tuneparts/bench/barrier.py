"""Bench of adaptive arms on our pool: ASHA beside Ray's own scheduler, and all algorithms at once.

Both run the same configs on the same number of logical slots, and intervals only sleep, the longest
for ten times the shortest. The clock runs from when all workers are there, as in `timing`. Ours
does not depend on who was faster, Ray's decides as trials arrive.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuneparts.bench import timing
from tuneparts.testing.null import NullConfig
from tuneparts.executors import execute
from tuneparts.journal import Event, Row, TrialId, TrialStarted

CASE = timing.Case(slots=8, trials=64, unit=0.25, draws=3, law="uniform")
"""Intervals of 0.08 to 0.8 seconds."""
QUICK = timing.Case(slots=2, trials=8, unit=0.06, law="uniform")
WAYS: tuple[timing.Way, ...] = (("asha", "exact"), ("halving", "exact"))


def compare(
    case: timing.Case, folder: Path, *, tell: timing.Tell
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Run ASHA both ways, and successive halving ours, on the Ray that this process has joined.

    Args:
        case: how large.
        folder: for what both write.
        tell: is called with each row, as it comes.
    """
    rows = timing.measured(case, folder, WAYS, tell=tell)
    over = {kind: timing.stock_over_ours(rows, "asha", f"ours, {kind}, exact") for kind, _ in WAYS}
    return rows, {
        "ray_asha_over_ours": over["asha"],
        "ray_asha_over_our_halving": over["halving"],
    }


@dataclass
class Intervals:
    """When intervals ended, as the driver hears of it, and how long each slept."""

    ended: list[tuple[float, float]] = field(default_factory=list)
    lengths: dict[TrialId, float] = field(default_factory=dict)
    """Of the intervals of each trial."""

    def on_event(self, event: Event) -> None:
        """Observe a search of ours."""
        if isinstance(event, TrialStarted):
            self.lengths[event.trial] = event.config["seconds"]
        elif isinstance(event, Row):
            self.ended.append((time.time(), self.lengths[event.trial]))

    def row(self, way: str, slots: int, whole: float) -> dict[str, Any]:
        """Make the row of a table."""
        begin = min(end - seconds for end, seconds in self.ended)
        wall = max(end for end, _ in self.ended) - begin
        slept = sum(seconds for _, seconds in self.ended)
        return {
            "way": way,
            "slots": slots,
            "intervals": len(self.ended),
            "first to last interval s": wall,
            "utilisation": slept / (slots * wall),
            "whole s": whole,
        }


def all_algorithms(case: timing.Case, folder: Path) -> dict[str, Any]:
    """Run every kind of algorithm at once on our pool: one row, with its utilisation."""
    from tuneparts.search.algorithms import Asha, Pbt, RandomSearch, Tpe

    few = max(4, case.trials // 4)
    algorithms = {
        "random": RandomSearch(num_trials=few),
        "asha": Asha(num_trials=2 * few, min_passes=1, reduction=4),
        "tpe": Tpe(num_trials=few, batch=4, num_startup=4),
        "pbt": Pbt(population=4, num_rounds=4),
    }
    arms = [_arm(name, one, case) for name, one in algorithms.items()]
    intervals, start = Intervals(), time.perf_counter()
    execute(_search(case, *arms), folder=folder, observers=[intervals])
    return intervals.row("ours_all_algorithms", case.slots, time.perf_counter() - start)


def _arm(name: str, algorithm: Any, case: timing.Case) -> Any:
    from tuneparts.search.space import Uniform
    from tuneparts.search.spec import Arm

    half = 10**0.5
    space = {
        "x": Uniform(low=0.0, high=1.0),
        "seconds": Uniform(low=case.unit / half, high=case.unit * half, log=True),
    }
    return Arm(name=name, config=NullConfig(passes=16), algorithm=algorithm, space=space)


def _search(case: timing.Case, *arms: Any) -> Any:
    from tuneparts.data.config import DataConfig
    from tuneparts.search.spec import Scale, Search

    return Search(
        name="barrier",
        question="What do barriers cost?",
        scale=Scale.SMOKE,
        data=DataConfig(name="digits", num_train=10, num_val=10, num_test=10),
        metric="val/accuracy",
        passes=16,
        seeds=(0,),
        arms=arms,
        at_once=case.slots,
    )
