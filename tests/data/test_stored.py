import numpy as np
import pytest

from tuneparts.core.errors import DataError
from tuneparts.data.task import StoredImages


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
