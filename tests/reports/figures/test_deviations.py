import io

import pandas as pd
import pytest

from tuneparts.errors import UnknownNameError
from tuneparts.reports.figures.deviations import MAX_LAYERS, deviations
from tuneparts.reports.figures.drawing import Drawing, Note
from tuneparts.reports.figures.gallery import draw
from tuneparts.reports.run_data import RunData


def table(num_layers: int) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (f"layer{number}", moment, 0.1 * number + 0.01 * place, 0.001 * place)
            for number in range(num_layers)
            for moment in ("at the start", "at the end")
            for place in range(3)
        ],
        columns=["layer", "moment", "mu", "sigma"],
    )


def run_data(metadata, trials, steps, num_layers: int = 2, arms=("partitioned",)) -> RunData:
    texts = {
        (trial, "deviations"): table(num_layers).to_csv(index=False)
        for trial in trials["trial"]
        if trial.split("/")[0] in arms
    }
    return RunData(metadata, trials, steps, find=lambda trial, name: texts.get((trial, name)))


def test_two_panels_for_each_layer(metadata, trials, steps) -> None:
    drawing = deviations(run_data(metadata, trials, steps))
    assert isinstance(drawing, Drawing)
    assert len(drawing.figure.data) == 4
    titles = [note.text for note in drawing.figure.layout.annotations]
    assert titles[:2] == ["layer0, at the start", "layer0, at the end"]
    expected = table(2)
    own = expected[(expected["layer"] == "layer1") & (expected["moment"] == "at the end")]
    assert list(drawing.figure.data[3].x) == pytest.approx(own["mu"].tolist())
    assert list(drawing.figure.data[3].y) == pytest.approx(own["sigma"].tolist())
    assert set(drawing.data["arm"]) == {"partitioned"}
    assert set(drawing.data["seed"]) == {0}
    assert "At most 3 weights" in drawing.caption


def test_deep_nets_show_some_layers_and_keep_the_rest_as_data(metadata, trials, steps) -> None:
    drawing = deviations(run_data(metadata, trials, steps, num_layers=9))
    assert isinstance(drawing, Drawing)
    titles = [note.text.split(",")[0] for note in drawing.figure.layout.annotations]
    assert titles[::2] == ["layer0", "layer3", "layer5", "layer8"]
    assert len(titles) == 2 * MAX_LAYERS
    assert drawing.data["layer"].nunique() == 9
    assert "5 more layers" in drawing.caption


def test_an_arm_can_be_asked_for(metadata, trials, steps) -> None:
    left = run_data(metadata, trials, steps, arms=("none", "partitioned"))
    both = [draw(request, left) for request in ("deviations", "deviations:partitioned")]
    assert [set(drawing.data["arm"]) for drawing in both] == [{"none"}, {"partitioned"}]
    with pytest.raises(UnknownNameError, match="nobody"):
        draw("deviations:nobody", left)


def test_without_tables_there_is_a_note(metadata, trials, steps) -> None:
    assert isinstance(deviations(RunData(metadata, trials, steps)), Note)
    assert isinstance(deviations(run_data(metadata, trials, steps), "none"), Note)


def test_an_artifact_is_read_as_a_table(metadata, trials, steps) -> None:
    left = run_data(metadata, trials, steps)
    got = left.artifact("partitioned/seed0/00000", "deviations")
    pd.testing.assert_frame_equal(got, pd.read_csv(io.StringIO(table(2).to_csv(index=False))))
    assert left.artifact("partitioned/seed0/00000", "other") is None
