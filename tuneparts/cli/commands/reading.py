"""The verbs that read runs: report, compare, ranks, export, verify, register."""

from pathlib import Path
from typing import Annotated

import typer

from tuneparts.cli.options import (
    CsvOption,
    JsonOption,
    OpenOption,
    ReadArgument,
    RunArgument,
    words,
)

app = typer.Typer()


@app.command()
def report(
    run: ReadArgument = None,
    open_page: OpenOption = False,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Print a run's answer and table, and write its Markdown, CSV and HTML; by default the newest.

    With `--json` or `--csv` it prints the table and writes nothing.
    """
    from tuneparts.cli import report as verb
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    verb.report(run, open_page=open_page, form=form)


@app.command(epilog=words("arm", "replicate"))
def compare(
    run: ReadArgument = None,
    pairs: Annotated[
        str | None,
        typer.Option(help="Pairs of arms, as in partitioned:random,validation:random."),
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
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Say which arms are better, worse, equivalent, or cannot be told apart."""
    from tuneparts.cli import report as verb
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    verb.compare(run, pairs=pairs, against=against, metric=metric, within=within, at=at, form=form)


@app.command(epilog=words("arm", "scale"))
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
        Path | None,
        typer.Option(help="Write a page with figures into this folder.", metavar="DIR"),
    ] = None,
    mix_scales: Annotated[
        bool, typer.Option("--mix-scales", help="Take runs of different scales together.")
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw it over the runs into this .html or .svg file.", metavar="FILE"),
    ] = None,
    as_json: JsonOption = False,
    as_csv: CsvOption = False,
) -> None:
    """Compare arms over several runs as one benchmark: which one is good on every task?

    Scores are put between the references of each task that has two, and summarised by their
    interquartile mean with an interval over tasks and replicates; the probability of improvement
    over one arm is of all tasks. `--out` adds profiles, score over budget, and a
    critical-difference diagram where there are enough tasks.
    """
    from tuneparts.cli import report as verb
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    verb.ranks(
        names,
        metric=metric,
        against=against,
        out=out,
        mix_scales=mix_scales,
        plot=plot,
        form=form,
    )


@app.command(epilog=words("arm", "trial"))
def export(
    run: RunArgument = None,
    to: Annotated[str, typer.Option(help="optuna, csv, parquet, table or results.")] = "optuna",
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
    steps. `table` is the learning curves of the finished trials, to try algorithms on. `results` is
    a folder of kilobytes to publish: `tuneparts report DIR` and `tuneparts compare DIR` make
    tables, figures and verdicts from it alone.
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
