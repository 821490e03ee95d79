"""`tuneparts extend`: more trials, seeds and arms for a run."""

import math

from tuneparts import settings
from tuneparts.cli import search as searching
from tuneparts.cli.output import terminal
from tuneparts.cli.report import parse_pair
from tuneparts.errors import ConfigError
from tuneparts.search import runs


def extend(
    name: str,
    *,
    trials: str | None,
    seeds: str | None,
    arms: str | None,
    search: str | None,
    place: searching.Place,
    dry_run: bool,
) -> None:
    """Say what is new in a run, and run it.

    Args:
        name: the run.
        trials: `128`, or `random=128,gp=64`.
        seeds: `5,6,7`.
        arms: `gp,tpe`.
        search: the file of the new arms.
        place: where trials run.
        dry_run: run and write nothing.
    """
    searching.refuse_temporary_results()
    found = runs.named(settings.current().results_dir, name)
    numbers, replicates = parse_trials(trials), searching.parse_seeds(seeds) or ()
    from tuneparts.api import extending

    executor = place.executor(found.search)
    run, extension = extending.grow(
        found,
        trials=numbers,
        seeds=replicates,
        arms=[] if arms is None else arms.split(","),
        search=search,
        place={"executor": executor, "address": place.address, "cpus": place.cpus},
        dry_run=dry_run,
    )
    console = terminal()
    for line in extension.news or ["nothing is new"]:
        console.print(line, highlight=False, soft_wrap=True)
    if not dry_run:
        searching.execute(run, place, console=console)


def until_decided(
    name: str,
    pair: str,
    *,
    within: float | None,
    at_most: int,
    metric: str,
    place: searching.Place,
) -> None:
    """Add replicates of two arms until their difference is decided, and say so after each."""
    searching.refuse_temporary_results()
    found = runs.named(settings.current().results_dir, name)
    one, other = parse_pair(pair)
    from tuneparts.api import extending

    console = terminal()
    steps = extending.until_decided(
        found.name,
        (one, other),
        within=within,
        at_most=at_most,
        metric=metric,
        executor=place.executor(found.search),
        address=place.address,
        cpus=place.cpus,
    )
    for _, step in steps:
        span = step.interval
        bounds = "no interval yet"
        if math.isfinite(span.low):
            bounds = f"always-valid 95 % interval {span.low:+.4f} to {span.high:+.4f}"
        console.print(
            f"{step.num} replicates: {metric} of {one} - {other} {step.mean:+.4f}, {bounds}",
            highlight=False,
            soft_wrap=True,
        )
    words = {"equivalent": f"{one} and {other} are equivalent within {within}"}
    said = words.get(step.verdict, f"{one} is {step.verdict} than {other}")
    if not step.verdict:
        said = f"cannot tell {one} from {other} with {step.num} replicates"
    console.print(said, highlight=False)


def parse_trials(text: str | None) -> int | dict[str, int] | None:
    """Read a number of trials, or numbers by arm.

    Example:
        >>> parse_trials("128"), parse_trials("random=128,gp=64")
        (128, {'random': 128, 'gp': 64})
    """
    if text is None:
        return None
    try:
        if "=" not in text:
            return int(text)
        pairs = [part.partition("=") for part in text.split(",")]
        return {arm: int(count) for arm, _, count in pairs}
    except ValueError:
        raise ConfigError(
            f"trials read `128`, or `random=128,gp=64` by arm, but got `{text}`."
        ) from None
