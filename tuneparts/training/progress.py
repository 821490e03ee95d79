"""Runs a learner to its end where no search does, with a bar for who waits for it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tuneparts.training.learner import Learner

Report = Callable[[Mapping[str, float]], None]
_Move: TypeAlias = Callable[[int, str], None]
"""Moves a bar: passes so far, and what stands behind it."""


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
    rows: list[Mapping[str, float]] = []
    with _bar(console or Console(stderr=True), what, passes, is_wanted=report is None) as move:
        move(learner.passes, "")
        while not learner.finished:
            rows.append(learner.advance())
            if report is not None:
                report(rows[-1])
            loss = rows[-1].get("train/loss")
            move(learner.passes, "" if loss is None else f"loss {loss:.3f}")
    return rows


@contextmanager
def _bar(console: Console, what: str, passes: int, *, is_wanted: bool) -> Iterator[_Move]:
    """A bar on a terminal or in a notebook; nothing where nobody looks."""
    if is_wanted and console.is_jupyter:
        with _notebook_bar(what, passes) as move:
            yield move
        return
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}")
    is_seen = is_wanted and console.is_terminal
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=not is_seen
    ) as bar:
        shown = bar.add_task(what, total=passes, loss="")

        def move(done: int, words: str) -> None:
            bar.update(shown, completed=done, loss=words)

        yield move


@contextmanager
def _notebook_bar(what: str, passes: int) -> Iterator[_Move]:
    """A bar of plain HTML: rich and tqdm draw theirs with ipywidgets, which is often missing."""
    from IPython.display import HTML, display

    place = display(HTML(""), display_id=True)

    def move(done: int, words: str) -> None:
        if place is not None:
            text = f"{done:,} of {passes:,} passes {words}"
            label = f'<progress max="{passes}" value="{done}"></progress>'
            place.update(HTML(f"{escape(what)} {label} {escape(text)}"))

    yield move
    if place is not None:
        place.update(HTML(""))
