import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tuneparts.results.figures.drawing import Note
from tuneparts.results.figures.samples import samples
from tuneparts.results.run_data import RunData
from tuneparts.results.sample_grid import SampleGrid


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
    assert samples(replace(run_data, sample_grids_note="no data here")).text == "no data here"
