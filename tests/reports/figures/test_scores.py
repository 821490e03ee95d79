import numpy as np
import pytest
from scipy import stats

from tuneparts.reports.figures.drawing import Note
from tuneparts.reports.figures.scores import scores
from tuneparts.reports.run_data import RunData


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
