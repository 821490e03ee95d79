"""The `tuneparts` command: verbs only, each imports what it needs when it is called."""

import errno
import io
import sys
from pathlib import Path
from typing import Annotated, Optional

import typer

from tuneparts.cli import remote
from tuneparts.cli.options import (
    ArmsOption,
    ResumeOption,
    RetryOption,
    ScaleOption,
    SeedsOption,
    SetOption,
    StorageOption,
    TrialsOption,
    words,
)

app = typer.Typer(
    name="tuneparts",
    help="Search hyperparameters on Ray, compare with methods that learn them in one run, "
    "and read the answer in MLflow.\n\nStart with `tuneparts search rotated_digits`.",
    epilog=words("search"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
)

RunArgument = Annotated[
    Optional[str],  # noqa: UP045 - typer reads it at run time
    typer.Argument(help="SEARCH/TIME-DIGEST, or a search's name for its newest run."),
]
AddressOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Ray cluster HOST:PORT; this machine when not given."),
]
LocalOption = Annotated[
    bool, typer.Option("--local", help="Run trials in processes of this machine, without Ray.")
]
CpusOption = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(help="CPUs that trials may fill; all of them when not given.", metavar="N"),
]
RayOption = Annotated[
    bool, typer.Option("--ray", help="Run trials on a Ray of this machine, also if they are few.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]


@app.command(epilog=words("search", "arm", "trial", "replicate", "scale", "pass"))
def search(
    name: Annotated[str, typer.Argument(help="A file of `tuneparts searches`, or a path.")],
    scale: ScaleOption = "cpu",
    address: AddressOption = None,
    local: LocalOption = False,
    ray: RayOption = False,
    cpus: CpusOption = None,
    trials: TrialsOption = None,
    seeds: SeedsOption = None,
    arms: ArmsOption = None,
    changes: SetOption = None,
    storage: StorageOption = None,
    dry_run: Annotated[
        bool, typer.Option(help="Print the plan and its cost; run nothing.")
    ] = False,
    resume: ResumeOption = False,
) -> None:
    """Run a search and print the table that answers its question."""
    from tuneparts.cli import search as verb

    verb.search(
        name,
        scale=scale,
        place=verb.Place(address, is_local=local, is_ray=ray, cpus=cpus),
        trials=trials,
        seeds=verb.parse_seeds(seeds),
        arms=None if arms is None else arms.split(","),
        changes=changes or [],
        storage=storage,
        dry_run=dry_run,
        resume=resume,
    )


@app.command()
def resume(
    run: RunArgument = None,
    address: AddressOption = None,
    local: LocalOption = False,
    ray: RayOption = False,
    retry_failed: RetryOption = False,
    cpus: CpusOption = None,
    storage: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Trust a run from elsewhere with this storage, which its card names."),
    ] = None,
) -> None:
    """Continue a run that was interrupted; by default the newest."""
    from tuneparts.cli import search as verb

    place = verb.Place(address, is_local=local, is_ray=ray, cpus=cpus)
    verb.resume(run, place=place, retry_failed=retry_failed, storage=storage)


@app.command(epilog=words("arm", "trial", "replicate"))
def extend(
    run: Annotated[
        str, typer.Argument(help="SEARCH/TIME-DIGEST, or a search's name for its newest run.")
    ],
    trials: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Trials of each searching arm in all, or of some: random=128,gp=64."),
    ] = None,
    seeds: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="More replicates of every arm, as in 5,6,7."),
    ] = None,
    arms: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="New arms of the search file, as in gp,tpe, with those they follow."),
    ] = None,
    search: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The search file of the new arms; that of the run when not given."),
    ] = None,
    address: AddressOption = None,
    local: LocalOption = False,
    ray: RayOption = False,
    cpus: CpusOption = None,
    dry_run: Annotated[bool, typer.Option(help="Say what would be new; run nothing.")] = False,
    until_decided: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Add replicates of two arms until a:b is decided.", metavar="A:B"),
    ] = None,
    within: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="With it: margin within which the two count as equivalent."),
    ] = None,
    at_most: Annotated[int, typer.Option(min=3, help="With it: replicates in all.")] = 20,
    metric: Annotated[str, typer.Option(help="With it: what is compared.")] = "test/accuracy",
) -> None:
    """Add trials, seeds and arms to a run, and run only what is new.

    The table is then that of one search of the final size. What would change trials that have run
    is refused. An interrupted extension goes on with `tuneparts resume`. `--until-decided` adds one
    replicate of two arms after the other, and stops by an interval that holds however often one
    looks, or after `--at-most`.
    """
    from tuneparts.cli import extend as verb
    from tuneparts.cli.search import Place

    if until_decided is not None:
        if trials or seeds or arms or search or dry_run:
            from tuneparts.errors import ConfigError

            raise ConfigError(
                "`--until-decided` adds replicates of two arms and nothing else, but got more. "
                "Extend the run twice."
            )
        place = Place(address, is_local=local, is_ray=ray, cpus=cpus)
        verb.until_decided(
            run, until_decided, within=within, at_most=at_most, metric=metric, place=place
        )
        return
    verb.extend(
        run,
        trials=trials,
        seeds=seeds,
        arms=arms,
        search=search,
        place=Place(address, is_local=local, is_ray=ray, cpus=cpus),
        dry_run=dry_run,
    )


@app.command(epilog=words("arm", "trial"))
def stop(
    run: Annotated[
        str, typer.Argument(help="SEARCH/TIME-DIGEST, or a search's name for its newest run.")
    ],
    arm: Annotated[Optional[str], typer.Option(help="Stop this arm only.")] = None,  # noqa: UP045
    trial: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Stop this trial only, as in random/seed0/00003."),
    ] = None,
) -> None:
    """Stop a run, an arm or a trial from another terminal, wherever it runs; for good.

    What has finished counts, what runs ends as stopped, and what had not started is counted as
    such. The run's folder must be seen from here. Ctrl-C, in contrast, interrupts a run, which
    then can be resumed.
    """
    from tuneparts.cli import stop as verb

    verb.stop(run, arm=arm, trial=trial)


@app.command()
def sync(run: RunArgument = None) -> None:
    """Send to MLflow what it lacks of a run; by default the newest.

    A search needs no MLflow to run: what its server missed lies in the run's folder. This replays
    the journal, with the report, the description and the tags, into the store that
    TUNEPARTS_TRACKING_URI names. It is also how a run is copied to another store. What is there
    already stays as it is, so running it twice changes nothing.
    """
    from tuneparts.cli import sync as verb

    verb.sync(run)


@app.command()
def report(
    run: RunArgument = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    variance: Annotated[
        bool, typer.Option("--variance", help="Print the spread of arms by its source instead.")
    ] = False,
) -> None:
    """Print a run's table and write its Markdown, CSV and HTML; by default the newest."""
    from tuneparts.cli import report as verb

    verb.report(run, open_page=open_page, by_source=variance)


@app.command(epilog=words("arm", "replicate"))
def compare(
    run: RunArgument = None,
    pairs: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Pairs of arms, as in partitioned:random,validation:random."),
    ] = None,
    against: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Compare this arm with all others. By default it is the search's own contrast, or "
            "the best arm by validation."
        ),
    ] = None,
    metric: Annotated[str, typer.Option(help="What is compared.")] = "test/accuracy",
    within: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(help="Margin within which two arms count as equivalent, as in 0.005."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say which arms are better, worse, equivalent, or cannot be told apart."""
    from tuneparts.cli import report as verb

    verb.compare(run, pairs=pairs, against=against, metric=metric, within=within, as_json=as_json)


@app.command(epilog=words("arm", "trial"))
def export(
    run: RunArgument = None,
    to: Annotated[str, typer.Option(help="optuna, csv, parquet, table or results.")] = "optuna",
    out: Annotated[
        Optional[Path],  # noqa: UP045
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
) -> None:
    """Train trials of a run again and compare every number they reported; by default the newest.

    Exits with 1 if a number differs. On a CPU of the same kind, with the same versions, none
    should; a GPU promises that only where its algorithms are deterministic. Seconds are excepted.
    """
    from tuneparts.cli import verify as verb

    verb.verify(run, trials=trials, seed=seed)


@app.command(epilog=words("arm"))
def ranks(
    names: Annotated[
        list[str],
        typer.Argument(help="Runs of searches that share arms, as of `report`.", metavar="RUN..."),
    ],
    metric: Annotated[str, typer.Option(help="What is compared.")] = "test/accuracy",
    out: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Write a page with figures into this folder.", metavar="DIR"),
    ] = None,
    mix_scales: Annotated[
        bool, typer.Option("--mix-scales", help="Take runs of different scales together.")
    ] = False,
    plot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Draw it over the runs into this .html or .svg file.", metavar="FILE"),
    ] = None,
) -> None:
    """Compare arms over several runs as one benchmark: which one is good on every task?

    Scores are put between the references of each task where all have two, and summarised by their
    interquartile mean with an interval over tasks and replicates. `--out` adds profiles, score over
    budget, and a critical-difference diagram where there are enough tasks.
    """
    from tuneparts.cli import report as verb

    verb.ranks(names, metric=metric, plot=plot, out=out, mix_scales=mix_scales)


@app.command(epilog=words("hyper", "pass"))
def fit(
    method: Annotated[str, typer.Argument(help="A method of `tuneparts methods`.")],
    data: Annotated[str, typer.Option(help="A set of `tuneparts data`.")] = "digits",
    seed: Annotated[int, typer.Option(help="Seed of every random stream.")] = 0,
    changes: SetOption = None,
) -> None:
    """Train one learner in this process, without Ray or MLflow.

    `--set` takes fields of the method (`--set standard.passes=200`, or `--set passes=200`) and of
    the data (`--set data.rotated=true`).
    """
    from tuneparts.cli import fit as verb

    verb.fit(method, data=data, seed=seed, changes=changes or [])


@app.command(epilog=words("arm", "pass"))
def compress(
    source: Annotated[
        str,
        typer.Argument(
            help="A run, a checkpoint or state_dict file, or torchvision:NAME.", metavar="SOURCE"
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write.", metavar="FILE")],
    arm: Annotated[Optional[str], typer.Option(help="Of a run: not the best arm but this.")] = None,  # noqa: UP045
    data: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="A set of `tuneparts data`; a run brings its own.", metavar="NAME"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random stream.")] = 0,
    changes: SetOption = None,
) -> None:
    """Compress a trained net into a file: few distinct weights, entropy-coded.

    `--set` takes fields of `pwfn` (`--set passes=2000`), of the data (`--set data.pool=2`) and, for
    a file of weights, of the net that they are of (`--set net=resnet18`). Stopped, the same command
    goes on where it was.
    """
    from tuneparts.cli import compress as verb

    verb.compress(source, out=out, arm=arm, data=data, seed=seed, changes=changes or [])


@app.command()
def methods() -> None:
    """List the methods that a search can use."""
    from tuneparts.cli import listings

    listings.methods()


@app.command()
def searches() -> None:
    """List the search files: each is a question."""
    from tuneparts.cli import listings

    listings.searches()


@app.command()
def data(
    download: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Fetch this set into the cache.", metavar="NAME"),
    ] = None,
) -> None:
    """List the data sets, where each was found, or how to get it."""
    from tuneparts.cli import listings

    listings.data(download)


@app.command()
def doctor() -> None:
    """Check the installation: versions, data, store, Ray, devices."""
    from tuneparts.cli import doctor as verb

    verb.doctor()


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 5000,
    host: Annotated[str, typer.Option(help="Address to bind to.")] = "127.0.0.1",
    without_authentication: Annotated[
        bool, typer.Option("--without-authentication", help="Let everybody in.")
    ] = False,
) -> None:
    """Open the MLflow UI on the store: on this machine, or wider with a login."""
    from tuneparts.cli import ui as verb

    verb.ui(host=host, port=port, forced=without_authentication)


@app.command()
def dashboard(port: Annotated[int, typer.Option(help="Port on this machine.")] = 8501) -> None:
    """Watch searches run and compare them in a browser, on this machine only."""
    from tuneparts.cli import dashboard as verb

    verb.dashboard(port)


@app.command(epilog=words("arm"))
def register(
    run: RunArgument = None,
    arm: Annotated[Optional[str], typer.Option(help="Not the best arm but this one.")] = None,  # noqa: UP045
    name: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Name in the registry; the search's own by default."),
    ] = None,
) -> None:
    """Register the net of a run's best arm as an MLflow model."""
    from tuneparts.cli import register as verb

    verb.register(run, arm=arm, as_name=name)


@app.command()
def bench(
    name: Annotated[Optional[str], typer.Argument(help="Which bench; none lists them.")] = None,  # noqa: UP045
    as_json: JsonOption = False,
    quick: Annotated[bool, typer.Option(help="Smaller, for trying out; do not quote.")] = False,
    only: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="`search`: trials, barrier, start or algorithms.", metavar="CASE"),
    ] = None,
    simulate: Annotated[bool, typer.Option(help="`search`: many trials that sleep.")] = False,
    trials: Annotated[Optional[int], typer.Option(help="How many, with --simulate.")] = None,  # noqa: UP045
    plot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="`complexity`: draw it into this .html or .svg file.", metavar="FILE"),
    ] = None,
) -> None:
    """Benchmark tuneparts against the stock alternative; without NAME, list the benches."""
    from tuneparts.cli import bench as verb

    verb.bench(
        name,
        as_json=as_json,
        quick=quick,
        only=only,
        simulate=simulate,
        trials=trials,
        plot=plot,
    )


remote.add_to(app)


def main() -> None:
    """Entry point: errors that we raise on purpose print as one sentence, not as a traceback."""
    from tuneparts.errors import TunepartsError
    from tuneparts.redaction import redact

    for stream in (sys.stdout, sys.stderr):  # a terminal may lack a sign of ours
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except TunepartsError as error:
        print(f"tuneparts: {redact(str(error))}", file=sys.stderr)
        raise SystemExit(2) from None
    except OSError as error:
        known = next((text for codes, text in _SENTENCES.items() if error.errno in codes), None)
        if known is None:
            raise
        print(f"tuneparts: {known.format(redact(str(error)))}", file=sys.stderr)
        raise SystemExit(2) from None


_SENTENCES = {
    (errno.ENOSPC, errno.EDQUOT): "the disk is full: {}. Make space, then run `tuneparts resume`; "
    "nothing is lost.",
    (errno.EACCES, errno.EPERM, errno.EROFS): "this user may not do that: {}. Ask who owns it, or "
    "name other folders in TUNEPARTS_RESULTS and TUNEPARTS_CACHE.",
}
"""What is said of errors of the system that no code of ours can avoid."""


if __name__ == "__main__":
    main()
