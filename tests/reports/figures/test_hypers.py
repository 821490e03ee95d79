import pandas as pd

from tuneparts.reports.figures.drawing import Note
from tuneparts.reports.figures.hypers import MAX_PANELS, hypers
from tuneparts.reports.run_data import RunData


def test_a_line_per_seed_of_the_selected_trials_of_every_arm_that_follows_none(
    trials, steps, metadata
):
    run_data = RunData(metadata, trials, steps)
    figure = hypers(run_data).figure
    assert len(run_data.selected) == 12
    assert len(figure.data) == 9
    assert sum(trace.showlegend for trace in figure.data) == 3


def test_given_values_are_dotted_and_learned_ones_are_not(trials, steps, metadata):
    figure = hypers(RunData(metadata, trials, steps)).figure
    dashes = {trace.name: trace.line.dash for trace in figure.data}
    assert dashes == {"none": "dot", "random": "dot", "partitioned": "solid"}


def test_a_family_shares_a_panel_and_panels_are_limited(trials, steps, metadata):
    rotation = steps[steps["metric"] == "hyper/rotation"]
    more = ["keep.0", "keep.1", "shear", "scale_x", "scale_y", "translate_x", "translate_y"]
    more += ["temperature", "noise", "brightness"]
    extra = [rotation.assign(metric=f"hyper/{name}") for name in more]
    wide = pd.concat([steps, *extra])
    drawing = hypers(RunData(metadata, trials, wide))
    assert len([key for key in drawing.figure.layout if key.startswith("xaxis")]) == MAX_PANELS
    assert "2 more hypers" in drawing.caption  # 11 names, keep.* is one: 10 panels
    assert set(drawing.data["metric"]) == {f"hyper/{name}" for name in ["rotation", *more]}


def test_without_hypers_a_note(trials, steps, metadata):
    bare = steps[~steps["metric"].str.startswith("hyper/")]
    assert isinstance(hypers(RunData(metadata, trials, bare)), Note)
    assert isinstance(hypers(RunData(metadata, trials, steps.iloc[:0])), Note)
