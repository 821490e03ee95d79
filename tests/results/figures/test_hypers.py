import pandas as pd

from tuneparts.results.figures.drawing import Note
from tuneparts.results.figures.hypers import MAX_PANELS, hypers, projections
from tuneparts.results.run_data import RunData


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


def test_every_finished_trial_is_a_point(trials, steps, metadata):
    drawing = projections(RunData(metadata, trials, steps))
    points = [trace for trace in drawing.figure.data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in points) == (trials["outcome"] == "finished").sum()
    assert len(drawing.data) == (trials["outcome"] == "finished").sum()


def test_paths_only_where_the_hyper_moved(trials, steps, metadata):
    drawing = projections(RunData(metadata, trials, steps))
    paths = [trace for trace in drawing.figure.data if trace.mode == "lines"]
    assert [trace.legendgroup for trace in paths] == ["partitioned"] * 3
    last = trials[(trials["arm"] == "partitioned") & (trials["seed"] == 0)].iloc[0]
    assert (paths[0].x[-1], paths[0].y[-1]) == (last["hyper/rotation"], last["test/accuracy"])


def test_final_scores_alone_draw_no_path(trials, steps, metadata):
    only_ends = steps[(steps["metric"] != "test/accuracy") | (steps["step"] == 400)]
    drawing = projections(RunData(metadata, trials, only_ends))
    assert all(trace.mode == "markers" or len(trace.x) > 1 for trace in drawing.figure.data)
    assert not [trace for trace in drawing.figure.data if trace.mode == "lines"]


def test_a_hyper_that_never_varies_has_no_panel(trials, steps, metadata):
    trials["hyper/shear"] = 0.1
    drawing = projections(RunData(metadata, trials, steps))
    assert "hyper/shear" not in drawing.data
    trials["hyper/rotation"] = 0.1
    assert isinstance(projections(RunData(metadata, trials, steps)), Note)
