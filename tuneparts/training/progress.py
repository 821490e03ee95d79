"""Runs a learner to its end where no search does, with a bar on a terminal or in a notebook."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tuneparts.core.errors import CheckpointError
from tuneparts.training import checkpoint
from tuneparts.training.learner import Learner

Report = Callable[[Mapping[str, float]], None]


def run_through(
    learner: Learner,
    *,
    what: str,
    steps: int,
    report: Report | None = None,
    console: Console | None = None,
    partial: Path | None = None,
    key: str = "",
) -> list[Mapping[str, float]]:
    """Advance a learner until it has finished, and return what each interval reported.

    A bar with `what`, or `report`, says how far it is. After each interval but the last the state
    is kept in the file `partial`, from which a run of the same `key` goes on.
    """
    rows: list[Mapping[str, float]] = []
    state: dict[str, Any] = {}
    with suppress(CheckpointError):  # none, or torn by a crash of the machine
        state = {} if partial is None else checkpoint.load(partial)
    if state.get("key") == key:
        learner.load_state_dict(state["learner"])
        rows += state["rows"]
    with _bar(console or Console(stderr=True), what, steps, is_wanted=report is None) as move:
        move(learner.steps, "")
        while not learner.finished:
            rows.append(learner.advance())
            if report is not None:
                report(rows[-1])
            if partial is not None and not learner.finished:
                kept = {"key": key, "learner": learner.state_dict(), "rows": rows}
                checkpoint.save(partial, kept)
            loss = rows[-1].get("train/loss")
            move(learner.steps, "" if loss is None else f"loss {loss:.3f}")
    return rows


@contextmanager
def _bar(
    console: Console, what: str, steps: int, *, is_wanted: bool
) -> Iterator[Callable[[int, str], None]]:
    """A bar that is gone at the end, moved to so many steps with words behind it."""
    if is_wanted and console.is_jupyter:  # rich and tqdm need ipywidgets, which is often missing
        from IPython.display import HTML, display

        place = display(HTML(""), display_id=True)

        def show(done: int, words: str) -> None:
            bar = f'<progress max="{steps}" value="{done}"></progress>'
            text = f"{done:,} of {steps:,} steps {words}"
            if place is not None:
                place.update(HTML(f"{escape(what)} {bar} {escape(text)}"))

        yield show
        if place is not None:
            place.update(HTML(""))
        return
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[loss]}")
    is_hidden = not (is_wanted and console.is_terminal)
    with Progress(
        *columns, TimeRemainingColumn(), console=console, transient=True, disable=is_hidden
    ) as bar:
        shown = bar.add_task(what, total=steps, loss="")
        yield lambda done, words: bar.update(shown, completed=done, loss=words)
