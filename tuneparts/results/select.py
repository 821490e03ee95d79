"""Selection of one trial per arm and seed, and aggregation of the arms over seeds.

Each arm runs all its trials once per seed. Within (arm, seed) one finished trial is selected by
the search's validation metric; test scores of the selected trials are then aggregated over seeds.
What failed or is missing is counted, and its cost is in the total.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from tuneparts.core import schema, selection
from tuneparts.core.errors import ConfigError, DataError, printable
from tuneparts.methods.catalog import TABLES
from tuneparts.results.statistics import _estimate
from tuneparts.search.card import RunCard
from tuneparts.search.frames import NOT_STARTED

OUTCOMES = ("finished", "stopped", "failed")
SCORED = ("test/", "corrupted/", "size/")
"""Families that the table of scores shows."""


def _own_tables(frame: pd.DataFrame) -> list[schema.MethodTable]:
    """The tables of methods whose metrics a frame has as columns."""
    return [TABLES.find(name) for name in TABLES.names() if name in frame]


def column(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return a numeric column; all NaN when nobody reported it."""
    if name not in frame:
        return pd.Series(np.nan, index=frame.index, dtype=float)
    return pd.to_numeric(frame[name], errors="coerce").astype(float)


def _by_seed(selected: pd.DataFrame, arm: str, metric: str) -> dict[int, float]:
    """Scores of an arm's selected trials, of the seeds that have one."""
    own = selected[selected["arm"] == arm]
    known = column(own, metric).dropna()
    return {int(s): float(v) for s, v in zip(own["seed"][known.index], known, strict=True)}


def _select(trials: pd.DataFrame, metadata: RunCard) -> pd.DataFrame:
    """Select the best finished trial of each (arm, seed) by the search's rule, in its order.

    A trial without the metric cannot be selected, unless it is the only one.
    """
    known = {(arm.name, seed) for arm in metadata.arms for seed in arm.seeds}
    if strange := set(zip(trials["arm"], trials["seed"], strict=True)) - known:
        arm, seed = min(strange)
        raise DataError(f"arm `{arm}` seed {seed} is not in the metadata of `{metadata.name}`.")
    twice = trials[trials.duplicated(["arm", "seed", "index"])]
    if len(twice):
        arm, seed, index = twice.iloc[0][["arm", "seed", "index"]]
        raise DataError(f"arm `{arm}` seed {seed} index {index} has several rows instead of one.")
    trials = trials.reset_index(drop=True)
    finished = trials[trials["outcome"] == "finished"]
    metrics = {name: schema.find(name) for name in map(str, trials) if "/" in name}
    shown = [name for name, one in metrics.items() if one is not None and not one.reads_test]
    groups = dict(iter(finished.groupby(["arm", "seed"], sort=False)))
    chosen: list[int] = []
    planned = [(arm.name, seed) for arm in metadata.arms for seed in arm.seeds]
    for arm, seed in (place for place in planned if place in groups):
        own = groups[arm, seed]
        if len(own) == 1 and not metadata.selection:
            chosen += own.index.tolist()
            continue
        if not metadata.metric:
            found = f"arm `{arm}` seed {seed} has {len(own)} finished trials"
            raise ConfigError(f"{found}: name a `metric` that selects one.")
        schema.selection_metric(metadata.metric)  # refuses test data
        values = {name: column(own, name).to_numpy() for name in shown}
        rows = {
            int(index): {name: float(values[name][row]) for name in shown}
            for row, index in enumerate(own["index"])
        }
        index = metadata.rule.choose(rows, metadata.weighed)
        chosen += own.index[own["index"] == index].tolist()
    return trials.iloc[chosen].reset_index(drop=True)


def _summarise(
    trials: pd.DataFrame, metadata: RunCard, selected: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Aggregate the trials of a run to one row per arm, in the order of the search.

    Costs such as `steps` are the mean over seeds of what all trials of a seed cost; `total_steps`
    includes those of source arms. A metric has its mean over seeds under the schema name, the
    standard error under `<name>:se` and the number of seeds under `<name>:n`.
    """
    chosen = _select(trials, metadata) if selected is None else selected
    metrics = _reported(trials, metadata)
    costs = {name: cost for table in _own_tables(trials) for name, cost in table.costs.items()}
    rows = []
    for arm in metadata.arms:
        own = trials[trials["arm"] == arm.name]
        picked = chosen[chosen["arm"] == arm.name]
        outcome, present = own["outcome"], own["seed"].value_counts()
        absent = {s: max(0, arm.trials_per_seed - int(present.get(s, 0))) for s in arm.seeds}
        stopped = {stop.seed for stop in metadata.stops if stop.arm == arm.name}
        not_started = outcome == NOT_STARTED
        unscored = column(own[outcome == "finished"], metadata.metric).isna()
        needs_metric = arm.trials_per_seed > 1 and metadata.metric != ""
        failed = own[outcome == "failed"].sort_values(["seed", "index"])
        errors = [printable(str(text)) for text in failed["error"].fillna("") if str(text)]
        row: dict[str, object] = {
            "arm": arm.name,
            "method": arm.method,
            "source": arm.source or "",
            "seeds": len(picked),
            "seeds_expected": len(arm.seeds),
            "expected": arm.num_expected,
            **{kind: int((outcome == kind).sum()) for kind in OUTCOMES},
            "unfinished": int((~outcome.isin(OUTCOMES) & ~not_started).sum()),
            "missing": sum(count for seed, count in absent.items() if seed not in stopped),
            "not_started": int(not_started.sum()) + sum(absent[seed] for seed in stopped),
            "unscored": int(unscored.sum()) if needs_metric else 0,
            "first_error": errors[0] if errors else "",
        }
        paying = [arm.name, *metadata.sources(arm.name)]
        for name in ("steps", "updates", "seconds"):
            row[name] = _seed_cost(trials, paying[:1], f"cost/{name}")
            row[f"total_{name}"] = _seed_cost(trials, paying, f"cost/{name}")
        row |= {name: _seed_cost(trials, paying, cost) for name, cost in costs.items()}
        for metric in metrics:
            point = _estimate(column(picked, metric).dropna().to_numpy())
            row |= {metric: point.mean, f"{metric}:se": point.se, f"{metric}:n": point.num}
        rows.append(row)
    return pd.DataFrame(rows)


def _reported(trials: pd.DataFrame, metadata: RunCard) -> list[str]:
    """List the metrics to aggregate: those of the tables, and the one that selects."""
    order = {name: position for position, name in enumerate(schema.METRICS)}

    def starting(*families: str) -> list[str]:
        found = [str(name) for name in trials if str(name).startswith(families)]
        return sorted(found, key=lambda name: (order[schema.lookup(name).name], name))

    found = starting(*SCORED) + ([metadata.metric] if metadata.metric else []) + starting("hyper/")
    for table in _own_tables(trials):
        families = tuple(name for name in table.metrics if name.endswith("/"))
        found += starting(*families) if families else []
        found += [name for name in table.metrics if name in trials and name not in found]
    return found


def _seed_cost(trials: pd.DataFrame, arms: Iterable[str], cost: str) -> float:
    """Return the mean over seeds of what all trials of a seed cost, summed over the arms."""
    total = 0.0
    for arm in arms:
        own = trials[trials["arm"] == arm]
        total += float(column(own, cost).fillna(0.0).groupby(own["seed"]).sum().mean())
    return total


def _members(trials: pd.DataFrame, metadata: RunCard) -> pd.DataFrame:
    """The finished trials that have all objectives, with `on_front` of their arm and seed."""
    names = list(metadata.objectives)
    finished = trials[trials["outcome"] == "finished"]
    values = {name: column(finished, name) for name in [*names, "cost/steps"]}
    known: pd.DataFrame = finished[["arm", "seed", "index", "trial"]].assign(**values)
    known = known[np.isfinite(known[names].to_numpy()).all(axis=1)].reset_index(drop=True)
    on_front = pd.Series(data=False, index=known.index)
    for _, own in known.groupby(["arm", "seed"], sort=False):
        points = selection.oriented(own[names].to_numpy(), metadata.weighed)
        on_front[own.index] = selection.front(points)
    return known.assign(on_front=on_front)
