"""Rotated, shrunk and corrupted images."""

import pickle

import numpy as np
import pytest
from scipy import ndimage

from tuneparts.core.errors import ConfigError, DataError, DataMissingError
from tuneparts.data import _variants
from tuneparts.data._variants import angles, resample
from tuneparts.data.config import Data


@pytest.fixture
def images():
    return np.random.default_rng(0).integers(0, 256, (12, 2, 9, 9), dtype=np.uint8)


def _reference(image_HW, degrees):
    """Bilinear by hand: each output pixel looks up its source among zeros outside."""
    height, width = image_HW.shape
    a = np.deg2rad(degrees)
    rows, cols = np.mgrid[:height, :width]
    u, v = cols - (width - 1) / 2, rows - (height - 1) / 2
    source_col = np.cos(a) * u - np.sin(a) * v + (width - 1) / 2
    source_row = np.sin(a) * u + np.cos(a) * v + (height - 1) / 2
    padded = np.pad(image_HW.astype(np.float64), 2)
    return ndimage.map_coordinates(
        padded, [source_row + 2, source_col + 2], order=1, mode="constant", cval=0.0
    )


def test_quarter_turns_are_exact_and_counter_clockwise(images):
    for turns in range(4):
        got = resample(images, degrees_N=np.full(12, 90.0 * turns), pool=1)
        np.testing.assert_array_equal(got, np.rot90(images, turns, axes=(2, 3)))


@pytest.mark.parametrize("shape", [(9, 9), (8, 8), (6, 11)])
def test_any_angle_matches_bilinear_by_hand(shape):
    rng = np.random.default_rng(1)
    images = rng.integers(0, 256, (8, 1, *shape), dtype=np.uint8)
    degrees = rng.uniform(-180, 180, 8)
    got = resample(images, degrees_N=degrees, pool=1)
    for image, angle, result in zip(images, degrees, got, strict=True):
        # Half a grey level is rounding; the reference rounds at the same place but for ties.
        assert np.abs(result[0] - _reference(image[0], angle)).max() <= 0.5 + 1e-6


def test_pooling_comes_after_the_rotation_and_rounds_once(images):
    even = images[:, :, :8, :8]
    degrees = np.linspace(-170, 170, 12)
    got = resample(even, degrees_N=degrees, pool=2)
    for image, angle, result in zip(even, degrees, got, strict=True):
        fine = _reference(image[1], angle)
        coarse = fine.reshape(4, 2, 4, 2).mean(axis=(1, 3))
        assert np.abs(result[1] - coarse).max() <= 0.5 + 1e-6


def test_pooling_alone_averages_blocks(images):
    got = resample(images, degrees_N=None, pool=3)
    means = images.reshape(12, 2, 3, 3, 3, 3).mean(axis=(3, 5))
    assert np.abs(got - means).max() <= 0.5 + 1e-9


def test_an_image_does_not_depend_on_its_company(images):
    degrees = np.linspace(-170, 170, 12)
    together = resample(images, degrees_N=degrees, pool=1)
    alone = np.concatenate(
        [resample(images[i : i + 1], degrees_N=degrees[i : i + 1], pool=1) for i in range(12)]
    )
    np.testing.assert_array_equal(together, alone)


def test_angles_belong_to_the_place_in_the_part():
    np.testing.assert_array_equal(angles(100, "train")[:10], angles(10, "train"))
    assert not np.allclose(angles(10, "train"), angles(10, "test"))


def test_angles_cover_the_circle_evenly():
    counts, _ = np.histogram(angles(10_000, "train"), bins=8, range=(-180, 180))
    assert counts.sum() == 10_000
    # Six standard deviations of a bin's count.
    assert np.abs(counts - 1250).max() < 6 * np.sqrt(1250)


NUM = 6
LABELS = np.array([0, 1, 2, 0, 1, 2], np.uint8)


def level(kind, severity, image):
    """The grey level of an image, which says where it comes from."""
    return 12 * _variants.MAIN.index(kind) + 2 * severity + image // 3


def write(folder, kinds=_variants.MAIN):
    folder.mkdir()
    for kind in kinds:
        images = np.zeros((5 * NUM, 32, 32, 3), np.uint8)
        for number in range(5 * NUM):
            images[number] = level(kind, 1 + number // NUM, number % NUM)
        np.save(folder / f"{kind}.npy", images)
    np.save(folder / "labels.npy", np.tile(LABELS, 5))
    return folder


@pytest.fixture
def folder(data_dir):
    return write(data_dir / "CIFAR-10-C")


@pytest.fixture
def cifar10(data_dir, write_image):
    """CIFAR-10 as a folder of images: twelve to train on, six to test."""
    for part, num in (("train", 4), ("test", 2)):
        for label in "abc":
            for number in range(num):
                write_image(data_dir / "cifar10" / part / label / f"{number}.png", 40 * number)


def test_every_condition_is_its_block_of_the_published_array(folder, data_dir):
    found = _variants.find_corrupted("cifar10", "main", [data_dir])
    assert len(found.conditions) == 75
    assert found.labels.tolist() == LABELS.tolist()
    for kind, severity in (("gaussian_noise", 1), ("fog", 3), ("jpeg_compression", 5)):
        images = found.images(kind, severity)
        assert images.shape == (NUM, 3, 32, 32)
        assert images[:, 0, 0, 0].tolist() == [level(kind, severity, i) for i in range(NUM)]


def test_a_task_has_the_corruptions_of_its_test_images(folder, cifar10):
    task = Data(name="cifar10", corrupted="main", num_test=3, seed=0).load()
    found = task.corrupted
    assert sorted(found.labels.tolist()) == [0, 1, 2]
    assert found.labels.tolist() == LABELS[found.rows].tolist()
    levels = [level("snow", 2, row) for row in found.rows]
    assert found.images("snow", 2)[:, 1, 5, 5].tolist() == levels
    again = pickle.loads(pickle.dumps(task)).corrupted
    assert np.array_equal(again.images("snow", 2), found.images("snow", 2))
    assert Data(name="cifar10").load().corrupted is None


def test_images_are_shrunk_as_those_that_nets_are_trained_on(folder, cifar10):
    task = Data(name="cifar10", corrupted="main", pool=4).load()
    assert task.corrupted.images("fog", 1).shape == (NUM, *task.in_shape) == (NUM, 3, 8, 8)


def test_all_kinds_are_the_nineteen_published(data_dir, folder):
    with pytest.raises(DataError, match=r"speckle_noise\.npy is missing"):
        _variants.find_corrupted("cifar10", "all", [data_dir])
    for kind in _variants.EXTRA:
        np.save(folder / f"{kind}.npy", np.zeros((5 * NUM, 32, 32, 3), np.uint8))
    assert len(_variants.find_corrupted("cifar10", "all", [data_dir]).kinds) == 19


@pytest.mark.parametrize(("name", "title"), _variants.CORRUPTED.items())
def test_a_missing_set_is_named_with_its_cure(name, title, data_dir, cifar10):
    with pytest.raises(DataMissingError, match=rf"{title}, the corrupted .* Unpack {title}\.tar"):
        _variants.find_corrupted(name, "main", [data_dir])
    with pytest.raises(DataMissingError, match="leave `corrupted` out"):
        Data(name="cifar10", corrupted="main").load()


def test_images_of_other_classes_are_refused(folder, cifar10):
    np.save(folder / "labels.npy", np.tile(LABELS + 1, 5))
    with pytest.raises(DataError, match=r"labels up to 3, but `cifar10` only 3 classes"):
        Data(name="cifar10", corrupted="main").load()


def test_damaged_files_are_named(folder, data_dir):
    def found():
        return _variants.find_corrupted("cifar10", "main", [data_dir])

    np.save(folder / "fog.npy", np.zeros((5 * NUM, 32, 32), np.uint8))
    with pytest.raises(DataError, match=r"fog\.npy must hold uint8 images \(30, 32, 32, 3\)"):
        found()
    (folder / "fog.npy").write_bytes((folder / "snow.npy").read_bytes()[:5000])
    with pytest.raises(DataError, match=r"fog\.npy is missing, truncated or no array"):
        found()
    np.save(folder / "fog.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(DataError, match="no array of numpy"):
        found()
    np.save(folder / "fog.npy", np.zeros((5 * NUM, 32, 32, 3), np.uint8))
    np.save(folder / "labels.npy", np.arange(5 * NUM))
    with pytest.raises(DataError, match="5 times the same"):
        found()
    np.save(folder / "labels.npy", np.zeros(7, np.int64))
    with pytest.raises(DataError, match="5 times the same"):
        found()


def test_only_upright_cifar_has_published_corruptions():
    for values in ({"name": "digits"}, {"name": "cifar10", "rotated": True}):
        with pytest.raises(ValueError, match="leave it out"):
            Data(**values, corrupted="main")
    with pytest.raises(ValueError, match="leave `target` out"):
        Data(name="cifar10", corrupted="main", target="values")
    with pytest.raises(ConfigError):
        Data(name="cifar10").replaced({"corrupted": "some"})
