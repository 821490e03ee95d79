import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from tuneparts.core.errors import DataError
from tuneparts.data import published, sets
from tuneparts.data.config import DataConfig


def _png(level):
    buffer = io.BytesIO()
    Image.new("RGB", (32, 32), (level, level, level)).save(buffer, "PNG")
    return buffer.getvalue()


def _pack(path, levels, labels, changes=None):
    files = [_png(level) for level in levels]
    arrays = {
        "jpeg": np.frombuffer(b"".join(files), np.uint8),
        "offsets": np.cumsum([0, *map(len, files)]),
        "labels": np.array(labels, np.uint8),
        "classes": np.array(["airplane", "automobile", "bird"]),
    }
    np.savez(path, **(arrays | (changes or {})))


@pytest.fixture
def archives(data_dir):
    paths = {part: data_dir / f"cifar10_jpeg_{part}.npz" for part in ("train", "test")}
    _pack(paths["train"], [10, 20, 30, 40], [2, 0, 1, 2])
    _pack(paths["test"], [50, 60], [1, 0])
    return paths


def test_images_and_labels_keep_their_order(archives):
    task = DataConfig(name="cifar10").load()
    assert task.train.inputs[:, 1, 5, 5].tolist() == [10, 20, 30, 40]
    assert task.train.labels.tolist() == [2, 0, 1, 2]
    assert task.test.labels.tolist() == [1, 0]
    assert task.num_classes == 3
    assert task.in_shape == (3, 32, 32)


def test_the_inventory_counts_without_decoding(archives, cache_dir):
    row = next(row for row in sets.inventory() if row.name == "cifar10")
    assert (row.num_train, row.num_test, row.num_classes) == (4, 2, 3)
    assert not cache_dir.exists()


@pytest.mark.parametrize("keep", [0, 10, 400])
def test_a_truncated_archive_is_named(archives, keep):
    archives["train"].write_bytes(archives["train"].read_bytes()[:keep])
    with pytest.raises(DataError, match=r"cifar10_jpeg_train\.npz is truncated"):
        DataConfig(name="cifar10").load()


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": np.array([0, 1, 2], np.uint8)},
        {"labels": np.array([0, 1, 2, 3], np.uint8)},
        {"offsets": np.array([0, 5, 3, 9, 12])},
        {"jpeg": np.zeros(7, np.uint8)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(archives, changes):
    _pack(archives["train"], [10, 20, 30, 40], [2, 0, 1, 2], changes)
    with pytest.raises(DataError, match=r"cifar10_jpeg_train\.npz: offsets, labels"):
        DataConfig(name="cifar10").load()


def test_a_broken_image_is_named_by_number(archives):
    with np.load(archives["test"]) as archive:
        arrays = dict(archive)
    start, end = arrays["offsets"][1:3]
    arrays["jpeg"] = arrays["jpeg"].copy()
    arrays["jpeg"][start:end] = 0
    np.savez(archives["test"], **arrays)
    with pytest.raises(DataError, match=r"cifar10_jpeg_test\.npz \(image 1\) cannot be decoded"):
        DataConfig(name="cifar10").load()


def test_one_archive_alone_is_not_the_set(archives, data_dir):
    archives["test"].unlink()
    assert published.find_packed(data_dir, name="cifar10", image_size=32) is None


@pytest.mark.slow
def test_real_cifar10_looks_as_published(real_data):
    found = published.find_packed(real_data, name="cifar10", image_size=32)
    if found is None:
        pytest.skip("no packed CIFAR-10 in TUNEPARTS_DATA")
    task = DataConfig(name="cifar10").load()
    assert np.bincount(task.train.labels).tolist() == [5000] * 10
    assert np.bincount(task.test.labels).tolist() == [1000] * 10
    # JPEG keeps means and spreads to within half a grey level of the original's.
    means = task.train.inputs.mean(axis=(0, 2, 3))
    stds = task.train.inputs.std(axis=(0, 2, 3))
    np.testing.assert_allclose(means / 255, task.mean, atol=0.5 / 255)
    np.testing.assert_allclose(stds / 255, task.std, atol=0.5 / 255)


def _bomb(path, name="labels", count=20_000_000):
    """An archive of 20 kB whose labels would take 20 MB."""
    header = io.BytesIO()
    fields = {"descr": "|u1", "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(header, fields)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", header.getvalue() + bytes(count))


def test_a_bomb_is_refused_before_it_is_unpacked(archives, monkeypatch):
    np.savez(archives["test"], jpeg=np.zeros(1, np.uint8), offsets=np.arange(2))
    _bomb(archives["test"])
    assert archives["test"].stat().st_size < 100_000
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("it was read"))
    with pytest.raises(DataError, match=r"`labels` would have 20,000,\d\d\d"):
        DataConfig(name="cifar10").load()
    row = next(row for row in sets.inventory() if row.name == "cifar10")
    assert row.num_train is None


def test_a_listing_reads_headers_alone(archives, monkeypatch):
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("it was read"))
    row = next(row for row in sets.inventory() if row.name == "cifar10")
    assert (row.num_train, row.num_test, row.num_classes) == (4, 2, 3)


def test_negative_labels_are_refused(archives):
    _pack(archives["test"], [50, 60], [1, 0], {"labels": np.array([-1, 0], np.int8)})
    with pytest.raises(DataError, match="do not fit together"):
        DataConfig(name="cifar10").load()
