import numpy as np
import pytest
from scipy import stats

from tuneparts.results.figures.drawing import Note
from tuneparts.results.figures.scores import CALIBRATION_METRICS, calibration, scores
from tuneparts.results.run_data import RunData


def test_intervals_are_students_and_the_best_is_on_top(trials, steps, metadata):
    run_data = RunData(metadata, trials, steps)
    drawing = scores(run_data)
    chosen = run_data.selected
    for row in drawing.data.to_dict("records"):
        values = chosen[chosen["arm"] == row["arm"]]["test/accuracy"].to_numpy(dtype=float)
        low, high = stats.t.interval(0.95, 2, values.mean(), values.std(ddof=1) / np.sqrt(3))
        assert (row["low"], row["high"]) == pytest.approx((low, high))
    means = [trace.x[0] for trace in drawing.figure.data if trace.error_x.array is not None]
    assert means == sorted(means)  # plotly draws the last category on top


def test_smaller_scores_are_on_top_where_smaller_is_better(trials, steps, metadata):
    drawing = scores(RunData(metadata, trials, steps), "test/nll")
    means = [trace.x[0] for trace in drawing.figure.data if trace.error_x.array is not None]
    assert means == sorted(means, reverse=True)


def test_one_seed_has_no_interval(trials, steps, metadata):
    alone = trials[trials["seed"] == 0]
    drawing = scores(RunData(metadata, alone, steps))
    assert drawing.data["low"].isna().all()


def test_no_score_is_said(trials, steps, metadata):
    bare = trials.drop(columns="test/accuracy")
    assert isinstance(scores(RunData(metadata, bare, steps)), Note)


def test_marks_are_the_seeds_and_their_mean(trials, steps, metadata):
    run_data = RunData(metadata, trials, steps)
    drawing = calibration(run_data)
    traces = {(t.xaxis, t.y[0], len(t.x)): t for t in drawing.figure.data}
    for panel, metric in enumerate(CALIBRATION_METRICS, start=1):
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
