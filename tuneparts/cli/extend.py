"""`tuneparts extend`: more trials, seeds and arms for a run."""

import math
from typing import Any

from tuneparts import settings
from tuneparts.api import extending
from tuneparts.cli.output import terminal
from tuneparts.cli.reading import parse_pair
from tuneparts.cli.search import Place, execute, parse_seeds, refuse_temporary_results
from tuneparts.errors import ConfigError
from tuneparts.search import runs


def extend(
    name: str,
    place: Place,
    *,
    trials: str | None,
    seeds: str | None,
    arms: str | None,
    search: str | None,
    dry_run: bool,
) -> None:
    """Say what is new in a run, and run it; arguments are the words of the command line."""
    numbers, replicates = parse_trials(trials), parse_seeds(seeds) or ()
    run, where = _opened(name, place)
    names = [] if arms is None else arms.split(",")
    run, news = extending.grow(
        run, where, arms=names, search=search, dry_run=dry_run, trials=numbers, seeds=replicates
    )
    console = terminal()
    for line in news or ["nothing is new"]:
        console.print(line, highlight=False, soft_wrap=True)
    if not dry_run:
        execute(run, place, console=console)


def until_decided(
    name: str, pair: str, place: Place, *, metric: str, within: float | None, at_most: int
) -> None:
    """Add replicates of two arms until their difference is decided, and say so after each."""
    one, other = parse_pair(pair)
    run, where = _opened(name, place)
    console = terminal()
    for _, step in extending.until_decided(
        run, (one, other), where, metric=metric, within=within, at_most=at_most
    ):
        span = step.interval
        bounds = f"always-valid 95 % interval {span.low:+.4f} to {span.high:+.4f}"
        said = f"{step.num} replicates: {metric} of {one} - {other} {step.mean:+.4f}, "
        said += bounds if math.isfinite(span.low) else "no interval yet"
        console.print(said, highlight=False, soft_wrap=True)
    words = {
        "": f"cannot tell {one} from {other} with {step.num} replicates",
        "equivalent": f"{one} and {other} are equivalent within {within}",
    }
    console.print(words.get(step.verdict, f"{one} is {step.verdict} than {other}"), highlight=False)


def _opened(name: str, place: Place) -> tuple[runs.Run, dict[str, Any]]:
    """The run of this name, and where its trials run."""
    refuse_temporary_results()
    run = runs.named(settings.current().results_dir, name)
    executor = place.executor(run.search)
    return run, {"executor": executor, "address": place.address, "cpus": place.cpus}


def parse_trials(text: str | None) -> int | dict[str, int] | None:
    """Read a number of trials, or numbers by arm.

    Example:
        >>> parse_trials("128"), parse_trials("random=128,gp=64")
        (128, {'random': 128, 'gp': 64})
    """
    try:
        if text is None or "=" not in text:
            return None if text is None else int(text)
        pairs = [one.partition("=") for one in text.split(",")]
        return {arm: int(count) for arm, _, count in pairs}
    except ValueError:
        raise ConfigError(f"`{text}`: trials read `128`, or `random=128,gp=64` by arm.") from None
