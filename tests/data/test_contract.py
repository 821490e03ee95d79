"""Our own sets, and data of one's own, keep the contract that outsiders inherit."""

import numpy as np
import pytest

from tuneparts.data.config import Data
from tuneparts.testing import DatasetContract


def waves(noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    draws = np.random.default_rng(0)
    x = draws.uniform(-3, 3, (60, 2))
    return x, np.sin(x[:, 0]) + noise * draws.standard_normal(60)


def unseeded() -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng().uniform(size=(60, 2)), np.arange(60) % 2


def leaking() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    x, y = waves()
    return {"train": (x[:40], y[:40]), "test": (x[30:], y[30:])}


class TestDigits(DatasetContract):
    data = Data(name="digits", num_val=200)


class TestRotatedDigits(DatasetContract):
    data = Data(name="digits", rotated=True, num_train=200, num_val=50, num_test=50)


class TestBlobs(DatasetContract):
    data = Data(name="blobs", num_val=100)


class TestStripes(DatasetContract):
    data = Data(name="stripes", num_train=100, num_val=50)


class TestInputSelection(DatasetContract):
    data = Data(name="input_selection", num_train=100, num_val=50, target="binary")


class TestOwnValues(DatasetContract):
    data = Data(name=waves, arguments={"noise": 0.2}, num_val=10, target="values")


def test_each_law_finds_data_that_breaks_it() -> None:
    class Unseeded(DatasetContract):
        data = Data(name=unseeded)

    with pytest.raises(AssertionError):
        Unseeded().test_it_loads_equal_twice()

    class Leaking(DatasetContract):
        data = Data(name=leaking, target="values")

    with pytest.raises(AssertionError):
        Leaking().test_parts_are_disjoint()
