"""An obvious executor for tests of the plan: it trains nothing, and may stop on the way."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tuneparts.search.journal import Journal
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment
from tuneparts.search.spec import Search


def play(
    search: Search,
    path: Path,
    row: Callable[[Segment], Mapping[str, float]],
    *,
    fails: Callable[[Segment], bool] = lambda _: False,
    width: int = 1,
    order: int = 0,
    most: int | None = None,
    stop_after: int | None = None,
) -> Journal:
    """Run what is left of a search, and close its journal.

    Args:
        search: what is run.
        path: of its journal.
        row: the metrics that each segment ends with.
        fails: which segments fail instead.
        width: how many workers there are; they are fast and slow at random.
        order: seed of who is faster.
        most: after so many segments the driver dies.
        stop_after: when so many have ended the whole search is stopped.
    """
    rng, plan, count = random.Random(order), Plan(search, Journal(path)), 0
    running: list[Segment] = []
    while count != most:
        while len(running) < width and (segment := plan.next()) is not None:
            plan.started(segment)
            running.append(segment)
        if not running:
            break
        segment, count = running.pop(rng.randrange(len(running))), count + 1
        if count == stop_after:
            plan.stop("asked for by me")
        if plan.is_over(segment):
            continue
        if fails(segment):
            plan.complete(segment, finished=False, failure="ValueError: odd")
            continue
        plan.report(segment, [{**row(segment), "cost/steps": segment.until}])
        plan.complete(segment, finished=segment.until == search.steps)
    plan.journal.close()
    assert plan.done or most is not None
    return plan.journal


def facts(journal: Journal) -> dict[str, Any]:
    """All that could reach a table, without times."""
    return {
        str(trial): (
            dict(record.config),
            {
                step: {k: v for k, v in row.metrics.items() if k != "cost/seconds"}
                for step, row in sorted(record.rows.items())
            },
            record.end and (record.end.outcome, record.end.message),
        )
        for trial, record in sorted(journal.trials.items())
    }
