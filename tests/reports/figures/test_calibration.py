import numpy as np
import pytest

from tuneparts.reports.figures.calibration import METRICS, calibration
from tuneparts.reports.run_data import RunData


def test_marks_are_the_seeds_and_their_mean(trials, steps, metadata):
    run_data = RunData(metadata, trials, steps)
    drawing = calibration(run_data)
    traces = {(t.xaxis, t.y[0], len(t.x)): t for t in drawing.figure.data}
    for panel, metric in enumerate(METRICS, start=1):
        axis = "x" if panel == 1 else f"x{panel}"
        for arm in metadata.arms:
            chosen = run_data.selected
            values = chosen[chosen["arm"] == arm.name][metric].to_numpy()
            assert list(traces[axis, arm.name, 3].x) == values.tolist()
            mean = traces[axis, arm.name, 1]
            assert mean.x[0] == pytest.approx(values.mean())
            assert mean.error_x.array[0] == pytest.approx(values.std(ddof=1) / np.sqrt(3))
    assert len(drawing.data) == 3 * 4 * 3
    names = [drawing.figure.layout[f"yaxis{n}"].showticklabels for n in ("", 2, 3)]
    assert names == [True, False, True]  # long names would run into the panel at the left


def test_only_what_was_reported_has_a_panel(trials, steps, metadata):
    bare = trials.drop(columns=["test/ece", "test/brier"])
    drawing = calibration(RunData(metadata, bare, steps))
    assert set(drawing.data["metric"]) == {"test/nll"}
