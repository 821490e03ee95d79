import pickle

import numpy as np
import pytest

from tuneparts.data.stored import StoredImages
from tuneparts.data.task import Examples, Task
from tuneparts.errors import DataError


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (30, 3, 4, 4), dtype=np.uint8)


@pytest.fixture
def stored(images, tmp_path):
    np.save(tmp_path / "a.npy", images)
    return StoredImages(tmp_path / "a.npy")


def test_stored_images_index_and_measure_like_the_array(images, stored):
    rows = np.array([7, 3, 20])
    assert stored.shape == images.shape
    assert stored.nbytes == images.nbytes
    np.testing.assert_array_equal(stored[rows], images[rows])
    np.testing.assert_array_equal(stored[2:5], images[2:5])
    np.testing.assert_array_equal(np.asarray(stored), images)


def test_a_selection_of_a_selection_stays_on_disk(images, stored):
    chosen = stored.select(np.array([9, 8, 7, 6])).select(np.array([3, 0]))
    assert chosen.shape == (2, 3, 4, 4)
    np.testing.assert_array_equal(np.asarray(chosen), images[[6, 9]])


def test_a_pickle_carries_the_path_and_not_the_pixels(tmp_path):
    large = np.zeros((100, 3, 64, 64), np.uint8)
    large[42] = 7
    np.save(tmp_path / "large.npy", large)
    examples = Examples(StoredImages(tmp_path / "large.npy"), np.arange(100))
    pickled = pickle.dumps(examples.subset(np.array([42, 0])))
    assert len(pickled) < 2000
    restored = pickle.loads(pickled)
    np.testing.assert_array_equal(restored.inputs[:], large[[42, 0]])


@pytest.mark.parametrize("on_disk", [True, False])
def test_subsets_join_to_the_whole(images, stored, on_disk):
    examples = Examples(stored if on_disk else images, np.arange(30))
    first, second = examples.subset(np.arange(0, 30, 2)), examples.subset(np.arange(1, 30, 2))
    joined = first.joined(second)
    assert isinstance(joined.inputs, StoredImages) == on_disk
    np.testing.assert_array_equal(np.asarray(joined.inputs), images[joined.labels])
    assert sorted(joined.labels.tolist()) == list(range(30))


def test_joining_nothing_copies_nothing(images):
    examples = Examples(images, np.arange(30))
    assert examples.joined(examples.subset(np.array([], np.int64))) is examples


def test_images_of_two_files_do_not_join(images, stored, tmp_path):
    np.save(tmp_path / "b.npy", images)
    with pytest.raises(DataError, match=r"a\.npy and .*b\.npy"):
        stored.joined(StoredImages(tmp_path / "b.npy"))


def test_what_is_not_an_array_of_images_is_refused(tmp_path):
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(DataError, match=r"text\.npy cannot be mapped"):
        StoredImages(tmp_path / "text.npy")
    np.save(tmp_path / "flat.npy", np.zeros(5))
    with pytest.raises(DataError, match=r"flat\.npy must hold uint8"):
        StoredImages(tmp_path / "flat.npy")


def test_a_task_knows_the_shape_of_an_input(images):
    examples = Examples(images, np.arange(30))
    task = Task("t", examples, examples, examples, num_classes=30, mean=(0.0,), std=(1.0,))
    assert task.in_shape == (3, 4, 4)
