import io

import numpy as np
import pandas as pd
import pytest

from tuneparts.results.figures.drawing import Drawing, Note
from tuneparts.results.figures.fixing import MAX_LAYERS, by_round, deviations, rounds
from tuneparts.results.figures.gallery import draw
from tuneparts.results.run_data import RunData

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


def weights_of(num_layers: int) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (f"layer{number}", moment, 0.1 * number + 0.01 * place, 0.001 * place)
            for number in range(num_layers)
            for moment in ("at the start", "at the end")
            for place in range(3)
        ],
        columns=["layer", "moment", "mu", "sigma"],
    )


def left_by(metadata, trials, steps, num_layers: int = 2, arms=("partitioned",)) -> RunData:
    texts = {
        (trial, "deviations"): weights_of(num_layers).to_csv(index=False)
        for trial in trials["trial"]
        if trial.split("/")[0] in arms
    }
    return RunData(metadata, trials, steps, find=lambda trial, name: texts.get((trial, name)))


def test_two_panels_for_each_layer(metadata, trials, steps) -> None:
    drawing = deviations(left_by(metadata, trials, steps))
    assert isinstance(drawing, Drawing)
    assert len(drawing.figure.data) == 4
    titles = [note.text for note in drawing.figure.layout.annotations]
    assert titles[:2] == ["layer0, at the start", "layer0, at the end"]
    expected = weights_of(2)
    own = expected[(expected["layer"] == "layer1") & (expected["moment"] == "at the end")]
    assert list(drawing.figure.data[3].x) == pytest.approx(own["mu"].tolist())
    assert list(drawing.figure.data[3].y) == pytest.approx(own["sigma"].tolist())
    assert set(drawing.data["arm"]) == {"partitioned"}
    assert set(drawing.data["seed"]) == {0}
    assert "At most 3 weights" in drawing.caption


def test_deep_nets_show_some_layers_and_keep_the_rest_as_data(metadata, trials, steps) -> None:
    drawing = deviations(left_by(metadata, trials, steps, num_layers=9))
    assert isinstance(drawing, Drawing)
    titles = [note.text.split(",")[0] for note in drawing.figure.layout.annotations]
    assert titles[::2] == ["layer0", "layer3", "layer5", "layer8"]
    assert len(titles) == 2 * MAX_LAYERS
    assert drawing.data["layer"].nunique() == 9
    assert "5 more layers" in drawing.caption


def test_an_arm_can_be_asked_for(metadata, trials, steps) -> None:
    left = left_by(metadata, trials, steps, arms=("none", "partitioned"))
    both = [draw(request, left) for request in ("deviations", "deviations:partitioned")]
    assert [set(drawing.data["arm"]) for drawing in both] == [{"none"}, {"partitioned"}]
    absent = draw("deviations:nobody", left)
    assert isinstance(absent, Note)
    assert "`nobody`, which this run does not have" in absent.text


def test_deviations_without_tables_there_is_a_note(metadata, trials, steps) -> None:
    assert isinstance(deviations(RunData(metadata, trials, steps)), Note)
    assert isinstance(deviations(left_by(metadata, trials, steps), "none"), Note)


def test_an_artifact_is_read_as_a_table(metadata, trials, steps) -> None:
    left = left_by(metadata, trials, steps)
    got = left.artifact("partitioned/seed0/00000", "deviations")
    pd.testing.assert_frame_equal(got, pd.read_csv(io.StringIO(weights_of(2).to_csv(index=False))))
    assert left.artifact("partitioned/seed0/00000", "other") is None
