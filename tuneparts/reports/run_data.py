"""What figures and pages are made from: the metadata with the frames of its run."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import pandas as pd

from tuneparts.reports.metadata import ReportMetadata
from tuneparts.reports.sample_grid import SampleGrid
from tuneparts.reports.select import select, summarise

STEP_COLUMNS = ("trial", "arm", "seed", "index", "metric", "step", "time", "value")

Finder: TypeAlias = Callable[[str, str], str | None]
"""(trial, name) to the CSV text of a table that the trial left, if it did."""


@dataclass(frozen=True, eq=False)
class RunData:
    """A run's frames; what is derived from them is computed once."""

    metadata: ReportMetadata
    trials: pd.DataFrame
    """One row per trial."""
    steps: pd.DataFrame
    """One row per trial, metric and step (passes so far)."""
    sample_grids: tuple[SampleGrid, ...] = ()
    """What the data looks like under the hypers of selected trials."""
    sample_grids_note: str = ""
    """Why there are no sample grids."""
    find: Finder | None = None
    """Where tables that trials left are found, if they are at hand."""

    @cached_property
    def selected(self) -> pd.DataFrame:
        """The trial that stands for each (arm, seed)."""
        return select(self.trials, self.metadata)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row per arm."""
        return summarise(self.trials, self.metadata)

    def paths(self, metric: str) -> pd.DataFrame:
        """Steps of the selected trials for one metric, sorted by trial and step."""
        if self.steps.empty:
            return pd.DataFrame(columns=list(STEP_COLUMNS))
        rows = self.steps[self.steps["metric"] == metric]
        rows = rows[rows["trial"].isin(self.selected["trial"])]
        return rows.sort_values(["trial", "step"], kind="stable")

    def exhibit(self, trial: str, name: str) -> pd.DataFrame | None:
        """A table that the trial left; None where there is none."""
        text = self.find(trial, name) if self.find is not None else None
        return None if text is None else pd.read_csv(io.StringIO(text))
