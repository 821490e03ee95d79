"""Selection of one trial per arm and seed, and aggregation of the arms over seeds.

A seed is a replicate of a whole arm. Within (arm, seed) one finished trial is selected by the
search's validation metric; test scores of the selected trials are then aggregated over seeds.
What failed or is missing is counted, and what it cost is in the bill.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from tuneparts.core import schema, selection
from tuneparts.core.errors import ConfigError, DataError, printable
from tuneparts.methods.catalog import TABLES
from tuneparts.results.statistics import estimate
from tuneparts.search.card import ArmCard, RunCard
from tuneparts.search.frames import NOT_STARTED

OUTCOMES = ("finished", "stopped", "failed")
_COSTS = ("cost/passes", "cost/weight_steps", "cost/seconds")
SCORED = ("test/", "corrupted/", "size/")
"""Families that the table of scores shows."""


def own_tables(frame: pd.DataFrame) -> list[schema.MethodTable]:
    """The tables of methods whose metrics a frame has as columns."""
    return [TABLES.find(name) for name in TABLES.names() if name in frame]


def column(frame: pd.DataFrame, name: str) -> pd.Series:
    """Return a numeric column; all NaN when nobody reported it."""
    if name not in frame:
        return pd.Series(np.nan, index=frame.index, dtype=float)
    return pd.to_numeric(frame[name], errors="coerce").astype(float)


def by_seed(selected: pd.DataFrame, arm: str, metric: str) -> dict[int, float]:
    """Scores of an arm's selected trials, of the seeds that have one."""
    own = selected[selected["arm"] == arm]
    known = column(own, metric).dropna()
    return {int(s): float(v) for s, v in zip(own["seed"][known.index], known, strict=True)}


def select(trials: pd.DataFrame, metadata: RunCard) -> pd.DataFrame:
    """Select the best finished trial of each (arm, seed) by the search's rule, in its order.

    Ties go to the smaller index. A finished trial without the metric cannot be selected, unless it
    is the only one. A seed without a selectable trial has no row.
    """
    check(trials, metadata)
    trials = trials.reset_index(drop=True)
    finished = trials[trials["outcome"] == "finished"]
    groups = dict(iter(finished.groupby(["arm", "seed"], sort=False)))
    chosen = [
        label
        for arm in metadata.arms
        for seed in arm.seeds
        if (arm.name, seed) in groups
        and (label := _choose(groups[arm.name, seed], metadata)) is not None
    ]
    return trials.iloc[chosen].reset_index(drop=True)


def _choose(candidates: pd.DataFrame, metadata: RunCard) -> int | None:
    """Return the row of the best candidate of one (arm, seed)."""
    if len(candidates) == 1 and not metadata.selection:
        return int(candidates.index[0])
    if not metadata.metric:
        first = candidates.iloc[0]
        raise ConfigError(
            f"one trial per seed needs no selection metric, but arm `{first['arm']}` seed "
            f"{first['seed']} has {len(candidates)} finished trials. Name a `metric`."
        )
    schema.selection_metric(metadata.metric)  # refuses test data
    shown = {str(n): column(candidates, str(n)) for n in candidates if _is_weighed(str(n))}
    rows = {
        int(index): {name: float(values[label]) for name, values in shown.items()}
        for label, index in zip(candidates.index, candidates["index"], strict=True)
    }
    index = metadata.rule.choose(rows, metadata.weighed)
    return None if index is None else int(candidates.index[candidates["index"] == index][0])


def _is_weighed(name: str) -> bool:
    """Whether a column is a metric that a selection may look at."""
    metric = schema.find(name) if "/" in name else None
    return metric is not None and not metric.reads_test


def summarise(
    trials: pd.DataFrame, metadata: RunCard, selected: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Aggregate the trials of a run to one row per arm, in the order of the search.

    `selected` is what `select` gave for the same trials, where it was called already.

    Columns: arm, method, follows, seeds and seeds_expected (with a selected trial; planned),
    expected, finished, stopped, failed, unfinished, missing, not_started, unscored (counts of
    trials), first_error, passes and seconds (mean over seeds of what all trials of a seed cost),
    the same with `_with_leader`, the costs of methods' own tables, and for each metric its mean
    over seeds under the schema name, with the standard error under `<name>:se` and the number of
    seeds under `<name>:n`.
    """
    chosen = select(trials, metadata) if selected is None else selected
    metrics = reported(trials, metadata)
    costs = {name: cost for table in own_tables(trials) for name, cost in table.costs.items()}
    rows = []
    for arm in metadata.arms:
        own = trials[trials["arm"] == arm.name]
        picked = chosen[chosen["arm"] == arm.name]
        row: dict[str, object] = {
            "arm": arm.name,
            "method": arm.method,
            "follows": arm.follows or "",
            "seeds": len(picked),
            "seeds_expected": len(arm.seeds),
            **_counts(own, arm, metadata),
            "first_error": _first_error(own),
        }
        for cost in _COSTS:
            name = cost.split("/")[1]
            row[name] = seed_cost(trials, [arm.name], cost)
            row[f"{name}_with_leader"] = seed_cost(
                trials, [arm.name, *metadata.leaders(arm.name)], cost
            )
        for name, cost in costs.items():
            row[name] = seed_cost(trials, [arm.name, *metadata.leaders(arm.name)], cost)
        for metric in metrics:
            over_seeds = estimate(column(picked, metric).dropna().to_numpy())
            row |= {metric: over_seeds.mean, f"{metric}:se": over_seeds.se}
            row |= {f"{metric}:n": over_seeds.num}
        rows.append(row)
    return pd.DataFrame(rows)


def reported(trials: pd.DataFrame, metadata: RunCard) -> list[str]:
    """List the metrics to aggregate: those of the tables, and the one that selects."""
    order = {name: position for position, name in enumerate(schema.METRICS)}

    def place(name: str) -> tuple[int, str]:
        return order[schema.lookup(name).name], name

    def starting(*families: str) -> list[str]:
        return sorted((str(n) for n in trials if str(n).startswith(families)), key=place)

    found = starting(*SCORED) + ([metadata.metric] if metadata.metric else []) + starting("hyper/")
    for table in own_tables(trials):
        families = tuple(name for name in table.metrics if name.endswith("/"))
        found += starting(*families) if families else []
        found += [name for name in table.metrics if name in trials and name not in found]
    return found


def seed_cost(trials: pd.DataFrame, arms: Iterable[str], cost: str) -> float:
    """Return the mean over seeds of what all trials of a seed cost, summed over the arms.

    Stopped and failed trials count with what they reported before they ended; a seed of which
    no trial exists yet is left out of the mean. NaN when an arm has no trials.
    """
    total = 0.0
    for arm in arms:
        own = trials[trials["arm"] == arm]
        per_seed = column(own, cost).fillna(0.0).groupby(own["seed"]).sum()
        total += float(per_seed.mean()) if len(per_seed) else float("nan")
    return total


def check(trials: pd.DataFrame, metadata: RunCard) -> None:
    """Refuse trials that the metadata does not know or that occur twice."""
    known = {(arm.name, seed) for arm in metadata.arms for seed in arm.seeds}
    strange = set(zip(trials["arm"], trials["seed"], strict=True)) - known
    if strange:
        arm, seed = sorted(strange)[0]
        raise DataError(
            f"every trial belongs to an arm and seed of the metadata, but `{metadata.name}` has "
            f"none for arm `{arm}` seed {seed}. Give the report the metadata of this run."
        )
    twice = trials[trials.duplicated(["arm", "seed", "index"])]
    if len(twice):
        row = twice.iloc[0]
        raise DataError(
            f"a trial has one row, but arm `{row['arm']}` seed {row['seed']} index "
            f"{row['index']} has several. Read the frame of one parent run only."
        )


def _counts(own: pd.DataFrame, arm: ArmCard, metadata: RunCard) -> dict[str, int]:
    present = own["seed"].value_counts()
    metric = metadata.metric
    absent = {seed: max(0, arm.trials_per_seed - int(present.get(seed, 0))) for seed in arm.seeds}
    stopped = {stop.seed for stop in metadata.stops if stop.arm == arm.name}
    not_started = own["outcome"] == NOT_STARTED
    finished = own[own["outcome"] == "finished"]
    needs_metric = arm.trials_per_seed > 1 and metric != ""
    return {
        "expected": arm.num_expected,
        **{outcome: int((own["outcome"] == outcome).sum()) for outcome in OUTCOMES},
        "unfinished": int((~own["outcome"].isin(OUTCOMES) & ~not_started).sum()),
        "missing": sum(count for seed, count in absent.items() if seed not in stopped),
        "not_started": int(not_started.sum()) + sum(absent[seed] for seed in stopped),
        "unscored": int(column(finished, metric).isna().sum()) if needs_metric else 0,
    }


def _first_error(own: pd.DataFrame) -> str:
    failed = own[own["outcome"] == "failed"].sort_values(["seed", "index"])
    errors = [printable(str(text)) for text in failed["error"].fillna("") if str(text)]
    return errors[0] if errors else ""


def members(trials: pd.DataFrame, metadata: RunCard) -> pd.DataFrame:
    """The finished trials that have all objectives, with `on_front` of their arm and seed.

    Columns: arm, seed, index, trial, the objectives, `cost/passes` and on_front.
    """
    names = list(metadata.objectives)
    finished = trials[trials["outcome"] == "finished"]
    values = {name: column(finished, name) for name in [*names, "cost/passes"]}
    known: pd.DataFrame = finished[["arm", "seed", "index", "trial"]].assign(**values)
    known = known[np.isfinite(known[names].to_numpy()).all(axis=1)].reset_index(drop=True).copy()
    on_front = pd.Series(data=False, index=known.index)
    for _, own in known.groupby(["arm", "seed"], sort=False):
        points = selection.oriented(own[names].to_numpy(), metadata.weighed)
        on_front[own.index] = selection.front(points)
    known["on_front"] = on_front
    return known
