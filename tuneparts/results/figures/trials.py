"""Every trial over its own passes: what a search looks like while it runs."""

import pandas as pd

from tuneparts.results.figures.drawing import Drawing, Note, by_arm, canvas, counts_axis
from tuneparts.results.figures.style import focus_note, visible
from tuneparts.results.run_data import RunData
from tuneparts.results.tables import label

MOST = 40
"""Trials drawn of each arm, the newest; more lines than that are one blot."""


def trials(run_data: RunData, metric: str = "") -> Drawing | Note:
    """Draw a line per trial, failed and running ones too; by default of the selection metric."""
    metric = metric or run_data.metadata.metric
    title = f"{label(metric)} of each trial" if metric else "Trials"
    data = lines(run_data, metric)
    if data.empty:
        return Note(title, f"No trial has reported {metric or 'anything'} yet.")
    figure = canvas()
    for arm, style, own in by_arm(run_data.metadata, data):
        x: list[float | None] = []
        y: list[float | None] = []
        text: list[str | None] = []
        for trial, line in own.groupby("trial", sort=False):
            x += [*line["passes"].tolist(), None]  # a gap between two trials
            y += [*line["value"].tolist(), None]
            text += [*[str(trial)] * len(line), None]
        figure.add_scatter(
            x=x,
            y=y,
            text=text,
            name=style.name,
            visible=visible(arm, run_data.metadata),
            mode="lines+markers",
            line=style.line(1.5),
            marker=style.marker(5),
            opacity=0.75,
            hovertemplate="%{text}: %{y:.4f} at %{x} passes<extra></extra>",
        )
    counts_axis(figure, "passes", data["passes"].tolist(), {})
    figure.update_yaxes(title_text=label(metric, arrow=True))
    caption = f"{label(metric).capitalize()} of each trial against its own passes."
    num_left_out = run_data.trials["trial"].nunique() - data["trial"].nunique()
    if num_left_out > 0 and data.groupby("arm")["trial"].nunique().max() == MOST:
        caption += f" The newest {MOST} trials of each arm are drawn."
    return Drawing(title, figure, caption + focus_note(run_data.metadata), data)


def lines(run_data: RunData, metric: str) -> pd.DataFrame:
    """Return columns arm, trial, passes, value, of the newest trials of each arm."""
    columns = ["arm", "trial", "passes", "value"]
    if run_data.steps.empty:
        return pd.DataFrame(columns=columns)
    rows = run_data.steps[run_data.steps["metric"] == metric].dropna(subset=["value"])
    rows = rows.sort_values(["arm", "seed", "index", "step"], kind="stable")
    each = rows.drop_duplicates("trial").sort_values(["time", "trial"], kind="stable")
    rows = rows[rows["trial"].isin(each.groupby("arm")["trial"].tail(MOST))]
    return rows.rename(columns={"step": "passes"})[columns].reset_index(drop=True)
