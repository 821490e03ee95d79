"""`tuneparts verify`: does a run give the same numbers when its trials are trained again?"""

from tuneparts import settings
from tuneparts.api import verifying
from tuneparts.cli.output import Form, terminal, write
from tuneparts.reports.rendering import Table, show
from tuneparts.search import runs

DIFFERENT = 1
"""Exit code when a number differs."""
_MOST = 20
"""Differences that are listed."""


def verify(name: str | None, *, trials: int, seed: int, form: Form = Form.TABLE) -> None:
    """Train trials again, and print what differs; exit with 1 if anything does."""
    run = runs.named(settings.current().results_dir, name, begun=True)
    console = terminal(form)
    found: list[verifying.Difference] = []
    failed: list[str] = []
    count = checked = 0
    with console.status(f"training {trials} trials of {run.name} again"):
        for one in verifying.verify(run, num_trials=trials, seed=seed):
            checked += 1
            count += one.num_compared
            found += one.differences
            failed += [f"{one.trial}: {one.failure}"] if one.failure else []
            console.print(f"{one.trial}  {_said(one)}", highlight=False, soft_wrap=True)
    for line in failed:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if form is not Form.TABLE:
        facts = {"run": run.name, "trials": checked, "numbers": count, "failed": failed}
        write(form, "differences", [vars(one) for one in found], **facts)
    if not found and not failed:
        console.print(f"{count:,} numbers of {checked} trials are the same", highlight=False)
        return
    if found and form is Form.TABLE:
        rows = [
            [one.trial, one.step, one.metric, repr(one.reported), repr(one.found)]
            for one in found[:_MOST]
        ]
        headers = ["trial", "passes", "metric", "reported", "now"]
        more = len(found) - len(rows)
        notes = [f"{more} more differ."] if more else []
        numbers = ["passes", "reported", "now"]
        show(console, Table.of_rows(headers, rows, numbers=numbers, notes=notes))
    raise SystemExit(DIFFERENT)


def _said(one: verifying.Verified) -> str:
    if one.failure:
        return "failed"
    return (
        f"{len(one.differences):,} of {one.num_compared:,} numbers differ"
        if (one.differences)
        else f"{one.num_compared:,} numbers are the same"
    )
