"""`tuneparts report`: reading a run back from the store."""

import dataclasses
import hashlib
import json
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from tuneparts import settings
from tuneparts.search import runs

LONGEST_NOTE = 7000
"""Characters of an answer in a description; MLflow keeps 8,000 of a tag."""


def card(run: runs.Run, search: Any) -> Any:
    """What the parent run in MLflow shows."""
    from tuneparts.reports.figures.style import arm_styles
    from tuneparts.tracking.card import DataFacts
    from tuneparts.tracking.tracker import SearchCard

    facts, metadata = run.card(), metadata_of(run, "")
    data = search.data.model_dump_json()
    return SearchCard(
        name=search.name,
        scale=str(search.scale),
        digest=facts["digest"],
        commit=facts["commit"],
        resolved=json.dumps(facts["search"], indent=2),
        versions=facts["versions"],
        question=search.question,
        metadata=metadata.to_json(),
        colours={arm: style.colour for arm, style in arm_styles(metadata).items()},
        data=DataFacts(
            name=f"rotated_{search.data.name}" if search.data.rotated else search.data.name,
            digest=hashlib.sha256(data.encode()).hexdigest()[:12],
            config=data,
        ),
    )


def report(name: str | None, *, open_page: bool) -> None:
    """Print the table of a run and write its files."""
    run = runs.named(settings.current().results_dir, name)
    console = Console()
    paths = write_report(run, gather(run, console), console)
    for path in paths.values():
        console.print(str(path), highlight=False)
    if open_page:
        webbrowser.open(paths["report.html"].as_uri())


def gather(run: runs.Run, console: Console | None = None) -> Any:
    """Everything that a report of the run is made from (`reports.run_data.RunData`)."""
    from tuneparts.reports.run_data import RunData
    from tuneparts.search.artifacts import ArtifactStore
    from tuneparts.search.storage import Folder
    from tuneparts.tracking import frames, record

    uri = settings.current().tracking_uri
    known = record.load(run.folder)
    metadata = metadata_of(run, (known.parent if known is not None else None) or "")
    with (console or Console(quiet=True)).status("reading the run"):
        run_data = RunData(
            metadata,
            frames.trials(uri, metadata.parent_run_id),
            frames.steps(uri, metadata.parent_run_id),
            find=ArtifactStore(Folder(run.storage())).find,
        )
        if "samples" not in metadata.figures:
            return run_data
        from tuneparts.reports import sample_grid

        shown, note = sample_grid.of(run.search(), run_data.selected)
        return dataclasses.replace(run_data, sample_grids=shown, sample_grids_note=note)


def ranks(names: Sequence[str], *, metric: str, plot: Path | None) -> None:
    """Print the arms that several runs share, by mean rank over the runs."""
    from tuneparts.cli import plots
    from tuneparts.reports import ranks as over_tasks
    from tuneparts.reports import rendering
    from tuneparts.reports.figures.tasks import tasks

    if plot is not None:
        plots.check(plot)
    root = settings.current().results_dir
    found = list(dict.fromkeys(runs.named(root, name) for name in names))
    console = Console()
    with console.status("reading the runs"):
        read = [gather(run) for run in found]
    setting, values = difference({run.name: run.card()["search"]["data"] for run in found})
    labels = [value if setting == "run" else f"{setting} {value}" for value in values]
    table = over_tasks.table(list(zip(labels, read, strict=True)), metric)
    rendering.show(console, table)
    if plot is not None:
        plots.write(plot, tasks(dict(zip(values, read, strict=True)), setting, metric))


def difference(data: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[Any]]:
    """The one field of the data in which runs of a search differ, with its values.

    Where there is no such field, `run` and the runs' names.

    Args:
        data: the data config of each run, by the run's name.
    """
    first, *others = data.values()
    fields = [key for key in first if any(other.get(key) != first[key] for other in others)]
    searches = {name.partition("/")[0] for name in data}
    if len(fields) == len(searches) == 1:
        values = [config.get(fields[0]) for config in data.values()]
        if len(set(map(str, values))) == len(values):
            return fields[0], ["all" if value is None else value for value in values]
    return "run", list(data)


def write_report(run: runs.Run, run_data: Any, console: Console) -> dict[str, Path]:
    """Print the table and the answer, and write tables, figures and the page."""
    from tuneparts.reports import rendering, static_export
    from tuneparts.reports.write import write

    folder = run.folder / "report"
    with console.status("writing the report"):
        paths = write(run_data, folder)
        paths |= static_export.write(folder)
    rendering.show(console, *run_data.tables)
    console.print(run_data.answer, highlight=False)
    return paths


def description(run_data: Any) -> str:
    """The answer and the tables in Markdown, as long as MLflow takes it."""
    from tuneparts.reports import rendering

    text: str = run_data.answer
    for table in run_data.tables:
        longer = f"{text}\n\n{rendering.to_markdown([table])}"
        if len(longer) > LONGEST_NOTE:
            return text
        text = longer
    return text


def metadata_of(run: runs.Run, parent_run_id: str) -> Any:
    """The run's search as a report tells it."""
    from tuneparts.reports.metadata import ArmMetadata, ReportMetadata

    facts, search = run.card(), run.search()
    return ReportMetadata(
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
            ArmMetadata(
                name=arm.name,
                method=arm.config.model_dump()["method"],
                trials_per_seed=arm.trials_per_seed,
                seeds=search.seeds_of(arm),
                follows=arm.follows,
                is_adaptive=arm.algorithm.kind not in {"fixed", "grid", "random"},
                passes=arm.config.passes,
                budget_note=arm.budget_note,
            )
            for arm in search.arms
        ),
    )
