import math
from dataclasses import replace

import pytest

from tuneparts.results.figures.drawing import bounded_axis, bounds, canvas, counts_axis
from tuneparts.results.figures.hypers import _add_truth, hypers, projections
from tuneparts.results.figures.scores import scores
from tuneparts.results.run_data import RunData


@pytest.mark.parametrize(
    ("metric", "values", "least", "most"),
    [
        ("test/accuracy", [-4.0, 0.5, 4.1], -0.05, 1.05),
        ("test/nll", [-1.0, 0.1], -0.01, 0.2),
        ("hyper/rotation", [-4.0, 4.0], -5.0, 5.0),
        ("test/accuracy", [0.5], 0.4, 0.6),
    ],
)
def test_an_axis_ends_where_its_metric_does(metric, values, least, most):
    figure = canvas()
    bounded_axis(figure.update_xaxes, metric, [*values, math.nan], {})
    low, high = figure.layout.xaxis.range
    assert least <= low < high <= most


def test_nothing_finite_leaves_the_axis_to_itself():
    figure = canvas()
    bounded_axis(figure.update_xaxes, "test/accuracy", [math.nan, math.inf], {})
    assert figure.layout.xaxis.range is None


def test_a_logarithmic_axis_says_so():
    figure = canvas()
    counts_axis(figure, "passes", [10, 20], {})
    assert figure.layout.xaxis.title.text == "passes"
    counts_axis(figure, "passes", [10, 2000], {})
    assert figure.layout.xaxis.title.text == "passes (log scale)"


def test_two_seeds_do_not_stretch_the_axis_of_scores(frames, metadata):
    trials = frames[0][frames[0]["seed"] < 2]
    arms = tuple(replace(arm, seeds=(0, 1)) for arm in metadata.arms)
    figure = scores(RunData(replace(metadata, arms=arms), trials, frames[1])).figure
    low, high = figure.layout.xaxis.range
    known = trials["test/accuracy"].dropna()
    assert low >= 0
    assert high <= 1.02
    assert high - low <= 4 * (known.max() - known.min())
    least, most = bounds("test/accuracy")
    for trace in figure.data[1::2]:
        assert least <= trace.x[0] - trace.error_x.arrayminus[0]
        assert trace.x[0] + trace.error_x.array[0] <= most


def test_the_true_value_is_a_line_in_the_panel_of_its_hyper(frames, metadata):
    told = replace(metadata, truth={"hyper/rotation": 3.0})
    for figure, end in ((hypers, "y0"), (projections, "x0")):
        drawn = figure(RunData(told, *frames))
        assert [shape[end] for shape in drawn.figure.layout.shapes] == [3.0]
        assert "true value 3" in [note.text for note in drawn.figure.layout.annotations]
        assert "made with" in drawn.caption
        assert not figure(RunData(metadata, *frames)).figure.layout.shapes
    empty = canvas()
    _add_truth(empty, told, "hyper/shear", {"row": 1, "col": 1}, axis="y")
    assert not empty.layout.shapes
