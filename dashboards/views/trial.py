"""One trial: how it ended, its config, its metrics, its curves, and the tail of its log."""

import pandas as pd
import streamlit as st

from tuneparts.core import schema
from tuneparts.results.tables import label, number
from views import parts, source

NUM_LINES = 30


def show() -> None:
    """Show the page."""
    place = source.uri()
    parts.some_runs(place)
    run_id = st.query_params.get("id", "")
    found = source.trial(place, run_id) if run_id else None
    if found is None:
        st.title("Trial")
        st.info("Choose a trial: open a search and follow `open` in its list of trials.")
        return
    row, steps = found
    st.title(str(row["trial"]))
    st.markdown(f"{row['outcome']} · run `{row['run_id']}`")
    parent = str(row["parent_run_id"])
    runs = source.runs(place)
    status = runs.loc[runs["parent_run_id"] == parent, "status"]
    is_over = len(status) > 0 and status.iloc[0] != source.RUNNING
    parts.links(place, parent, is_over=is_over, run_id=run_id)
    if row["error"]:
        st.error("The trial failed:")
        st.code(str(row["error"]), language=None)
    _curves(steps)
    left, right = st.columns(2)
    with left:
        st.subheader("Metrics at the end")
        _metrics(row)
    with right:
        st.subheader("Config")
        params = {
            k.removeprefix("param."): str(v) for k, v in row.items() if k.startswith("param.")
        }
        parts.whole(pd.DataFrame(sorted(params.items()), columns=["field", "value"]))
    st.subheader("Reports")
    st.code("\n".join(report_lines(steps)[-NUM_LINES:]) or "nothing reported yet", language=None)
    st.caption("What the trial reported, newest last.")
    st.subheader("Log")
    said = source.log(place, str(row["parent_run_id"]), str(row["trial"]))
    st.code("\n".join(said[-NUM_LINES:]) or "nothing here", language=None)
    st.caption(
        "What its worker printed, with warnings and tracebacks, newest last. It is stored with the "
        "checkpoints, and is read where the folder of results is the one that the search wrote to."
    )


def _curves(steps: pd.DataFrame) -> None:
    metrics = sorted(steps["metric"].unique())
    if not metrics:
        st.info("Nothing reported yet.")
        return
    first = parts.telling(steps["metric"].value_counts().to_dict())
    metric = st.selectbox("Metric", metrics, index=metrics.index(first))
    own = steps[steps["metric"] == metric]
    st.line_chart(own, x="step", y="value", x_label="steps", y_label=label(metric), height=280)


def _metrics(row: dict[str, object]) -> None:
    rows = [
        (
            name,
            number(float(str(value)), schema.lookup(name).decimals),
            schema.lookup(name).unit,
            schema.lookup(name).meaning,
        )
        for name, value in row.items()
        if "/" in name and not name.startswith("param.")
    ]
    parts.whole(pd.DataFrame(rows, columns=["metric", "value", "unit", "meaning"]))


def report_lines(steps: pd.DataFrame) -> list[str]:
    """Return a line per report, oldest first: time, steps and metrics."""
    lines = []
    for step, own in steps.sort_values(["step", "metric"]).groupby("step"):
        words = ", ".join(
            f"{name} {number(value, schema.lookup(name).decimals)}"
            for name, value in zip(own["metric"], own["value"], strict=True)
            if name.split("/")[0] in {"train", "val", "test", "hyper", "lml"}
        )
        lines.append(f"{own['time'].max():%H:%M:%S} {step:>7} steps: {words}")
    return lines
