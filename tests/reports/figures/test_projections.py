from tuneparts.reports.figures.drawing import Note
from tuneparts.reports.figures.projections import projections
from tuneparts.reports.run_data import RunData


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
