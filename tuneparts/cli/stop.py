"""`tuneparts stop`: end a run from another terminal."""

import time

from tuneparts import executors, provenance, settings
from tuneparts.cli.output import terminal
from tuneparts.errors import BusyError
from tuneparts.journal import Journal
from tuneparts.redaction import redact
from tuneparts.search import runs, stopping

PATIENCE = 30.0
"""Seconds that a driver may take to answer."""
NO_ANSWER = 1
"""Exit code when it did not."""


def stop(name: str) -> None:
    """Ask the driver of a run to stop it, or do it in its place where none is running."""
    run = runs.named(settings.current().results_dir, name)
    message = f"asked for by {redact(provenance.user()) or 'somebody'}"
    console = terminal()
    try:
        with executors.lock(run.folder):
            is_news = _stop_here(run, message)
        said = "is stopped" if is_news else "has nothing left to stop"
        said += f"; no driver was running it. Its report: tuneparts resume {run.name}"
        console.print(f"{run.name} {said}", soft_wrap=True)
        return
    except BusyError:
        file = stopping.request(run.folder, message)
    with console.status("asking the driver"):
        end = time.monotonic() + PATIENCE
        while file.exists() and time.monotonic() < end:
            time.sleep(0.1)
    if file.exists():
        console.print(f"asked for, but the driver has not answered for {PATIENCE:g} s", style="red")
        raise SystemExit(NO_ANSWER)
    console.print(f"{run.name} is stopped", highlight=False, soft_wrap=True)


def _stop_here(run: runs.Run, message: str) -> bool:
    from tuneparts.search.plan import Plan

    journal = Journal(run.folder / "journal.jsonl")
    try:
        with run.code.importable():
            plan = Plan(run.search, journal)
            before = len(journal.events)
            plan.stop(message)
            return len(journal.events) > before
    finally:
        journal.close()
