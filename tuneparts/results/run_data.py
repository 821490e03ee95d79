"""What reports are made from: the frames of a run, and all that is derived from them.

Every part is computed once, when it is first asked for.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from tuneparts.core import atomic, schema
from tuneparts.core.errors import ConfigError, DataMissingError
from tuneparts.results import answer, compare, rendering, tables
from tuneparts.results.rendering import Table
from tuneparts.results.sample_grid import SampleGrid
from tuneparts.results.select import column, members, select, summarise
from tuneparts.search.card import RunCard
from tuneparts.search.frames import DRAWN_COLUMNS, SCHEDULE_COLUMNS, STEP_COLUMNS

ArtifactReader: TypeAlias = Callable[[str, str], str | None]
"""Returns the CSV text of a table that a trial left, given (trial, name); None if there is none."""
_COSTS = ("passes", "weight_steps", "seconds")


@dataclass(frozen=True, eq=False)
class RunData:
    """The frames of a run, and what is derived from them.

    Example:
        >>> from tuneparts.search.card import ArmCard
        >>> metadata = RunCard("digits", "?", (ArmCard("a", "standard", 1, (0,)),))
        >>> trial = {"arm": "a", "seed": 0, "index": 0, "outcome": "finished", "error": ""}
        >>> trials = pd.DataFrame([trial | {"test/accuracy": 0.9, "cost/passes": 400}])
        >>> RunData(metadata, trials, steps=pd.DataFrame()).answer
        'a has test accuracy 0.9000 (1 seed); there is no other arm.'
    """

    metadata: RunCard
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
        with schema.using(*self.metadata.metrics):
            return answer.answer(
                self.trials, self.selected, self.summary, self.metadata, self.answer_metric
            )

    @property
    def answer_metric(self) -> str:
        """What the answer is about: scores of test data, if any trial has seen them."""
        own, usual = self.metadata.metric, f"test/{self.metadata.quantity}"
        return own if usual not in self.trials and own in self.trials else usual

    def verdict(self, metric: str) -> compare.Verdict:
        """The arms compared by a metric of the selected trials."""
        if metric not in self._verdicts:
            with schema.using(*self.metadata.metrics):
                self._verdicts[metric] = compare.judge(self.selected, self.metadata, metric)
        return self._verdicts[metric]

    @cached_property
    def _verdicts(self) -> dict[str, compare.Verdict]:
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

    @property
    def front(self) -> pd.DataFrame:
        """The trials on the Pareto front of their arm and seed; none where there is one objective.

        Columns: arm, seed, index, trial, the objectives, `cost/passes`.
        """
        if not self.metadata.objectives:
            return pd.DataFrame()
        known = members(self.trials, self.metadata)
        return known[known["on_front"]].drop(columns="on_front").reset_index(drop=True)

    def at(self, cost: str, *, needs: str) -> "RunData":
        """The run as if every trial had been read at its last report of at most so much of a cost.

        A method that takes two passes for each update of its weights has made half as many updates
        at equal passes; at `weight_steps=1200` it is compared with others at equal updates. Trials
        are selected anew, by what validation said at that report. What a trial reports at its end
        only is missing.

        Raises:
            DataMissingError: No step has the cost or the metric that it `needs`, or none is so
                early.
        """
        name, count = _parse_cost(cost)
        trials = _trials_at(self, name, count, needs)
        return RunData(
            self.metadata,
            trials,
            self.steps,
            schedules=self.schedules,
            drawn=self.drawn,
            find=self.find,
        )

    def write(self, folder: Path) -> dict[str, Path]:
        """Write the report into a folder: page, tables, figures and metadata.

        Only `report.html` holds plotly's code, packed (2 MB), so that the page can be mailed and
        the folder stays small.

        Returns:
            Path by name relative to the folder: report.html, table.md, table.csv, table.tex,
            trials.csv, metadata.json, and figures/<name>.json and .csv for each figure that has
            data.
        """
        from tuneparts.results.figures.drawing import Drawing
        from tuneparts.results.figures.gallery import draw
        from tuneparts.results.page import address, page

        drawings = {address(request): draw(request, self) for request in self.metadata.figures}
        texts = {
            "report.html": page(self, drawings),
            "table.md": rendering.to_markdown(self.tables),
            "table.csv": tables.to_csv(self.summary, self.metadata),
            "table.tex": rendering.to_latex(self.tables),
            "trials.csv": self.trials.to_csv(index=False, lineterminator="\n"),
            "metadata.json": self.metadata.to_json(),
        }
        for name, drawing in drawings.items():
            if isinstance(drawing, Drawing):
                texts[f"figures/{name}.json"] = drawing.figure.to_json()
                texts[f"figures/{name}.csv"] = drawing.data.to_csv(index=False, lineterminator="\n")
        for name, text in texts.items():
            atomic.write_text(folder / name, text)
        return {name: folder / name for name in texts}


def _parse_cost(text: str) -> tuple[str, float]:
    """Read a cost and a count.

    Example:
        >>> _parse_cost("weight_steps=1200")
        ('cost/weight_steps', 1200.0)
    """
    name, _, count = text.partition("=")
    name = name.strip().removeprefix("cost/")
    try:
        value = float(count)
    except ValueError:
        value = -1.0
    if name not in _COSTS or not 0 < value < float("inf"):
        raise ConfigError(
            f"a cost is written as `NAME=COUNT` with one of {', '.join(_COSTS)} and a count above "
            f"0, as in weight_steps=1200, but got `{text}`."
        )
    return f"cost/{name}", value


def _trials_at(data: RunData, cost: str, count: float, needs: str) -> pd.DataFrame:
    search, reports = data.metadata.name, pd.DataFrame(columns=list(STEP_COLUMNS))
    if not data.steps.empty:  # a row per trial and step, a column per metric
        steps = data.steps.drop_duplicates(["trial", "metric", "step"], keep="last")
        reports = steps.pivot_table(index=["trial", "step"], columns="metric", values="value")
        reports["cost/passes"] = reports.index.get_level_values("step").astype(float)
    for name in (cost, needs, data.metadata.metric):
        if name not in reports:
            raise DataMissingError(
                f"arms are compared on the way by what trials report there, but no step of "
                f"{search} has `{name}`. Scores of test data are reported on the way "
                "where the search has `score_test_always`."
            )
    finished = data.trials[data.trials["outcome"] == "finished"]
    silent = sorted(set(finished["trial"]) - set(reports.index.get_level_values("trial")))
    if silent:
        raise DataMissingError(
            f"trials are selected anew on the way, but {len(silent)} of {len(finished)} have no "
            f"steps, as `{silent[0]}`. Released files of large runs hold those of selected trials."
        )
    reached = reports[reports[cost] <= count].groupby(level="trial").tail(1)
    if reached.empty:
        raise DataMissingError(
            f"trials are read at their last report of at most this cost, but the first report of "
            f"{search} is at {reports[cost].min():,.0f} and `{cost}` is asked for at "
            f"{count:,.0f}. Ask for more."
        )
    ends = [n for n in map(str, data.trials) if "/" in n and not n.startswith("param.")]
    reached = reached.reset_index("step", drop=True)
    kept = data.trials.drop(columns=ends)
    return kept.merge(reached, how="left", left_on="trial", right_index=True)


def cost_note(found: RunData, arms: Sequence[str], at: str) -> str:
    """A sentence on where each arm was read, and what that does not mean."""
    chosen, (cost, count) = found.selected, _parse_cost(at)
    places = []
    for arm in arms:
        counts = column(chosen[chosen["arm"] == arm], cost).dropna()
        low, high = (f"{value:,.0f}" for value in (counts.min(), counts.max()))
        places.append(f"{arm} {low}" if low == high else f"{arm} {low} to {high}")
    unit = cost.removeprefix("cost/").replace("_", " ")
    return (
        f"Every trial is read at its last report of at most {count:,.0f} {unit}: "
        f"{', '.join(places)}. Where a learning rate is annealed or a last stage follows, a run of "
        "that length would have ended elsewhere."
    )
