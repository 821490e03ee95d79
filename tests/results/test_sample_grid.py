import math

import numpy as np
import pandas as pd
import pytest

from tuneparts.results import _sample_grid
from tuneparts.search import load
from tuneparts.search.spec import Search


@pytest.fixture(scope="module")
def search():
    return load.load("rotated_digits", scale="smoke")


def rows(**hypers: float) -> pd.DataFrame:
    found = [
        {"arm": arm, "seed": 3, "trial": f"{arm}/seed3/00000", **(hypers if arm != "none" else {})}
        for arm in ("partitioned", "none")
    ]
    return pd.DataFrame(found)


def grids(search: Search, **hypers: float) -> tuple[_sample_grid.SampleGrid, ...] | str:
    return _sample_grid.of(search, rows(**hypers), has_run=False)


def test_draws_are_the_augmentation_of_training(search) -> None:
    (grid,) = grids(search, **{"hyper/rotation": math.pi})
    assert grid.arm == "partitioned"
    assert grid.draws_EDHWC.shape == (_sample_grid.NUM_EXAMPLES, _sample_grid.NUM_DRAWS, 8, 8, 1)
    assert grid.labels == (0, 1, 2, 3)
    task = search.data.load(grid.seed)
    first = np.asarray(task.train.inputs)[list(task.train.labels).index(2)]
    assert (grid.originals_EHWC[2, :, :, 0] == first[0]).all()
    spread = grid.draws_EDHWC.astype(float).std(axis=1).mean()
    assert spread > 10  # the draws differ


def test_the_same_run_gives_the_same_draws(search) -> None:
    hypers = {"hyper/rotation": 1.0, "hyper/shear": 0.2, "hyper/dropout.0": 0.3}
    (one,) = grids(search, **hypers)
    (two,) = grids(search, **hypers)
    assert (one.draws_EDHWC == two.draws_EDHWC).all()
    assert set(one.hypers) == {"hyper/rotation", "hyper/shear"}


def test_tiny_hypers_leave_the_data_almost_as_it_is(search) -> None:
    names = ("rotation", "translate_x", "translate_y", "scale_x", "scale_y", "shear")
    (grid,) = grids(search, **{f"hyper/{name}": 1e-6 for name in names})
    gap = grid.draws_EDHWC.astype(float) - grid.originals_EHWC[:, None].astype(float)
    assert np.abs(gap).max() <= 1


def test_without_augmentation_there_is_nothing_to_show(search) -> None:
    assert grids(search) == ()
    assert grids(search, **{"hyper/rotation": 0.0}) == ()


def test_missing_data_is_said(search) -> None:
    away = search.replaced({"data": {"name": "cifar10", "root": "/nowhere", "num_val": 10}})
    assert "not on this machine" in grids(away, **{"hyper/rotation": 1.0})


def test_examples_with_real_labels_are_the_first_ones(search) -> None:
    values = search.replaced({"data.target": "values", "metric": "val/mse"})
    (grid,) = grids(values, **{"hyper/rotation": 1.0})
    expected = values.data.load(grid.seed).train.labels[: _sample_grid.NUM_EXAMPLES, 0]
    assert grid.labels == tuple(f"{label:g}" for label in expected)
