"""Runs a learner to its end where no search does, with a bar for who waits at a terminal."""

from collections.abc import Callable, Mapping

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
    """
    console = console or Console(stderr=True)
    is_seen = report is None and (console.is_terminal or console.is_jupyter)
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}")
    history: list[Mapping[str, float]] = []
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not is_seen
    ) as bar:
        shown = bar.add_task(what, total=passes, completed=learner.passes, loss="")
        while not learner.finished:
            history.append(learner.advance())
            if report is not None:
                report(history[-1])
            loss = history[-1].get("train/loss")
            text = "" if loss is None else f"loss {loss:.3f}"
            bar.update(shown, completed=learner.passes, loss=text)
    return history
