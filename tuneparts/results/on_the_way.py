"""A run as it stood at an earlier cost, so that arms can be compared at another count than the end.

A method that takes two passes for each update of its weights has made half as many updates at equal
passes; `at_cost(data, "cost/weight_steps", 1200)` sets it beside others at equal updates.
"""

from dataclasses import replace

import pandas as pd

from tuneparts.core.errors import ConfigError, DataMissingError
from tuneparts.results.run_data import RunData
from tuneparts.results.select import column
from tuneparts.search.frames import STEP_COLUMNS

COSTS = ("passes", "weight_steps", "seconds")


def parse(text: str) -> tuple[str, float]:
    """Read a cost and a count.

    Example:
        >>> parse("weight_steps=1200")
        ('cost/weight_steps', 1200.0)
    """
    name, _, count = text.partition("=")
    name = name.strip().removeprefix("cost/")
    try:
        value = float(count)
    except ValueError:
        value = -1.0
    if name not in COSTS or not 0 < value < float("inf"):
        raise ConfigError(
            f"a cost is written as `NAME=COUNT` with one of {', '.join(COSTS)} and a count above "
            f"0, as in weight_steps=1200, but got `{text}`."
        )
    return f"cost/{name}", value


def at_cost(data: RunData, cost: str, count: float, *, needs: str) -> RunData:
    """The run as if every trial had been read at its last report of at most `count` of a cost.

    Trials are selected anew, by what validation said at that report. What a trial reports at its
    end only is missing.

    Raises:
        DataMissingError: No step has the cost or the metric that it `needs`, or none is so early.
    """
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
    return replace(data, trials=kept.merge(reached, how="left", left_on="trial", right_index=True))


def told(found: RunData, arms: list[str], cost: str, count: float) -> str:
    """A sentence on where each arm was read, and what that does not mean."""
    chosen = found.selected
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
