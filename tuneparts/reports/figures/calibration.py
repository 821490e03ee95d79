"""How honest the probabilities are: calibration error, likelihood and Brier score of each arm."""

import pandas as pd
import plotly.graph_objects as go

from tuneparts import schema
from tuneparts.reports.figures.drawing import Drawing, Note, canvas, place
from tuneparts.reports.figures.style import arm_styles
from tuneparts.reports.run_data import RunData
from tuneparts.reports.select import column
from tuneparts.reports.tables import label

TITLE = "Calibration"
METRICS = ("test/ece", "test/nll", "test/brier")


def calibration(run_data: RunData) -> Drawing | Note:
    """A panel per score: a point per seed of each arm, with mean and one standard error."""
    data = scores(run_data)
    if data.empty:
        return Note(TITLE, f"No selected trial has reported {', '.join(METRICS)}.")
    shown = [metric for metric in METRICS if metric in set(data["metric"])]
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
            figure.add_trace(
                go.Scatter(
                    x=seeds["value"].tolist(),
                    y=[style.name] * len(seeds),
                    mode="markers",
                    marker={
                        "color": style.colour,
                        "symbol": style.symbol,
                        "size": 6,
                        "opacity": 0.5,
                    },
                    showlegend=False,
                    hovertemplate="%{x:.4f}<extra></extra>",
                ),
                **where,
            )
            figure.add_trace(
                go.Scatter(
                    x=[mean],
                    y=[style.name],
                    error_x={"type": "data", "array": [se], "thickness": 2},
                    mode="markers",
                    marker={"color": style.colour, "symbol": style.symbol, "size": 11},
                    showlegend=False,
                    hovertemplate=f"mean %{{x:.4f}}, standard error {se:.4f}<extra></extra>",
                ),
                **where,
            )
        # Panels share their arms, so names stand at the left ones only.
        is_left = where["col"] == 1
        figure.update_yaxes(autorange="reversed", showticklabels=is_left, **where)
        figure.update_xaxes(title_text=label(metric), nticks=5, **where)
    meanings = ", ".join(f"{label(m)}: {schema.lookup(m).meaning}" for m in shown)
    caption = (
        "Scores of the predicted probabilities of the selected trials, smaller is better: small "
        f"marks are seeds, large ones the mean with one standard error. {meanings}."
    )
    return Drawing(TITLE, figure, caption, data, min_width=620 if len(shown) > 1 else 0)


def scores(run_data: RunData) -> pd.DataFrame:
    """Columns arm, seed, metric, value."""
    selected = run_data.selected
    parts = [
        pd.DataFrame(
            {
                "arm": selected["arm"],
                "seed": selected["seed"],
                "metric": metric,
                "value": column(selected, metric),
            }
        )
        for metric in METRICS
    ]
    return pd.concat(parts, ignore_index=True).dropna(subset=["value"])
