"""Pareto fronts of a search with several objectives: which trials are on them."""

import numpy as np
import pandas as pd

from tuneparts.core import pareto
from tuneparts.results.metadata import ReportMetadata
from tuneparts.results.select import column


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
