"""Pareto fronts of a search with several objectives: who is on them, and how much they cover."""

from dataclasses import replace

import numpy as np
import pandas as pd

from tuneparts import pareto
from tuneparts.reports.metadata import ReportMetadata
from tuneparts.reports.rendering import Table
from tuneparts.reports.select import column
from tuneparts.reports.tables import provenance

MOST_ROWS = 40
"""Rows of the table of fronts; the figure's data has them all."""


def members(trials: pd.DataFrame, metadata: ReportMetadata) -> pd.DataFrame:
    """The finished trials that have all objectives, with `on_front` of their arm and seed.

    Columns: arm, seed, index, trial, the objectives, `cost/passes` and on_front. Trials without all
    objectives are left out.
    """
    names = list(metadata.objectives)
    finished = trials[trials["outcome"] == "finished"]
    values = {name: column(finished, name) for name in [*names, "cost/passes"]}
    known: pd.DataFrame = finished[["arm", "seed", "index", "trial"]].assign(**values)
    known = known[np.isfinite(known[names].to_numpy()).all(axis=1)].reset_index(drop=True).copy()
    on_front = pd.Series(data=False, index=known.index)
    for _, own in known.groupby(["arm", "seed"], sort=False):
        points = pareto.oriented(own[names].to_numpy(), metadata.weighed)
        on_front[own.index] = pareto.front(points)
    known["on_front"] = on_front
    return known


def coverage(trials: pd.DataFrame, metadata: ReportMetadata) -> pd.DataFrame:
    """How much of the objectives each replicate covers after each of its trials.

    The hypervolume of the front so far, in the order of trials, between the worst and the best that
    any trial of the search has: 0 for nothing, 1 for the best of every objective at once.

    Columns: arm, seed, index, passes (what the trials up to this one cost), hypervolume.
    """
    known = members(trials, metadata)
    columns = ["arm", "seed", "index", "passes", "hypervolume"]
    if known.empty:
        return pd.DataFrame(columns=columns)
    points = pareto.oriented(known[list(metadata.objectives)].to_numpy(), metadata.weighed)
    low, high = points.min(axis=0), points.max(axis=0)
    scaled = (points - low) / np.where(high > low, high - low, 1.0)
    rows = []
    all_costs = column(trials, "cost/passes").fillna(0.0)
    for (arm, seed), own in known.groupby(["arm", "seed"], sort=False):
        is_own = (trials["arm"] == arm) & (trials["seed"] == seed)
        order = own.sort_values("index")
        for count, index in enumerate(order["index"].tolist(), start=1):
            # What failed or was stopped on the way was paid for as well.
            spent = float(all_costs[is_own & (trials["index"] <= index)].sum())
            so_far = scaled[order.index[:count]]
            covered = pareto.hypervolume(so_far, np.zeros(points.shape[1]))
            rows.append((arm, seed, index, spent, covered))
    return pd.DataFrame(rows, columns=columns)


def build(
    trials: pd.DataFrame, metadata: ReportMetadata, selected: pd.DataFrame
) -> tuple[Table, ...]:
    """The table of the fronts; none where there is one objective."""
    if not metadata.objectives or trials.empty:
        return ()
    known = members(trials, metadata)
    on_front = known[known["on_front"]]
    covered = coverage(trials, metadata).groupby(["arm", "seed"]).last()
    order = {arm.name: number for number, arm in enumerate(metadata.arms)}
    first, *_ = metadata.weighed
    rows = on_front.assign(place=on_front["arm"].map(order)).sort_values(
        ["place", "seed", first.name], kind="stable"
    )
    chosen = set(selected.get("trial", ()))
    cells = [
        [
            row["arm"],
            str(row["seed"]),
            row["trial"].rpartition("/")[2] + (" (selected)" if row["trial"] in chosen else ""),
            *(f"{row[metric.name]:,.{metric.decimals}f}" for metric in metadata.weighed),
            f"{covered.loc[(row['arm'], row['seed']), 'hypervolume']:.3f}",
        ]
        for row in rows.head(MOST_ROWS).to_dict("records")
    ]
    notes = [
        "Finished trials that no other of their seed dominates, by "
        f"{', '.join(metadata.objectives)}; of test data nothing is in it. `covered` is the "
        "hypervolume of the seed's front between the worst and the best of all trials, from 0 to 1."
    ]
    left_out = int((trials["outcome"] == "finished").sum()) - len(known)
    if left_out:
        notes.append(f"{left_out} finished trials lack an objective and are left out.")
    if len(rows) > MOST_ROWS:
        notes.append(f"The first {MOST_ROWS} of {len(rows)}; all are in the figure's data.")
    names = [metric.name for metric in metadata.weighed]
    table = Table.of_rows(
        ["arm", "seed", "trial", *names, "covered"],
        cells,
        heading="Pareto fronts",
        numbers=["seed", *names, "covered"],
        notes=(*notes, provenance(metadata)),
    )
    return (replace(table, subject=metadata.name),)
