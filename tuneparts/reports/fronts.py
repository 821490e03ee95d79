"""Pareto fronts of a search with several objectives: which trials are on them."""

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

    Columns: arm, seed, index, trial, the objectives, `cost/passes` and on_front.
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


def build(
    trials: pd.DataFrame, metadata: ReportMetadata, selected: pd.DataFrame
) -> tuple[Table, ...]:
    """The table of the fronts; none where there is one objective."""
    if not metadata.objectives or trials.empty:
        return ()
    known = members(trials, metadata)
    place = known["arm"].map({arm.name: number for number, arm in enumerate(metadata.arms)})
    names = [metric.name for metric in metadata.weighed]
    rows = known.assign(place=place)[known["on_front"]]
    rows = rows.sort_values(["place", "seed", names[0]], kind="stable")
    chosen = set(selected.get("trial", ()))
    cells = [
        [
            row["arm"],
            str(row["seed"]),
            row["trial"].rpartition("/")[2] + (" (selected)" if row["trial"] in chosen else ""),
            *(f"{row[metric.name]:,.{metric.decimals}f}" for metric in metadata.weighed),
        ]
        for row in rows.head(MOST_ROWS).to_dict("records")
    ]
    notes = [
        "Finished trials that no other of their seed dominates, by "
        f"{', '.join(metadata.objectives)}; of test data nothing is in it."
    ]
    left_out = int((trials["outcome"] == "finished").sum()) - len(known)
    if left_out:
        notes.append(f"{left_out} finished trials lack an objective and are left out.")
    if len(rows) > MOST_ROWS:
        notes.append(f"The first {MOST_ROWS} of {len(rows)}; all are in the figure's data.")
    table = Table.of_rows(
        ["arm", "seed", "trial", *names],
        cells,
        heading="Pareto fronts",
        numbers=["seed", *names],
        notes=(*notes, provenance(metadata)),
    )
    return (replace(table, subject=metadata.name),)
