import pandas as pd

from tuneparts.reports.evidence import Evidence
from tuneparts.reports.figures.drawing import Note
from tuneparts.reports.figures.hypers import MAX_PANELS, hypers


def test_a_line_per_seed_of_the_selected_trials_of_every_arm_that_follows_none(
    trials, steps, outline
):
    evidence = Evidence(outline, trials, steps)
    figure = hypers(evidence).figure
    assert len(evidence.selected) == 12
    assert len(figure.data) == 9
    assert sum(trace.showlegend for trace in figure.data) == 3


def test_given_values_are_dotted_and_learned_ones_are_not(trials, steps, outline):
    figure = hypers(Evidence(outline, trials, steps)).figure
    dashes = {trace.name: trace.line.dash for trace in figure.data}
    assert dashes == {"none": "dot", "random": "dot", "partitioned": "solid"}


def test_a_family_shares_a_panel_and_panels_are_limited(trials, steps, outline):
    rotation = steps[steps["metric"] == "hyper/rotation"]
    more = ["keep.0", "keep.1", "shear", "scale_x", "scale_y", "translate_x", "translate_y"]
    more += ["temperature", "noise", "brightness"]
    extra = [rotation.assign(metric=f"hyper/{name}") for name in more]
    wide = pd.concat([steps, *extra])
    drawing = hypers(Evidence(outline, trials, wide))
    assert len([key for key in drawing.figure.layout if key.startswith("xaxis")]) == MAX_PANELS
    assert "2 more hypers" in drawing.caption  # 11 names, keep.* is one: 10 panels
    assert set(drawing.data["metric"]) == {f"hyper/{name}" for name in ["rotation", *more]}


def test_without_hypers_a_note(trials, steps, outline):
    bare = steps[~steps["metric"].str.startswith("hyper/")]
    assert isinstance(hypers(Evidence(outline, trials, bare)), Note)
    assert isinstance(hypers(Evidence(outline, trials, steps.iloc[:0])), Note)
