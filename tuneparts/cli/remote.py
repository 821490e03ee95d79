"""The verbs that concern a cluster; each imports what it needs when it is called."""

from typing import Annotated, Optional

import typer

from tuneparts.cli.options import (
    ArmsOption,
    ResumeOption,
    RetryOption,
    ScaleOption,
    SeedsOption,
    SetOption,
    StorageOption,
    TrialsOption,
)

cluster = typer.Typer(name="cluster", help="Look at a Ray cluster.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command()(submit)
    app.add_typer(cluster)


def submit(
    name: Annotated[
        str,
        typer.Argument(
            help="A file of `tuneparts searches`, or a path; or a run there to continue."
        ),
    ],
    address: Annotated[str, typer.Option(help="Job server of the head node, http://HOST:8265.")],
    scale: ScaleOption = "cpu",
    trials: TrialsOption = None,
    seeds: SeedsOption = None,
    arms: ArmsOption = None,
    changes: SetOption = None,
    storage: StorageOption = None,
    results: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="Folder of the cluster for journal and reports; it must outlive the job."
        ),
    ] = None,
    resume: ResumeOption = False,
    retry_failed: RetryOption = False,
    environment: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option("--env", help="Set on the cluster; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    follow: Annotated[bool, typer.Option(help="Print its output and wait for its end.")] = True,
) -> None:
    """Run a search as a job on a Ray cluster; its exit code is ours."""
    from tuneparts.cli import search
    from tuneparts.cli import submit as verb
    from tuneparts.errors import ConfigError
    from tuneparts.search import runs

    search.parse_seeds(seeds)
    is_run = runs.is_name(name)
    if is_run and (trials or seeds or arms or changes or storage):
        raise ConfigError(
            f"a run goes on as it began, but `{name}` got options that change a search. Leave them "
            "out, or name the search."
        )
    if retry_failed and not is_run:
        raise ConfigError(
            f"failed trials are those of a run, but `{name}` is a search. Name the run, as its "
            "driver printed it: SEARCH/TIME-DIGEST."
        )
    words = [] if is_run else ["--scale", scale]
    words += ["--retry-failed"] if retry_failed else []
    words += ["--resume"] if resume and not is_run else []
    words += [] if trials is None else ["--trials", str(trials)]
    words += [] if seeds is None else ["--seeds", seeds]
    words += [] if arms is None else ["--arms", arms]
    words += [word for change in changes or [] for word in ("--set", change)]
    raise typer.Exit(
        verb.submit(
            name,
            address=address,
            words=words,
            storage=storage,
            environment=environment or [],
            follow=follow,
            results=results,
        )
    )


@cluster.callback()
def _cluster() -> None:
    """Look at a Ray cluster."""


@cluster.command()
def status(
    name: Annotated[Optional[str], typer.Argument(help="A search to place on it.")] = None,  # noqa: UP045
    address: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Ray cluster HOST:PORT; this machine when not given."),
    ] = None,
    scale: ScaleOption = "cpu",
) -> None:
    """Show nodes, CPUs and GPUs; with NAME what a search would use and how long it would take."""
    from tuneparts.cli import cluster as verb

    verb.status(name, address=address, scale=scale)
