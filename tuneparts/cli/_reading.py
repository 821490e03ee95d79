"""The verbs that read runs: report, compare, ranks, export, verify, register."""

import json
import webbrowser
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

import tuneparts
from tuneparts.cli import _options, _output
from tuneparts.cli._output import Form, terminal
from tuneparts.core import atomic, settings
from tuneparts.core.errors import ConfigError
from tuneparts.core.redaction import redact
from tuneparts.results import rendering
from tuneparts.search import runs
from tuneparts.tracking import store

app = typer.Typer()
_MOST = 20
"""Differences that are listed."""


@app.command()
def report(
    run: _options.Read = None,
    open_page: _options.Open = False,
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
) -> None:
    """Print a run's answer and table, and write its Markdown, CSV and HTML; by default the newest.

    With `--json` or `--csv` it prints the table and writes nothing.
    """
    form = Form.of(as_json=as_json, as_csv=as_csv)
    console = terminal(form)
    with console.status("reading the run"):
        results = load(run)
    if form is not Form.TABLE:
        write(results, form)
        return
    paths = show(results, console)
    if open_page:
        webbrowser.open(paths["report.html"].absolute().as_uri())


def load(name: str | None) -> "tuneparts.Results":
    """Refuse a name that is not there, and only then import pandas, which takes half a second."""
    if name is None or not Path(name).is_dir():
        runs.named(settings.current().results_dir, name, begun=True)
    return tuneparts.load(name)


def show(results: "tuneparts.Results", console: Console) -> dict[str, Path]:
    """Print the answer and the tables of a run, write its report, and say where it lies."""
    console.print(results.answer)
    rendering.show(console, *results.tables)
    with console.status("writing the report"):
        paths = results.write_report()
    said = f"report      {_short(paths['report.html'])} (with {len(paths) - 1} tables and figures "
    console.print(f"{said}next to it)", soft_wrap=True)
    return paths


def write(results: "tuneparts.Results", form: Form) -> None:
    """Print what a run found for a program: a row per arm, with means and standard errors."""
    rows: list[dict[Any, Any]] = results.table.to_dict("records")
    facts = {"question": results.metadata.question, "answer": results.answer}
    _output.write(form, "arms", rows, run=results.name, **facts)


def _short(path: Path) -> Path:
    """A path from here on, if it leads there; to be copied from one line."""
    here = Path.cwd()
    return path.absolute().relative_to(here) if path.absolute().is_relative_to(here) else path


@app.command(epilog=_options.words("arm", "seed"))
def compare(
    run: _options.Read = None,
    pairs: Annotated[
        str | None, typer.Option(help="Pairs of arms, as in partitioned:random,validation:random.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare this arm with all others. By default it is the search's own contrast, or "
            "the best arm by validation."
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="What is compared.")] = "test/accuracy",
    within: Annotated[
        float | None,
        typer.Option(help="Margin within which two arms count as equivalent, as in 0.005."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            help="Compare trials as they stood at a cost, as in updates=1200 or steps=2000, "
            "instead of at their end.",
            metavar="COST=COUNT",
        ),
    ] = None,
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
) -> None:
    """Say which arms are better, worse or equivalent, or that the data is inconclusive."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    # A pair that is asked for twice is one comparison.
    asked = None if pairs is None else list(dict.fromkeys(map(parse_pair, pairs.split(","))))
    results = load(run)
    from tuneparts.results import compare as comparing
    from tuneparts.results.run_data import cost_note
    from tuneparts.results.statistics import bounds

    found = results.comparisons_of(asked, against=against, metric=metric, within=within, at=at)
    margin = results.metadata.within if within is None else within
    if form is not Form.TABLE:
        rows = []
        for one in found:
            rows.append({**vars(one), **bounds(one.interval)})
            del rows[-1]["interval"], rows[-1]["decision"], rows[-1]["metric"]
            if one.decision is not None:  # seeds were added until it was decided
                rows[-1] |= bounds(one.decision.interval, "always_valid_")
                rows[-1]["always_valid_verdict"] = one.decision.verdict or "inconclusive"
        facts = {"run": results.name, "metric": metric, "within": margin, "at": at}
        _output.write(form, "comparisons", rows, **facts)
        return
    table = comparing.table(found, f"{results.metadata.name}: comparisons", metric, margin)
    if at is not None:
        remark = cost_note(results.at(at, needs=metric), found, at)
        table = replace(table, notes=(*table.notes, remark))
    rendering.show(terminal(), table)


def parse_pair(text: str) -> tuple[str, str]:
    """Read two arms from `a:b`."""
    one, _, other = text.partition(":")
    if not (one and other):
        raise ConfigError(f"`{text}`: no pair of arms. Write `a:b`.")
    return one.strip(), other.strip()


@app.command(epilog=_options.words("arm", "scale"))
def ranks(
    names: Annotated[
        list[str],
        typer.Argument(
            help="Runs of searches that share arms, or folders of released results.",
            metavar="RUN...",
        ),
    ],
    metric: Annotated[str, typer.Option(help="What is compared.")] = "test/accuracy",
    against: Annotated[
        str | None,
        typer.Option(
            help="How probably others are better than this arm; by default the second of the two "
            "that all the searches compare.",
            metavar="ARM",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the table as a page into this folder.", metavar="DIR")
    ] = None,
    mix_scales: Annotated[
        bool, typer.Option("--mix-scales", help="Take runs of different scales together.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw it over the runs into this .html or .svg file.", metavar="FILE"),
    ] = None,
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
) -> None:
    """Compare arms over several runs as one benchmark: which one is good on every task?

    Scores are put between the references of each task that has two, and summarised by their
    interquartile mean with an interval over tasks and seeds; the probability of improvement
    over one arm is of all tasks.
    """
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from tuneparts.results import page
    from tuneparts.results import ranks as over_tasks
    from tuneparts.results.figures.scores import tasks

    # What could not be drawn or distinguished is refused before the work, not after it.
    kinds = [".html"] if page.browser() is None else [".html", ".svg"]
    if plot is not None and (plot.suffix not in kinds or not plot.parent.is_dir()):
        needs = "in a folder that is there (.svg needs Chromium)."
        raise ConfigError(f"`{plot}`: a plot is a file of the kind {' or '.join(kinds)} {needs}")
    folders = {Path(name).resolve() for name in names if Path(name).is_dir()}
    if len({folder.name for folder in folders}) < len(folders):
        said = ", ".join(sorted(map(str, folders)))
        raise ConfigError(f"{said}: two released folders have the same name. Rename one.")
    found = list({one.name: one for one in map(load, names)}.values())
    searches = {one.name: one.search_facts for one in found}
    scales = {name: str(facts.get("scale")) for name, facts in searches.items()}
    if len(set(scales.values())) > 1 and not mix_scales:
        said = ", ".join(f"{name} is {scale}" for name, scale in scales.items())
        raise ConfigError(f"ranks compare runs of one scale, but {said}. Or say `--mix-scales`.")
    console = terminal(form)
    setting, values = difference({name: facts["data"] or {} for name, facts in searches.items()})
    labels = [value if setting == "run" else f"{setting} {value}" for value in values]
    named = list(zip(map(str, labels), found, strict=True))
    with console.status("reading the runs"):
        together = over_tasks.collect(named, metric, against=against)
        table = over_tasks.table(named, together)
    if form is Form.TABLE:
        rendering.show(console, table)
    else:
        facts = {"runs": list(searches), "metric": metric, "against": together.against}
        facts["normalised"] = list(together.references)
        _output.write(form, "arms", over_tasks.rows(named, together), **facts)
    if out is not None:
        atomic.write_text(out / "benchmark.html", page.benchmark_page(table))
        atomic.write_text(out / "benchmark.md", rendering.to_markdown([table]))
        console.print(f"benchmark   {out / 'benchmark.html'}", soft_wrap=True)
    if plot is not None:
        drawing = tasks(dict(zip(values, found, strict=True)), setting, metric)
        if plot.suffix == ".html":
            text = page.figure_page(drawing)
        else:
            text = page.svgs({"plot": json.loads(drawing.figure.to_json())})["plot"]
        plot.write_text(text, encoding="utf-8", newline="\n")


def difference(data: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[Any]]:
    """The one field of the data in which runs differ, with its values; else the runs' names."""
    first, *others = data.values()
    fields = [key for key in first if any(other.get(key) != first[key] for other in others)]
    searches = {name.partition("/")[0] for name in data}
    if len(fields) == len(searches) == 1:
        values = [config.get(fields[0]) for config in data.values()]
        if len(set(map(str, values))) == len(values):
            return fields[0], ["all" if value is None else value for value in values]
    return "run", list(data)


@app.command(epilog=_options.words("arm"))
def export(
    run: _options.Run = None,
    to: Annotated[str, typer.Option(help="optuna, csv, parquet or results.")] = "optuna",
    out: Annotated[
        Path | None,
        typer.Option(
            help="File, or folder for csv, parquet and results; in the run's when not given."
        ),
    ] = None,
) -> None:
    """Write a run for other programs; by default the newest.

    `optuna` is a storage with a study per arm, which optuna-dashboard and Optuna's figures open
    (SQLite for a file ending in .db, else Optuna's journal). `csv` and `parquet` are trials and
    steps. `results` is a folder of kilobytes to publish: `tuneparts report DIR` and `tuneparts
    compare DIR` make tables, figures and verdicts from it alone.
    """
    console = terminal()
    with console.status("exporting the run"):
        written = load(run).export(to, out)
    lines = [str(_short(path)) for path in written]
    if to == "results":
        lines.append(f"read it: tuneparts report {written[0].parent}")
    if to == "optuna":
        storage = f"sqlite:///{lines[0]}" if written[0].suffix == ".db" else lines[0]
        lines.append(f"open it: optuna-dashboard {storage}")
    console.print("\n".join(lines), soft_wrap=True)


@app.command()
def verify(
    run: _options.Run = None,
    trials: Annotated[int, typer.Option(min=1, help="How many trials, chosen at random.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the choice.")] = 0,
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
) -> None:
    """Train trials of a run again and compare every number they reported; by default the newest.

    Exits with 1 if a number differs. On a CPU of the same kind, with the same versions, none
    should; a GPU promises that only where its algorithms are deterministic. Seconds are excepted.
    """
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from tuneparts.results import verifying

    one_run = runs.named(settings.current().results_dir, run, begun=True)
    console = terminal(form)
    done = []
    with console.status(f"training {trials} trials of {one_run.name} again"):
        for one in verifying.verify(one_run, num_trials=trials, seed=seed):
            done.append(one)
            if one.failure:
                said = "failed"
            elif one.differences:
                said = f"{len(one.differences):,} of {one.num_compared:,} numbers differ"
            else:
                said = f"{one.num_compared:,} numbers are the same"
            console.print(f"{one.trial}  {said}", soft_wrap=True)
    count = sum(one.num_compared for one in done)
    failed = [f"{one.trial}: {one.failure}" for one in done if one.failure]
    found = [difference for one in done for difference in one.differences]
    for line in failed:
        console.print(line, soft_wrap=True)
    if form is not Form.TABLE:
        facts = {"run": one_run.name, "trials": len(done), "numbers": count, "failed": failed}
        rows = [{**vars(one), "trial": str(one.trial)} for one in found]
        _output.write(form, "differences", rows, **facts)
    if not found and not failed:
        console.print(f"{count:,} numbers of {len(done)} trials are the same")
        return
    if found and form is Form.TABLE:
        headers = ["trial", "steps", "metric", "reported", "now"]
        shown = [vars(one).values() for one in found[:_MOST]]
        cells = [[*place, repr(reported), repr(now)] for *place, reported, now in shown]
        notes = [f"{len(found) - _MOST} more differ."] if len(found) > _MOST else []
        table = rendering.Table.of_rows(headers, cells, numbers=headers[3:], notes=notes)
        rendering.show(console, table)
    raise SystemExit(1)


@app.command(epilog=_options.words("arm"))
def register(
    run: _options.Run = None,
    arm: Annotated[str | None, typer.Option(help="Not the best arm but this one.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Name in the registry; the search's own by default.")
    ] = None,
) -> None:
    """Register the net of a run's best arm as an MLflow model."""
    results = load(run)
    from tuneparts.tracking import models

    console = terminal()
    # The first seed is taken: there is nothing to choose between seeds.
    trial = results.selected_trial(results.best_arm() if arm is None else arm)
    uri = store.resolve(settings.current().tracking_uri)
    with console.status(f"registering the net of {trial}"):
        model_uri = results.keep_model(trial)
        version = models.register(uri, model_uri, name or results.search.name)
    text = f"""{trial} is {version}. Load it, also from elsewhere:
import mlflow
mlflow.set_tracking_uri("{redact(uri)}")
net = mlflow.pytorch.load_model("{version}")"""
    console.print(text, soft_wrap=True)
