"""What reports are made from: the frames of a run, and all that is derived from them, once."""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from tuneparts.core import atomic, schema
from tuneparts.core.errors import ConfigError, DataMissingError
from tuneparts.results import answer, compare, rendering, tables
from tuneparts.results._sample_grid import SampleGrid
from tuneparts.results.compare import Comparison, Decision, _Verdict
from tuneparts.results.rendering import Table
from tuneparts.results.select import _by_seed, _members, _select, _summarise, column
from tuneparts.results.statistics import _estimate, _Worth, _worth
from tuneparts.search.card import ArmCard, RunCard
from tuneparts.search.frames import DRAWN_COLUMNS, SCHEDULE_COLUMNS, STEP_COLUMNS

ArtifactReader: TypeAlias = Callable[[str, str], str | None]
"""Returns the CSV text of a table that a trial left, given (trial, name); None if there is none."""
_COST = re.compile(r"\s*(?:cost/)?(steps|updates|seconds)\s*=\s*(\d+\.?\d*(?:e\d+)?)\s*")


@dataclass(frozen=True, eq=False)
class RunData:
    """The frames of a run, and what is derived from them."""

    metadata: RunCard
    trials: pd.DataFrame
    """One row per trial; see `frames.trials`."""
    steps: pd.DataFrame
    """One row per trial, metric and step (steps so far); see `frames.steps`."""
    sample_grids: tuple[SampleGrid, ...] | str = ()
    """Examples under the augmentation that selected trials found, or why there are none."""
    schedules: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=SCHEDULE_COLUMNS))
    """Values that changed on the way of each trial; see `frames.schedules`."""
    drawn: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=DRAWN_COLUMNS))
    """What each trial drew from its arm's space; see `frames.drawn`."""
    find: ArtifactReader | None = None
    """Reads the tables that trials left; None where they are out of reach."""

    @cached_property
    def selected(self) -> pd.DataFrame:
        """The selected trial of each (arm, seed): the best by validation."""
        with schema.using(*self.metadata.metrics):
            return _select(self.trials, self.metadata)

    @cached_property
    def summary(self) -> pd.DataFrame:
        with schema.using(*self.metadata.metrics):
            return _summarise(self.trials, self.metadata, self.selected)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The tables of the report: scores and costs, hyperparameters, communication, schedules."""
        with schema.using(*self.metadata.metrics):
            return tables._build(self)

    @cached_property
    def comparisons(self) -> tuple[Table, ...]:
        """Verdicts on the contrast that the search declares, and as a family on all other arms.

        Those are compared with its second arm, or with the one that validation finds best.
        """
        metadata, metric, within = self.metadata, self.answer_metric, self.metadata.within
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
                if not arm.is_tuning and arm.judged_on == metadata.arm(base).judged_on
                if arm.name in scored and arm.name not in {base, *declared}
            ]
            families = {
                "The comparison that answers the question": [(one, base) for one in declared[:1]],
                f"All {'other ' * bool(declared)}arms compared with {base}": rest,
            }
            return tuple(
                compare.table(self.compared(pairs, metric, within), name, metric, within)
                for name, pairs in families.items()
                if pairs
            )

    @cached_property
    def answer(self) -> str:
        with schema.using(*self.metadata.metrics):
            return answer._answer(self)

    @property
    def answer_metric(self) -> str:
        """What the answer is about: scores of test data, if any trial has seen them."""
        own, usual = self.metadata.metric, f"test/{self.metadata.quantity}"
        return own if usual not in self.trials and own in self.trials else usual

    def verdict(self, metric: str, arms: Sequence[ArmCard] | None = None) -> _Verdict:
        """The best arm by a metric of the selected trials compared with all others."""
        arms = self.metadata.arms if arms is None else arms
        scores = {arm.name: _by_seed(self.selected, arm.name, metric) for arm in arms}
        means = {arm: _estimate(list(own.values())).mean for arm, own in scores.items() if own}
        with schema.using(*self.metadata.metrics):
            ranked = sorted(means, key=lambda arm: means[arm], reverse=compare.is_up(metric))
            # Scores on different examples are no comparison, so no arm wins.
            is_one_task = len({arm.judged_on for arm in arms if arm.name in means}) <= 1
            pairs = [(ranked[0], name) for name in ranked[1:]] if is_one_task else []
            found = compare._verdicts(scores, pairs, metric=metric, jointly=True)
        return _Verdict(metric, tuple(ranked), {one.other: one for one in found})

    def compared(
        self, pairs: Sequence[tuple[str, str]], metric: str, within: float | None = None
    ) -> list[Comparison]:
        """Verdicts on pairs of arms, adjusted for each other, over the selected trials."""
        scores = self._scores(pairs, metric, within)
        found = compare._verdicts(scores, pairs, metric=metric, within=within)
        for i, pair in enumerate(pairs):
            if pair in self.metadata.until_decided:
                decided = self.decide(pair, metric=metric, within=within)
                found[i] = replace(found[i], decision=decided)
        return found

    def decide(
        self, pair: tuple[str, str], *, within: float | None = None, metric: str = "test/accuracy"
    ) -> Decision:
        """What the seeds that two arms share allow to say, however often one looks."""
        one, other = self._scores([pair], metric, within).values()
        differences = [one[seed] - other[seed] for seed in sorted(set(one) & set(other))]
        return compare._decide(differences, within=within, is_up=compare.is_up(metric))

    def _scores(
        self, pairs: Sequence[tuple[str, str]], metric: str, within: float | None
    ) -> dict[str, dict[int, float]]:
        """By arm and seed; refuses what cannot be compared."""
        if schema.lookup(metric).direction is schema.Direction.NONE:
            raise ConfigError(f"`{metric}` has no direction: more is neither better nor worse.")
        if within is not None and not 0 < within < math.inf:
            raise ConfigError(f"`within` = {within}: a margin of equivalence is above 0.")
        for one, other in pairs:
            if one == other:
                raise ConfigError(f"`{one}`: compared with itself, named twice. Name two arms.")
            if self.metadata.arm(one).judged_on != self.metadata.arm(other).judged_on:
                raise ConfigError(f"`{one}` and `{other}` are judged on different examples.")
        scores = {name: _by_seed(self.selected, name, metric) for pair in pairs for name in pair}
        if silent := next((name for name, own in scores.items() if not own), None):
            raise ConfigError(
                "arms are compared by a metric that they have, but no selected trial of "
                f"`{silent}` has `{metric}`. Choose another metric or arm."
            )
        return scores

    def worth(self, arm: str, against: str, metric: str) -> _Worth | None:
        """How many trials of one arm match another one; None where trials depend on each other."""
        searching = self.metadata.arm(against)
        if searching.is_adaptive or searching.trials_per_seed == 1:
            return None
        rule = schema.selection_metric(self.metadata.metric)
        known = self.trials[self.trials["arm"] == against]
        known = known[known["outcome"] == "finished"].sort_values("index")
        known = known.assign(val=column(known, rule.name), test=column(known, metric))
        groups = known.dropna(subset=["val", "test"]).groupby("seed")
        return _worth(
            {int(str(seed)): (own["val"], own["test"]) for seed, own in groups},
            _by_seed(self.selected, arm, metric),
            selects_larger=compare.is_up(rule.name),
            larger_is_better=compare.is_up(metric),
        )

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
        """The trials on the Pareto front of their arm and seed; none with one objective."""
        if not self.metadata.objectives:
            return pd.DataFrame()
        known = _members(self.trials, self.metadata)
        return known[known["on_front"]].drop(columns="on_front").reset_index(drop=True)

    def at(self, cost: str, *, needs: str) -> "RunData":
        """The run as if every trial had been read at its last report of at most so much of a cost.

        Trials are selected anew, by what validation said at that report; what a trial reports at
        its end only, which `needs` cannot be, is missing.
        """
        name, count = _parse_cost(cost)
        run, reports = self.metadata.name, pd.DataFrame()
        if not self.steps.empty:  # a row per trial and step, a column per metric
            steps = self.steps.drop_duplicates(["trial", "metric", "step"], keep="last")
            reports = steps.pivot_table(index=["trial", "step"], columns="metric", values="value")
            reports["cost/steps"] = reports.index.get_level_values("step").astype(float)
        for metric in (name, needs, self.metadata.metric):
            if metric not in reports:
                raise DataMissingError(
                    f"no step of {run} has `{metric}`. Scores of test data are reported on the way "
                    "where the search has `score_test_always`."
                )
        finished = self.trials["trial"][self.trials["outcome"] == "finished"]
        if silent := sorted(set(finished) - set(reports.index.get_level_values("trial"))):
            raise DataMissingError(
                f"{len(silent)} of {len(finished)} have no steps, as `{silent[0]}`, but trials are "
                "selected anew on the way. Large runs release those of selected ones."
            )
        reached = reports[reports[name] <= count].groupby(level="trial").tail(1)
        if reached.empty:
            first = f"the first report of {run} is at {reports[name].min():,.0f}"
            raise DataMissingError(f"`{cost}`: {first}. Ask for more.")
        ends = [n for n in map(str, self.trials) if "/" in n and not n.startswith("param.")]
        reached, kept = reached.reset_index("step", drop=True), self.trials.drop(columns=ends)
        trials = kept.merge(reached, how="left", left_on="trial", right_index=True)
        return RunData(self.metadata, trials, self.steps)

    def write(self, folder: Path) -> dict[str, Path]:
        from tuneparts.results.figures.drawing import Drawing
        from tuneparts.results.figures.gallery import draw
        from tuneparts.results.page import _page, address

        drawings = {address(request): draw(request, self) for request in self.metadata.figures}
        texts = {
            "report.html": _page(self, drawings),
            "table.md": rendering.to_markdown(self.tables),
            "table.csv": tables._to_csv(self.summary, self.metadata),
            "table.tex": rendering._to_latex(self.tables),
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
    match = _COST.fullmatch(text)
    if match is None or not float(match[2]):
        raise ConfigError(
            f"`{text}`: a cost is written as `NAME=COUNT` with steps, updates or seconds and "
            "a count above 0, as in updates=1200."
        )
    return f"cost/{match[1]}", float(match[2])


def cost_note(data: RunData, compared: Sequence[Comparison], at: str) -> str:
    """A sentence on where each arm was read, and what that does not mean."""
    chosen, (cost, count) = data.selected, _parse_cost(at)
    places = []
    for arm in dict.fromkeys(name for pair in compared for name in (pair.one, pair.other)):
        counts = column(chosen[chosen["arm"] == arm], cost).dropna()
        ends = dict.fromkeys(f"{value:,.0f}" for value in (counts.min(), counts.max()))
        places.append(f"{arm} {' to '.join(ends)}")
    unit = cost.removeprefix("cost/").replace("_", " ")
    return (
        f"Every trial is read at its last report of at most {count:,.0f} {unit}: "
        f"{', '.join(places)}. Where a learning rate is annealed or a last stage follows, a run of "
        "that length would have ended elsewhere."
    )
