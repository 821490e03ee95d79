"""Hyperparameters over steps, against scores, and what they do to examples."""

import base64
import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tuneparts.results._sample_grid import SampleGrid
from tuneparts.results.figures._hypers import MAX_PANELS, hypers, projections, samples
from tuneparts.results.figures.drawing import Note
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
    assert (
        " 2 more are in the data file only" in drawing.caption
    )  # 11 names, keep.* is one: 10 panels
    assert set(drawing.data["metric"]) == {f"hyper/{name}" for name in ["rotation", *more]}


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


def test_the_true_value_is_a_line_in_the_panel_of_its_hyper(frames, metadata):
    told = replace(metadata, truth={"hyper/rotation": 3.0})
    for figure, end in ((hypers, "y0"), (projections, "x0")):
        drawn = figure(RunData(told, *frames))
        assert [shape[end] for shape in drawn.figure.layout.shapes] == [3.0]
        assert "true value 3" in [note.text for note in drawn.figure.layout.annotations]
        assert "made with" in drawn.caption
        assert not figure(RunData(metadata, *frames)).figure.layout.shapes


def make_grid(arm="partitioned", *, channels=1):
    rng = np.random.default_rng(3)
    shape = (2, 3, 5, 4, channels)
    return SampleGrid(
        arm=arm,
        seed=0,
        trial=f"{arm}/seed0/00000",
        hypers={"hyper/rotation": 1.25},
        labels=(7, 2),
        originals_EHWC=rng.integers(0, 256, (2, 5, 4, channels), dtype=np.uint8),
        draws_EDHWC=rng.integers(0, 256, shape, dtype=np.uint8),
    )


@pytest.mark.parametrize("channels", [1, 3])
def test_each_image_stands_in_its_place(channels):
    grid = make_grid(channels=channels)
    mosaic = grid.mosaic(gap=2)
    assert mosaic.shape == (2 * 5 + 2, 4 * 4 + 3 * 2, channels)
    for example in range(2):
        for draw in range(3):
            top, left = example * 7, (draw + 1) * 6
            part = mosaic[top : top + 5, left : left + 4]
            assert (part == grid.draws_EDHWC[example, draw]).all()
        assert (mosaic[example * 7 : example * 7 + 5, :4] == grid.originals_EHWC[example]).all()


def test_the_figure_holds_the_very_pixels(trials, steps, metadata):
    grids = (make_grid(), make_grid("random", channels=3))
    drawing = samples(RunData(metadata, trials, steps, grids))
    for trace, grid in zip(drawing.figure.data, grids, strict=True):
        png = base64.b64decode(trace.source.partition(",")[2])
        pixels = np.asarray(Image.open(io.BytesIO(png)))
        assert (pixels == np.broadcast_to(grid.mosaic(), pixels.shape)).all()
    assert "rotation (rad) 1.2" in drawing.caption
    assert drawing.data["value"].tolist() == [1.25, 1.25]


def test_without_sheets_the_note_says_why(trials, steps, metadata):
    run_data = RunData(metadata, trials, steps)
    assert isinstance(samples(run_data), Note)
    assert samples(replace(run_data, sample_grids="no data here")).text == "no data here"
