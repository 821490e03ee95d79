"""Tasks, images that stay on disk, and digests of the examples."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from tuneparts.core.errors import DataError
from tuneparts.data.config import Data
from tuneparts.data.task import Examples, StoredImages, Task, digest


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


def test_images_of_two_files_do_not_join(images, stored, tmp_path):
    np.save(tmp_path / "b.npy", images)
    with pytest.raises(DataError, match=r"a\.npy and .*b\.npy"):
        stored.joined(StoredImages(tmp_path / "b.npy"))


def test_what_is_not_an_array_of_images_is_refused(tmp_path):
    (tmp_path / "text.npy").write_text("no array")
    with pytest.raises(DataError, match=r"text\.npy cannot be mapped"):
        StoredImages(tmp_path / "text.npy")
    np.save(tmp_path / "flat.npy", np.zeros(5))
    with pytest.raises(DataError, match=r"flat\.npy cannot be .* not uint8"):
        StoredImages(tmp_path / "flat.npy")


CONFIG = Data(name="blobs", num_train=30, num_val=10, num_test=10)


def test_equal_loads_have_equal_digests() -> None:
    assert digest(CONFIG.load()) == digest(CONFIG.load())


@pytest.mark.parametrize(
    "changes",
    [{"num_train": 29}, {"num_val": 9}, {"num_test": 9}, {"seed": 1}, {"target": "values"}],
)
def test_another_split_or_target_has_another(changes) -> None:
    assert digest(CONFIG.replaced(changes).load()) != digest(CONFIG.load())


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_one_number_changes_it(part: str) -> None:
    task = CONFIG.load()
    old: Examples = getattr(task, part)
    inputs, labels = np.array(old.inputs), old.labels.copy()
    inputs[-1, -1] += 1e-3
    labels[0] = (labels[0] + 1) % 3
    others: list[Task] = [
        replace(task, **{part: Examples(inputs, old.labels)}),
        replace(task, **{part: Examples(old.inputs, labels)}),
        replace(task, mean=(0.5,)),
    ]
    assert len({digest(task), *map(digest, others)}) == 4


def test_images_on_disk_are_known_by_file_and_rows(data_dir, write_image, monkeypatch) -> None:
    from tuneparts.data import _images as image_files

    for part in ("train", "test"):
        for name in ("a", "b"):
            for i in range(4):
                write_image(data_dir / "f" / part / name / f"{i}.png", 10 * i)
    monkeypatch.setattr(image_files, "IN_MEMORY_BYTES", 0)
    found = {digest(Data(name="folder:f", num_train=num).load()) for num in (4, 4, 6)}
    assert len(found) == 2
