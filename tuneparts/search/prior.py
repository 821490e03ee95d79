"""What an earlier run knows about the space of an arm: a warm start.

The trials of that run are copied into the search when it is loaded, so that the search is complete
in itself: a resumed run does not need the earlier one any more.
"""

from collections.abc import Mapping
from typing import Any

from tuneparts import journal, schema, settings
from tuneparts.config import Config
from tuneparts.errors import ConfigError, DataMissingError
from tuneparts.search import runs
from tuneparts.search.space import Dimension, Value
from tuneparts.search.space.choice import plain

_TOLD = ("val/", "lml/", "size/", "cost/", "communication/")
"""Families that are copied; scores of test data are not."""


class PriorTrial(Config):
    """One finished trial of the earlier run."""

    values: dict[str, Any]
    """Path of each dimension -> what the trial had there."""
    metrics: dict[str, float]
    """Its last scores, none of them of test data."""


class Prior(Config):
    """The finished trials of an earlier run, best first by the metric of that run.

    A sampler of Optuna is told all of them. Other algorithms try the best ones first.
    """

    run: str
    """Name of the earlier run, `SEARCH/TIME-DIGEST`."""
    arm: str
    trials: tuple[PriorTrial, ...]
    tried_again: int = 5
    """How many of the best ones an algorithm that cannot be told of them tries first."""

    @property
    def points(self) -> tuple[dict[str, Value], ...]:
        """What algorithms other than Optuna's samplers try first."""
        return tuple(trial.values for trial in self.trials[: self.tried_again])


def read(name: str, *, arm: str, space: Mapping[str, Dimension]) -> Prior:
    """Read what an earlier run knows about a space.

    Args:
        name: of the run, `SEARCH/TIME-DIGEST` or a search's name for its newest run; `RUN:ARM`
            where the arm there has another name.
        arm: the name of the arm that is to start from it.
        space: of that arm.

    Raises:
        ConfigError: There is no such run or arm, or its dimensions are others.
        DataMissingError: No finished trial of it lies in the space.
    """
    run_name, _, other = name.partition(":")
    run = runs.named(settings.current().results_dir, run_name)
    arms = {one.name: one for one in run.search.arms}
    source = arms.get(other or arm)
    if source is None:
        raise ConfigError(
            f"a warm start reads an arm of the earlier run, but {run.name} has no arm "
            f'`{other or arm}`. Write `warm_start="{run.name}:ARM"` with one of: '
            f"{', '.join(arms)}."
        )
    _check_dimensions(run.name, source.name, source.space, space)
    found = _finished(run, source.name, space)
    if not found:
        raise DataMissingError(
            f"a warm start needs a finished trial inside the space, but `{source.name}` of "
            f"{run.name} has none. Wait for it, widen the space, or leave `warm_start` out."
        )
    metric = schema.selection_metric(run.search.metric)
    sign = -1 if metric.direction is schema.Direction.UP else 1
    worst = float("inf")
    found.sort(key=lambda one: sign * one.metrics.get(metric.name, sign * worst))
    return Prior(run=run.name, arm=source.name, trials=tuple(found))


def _check_dimensions(
    run: str, arm: str, theirs: Mapping[str, Dimension], ours: Mapping[str, Dimension]
) -> None:
    missing, extra = sorted(set(ours) - set(theirs)), sorted(set(theirs) - set(ours))
    if missing or extra:
        words = [f"lacks {', '.join(missing)}"] if missing else []
        words += [f"has {', '.join(extra)} besides"] if extra else []
        raise ConfigError(
            f"a warm start is from a space with the same dimensions, but that of `{arm}` in {run} "
            f"{' and '.join(words)}. Start from another run, or from none and give `points`."
        )


def _finished(run: runs.Run, arm: str, space: Mapping[str, Dimension]) -> list[PriorTrial]:
    """The finished trials of an arm that lie in a space, by seed and index."""
    path = run.folder / "journal.jsonl"
    records = sorted(journal.records(path).items()) if path.exists() else []
    found = []
    for trial, record in records:
        is_finished = record.end is not None and record.end.outcome == "finished"
        if trial.arm != arm or not is_finished or record.last is None:
            continue
        values = {path: plain(at(record.config, path)) for path in space}
        if all(space[path].contains(value) for path, value in values.items()):
            metrics = {
                name: float(value)
                for name, value in record.last.metrics.items()
                if name.startswith(_TOLD)
            }
            found.append(PriorTrial(values=values, metrics=metrics))
    return found


def at(config: Mapping[str, Any], path: str) -> Any:
    """What a config as plain values has at a dotted path; None if it has nothing there."""
    node: Any = config
    if path.startswith("data."):
        # There the paths into the search's data are kept whole.
        return config.get("data", {}).get(path.removeprefix("data."))
    for part in path.split("."):
        node = node.get(part) if isinstance(node, Mapping) else None
    return node
