"""`tuneparts report | ui`: reading a run back from the store."""

import json
import os
import webbrowser
from pathlib import Path
from typing import Any

from rich.console import Console

from tuneparts import settings
from tuneparts.search import runs


def card(run: runs.Run, search: Any) -> Any:
    """What the parent run in MLflow shows."""
    from tuneparts.tracking.tracker import SearchCard

    facts = run.card()
    return SearchCard(
        name=search.name,
        scale=str(search.scale),
        digest=facts["digest"],
        commit=facts["commit"],
        resolved=json.dumps(facts["search"], indent=2),
        versions=facts["versions"],
    )


def report(name: str | None, *, open_page: bool) -> None:
    """Print the table of a run and write its files."""
    run = runs.named(settings.current().results_dir, name)
    console = Console()
    paths = write_report(run, console)
    for path in paths.values():
        console.print(str(path), highlight=False)
    if open_page:
        webbrowser.open(paths["report.html"].as_uri())


def write_report(run: runs.Run, console: Console) -> dict[str, Path]:
    """Read the run from the store, print its table and write tables, figures and the page."""
    from tuneparts.reports import tables
    from tuneparts.reports.answer import answer
    from tuneparts.reports.evidence import Evidence
    from tuneparts.reports.write import write
    from tuneparts.search import runner
    from tuneparts.search.exhibits import Exhibits
    from tuneparts.search.storage import Folder
    from tuneparts.tracking import frames, runmap

    uri = settings.current().tracking_uri
    known = runmap.load(run.folder)
    parent = known.parent if known is not None else None
    outline = outline_of(run, parent or "")
    with console.status("writing the report"):
        trials = frames.trials(uri, outline.parent_run_id)
        steps = frames.steps(uri, outline.parent_run_id)
        storage = run.card()["storage"] or runner.default_storage(run.folder)
        left = Exhibits(Folder(storage))
        paths = write(outline, trials, steps, run.folder / "report", find=left.find)
    evidence = Evidence(outline, trials, steps)
    for table in tables.to_rich(tables.build(evidence.summary, outline), width=console.width):
        console.print(table)
    console.print(answer(evidence), highlight=False)
    return paths


def outline_of(run: runs.Run, parent_run_id: str) -> Any:
    """The run's search as a report tells it."""
    from tuneparts.reports.outline import ArmOutline, Outline

    facts, search = run.card(), run.search()
    return Outline(
        name=search.name,
        question=search.question,
        notes=search.notes,
        scale=str(search.scale),
        metric=search.metric,
        figures=search.figures,
        digest=facts["digest"],
        commit=facts["commit"],
        command=facts["command"],
        versions=facts["versions"],
        parent_run_id=parent_run_id,
        arms=tuple(
            ArmOutline(
                name=arm.name,
                method=arm.config.model_dump()["method"],
                trials_per_seed=arm.trials_per_seed,
                seeds=search.seeds_of(arm),
                follows=arm.follows,
                passes=arm.config.passes,
                budget_note=arm.budget_note,
            )
            for arm in search.arms
        ),
    )


def ui(port: int) -> None:
    """Serve MLflow's UI on the store, or say where the server is."""
    from tuneparts.tracking import store

    command = store.ui_command(settings.current().tracking_uri, port)
    if isinstance(command, str):
        print(f"The store is a server; open {command}")
        return
    # Without the query MLflow opens its view for language models.
    address = f"http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning"
    print(f"MLflow UI on {address} (Ctrl-C ends it)", flush=True)
    os.execv(command[0], command)
