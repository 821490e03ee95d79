"""The verbs that run searches: search, resume, extend, stop, sync."""

from typing import Annotated

import typer

from tuneparts.cli import options

app = typer.Typer()


@app.command(epilog=options.words("search", "arm", "trial", "replicate", "scale", "pass"))
def search(
    name: options.Search,
    scale: options.Scale = "cpu",
    address: options.Address = None,
    local: options.Local = False,
    ray: options.Ray = False,
    cpus: options.Cpus = None,
    trials: options.Trials = None,
    seeds: options.Seeds = None,
    arms: options.Arms = None,
    changes: options.Set = None,
    storage: options.Storage = None,
    dry_run: Annotated[
        bool, typer.Option(help="Print the plan and its cost; run nothing.")
    ] = False,
    resume: options.Resume = False,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Run a search and print the table that answers its question."""
    from tuneparts.cli import search as verb
    from tuneparts.cli.output import Form

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
        form=Form.of(as_json=as_json, as_csv=as_csv),
    )


@app.command()
def resume(
    run: options.Run = None,
    address: options.Address = None,
    local: options.Local = False,
    ray: options.Ray = False,
    retry_failed: options.Retry = False,
    cpus: options.Cpus = None,
) -> None:
    """Continue a run that was interrupted; by default the newest."""
    from tuneparts.cli import search as verb

    place = verb.Place(address, is_local=local, is_ray=ray, cpus=cpus)
    verb.resume(run, place=place, retry_failed=retry_failed)


@app.command(epilog=options.words("arm", "trial", "replicate"))
def extend(
    run: options.NeededRun,
    trials: Annotated[
        str | None,
        typer.Option(help="Trials of each searching arm in all, or of some: random=128,gp=64."),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="More replicates of every arm, as in 5,6,7.")
    ] = None,
    arms: Annotated[
        str | None,
        typer.Option(help="New arms of the search file, as in gp,tpe, with those they follow."),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(help="The search file of the new arms; that of the run when not given."),
    ] = None,
    address: options.Address = None,
    local: options.Local = False,
    ray: options.Ray = False,
    cpus: options.Cpus = None,
    dry_run: Annotated[bool, typer.Option(help="Say what would be new; run nothing.")] = False,
    until_decided: Annotated[
        str | None,
        typer.Option(help="Add replicates of two arms until a:b is decided.", metavar="A:B"),
    ] = None,
    within: Annotated[
        float | None,
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

    place = Place(address, is_local=local, is_ray=ray, cpus=cpus)
    if until_decided is not None:
        if trials or seeds or arms or search or dry_run:
            from tuneparts.errors import ConfigError

            raise ConfigError(
                "`--until-decided` adds replicates of two arms and nothing else, but got more. "
                "Extend the run twice."
            )
        verb.until_decided(run, until_decided, place, metric=metric, within=within, at_most=at_most)
        return
    verb.extend(run, place, trials=trials, seeds=seeds, arms=arms, search=search, dry_run=dry_run)


@app.command()
def stop(run: options.NeededRun) -> None:
    """Stop a run for good from another terminal, wherever it runs.

    What has finished counts, what runs ends as stopped, and what had not started is counted as
    such. The run's folder must be seen from here. Ctrl-C, in contrast, interrupts a run, which
    then can be resumed.
    """
    from tuneparts.cli import stop as verb

    verb.stop(run)


@app.command()
def sync(run: options.Run = None) -> None:
    """Send to MLflow what it lacks of a run; by default the newest.

    A search needs no MLflow to run: what its server missed lies in the run's folder. This replays
    the journal, with the report, the description and the tags, into the store that
    TUNEPARTS_TRACKING_URI names. It is also how a run is copied to another store. What is there
    already stays as it is, so running it twice changes nothing.
    """
    from tuneparts.cli import sync as verb

    verb.sync(run)
