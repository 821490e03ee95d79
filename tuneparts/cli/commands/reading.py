"""The verbs that read runs: report, compare, ranks, export, verify, register."""

from pathlib import Path
from typing import Annotated

import typer

from tuneparts.cli.options import CsvOption, JsonOption, OpenOption, RunArgument, words

app = typer.Typer()


@app.command()
def report(
    run: RunArgument = None,
    open_page: OpenOption = False,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Print a run's answer and table, and write its Markdown, CSV and HTML; by default the newest.

    With `--json` or `--csv` it prints the table and writes nothing.
    """
    from tuneparts.cli import report as verb
    from tuneparts.cli.output import Form

    verb.report(run, open_page=open_page, form=Form.of(as_json=as_json, as_csv=as_csv))


@app.command(epilog=words("arm", "replicate"))
def compare(
    run: RunArgument = None,
    pairs: Annotated[
        str | None,
        typer.Option(help="Pairs of arms, as in partitioned:random,validation:random."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Compare this arm with all others; by default the best by validation."),
    ] = None,
    metric: Annotated[str, typer.Option(help="What is compared.")] = "test/accuracy",
    within: Annotated[
        float | None,
        typer.Option(help="Margin within which two arms count as equivalent, as in 0.005."),
    ] = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Say which arms are better, worse, equivalent, or cannot be told apart."""
    from tuneparts.cli import report as verb
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    verb.compare(run, pairs=pairs, against=against, metric=metric, within=within, form=form)


@app.command(epilog=words("arm", "scale"))
def ranks(
    names: Annotated[
        list[str],
        typer.Argument(help="Runs of searches that share arms, as of `report`.", metavar="RUN..."),
    ],
    metric: Annotated[str, typer.Option(help="What is ranked.")] = "test/accuracy",
    mix_scales: Annotated[
        bool, typer.Option("--mix-scales", help="Rank runs of several scales together.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw it over the runs into this .html or .svg file.", metavar="FILE"),
    ] = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Rank arms over several runs: which one is good on every task?"""
    from tuneparts.cli import report as verb
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    verb.ranks(names, metric=metric, mix_scales=mix_scales, plot=plot, form=form)


@app.command(epilog=words("arm", "trial"))
def export(
    run: RunArgument = None,
    to: Annotated[str, typer.Option(help="optuna, csv, parquet or table.")] = "optuna",
    out: Annotated[
        Path | None,
        typer.Option(help="File, or folder for csv and parquet; in the run's when not given."),
    ] = None,
) -> None:
    """Write a run for other programs; by default the newest.

    `optuna` is a storage with a study per arm, which optuna-dashboard and Optuna's figures open
    (SQLite for a file ending in .db, else Optuna's journal). `csv` and `parquet` are trials and
    steps. `table` is the learning curves of the finished trials, to try algorithms on.
    """
    from tuneparts.cli import export as verb

    verb.export(run, to=to, out=out)


@app.command(epilog=words("trial"))
def verify(
    run: RunArgument = None,
    trials: Annotated[int, typer.Option(min=1, help="How many trials, chosen at random.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the choice.")] = 0,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Train trials of a run again and compare every number they reported; by default the newest.

    Exits with 1 if a number differs. On a CPU of the same kind, with the same versions, none
    should; a GPU promises that only where its algorithms are deterministic. Seconds are excepted.
    """
    from tuneparts.cli import verify as verb
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    verb.verify(run, trials=trials, seed=seed, form=form)


@app.command(epilog=words("arm"))
def register(
    run: RunArgument = None,
    arm: Annotated[str | None, typer.Option(help="Not the best arm but this one.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Name in the registry; the search's own by default.")
    ] = None,
) -> None:
    """Register the net of a run's best arm as an MLflow model."""
    from tuneparts.cli import register as verb

    verb.register(run, arm=arm, as_name=name)
