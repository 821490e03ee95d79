"""Runs a learner to its end where no search does, with a bar for who waits at a terminal."""

from collections.abc import Callable, Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tuneparts.training.learner import Learner

Report = Callable[[Mapping[str, float]], None]


def run_through(
    learner: Learner,
    *,
    what: str,
    passes: int,
    report: Report | None = None,
    console: Console | None = None,
    history: Sequence[Mapping[str, float]] = (),
    keep: Callable[[Learner, Sequence[Mapping[str, float]]], None] | None = None,
) -> list[Mapping[str, float]]:
    """Advance a learner until it has finished, and return what each interval reported.

    A terminal or a notebook shows a bar meanwhile, which is gone at the end. It moves at the end of
    an interval.

    Args:
        learner: at its start, or anywhere before its end.
        what: stands before the bar.
        passes: the learner's budget.
        report: called with the metrics of each interval, instead of a bar.
        console: where the bar is shown; the standard error of this process if None.
        history: what the intervals of a learner that goes on have reported before.
        keep: called with the learner and all reports after each interval but the last.
    """
    console = console or Console(stderr=True)
    is_seen = report is None and (console.is_terminal or console.is_jupyter)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}")
    rows: list[Mapping[str, float]] = list(history)
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not is_seen
    ) as bar:
        shown = bar.add_task(what, total=passes, completed=learner.passes, loss="")
        while not learner.finished:
            rows.append(learner.advance())
            if report is not None:
                report(rows[-1])
            if keep is not None and not learner.finished:
                keep(learner, rows)
            loss = rows[-1].get("train/loss")
            text = "" if loss is None else f"loss {loss:.3f}"
            bar.update(shown, completed=learner.passes, loss=text)
    return rows
