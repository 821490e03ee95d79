"""Every arm's scores with their uncertainty and their seeds: the table as a picture.

`scores` draws one metric, the best arm on top; `calibration` draws what judges the predicted
probabilities: calibration error, likelihood and Brier score.
"""

import pandas as pd

from tuneparts.core import schema
from tuneparts.results.figures.drawing import Drawing, Note, bounded_axis, bounds, canvas, place
from tuneparts.results.figures.style import arm_styles
from tuneparts.results.run_data import RunData
from tuneparts.results.select import column
from tuneparts.results.statistics import FEWEST, estimate, student_interval
from tuneparts.results.tables import label

_ROW_HEIGHT = 26
CALIBRATION = "Calibration"
CALIBRATION_METRICS = ("test/ece", "test/nll", "test/brier")


def scores(run_data: RunData, metric: str = "test/accuracy") -> Drawing | Note:
    """Draw a metric of every arm: mean over seeds with Student's interval, seeds as faint marks."""
    title = f"{label(metric).capitalize()} by arm"
    data = intervals(run_data, metric)
    if data.empty:
        return Note(title, f"No selected trial has reported {metric} yet.")
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    styles, error = arm_styles(run_data.metadata), {"type": "data", "symmetric": False}
    figure = canvas()
    for row in data.sort_values("mean", ascending=is_up, kind="stable").to_dict("records"):
        arm = styles[str(row["arm"])]
        seeds = _seeds(run_data, str(row["arm"]), metric)
        figure.add_scatter(
            x=seeds,
            y=[arm.name] * len(seeds),
            mode="markers",
            marker=arm.marker(8) | {"color": arm.wash},
            hovertemplate="%{x}<extra>one seed</extra>",
            showlegend=False,
        )
        least, most = bounds(metric)
        ends = min(row["high"], most) - row["mean"], row["mean"] - max(row["low"], least)
        above, below = (0, 0) if pd.isna(row["low"]) else ends
        figure.add_scatter(
            x=[row["mean"]],
            y=[arm.name],
            error_x={**error, "array": [above], "arrayminus": [below], "thickness": 2},
            mode="markers",
            marker=arm.marker(10),
            showlegend=False,
        )
    figure.update_layout(height=_ROW_HEIGHT * len(data) + 90)
    figure.update_xaxes(title_text=label(metric, arrow=True))
    bounded_axis(figure.update_xaxes, metric, _seen(run_data, data, metric), {})
    figure.update_yaxes(type="category")
    caption = (
        f"{label(metric).capitalize()} of the trial selected by validation in each seed: mean, "
        "95 % interval (Student's t over seeds; none below three), and the seeds as faint marks. "
        "Arms share seeds, so overlapping intervals do not mean equal arms. Intervals end where "
        "the metric or the axis does."
    )
    return Drawing(title, figure, caption, data)


def _seen(run_data: RunData, data: pd.DataFrame, metric: str) -> list[float]:
    """What the axis must show: all seeds, and intervals that are not wider than tenfold that.

    Two seeds may have an interval that is wider than all scores together; it leaves the axis, and
    the marks stay apart.
    """
    seeds = [value for arm in data["arm"] for value in _seeds(run_data, str(arm), metric)]
    reach = max(seeds) - min(seeds)
    ends = [*data["low"].dropna(), *data["high"].dropna()]
    near = (min(seeds) - reach, max(seeds) + reach)
    return seeds + [min(max(end, near[0]), near[1]) for end in ends if reach > 0]


def intervals(run_data: RunData, metric: str) -> pd.DataFrame:
    """Return columns arm, mean, low, high, seeds; arms without a score have no row."""
    rows = []
    for arm in run_data.metadata.arms:
        values = _seeds(run_data, arm.name, metric)
        if values:
            found = student_interval(values) if len(values) >= FEWEST else None
            low, high = float("nan"), float("nan")
            if found is not None:
                low, high = schema.lookup(metric).bounded(found.low, found.high)
            rows.append((arm.name, estimate(values).mean, low, high, len(values)))
    return pd.DataFrame(rows, columns=["arm", "mean", "low", "high", "seeds"])


def _seeds(run_data: RunData, arm: str, metric: str) -> list[float]:
    own = run_data.selected[run_data.selected["arm"] == arm]
    return [float(value) for value in column(own, metric).dropna()]


def calibration(run_data: RunData) -> Drawing | Note:
    """Draw a panel per score: a point per seed of each arm, with mean and one standard error."""
    parts = [
        run_data.selected[["arm", "seed"]].assign(metric=m, value=column(run_data.selected, m))
        for m in CALIBRATION_METRICS
    ]
    data = pd.concat(parts, ignore_index=True).dropna(subset=["value"])
    if data.empty:
        return Note(
            CALIBRATION, f"No selected trial has reported {', '.join(CALIBRATION_METRICS)}."
        )
    shown = [metric for metric in CALIBRATION_METRICS if metric in set(data["metric"])]
    figure = canvas(len(shown), [label(metric, arrow=True) for metric in shown])
    arms = [arm.name for arm in run_data.metadata.arms if arm.name in set(data["arm"])]
    known = arm_styles(run_data.metadata)
    summary = run_data.summary.set_index("arm")
    for panel, metric in enumerate(shown):
        where = place(panel, len(shown))
        for arm in arms:
            style = known[arm]
            seeds = data[(data["arm"] == arm) & (data["metric"] == metric)]
            mean, se = summary[metric][arm], summary[f"{metric}:se"][arm]
            figure.add_scatter(
                x=seeds["value"].tolist(),
                y=[style.name] * len(seeds),
                mode="markers",
                marker=style.marker(6, opacity=0.5),
                showlegend=False,
                hovertemplate="%{x:.4f}<extra></extra>",
                **where,
            )
            figure.add_scatter(
                x=[mean],
                y=[style.name],
                error_x={"type": "data", "array": [se], "thickness": 2},
                mode="markers",
                marker=style.marker(11),
                showlegend=False,
                hovertemplate=f"mean %{{x:.4f}}, standard error {se:.4f}<extra></extra>",
                **where,
            )
        # Panels share their arms, so names stand at the left ones only.
        is_left = where["col"] == 1
        figure.update_yaxes(autorange="reversed", showticklabels=is_left, **where)
        figure.update_xaxes(title_text=label(metric), nticks=5, **where)
        means, errors = summary[metric].dropna(), summary[f"{metric}:se"].fillna(0.0)
        ends = [*(means - errors[means.index]), *(means + errors[means.index])]
        seen = [*data[data["metric"] == metric]["value"], *ends]
        bounded_axis(figure.update_xaxes, metric, seen, where)
    meanings = ", ".join(f"{label(m)}: {schema.lookup(m).meaning}" for m in shown)
    caption = (
        "Scores of the predicted probabilities of the selected trials, smaller is better: small "
        f"marks are seeds, large ones the mean with one standard error. {meanings}."
    )
    return Drawing(CALIBRATION, figure, caption, data, min_width=620 if len(shown) > 1 else 0)
