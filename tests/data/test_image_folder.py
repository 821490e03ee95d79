import os

import numpy as np
import pytest

from tuneparts.core.errors import DataError, DataMissingError
from tuneparts.data import images as image_files
from tuneparts.data.config import DataConfig
from tuneparts.data.task import StoredImages


@pytest.fixture
def animals(tmp_path, write_image):
    """Cats are dark and dogs bright; the last digits of a level tell the image."""
    folder = tmp_path / "animals"
    for part, num in (("train", 6), ("test", 3)):
        for i in range(num):
            write_image(folder / part / "cat" / f"{i}.png", i)
            write_image(folder / part / "dog" / f"{i}.PNG", 200 + i)
    return folder


def test_classes_are_sorted_and_images_follow_them(animals):
    task = DataConfig(name=f"folder:{animals}").load()
    levels = [0, 1, 2, 3, 4, 5, 200, 201, 202, 203, 204, 205]
    assert task.train.inputs[:, 0, 0, 0].tolist() == levels
    assert task.train.labels.tolist() == [0] * 6 + [1] * 6
    assert (task.num_classes, task.in_shape, len(task.test)) == (2, (3, 8, 8), 6)


def test_val_serves_where_there_is_no_test(animals):
    (animals / "test").rename(animals / "val")
    assert len(DataConfig(name=f"folder:{animals}").load().test) == 6


def test_other_files_are_passed_over(animals):
    (animals / "train" / "cat" / "notes.txt").write_text("not an image")
    assert len(DataConfig(name=f"folder:{animals}").load().train) == 12


def test_a_relative_path_starts_from_the_data_folder(animals, data_dir):
    animals.rename(data_dir / "animals")
    assert len(DataConfig(name="folder:animals").load().train) == 12
    root = str(data_dir.parent)
    assert len(DataConfig(name="folder:data/animals", root=root).load().train) == 12


def test_images_are_scaled_on_request(animals):
    assert DataConfig(name=f"folder:{animals}", image_size=5).load().in_shape == (3, 5, 5)


def test_large_folders_stay_on_disk_through_the_split(animals, monkeypatch):
    monkeypatch.setattr(image_files, "IN_MEMORY_BYTES", 0)
    config = DataConfig(name=f"folder:{animals}", num_val=4, num_train=6)
    task = config.load()
    assert isinstance(task.train.inputs, StoredImages)
    monkeypatch.setattr(image_files, "IN_MEMORY_BYTES", 1 << 30)
    expected = config.load()
    np.testing.assert_array_equal(np.asarray(task.val.inputs), expected.val.inputs)
    np.testing.assert_array_equal(task.train.labels, expected.train.labels)


def test_a_class_that_only_the_test_part_has_is_refused(animals, write_image):
    write_image(animals / "test" / "emu" / "0.png", 5)
    with pytest.raises(DataError, match="classes that the training part lacks: emu"):
        DataConfig(name=f"folder:{animals}").load()


def test_a_part_without_class_folders_is_refused(tmp_path):
    (tmp_path / "empty" / "train").mkdir(parents=True)
    (tmp_path / "empty" / "test").mkdir()
    with pytest.raises(DataError, match=r"empty/train must hold one folder of images per class"):
        DataConfig(name=f"folder:{tmp_path / 'empty'}").load()


def test_a_folder_that_is_not_there_names_where_it_was_looked_for(data_dir):
    with pytest.raises(DataMissingError, match=f"nowhere` was not found in {data_dir}"):
        DataConfig(name="folder:nowhere").load()


def test_cifar10_as_an_image_folder(data_dir, write_image):
    for part in ("train", "test"):
        for k, name in enumerate(["airplane", "automobile"]):
            write_image(data_dir / "cifar10" / part / name / "0.png", 40 * k, size=(32, 32))
    task = DataConfig(name="cifar10").load()
    assert task.in_shape == (3, 32, 32)
    assert task.train.inputs[:, 0, 0, 0].tolist() == [0, 40]


def test_pipes_are_passed_over_and_names_may_have_any_encoding(animals, write_image):
    os.mkfifo(animals / "train" / "cat" / "pipe.png")
    odd = os.fsdecode(b"caf\xe9.png")
    (animals / "train" / "cat" / "0.png").rename(animals / "train" / "cat" / odd)
    assert len(DataConfig(name=f"folder:{animals}").load().train) == 12
