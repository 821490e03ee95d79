"""`tuneparts sync`: send what MLflow lacks of a run."""

from rich.progress import Progress

from tuneparts import settings
from tuneparts.api.describing import log_reader, tracking_card
from tuneparts.cli.output import terminal
from tuneparts.executors import lock
from tuneparts.redaction import redact
from tuneparts.search import runs

UNFINISHED = 1
"""Exit code when the store did not take everything."""


def sync(name: str | None) -> None:
    """Replay a run's journal into the store, and print what was sent.

    Args:
        name: the run, as `tuneparts report` takes it; the newest when None.
    """
    from tuneparts.tracking import tracker

    run = runs.named(settings.current().results_dir, name)
    uri = settings.current().tracking_uri
    console = terminal()
    journal = run.folder / "journal.jsonl"
    size = journal.stat().st_size if journal.exists() else 0
    card = tracking_card(run)
    with lock(run.folder), Progress(console=console, transient=True) as bar:
        task = bar.add_task(f"sending {run.name}", total=size or None)
        done = tracker.sync(
            run.folder,
            uri,
            card,
            on_progress=lambda sent: bar.update(task, completed=sent),
            read_log=log_reader(run),
        )
    for problem in done.problems:
        console.print(f"tracking: {problem}", style="yellow", highlight=False)
    if not done.is_complete:
        raise SystemExit(UNFINISHED)
    console.print(
        f"sent {done.runs} MLflow runs and {done.points} points of {run.name} to {redact(uri)}"
        if done.runs or done.points
        else f"{redact(uri)} already has every point of {run.name}",
        highlight=False,
    )
