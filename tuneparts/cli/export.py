"""`tuneparts export`: a run in the files of other programs."""

from pathlib import Path

from tuneparts.cli import report
from tuneparts.cli.output import terminal


def export(name: str | None, *, to: str, out: Path | None) -> None:
    """Write the files, and say where they are and what opens them."""
    console = terminal()
    with console.status("exporting the run"):
        written = report.load(name).export(to, out)
    for path in map(report.short, written):
        console.print(str(path), highlight=False, soft_wrap=True)
    if to == "results":
        folder = written[0].parent
        console.print(f"read it: tuneparts report {folder}", highlight=False, soft_wrap=True)
    if to == "optuna":
        path = report.short(written[0])
        storage = f"sqlite:///{path}" if path.suffix == ".db" else str(path)
        console.print(f"open it: optuna-dashboard {storage}", highlight=False, soft_wrap=True)
