"""The verbs that read runs: report, compare, ranks, export, verify, register."""

import json
import webbrowser
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import tuneparts
from tuneparts.cli import options, output
from tuneparts.cli.output import Form, terminal
from tuneparts.core import atomic, settings
from tuneparts.core.errors import ConfigError
from tuneparts.core.redaction import redact
from tuneparts.results import rendering

if TYPE_CHECKING:  # pandas takes half a second, and a wrong name is told before
    from rich.console import Console

    from tuneparts import Results
    from tuneparts.results.compare import Comparison
    from tuneparts.results.verifying import Difference, Verified

app = typer.Typer()
DIFFERENT = 1
"""Exit code when a number differs."""
_MOST = 20
"""Differences that are listed."""


@app.command()
def report(
    run: options.Read = None,
    open_page: options.Open = False,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
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


def load(name: str | None) -> "Results":
    """Find a run or published results first, and import what reads them then."""
    if name is not None and (Path(name) / "trials.csv").is_file():
        return tuneparts.load(name)
    from tuneparts.search import runs

    run = runs.named(settings.current().results_dir, name, begun=True)

    return tuneparts.Results(run)


def show(results: "Results", console: "Console") -> dict[str, Path]:
    """Print the answer and the tables of a run, write its report, and say where it lies."""
    console.print(results.answer, highlight=False, markup=False)
    rendering.show(console, *results.tables)
    with console.status("writing the report"):
        paths = results.write_report()
    page = _short(paths["report.html"])
    said = f"report      {page} (with {len(paths) - 1} tables and figures beside it)"
    console.print(said, highlight=False, markup=False, soft_wrap=True)
    return paths


def write(results: "Results", form: Form) -> None:
    """Print what a run found for a program: a row per arm, with means and standard errors."""
    rows = results.table.to_dict("records")
    question = results.metadata.question
    facts = {"run": results.name, "question": question, "answer": results.answer}
    output.write(form, "arms", [{str(k): v for k, v in row.items()} for row in rows], **facts)


def _short(path: Path) -> Path:
    """A path from here on, if it leads there; to be copied from one line."""
    here = Path.cwd()
    return path.absolute().relative_to(here) if path.absolute().is_relative_to(here) else path


@app.command(epilog=options.words("arm", "replicate"))
def compare(
    run: options.Read = None,
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
            help="Compare trials as they stood at a cost, as in weight_steps=1200 or passes=2000, "
            "instead of at their end.",
            metavar="COST=COUNT",
        ),
    ] = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Say which arms are better, worse, equivalent, or cannot be told apart."""
    form = Form.of(as_json=as_json, as_csv=as_csv)
    asked = None
    if pairs is not None:  # a pair that is asked for twice is one comparison
        asked = list(dict.fromkeys(parse_pair(text) for text in pairs.split(",")))
    results = load(run)
    from tuneparts.results import compare as comparing
    from tuneparts.results.run_data import cost_note

    found = results.compare(asked, against=against, metric=metric, within=within, at=at)
    margin = results.metadata.within if within is None else within
    if form is not Form.TABLE:
        rows = [_flat(one) for one in found]
        facts = {"run": results.name, "metric": metric, "within": margin, "at": at}
        output.write(form, "comparisons", rows, **facts)
        return
    table = comparing.table(found, f"{results.metadata.name}: comparisons", metric, margin)
    if at is not None:
        remark = cost_note(results.at(at, needs=metric), found, at)
        table = replace(table, notes=(*table.notes, remark))
    rendering.show(terminal(), table)


def _flat(found: "Comparison") -> dict[str, Any]:
    """A comparison as one row of numbers and words.

    Where replicates were added until it was decided, it has the interval that holds all the same.
    """
    from tuneparts.results.statistics import bounds

    row = {**vars(found), **bounds(found.interval)}
    del row["interval"], row["decision"]
    if found.decision is not None:
        row |= bounds(found.decision.interval, "always_valid_")
        row["always_valid_verdict"] = found.decision.verdict or "cannot tell"
    return row


def parse_pair(text: str) -> tuple[str, str]:
    """Read two arms from `a:b`.

    Example:
        >>> parse_pair("partitioned:random")
        ('partitioned', 'random')
    """
    one, separator, other = text.partition(":")
    if not (one and separator and other):
        raise ConfigError(f"a pair of arms is written as `a:b`, but got `{text}`.")
    return one.strip(), other.strip()


@app.command(epilog=options.words("arm", "scale"))
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
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Compare arms over several runs as one benchmark: which one is good on every task?

    Scores are put between the references of each task that has two, and summarised by their
    interquartile mean with an interval over tasks and replicates; the probability of improvement
    over one arm is of all tasks.
    """
    form = Form.of(as_json=as_json, as_csv=as_csv)
    if plot is not None:
        _check_plot(plot)
    found = list({one.name: one for one in map(load, _apart(names))}.values())
    searches = {one.name: one.search_facts for one in found}
    if not mix_scales:
        refuse_mixed_scales({name: str(facts.get("scale")) for name, facts in searches.items()})
    from tuneparts.results import page, static_export
    from tuneparts.results import ranks as over_tasks
    from tuneparts.results.figures.scores import tasks

    console = terminal(form)
    with console.status("reading the runs"):
        for one in found:
            _ = one.summary
    setting, values = difference({name: facts["data"] or {} for name, facts in searches.items()})
    labels = [value if setting == "run" else f"{setting} {value}" for value in values]
    named = list(zip(map(str, labels), found, strict=True))
    together = over_tasks.collect(named, metric, against=against)
    table = over_tasks.table(named, together)
    if form is Form.TABLE:
        rendering.show(console, table)
    else:
        facts = {
            "runs": list(searches),
            "metric": metric,
            "normalised": list(together.references),
            "against": together.against,
        }
        output.write(form, "arms", over_tasks.rows(named, together), **facts)
    if out is not None:
        atomic.write_text(out / "benchmark.html", page.benchmark_page(table))
        atomic.write_text(out / "benchmark.md", rendering.to_markdown([table]))
        console.print(f"benchmark   {out / 'benchmark.html'}", highlight=False, soft_wrap=True)
    if plot is not None:
        drawing = tasks(dict(zip(values, found, strict=True)), setting, metric)
        if plot.suffix == ".html":
            text = page.figure_page(drawing)
        else:
            text = static_export.svgs({"plot": json.loads(drawing.figure.to_json())})["plot"]
        plot.write_text(text, encoding="utf-8", newline="\n")


def _check_plot(path: Path) -> None:
    """Refuse what could not be drawn before the work, not after it."""
    from tuneparts.results import static_export

    if path.suffix not in {".html", ".svg"}:
        raise ConfigError(f"a plot is an .html or an .svg file, but got `{path}`.")
    if not path.absolute().parent.is_dir():
        raise ConfigError(f"a plot goes into a folder that is there, but got `{path}`.")
    if path.suffix == ".svg" and static_export.browser() is None:
        raise ConfigError("an .svg file is drawn by Chromium, which is not here; .html needs none.")


def _apart(names: Sequence[str]) -> Sequence[str]:
    """Refuse two released folders of one name, which a table could not tell apart."""
    folders = {Path(name).resolve() for name in names if Path(name).is_dir()}
    if len({folder.name for folder in folders}) < len(folders):
        raise ConfigError(
            "released folders of a benchmark have names of their own, but got "
            f"{', '.join(sorted(map(str, folders)))}. Rename one."
        )
    return names


def refuse_mixed_scales(scales: Mapping[str, str]) -> None:
    """Refuse to compare runs of several scales, by their names, unasked: a smoke run says nothing.

    Raises:
        ConfigError: They are of several scales.
    """
    if len(set(scales.values())) > 1:
        told = ", ".join(f"{name} is {scale}" for name, scale in scales.items())
        raise ConfigError(
            f"ranks compare runs of one scale, but {told}. Name runs of one scale, or say "
            "`--mix-scales`."
        )


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


@app.command(epilog=options.words("arm", "trial"))
def export(
    run: options.Run = None,
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
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)


@app.command(epilog=options.words("trial"))
def verify(
    run: options.Run = None,
    trials: Annotated[int, typer.Option(min=1, help="How many trials, chosen at random.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the choice.")] = 0,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Train trials of a run again and compare every number they reported; by default the newest.

    Exits with 1 if a number differs. On a CPU of the same kind, with the same versions, none
    should; a GPU promises that only where its algorithms are deterministic. Seconds are excepted.
    """
    form = Form.of(as_json=as_json, as_csv=as_csv)
    from tuneparts.results import verifying
    from tuneparts.search import runs

    one_run = runs.named(settings.current().results_dir, run, begun=True)
    console = terminal(form)
    found: list[Difference] = []
    failed: list[str] = []
    count = checked = 0
    with console.status(f"training {trials} trials of {one_run.name} again"):
        for one in verifying.verify(one_run, num_trials=trials, seed=seed):
            checked += 1
            count += one.num_compared
            found += one.differences
            failed += [f"{one.trial}: {one.failure}"] if one.failure else []
            console.print(f"{one.trial}  {_said(one)}", highlight=False, soft_wrap=True)
    for line in failed:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if form is not Form.TABLE:
        facts = {"run": one_run.name, "trials": checked, "numbers": count, "failed": failed}
        output.write(form, "differences", [vars(one) for one in found], **facts)
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
        table = rendering.Table.of_rows(headers, rows, numbers=numbers, notes=notes)
        rendering.show(console, table)
    raise SystemExit(DIFFERENT)


def _said(one: "Verified") -> str:
    if one.failure:
        return "failed"
    if one.differences:
        return f"{len(one.differences):,} of {one.num_compared:,} numbers differ"
    return f"{one.num_compared:,} numbers are the same"


@app.command(epilog=options.words("arm"))
def register(
    run: options.Run = None,
    arm: Annotated[str | None, typer.Option(help="Not the best arm but this one.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Name in the registry; the search's own by default.")
    ] = None,
) -> None:
    """Register the net of a run's best arm as an MLflow model."""
    results = load(run)
    from tuneparts.tracking import models, store

    console = terminal()
    # The first seed is taken: there is nothing to choose between replicates.
    trial = results.selected_trial(results.best_arm() if arm is None else arm)
    uri = store.resolve(settings.current().tracking_uri)
    with console.status(f"registering the net of {trial}"):
        model_uri = results.keep_model(trial)
        version = models.register(uri, model_uri, name or results.search.name)
    console.print(f"{trial} is {version}. Load it, also from elsewhere:", highlight=False)
    for line in (
        "import mlflow",
        f'mlflow.set_tracking_uri("{redact(uri)}")',
        f'net = mlflow.pytorch.load_model("{version}")',
    ):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
