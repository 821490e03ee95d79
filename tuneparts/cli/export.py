"""`tuneparts export`: a run in the files of other programs."""

from pathlib import Path

from rich.console import Console

from tuneparts import api


def export(name: str | None, *, to: str, out: Path | None) -> None:
    """Write the files, and say where they are and what opens them."""
    console = Console()
    with console.status("exporting the run"):
        written = api.load(name).export(to, out)
    for path in written:
        console.print(str(path), highlight=False, soft_wrap=True)
    if to == "results":
        folder = written[0].parent
        console.print(f"read it: tuneparts report {folder}", highlight=False, soft_wrap=True)
    if to == "optuna":
        storage = f"sqlite:///{written[0]}" if written[0].suffix == ".db" else str(written[0])
        console.print(f"open it: optuna-dashboard {storage}", highlight=False, soft_wrap=True)
