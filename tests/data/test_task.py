import pickle

import numpy as np
import pytest

from tuneparts.data.task import Examples, StoredImages, Task


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (30, 3, 4, 4), dtype=np.uint8)


@pytest.fixture
def stored(images, tmp_path):
    np.save(tmp_path / "a.npy", images)
    return StoredImages(tmp_path / "a.npy")


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


def test_a_task_knows_the_shape_of_an_input(images):
    examples = Examples(images, np.arange(30))
    task = Task("t", examples, examples, examples, num_classes=30, mean=(0.0,), std=(1.0,))
    assert task.in_shape == (3, 4, 4)
