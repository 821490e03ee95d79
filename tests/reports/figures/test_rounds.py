import numpy as np
import pandas as pd
import pytest

from tuneparts.reports.figures.drawing import Drawing, Note
from tuneparts.reports.figures.rounds import by_round, rounds
from tuneparts.reports.run_data import RunData

ROUND_AT = {40: 0, 80: 1, 120: 1, 160: 3}
"""Step to rounds so far: two reports in one round, and a round without a report."""


def run_data(metadata, trials, scale: float = 1.0) -> RunData:
    rows = []
    for trial in trials[trials["arm"] == "partitioned"].to_dict("records"):
        identity = {key: trial[key] for key in ("trial", "arm", "seed", "index")}
        for step, number in ROUND_AT.items():
            value = scale * (step + trial["seed"])
            pairs = {"fixing/rounds": number, "size/unique_weights": value}
            rows += [{**identity, "metric": m, "step": step, "value": v} for m, v in pairs.items()]
    return RunData(metadata, trials, pd.DataFrame(rows))


def test_the_last_report_of_each_round_counts(metadata, trials) -> None:
    got = by_round(run_data(metadata, trials), "size/unique_weights")
    assert got["round"].tolist() == [0, 1, 3]
    # Seeds 0, 1, 2 differ by one: mean 1 above the step, standard error 1 / sqrt(3).
    assert got["mean"].tolist() == pytest.approx([41, 121, 161])
    assert got["se"].tolist() == pytest.approx([1 / np.sqrt(3)] * 3)
    assert got["seeds"].tolist() == [3, 3, 3]


def test_the_drawing_shows_them(metadata, trials) -> None:
    drawing = rounds(run_data(metadata, trials), "size/unique_weights")
    assert isinstance(drawing, Drawing)
    (trace,) = drawing.figure.data
    assert list(trace.x) == [0, 1, 3]
    assert list(trace.y) == pytest.approx([41, 121, 161])
    assert drawing.figure.layout.yaxis.type == "linear"


def test_wide_ranges_have_a_logarithmic_axis(metadata, trials) -> None:
    wide = run_data(metadata, trials)
    wide.steps.loc[wide.steps["value"] > 159, "value"] *= 100
    drawing = rounds(wide, "size/unique_weights")
    assert isinstance(drawing, Drawing)
    assert drawing.figure.layout.yaxis.type == "log"


def test_without_rounds_there_is_a_note(metadata, trials, steps) -> None:
    assert isinstance(rounds(RunData(metadata, trials, steps)), Note)
