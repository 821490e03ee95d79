"""What reports are made from: the frames of a run with the metadata of its search."""

import io
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import pandas as pd

from tuneparts.core import schema
from tuneparts.results import answer, compare, contrast, tables
from tuneparts.results.metadata import ArmMetadata, ReportMetadata
from tuneparts.results.rendering import Table
from tuneparts.results.sample_grid import SampleGrid
from tuneparts.results.select import select, summarise
from tuneparts.results.verdict import Verdict, judge
from tuneparts.search.frames import DRAWN_COLUMNS, SCHEDULE_COLUMNS, STEP_COLUMNS

ArtifactReader: TypeAlias = Callable[[str, str], str | None]
"""Returns the CSV text of a table that a trial left, given (trial, name); None if there is none."""


@dataclass(frozen=True, eq=False)
class RunData:
    """The frames of a run; whatever is derived from them is computed once, when first asked for.

    Example:
        >>> from tuneparts.results.metadata import ArmMetadata
        >>> metadata = ReportMetadata("digits", "?", (ArmMetadata("a", "standard", 1, (0,)),))
        >>> trial = {"arm": "a", "seed": 0, "index": 0, "outcome": "finished", "error": ""}
        >>> trials = pd.DataFrame([trial | {"test/accuracy": 0.9, "cost/passes": 400}])
        >>> RunData(metadata, trials, steps=pd.DataFrame()).answer
        'a has test accuracy 0.9000 (1 seed); there is no other arm.'
    """

    metadata: ReportMetadata
    trials: pd.DataFrame
    """One row per trial."""
    steps: pd.DataFrame
    """One row per trial, metric and step (passes so far)."""
    sample_grids: tuple[SampleGrid, ...] = ()
    """Examples under the augmentation that selected trials found."""
    sample_grids_note: str = ""
    """Why there are no sample grids."""
    schedules: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=SCHEDULE_COLUMNS))
    """Values that changed on the way of each trial; see `frames.schedules`."""
    drawn: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=DRAWN_COLUMNS))
    """What each trial drew from its arm's space; see `frames.drawn`."""
    find: ArtifactReader | None = None
    """Reads the tables that trials left; None where they are out of reach."""

    @cached_property
    def selected(self) -> pd.DataFrame:
        """The trial that stands for each (arm, seed): the best by validation."""
        with schema.using(*self.metadata.metrics):
            return select(self.trials, self.metadata)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row per arm."""
        with schema.using(*self.metadata.metrics):
            return summarise(self.trials, self.metadata, self.selected)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The tables of the report: scores and costs, hypers, communication, schedules."""
        found = self.schedules[self.schedules["trial"].isin(self.selected.get("trial", []))]
        with schema.using(*self.metadata.metrics):
            return tables.build(self.summary, self.metadata, self.verdict, found)

    @cached_property
    def comparisons(self) -> tuple[Table, ...]:
        """Verdicts on the contrast that the search declares, and on all other arms.

        The contrast is a family of its own. The others are compared with its second arm, or where
        none is declared with the arm that validation finds best, and adjusted for each other.
        """
        metadata, metric = self.metadata, self.answer_metric
        scored = self.verdict(metric).ranked
        declared = metadata.compare if set(metadata.compare) <= set(scored) else ()
        ranked = self.verdict(metadata.metric).ranked if metadata.metric else ()
        base = next((arm for arm in (*declared[1:], *ranked) if arm in scored), None)
        with schema.using(*metadata.metrics):
            if base is None or schema.lookup(metric).direction is schema.Direction.NONE:
                return ()
            rest = [
                (arm.name, base)
                for arm in metadata.arms
                if arm.competes and arm.judged_on == metadata.arm(base).judged_on
                if arm.name in scored and arm.name not in {base, *declared}
            ]
            families = {
                "The comparison that answers the question": [(one, base) for one in declared[:1]],
                f"All {'other ' * bool(declared)}arms beside {base}": rest,
            }
            found = []
            for heading, pairs in families.items():
                if pairs:
                    judged = compare.compare(
                        self.selected, metadata, pairs, metric=metric, within=metadata.within
                    )
                    table = compare.table(judged, metadata, metric=metric, within=metadata.within)
                    found.append(replace(table, heading=heading))
            return tuple(found)

    @cached_property
    def answer(self) -> str:
        """The question answered: the contrast that the search declares, then the best arm."""
        metric = self.answer_metric
        with schema.using(*self.metadata.metrics):
            first = contrast.sentence(self.trials, self.selected, self.metadata, metric)
            told = self.metadata.compare if first else ()
            return " ".join(filter(None, [first, self._answer(metric, told)]))

    @property
    def answer_metric(self) -> str:
        """What the answer is about: scores of test data, if any trial has seen them."""
        own, usual = self.metadata.metric, f"test/{self.metadata.quantity}"
        return own if usual not in self.trials and own in self.trials else usual

    def _answer(self, metric: str, told: Collection[str]) -> str:
        """One sentence for the arms of each set of examples that arms are judged on.

        Args:
            metric: by which.
            told: two arms whose difference has been told already.
        """
        groups: dict[str, list[ArmMetadata]] = {}
        for arm in self.metadata.arms:
            if arm.name not in self.metadata.references and arm.competes:
                groups.setdefault(arm.judged_on, []).append(arm)
        competing = sum(map(len, groups.values()))
        if not groups or (len(groups) == 1 and competing == len(self.metadata.arms)):
            return answer.answer(self.verdict(metric), self.summary, told=told)
        answers = []
        for judged_on, arms in groups.items():
            names = [arm.name for arm in arms]
            verdict = judge(
                self.selected[self.selected["arm"].isin(names)],
                replace(self.metadata, arms=tuple(arms)),
                metric,
            )
            # What failed in a reference arm is told too.
            shown = self.summary["arm"].isin(names) | (len(groups) == 1)
            text = answer.answer(verdict, self.summary[shown], told=told)
            where = f"With {judged_on or 'the data as it is'}: " if len(groups) > 1 else ""
            answers.append(where + text)
        return " ".join(answers)

    def verdict(self, metric: str) -> Verdict:
        """The arms compared by a metric of the selected trials."""
        if metric not in self._verdicts:
            with schema.using(*self.metadata.metrics):
                self._verdicts[metric] = judge(self.selected, self.metadata, metric)
        return self._verdicts[metric]

    @cached_property
    def _verdicts(self) -> dict[str, Verdict]:
        return {}

    def paths(self, metric: str) -> pd.DataFrame:
        """Steps of the selected trials for one metric, sorted by trial and step."""
        if self.steps.empty:
            return pd.DataFrame(columns=list(STEP_COLUMNS))
        rows = self.steps[self.steps["metric"] == metric]
        rows = rows[rows["trial"].isin(self.selected["trial"])]
        return rows.sort_values(["trial", "step"], kind="stable")

    def artifact(self, trial: str, name: str) -> pd.DataFrame | None:
        """A table that the trial left; None where there is none."""
        text = self.find(trial, name) if self.find is not None else None
        return None if text is None else pd.read_csv(io.StringIO(text))
