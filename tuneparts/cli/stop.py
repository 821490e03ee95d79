"""`tuneparts stop`: end a run, an arm or a trial from another terminal."""

import time

from tuneparts import executors, provenance, settings
from tuneparts.cli.output import terminal
from tuneparts.errors import BusyError, ConfigError, UnknownNameError
from tuneparts.journal import Journal
from tuneparts.redaction import redact
from tuneparts.search import requests, runs

PATIENCE = 30.0
"""Seconds that a driver may take to answer."""
NO_ANSWER = 1
"""Exit code when it did not."""


def stop(name: str, *, arm: str | None, trial: str | None) -> None:
    """Ask the driver of a run to stop it, or do it in its place where none is running.

    Args:
        name: the run.
        arm: stop this arm only.
        trial: stop this trial only, `ARM/seed0/00000`.
    """
    run = runs.named(settings.current().results_dir, name)
    request = _request(run, arm, trial)
    what = trial or (run.name if arm is None else f"arm {arm} of {run.name}")
    console = terminal()
    try:
        with executors.lock(run.folder):
            is_news = _stop_here(run, request)
        said = "is stopped" if is_news else "has nothing left to stop"
        cure = f" Its report: tuneparts resume {run.name}"
        console.print(f"{what} {said}; no driver was running it.{cure}", soft_wrap=True)
        return
    except BusyError:
        file = requests.ask(run.folder, request)
    with console.status("asking the driver"):
        end = time.monotonic() + PATIENCE
        while file.exists() and time.monotonic() < end:
            time.sleep(0.1)
    if file.exists():
        console.print(f"asked for, but the driver has not answered for {PATIENCE:g} s", style="red")
        raise SystemExit(NO_ANSWER)
    console.print(f"{what} is stopped", highlight=False, soft_wrap=True)


def _request(run: runs.Run, arm: str | None, trial: str | None) -> requests.StopRequest:
    search = run.search
    names = [one.name for one in search.arms]
    if trial is not None:
        found = requests.named_trial(trial)
        if found is None:
            raise ConfigError(f"a trial reads `ARM/seed0/00000`, but got `{trial}`.")
        if arm not in (None, found.arm):
            raise ConfigError(f"{trial} is not a trial of `{arm}`. Leave one of them out.")
        arm = found.arm
    if arm is not None and arm not in names:
        raise UnknownNameError("arm", arm, names)
    if trial is not None and arm is not None and search.arm(arm).algorithm.replaces_failed:
        raise ConfigError(
            f"a member of a population goes on as a copy of another, so {trial} cannot stop alone. "
            f"Use `--arm {arm}`."
        )
    user = redact(provenance.user()) or "somebody"
    return requests.StopRequest(f"asked for by {user}", arm, trial)


def _stop_here(run: runs.Run, request: requests.StopRequest) -> bool:
    from tuneparts.search.plan import Plan

    journal = Journal(run.folder / "journal.jsonl")
    try:
        with run.code.importable():
            plan = Plan(run.search, journal)
            before = len(journal.events)
            plan.stop(request)
            return len(journal.events) > before
    finally:
        journal.close()
