import pickle

import numpy as np
import pytest

from tuneparts.core.errors import ConfigError, DataError, DataMissingError
from tuneparts.data import variants
from tuneparts.data.config import DataConfig

NUM = 6
LABELS = np.array([0, 1, 2, 0, 1, 2], np.uint8)


def level(kind, severity, image):
    """The grey level of an image, which says where it comes from."""
    return 12 * variants.MAIN.index(kind) + 2 * severity + image // 3


def write(folder, kinds=variants.MAIN):
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
    found = variants.find_corrupted("cifar10", "main", [data_dir])
    assert len(found.conditions) == 75
    assert found.labels.tolist() == LABELS.tolist()
    for kind, severity in (("gaussian_noise", 1), ("fog", 3), ("jpeg_compression", 5)):
        images = found.images(kind, severity)
        assert images.shape == (NUM, 3, 32, 32)
        assert images[:, 0, 0, 0].tolist() == [level(kind, severity, i) for i in range(NUM)]


def test_a_task_has_the_corruptions_of_its_test_images(folder, cifar10):
    task = DataConfig(name="cifar10", corrupted="main", num_test=3, seed=0).load()
    found = task.corrupted
    assert sorted(found.labels.tolist()) == [0, 1, 2]
    assert found.labels.tolist() == LABELS[found.rows].tolist()
    levels = [level("snow", 2, row) for row in found.rows]
    assert found.images("snow", 2)[:, 1, 5, 5].tolist() == levels
    again = pickle.loads(pickle.dumps(task)).corrupted
    assert np.array_equal(again.images("snow", 2), found.images("snow", 2))
    assert DataConfig(name="cifar10").load().corrupted is None


def test_images_are_shrunk_as_those_that_nets_are_trained_on(folder, cifar10):
    task = DataConfig(name="cifar10", corrupted="main", pool=4).load()
    assert task.corrupted.images("fog", 1).shape == (NUM, *task.in_shape) == (NUM, 3, 8, 8)


def test_all_kinds_are_the_nineteen_published(data_dir, folder):
    with pytest.raises(DataError, match=r"speckle_noise\.npy is missing from"):
        variants.find_corrupted("cifar10", "all", [data_dir])
    for kind in variants.EXTRA:
        np.save(folder / f"{kind}.npy", np.zeros((5 * NUM, 32, 32, 3), np.uint8))
    assert len(variants.find_corrupted("cifar10", "all", [data_dir]).kinds) == 19


@pytest.mark.parametrize(("name", "title"), variants.CORRUPTED.items())
def test_a_missing_set_is_named_with_its_cure(name, title, data_dir, cifar10):
    with pytest.raises(DataMissingError, match=rf"{title}, the corrupted .* Unpack {title}\.tar"):
        variants.find_corrupted(name, "main", [data_dir])
    with pytest.raises(DataMissingError, match="leave `corrupted` out"):
        DataConfig(name="cifar10", corrupted="main").load()


def test_images_of_other_classes_are_refused(folder, cifar10):
    np.save(folder / "labels.npy", np.tile(LABELS + 1, 5))
    with pytest.raises(DataError, match=r"has 3 classes here, but labels .* go up to 3"):
        DataConfig(name="cifar10", corrupted="main").load()


def test_damaged_files_are_named(folder, data_dir):
    def found():
        return variants.find_corrupted("cifar10", "main", [data_dir])

    np.save(folder / "fog.npy", np.zeros((5 * NUM, 32, 32), np.uint8))
    with pytest.raises(DataError, match=r"fog\.npy must hold uint8 images \(30, 32, 32, 3\)"):
        found()
    (folder / "fog.npy").write_bytes((folder / "snow.npy").read_bytes()[:5000])
    with pytest.raises(DataError, match=r"fog\.npy is truncated or no array"):
        found()
    np.save(folder / "fog.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(DataError, match="no array of numpy"):
        found()
    np.save(folder / "fog.npy", np.zeros((5 * NUM, 32, 32, 3), np.uint8))
    np.save(folder / "labels.npy", np.arange(5 * NUM))
    with pytest.raises(DataError, match=r"labels in .* differ between them"):
        found()
    np.save(folder / "labels.npy", np.zeros(7, np.int64))
    with pytest.raises(DataError, match="5 equal severities"):
        found()


def test_only_upright_cifar_has_published_corruptions():
    for values in ({"name": "digits"}, {"name": "cifar10", "rotated": True}):
        with pytest.raises(ValueError, match="leave `corrupted` out"):
            DataConfig(**values, corrupted="main")
    with pytest.raises(ValueError, match="leave `target` out"):
        DataConfig(name="cifar10", corrupted="main", target="values")
    with pytest.raises(ConfigError):
        DataConfig(name="cifar10").replaced({"corrupted": "some"})
