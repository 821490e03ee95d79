import numpy as np
import pytest
from scipy.io import savemat

from tuneparts.core.errors import DataError
from tuneparts.data import sets
from tuneparts.data.config import DataConfig

WNIDS = ["n01", "n02", "n03"]


@pytest.fixture
def tiny(data_dir, write_image):
    folder = data_dir / "tiny-imagenet-200"
    for k, wnid in enumerate(WNIDS):
        for i in range(2):
            write_image(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", 80 * k, (64, 64))
    (folder / "val").mkdir()
    lines = []
    for i, wnid in enumerate(["n03", "n01", "n02", "n01"]):
        write_image(folder / "val" / "images" / f"val_{i}.JPEG", 80 * WNIDS.index(wnid), (64, 64))
        lines.append(f"val_{i}.JPEG\t{wnid}\t0\t32\t44\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(lines) + "\n")
    return folder


def test_tiny_imagenet_takes_val_labels_from_the_annotations(tiny):
    task = DataConfig(name="tinyimagenet").load()
    assert task.in_shape == (3, 64, 64)
    assert task.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert task.test.labels.tolist() == [2, 0, 1, 0]
    np.testing.assert_allclose(task.test.inputs.mean(axis=(1, 2, 3)), [160, 0, 80, 0], atol=2)


def test_tiny_imagenet_may_be_shrunk(tiny):
    assert DataConfig(name="tinyimagenet", image_size=32).load().in_shape == (3, 32, 32)


def test_annotations_that_are_missing_or_wrong_are_named(tiny):
    path = tiny / "val" / "val_annotations.txt"
    path.write_text(path.read_text().replace("n02", "n99"))
    with pytest.raises(DataError, match=r"val_annotations\.txt must say .*n99"):
        DataConfig(name="tinyimagenet").load()
    path.unlink()
    with pytest.raises(DataError, match=r"val_annotations\.txt must say"):
        DataConfig(name="tinyimagenet").load()


def test_an_image_without_annotation_is_named(tiny, write_image):
    write_image(tiny / "val" / "images" / "val_9.JPEG", 0, (64, 64))
    with pytest.raises(DataError, match=r"val_9\.JPEG has none"):
        DataConfig(name="tinyimagenet").load()


VAL = ["n02", "n03", "n01"]


@pytest.fixture
def imagenet(data_dir, write_image):
    folder = data_dir / "imagenet"
    for k, wnid in enumerate(WNIDS):
        write_image(folder / "train" / wnid / f"{wnid}_1.JPEG", 80 * k, (300, 200))
    return folder


def _flat_val(folder, write_image):
    for i, wnid in enumerate(VAL, start=1):
        name = f"ILSVRC2012_val_{i:08d}.JPEG"
        write_image(folder / "val" / name, 80 * WNIDS.index(wnid), (64, 64))


def _devkit(folder, ids):
    """The kit's own numbering: n03 is 1, n01 is 2, n02 is 3, then an inner node."""
    data = folder / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    kinds = [("ILSVRC2012_ID", "f8"), ("WNID", "O"), ("num_children", "f8")]
    rows = [(1, "n03", 0), (2, "n01", 0), (3, "n02", 0), (4, "n00", 3)]
    savemat(data / "meta.mat", {"synsets": np.array(rows, dtype=kinds)})
    truth = data / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("".join(f"{i}\n" for i in ids))


def _check(task):
    assert task.test.labels.tolist() == [WNIDS.index(wnid) for wnid in VAL]
    levels = task.test.inputs.mean(axis=(1, 2, 3))
    np.testing.assert_allclose(levels, [80 * WNIDS.index(wnid) for wnid in VAL], atol=2)


def test_validation_images_sorted_into_folders(imagenet, write_image):
    for wnid in WNIDS:
        write_image(imagenet / "val" / wnid / "a.JPEG", 80 * WNIDS.index(wnid), (64, 64))
    task = DataConfig(name="imagenet", image_size=32).load()
    assert task.in_shape == (3, 32, 32)
    assert task.test.labels.tolist() == [0, 1, 2]
    np.testing.assert_allclose(task.test.inputs.mean(axis=(1, 2, 3)), [0, 80, 160], atol=2)


def test_the_usual_size_is_224(imagenet, write_image):
    write_image(imagenet / "val" / "n01" / "a.JPEG", 0, (64, 64))
    assert DataConfig(name="imagenet").load().in_shape == (3, 224, 224)


def test_flat_validation_images_with_a_label_file(imagenet, write_image):
    _flat_val(imagenet, write_image)
    lines = [f"ILSVRC2012_val_{i:08d}.JPEG {wnid}\n" for i, wnid in enumerate(VAL, start=1)]
    (imagenet / "val_labels.txt").write_text("".join(lines))
    _check(DataConfig(name="imagenet", image_size=32).load())


def test_flat_validation_images_with_the_development_kit(imagenet, write_image):
    _flat_val(imagenet, write_image)
    _devkit(imagenet, [3, 1, 2])
    _check(DataConfig(name="imagenet", image_size=32).load())


@pytest.mark.parametrize("ids", [[3, 1, 9], [3, 1, 4]])
def test_a_kit_that_names_no_class_of_the_training_part_is_refused(imagenet, write_image, ids):
    _flat_val(imagenet, write_image)
    _devkit(imagenet, ids)
    with pytest.raises(DataError, match=r"ground_truth\.txt and .*meta\.mat do not give"):
        DataConfig(name="imagenet", image_size=32).load()


def test_flat_validation_images_without_labels_say_what_to_do(imagenet, write_image):
    _flat_val(imagenet, write_image)
    with pytest.raises(DataError, match=r"val_labels\.txt with a line"):
        DataConfig(name="imagenet", image_size=32).load()


def test_missing_validation_images_are_named(imagenet):
    with pytest.raises(DataError, match=r"imagenet/val is missing"):
        DataConfig(name="imagenet", image_size=32).load()


def test_the_inventory_gives_the_official_sizes(imagenet, tiny):
    rows = {row.name: row for row in sets.inventory()}
    assert rows["imagenet"].num_train == 1_281_167
    assert rows["tinyimagenet"].where == str(tiny)
