"""The verbs that concern a cluster: submit, cluster status."""

from typing import Annotated

import typer

from tuneparts.cli import options

app = typer.Typer()
cluster = typer.Typer(name="cluster", help="Look at a Ray cluster.", no_args_is_help=True)


@app.command()
def submit(
    name: Annotated[
        str,
        typer.Argument(
            help="A file of `tuneparts searches`, or a path; or a run there to continue."
        ),
    ],
    address: Annotated[str, typer.Option(help="Job server of the head node, http://HOST:8265.")],
    scale: options.Scale = "cpu",
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    arms: options.Arms = None,
    changes: options.Set = None,
    storage: options.Storage = None,
    results: Annotated[
        str | None,
        typer.Option(
            help="Folder of the cluster for journal and reports; it must outlive the job."
        ),
    ] = None,
    resume: options.Resume = False,
    retry_failed: options.Retry = False,
    environment: Annotated[
        list[str] | None,
        typer.Option("--env", help="Set on the cluster; may be repeated.", metavar="NAME=VALUE"),
    ] = None,
    follow: Annotated[bool, typer.Option(help="Print its output and wait for its end.")] = True,
) -> None:
    """Run a search as a job on a Ray cluster; its exit code is ours."""
    from tuneparts.cli import search
    from tuneparts.cli import submit as verb
    from tuneparts.errors import ConfigError
    from tuneparts.search import load, runs

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
    if not is_run:
        load.check(name, scale=scale, trials=trials, changes=changes or [])
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
    name: options.SomeSearch = None,
    address: options.Address = None,
    scale: options.Scale = "cpu",
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Show nodes, CPUs and GPUs; with NAME what a search would use and how long it would take."""
    from tuneparts.cli import cluster as verb
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    verb.status(name, address=address, scale=scale, form=form)


app.add_typer(cluster)
