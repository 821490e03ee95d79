"""A run goes on with the data that it began with, or says what has changed."""

import json

import pytest

from tuneparts.core.errors import DataError
from tuneparts.data.config import Data
from tuneparts.search import data_record

CONFIG = Data(name="blobs", num_train=30, num_val=10, num_test=10)


def test_it_says_what_a_run_learns_from(tmp_path) -> None:
    assert data_record.read(tmp_path) is None
    data_record.keep(CONFIG.load(), tmp_path)
    found = data_record.read(tmp_path)
    assert found is not None
    digest = found.pop("digest")
    assert len(digest) == 12
    assert found == {
        "name": "blobs",
        "target": "classes",
        "in_shape": [8],
        "num_outputs": 3,
        "num_train": 30,
        "num_val": 10,
        "num_test": 10,
    }


def test_equal_data_goes_on_and_other_data_does_not(tmp_path) -> None:
    task = CONFIG.load()
    data_record.keep(task, tmp_path)
    data_record.keep(CONFIG.load(), tmp_path)
    labels = task.train.labels
    labels[0] = (labels[0] + 1) % 3
    with pytest.raises(DataError, match=r"has changed: digest was [0-9a-f]{12} and is"):
        data_record.keep(task, tmp_path)


def test_a_damaged_record_is_written_anew(tmp_path) -> None:
    (tmp_path / data_record.FILE).write_text("{")
    data_record.keep(CONFIG.load(), tmp_path)
    assert json.loads((tmp_path / data_record.FILE).read_text())["num_train"] == 30
