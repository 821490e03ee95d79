"""Published sets in the layouts of their archives."""

import hashlib
import io
import pickle
import types
import urllib.error
import zipfile

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from tuneparts.core import _torchvision
from tuneparts.core.errors import DataError, DataMissingError
from tuneparts.data import _published, sets
from tuneparts.data.config import Data


@pytest.mark.parametrize(("name", "kind"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_idx_sets_are_read_whole(data_dir, write_mnist, name, kind):
    arrays = write_mnist(data_dir, kind)
    task = Data(name=name).load()
    np.testing.assert_array_equal(task.train.inputs[:, 0], arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(task.test.inputs[:, 0], arrays["t10k-images-idx3-ubyte"])
    np.testing.assert_array_equal(task.test.labels, arrays["t10k-labels-idx1-ubyte"])
    assert task.train.inputs.dtype == np.uint8
    assert task.train.labels.dtype == np.int64
    assert (task.mean, task.std) == ((0.0,), (1.0,))


@pytest.mark.parametrize("keep", [-1, 20, 10, 3, 0])
def test_a_truncated_idx_file_is_named(data_dir, write_mnist, keep):
    write_mnist(data_dir)
    path = data_dir / "MNIST" / "raw" / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte is truncated"):
        Data(name="mnist").load()


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("train-images-idx3-ubyte", np.zeros((3, 2)), "idx3-ubyte is truncated, missing or not"),
        ("train-labels-idx1-ubyte", None, "train-labels-idx1-ubyte is truncated, missing"),
        ("train-labels-idx1-ubyte", np.zeros(39), "40 images and 39 labels"),
        ("train-labels-idx1-ubyte", np.full(40, 10), "`train` has .* labels from 0 to 10"),
    ],
)
def test_idx_files_that_do_not_fit_are_refused(
    data_dir, write_mnist, write_idx, name, array, message
):
    write_mnist(data_dir)
    path = data_dir / "MNIST" / "raw" / name
    path.unlink() if array is None else write_idx(path, array)
    with pytest.raises(DataError, match=message):
        Data(name="mnist").load()


@pytest.fixture
def small_cifar(data_dir, monkeypatch):
    """A CIFAR-10 of 60 images whose checksums torchvision is told to expect."""
    folder = data_dir / "cifar-10-batches-py"
    folder.mkdir()
    rng = np.random.default_rng(0)
    images, labels, checksums = {}, {}, {}
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        images[name] = rng.integers(0, 256, (10, 3072), dtype=np.uint8)
        labels[name] = list(range(10))
        content = pickle.dumps({"data": images[name], "labels": labels[name]})
        (folder / name).write_bytes(content)
        checksums[name] = hashlib.md5(content).hexdigest()
    meta = pickle.dumps({"label_names": [str(i) for i in range(10)]})
    (folder / "batches.meta").write_bytes(meta)
    reader = _torchvision.load().datasets.CIFAR10
    train = [[name, checksums[name]] for name in sorted(checksums) if name != "test_batch"]
    monkeypatch.setattr(reader, "train_list", train)
    monkeypatch.setattr(reader, "test_list", [["test_batch", checksums["test_batch"]]])
    monkeypatch.setattr(
        reader,
        "meta",
        {"filename": "batches.meta", "key": "label_names", "md5": hashlib.md5(meta).hexdigest()},
    )
    return folder, images


def test_cifar_is_read_channels_first(small_cifar):
    _, images = small_cifar
    task = Data(name="cifar10").load()
    stacked = np.concatenate([images[f"data_batch_{i}"] for i in range(1, 6)])
    np.testing.assert_array_equal(task.train.inputs, stacked.reshape(50, 3, 32, 32))
    np.testing.assert_array_equal(task.test.labels, np.arange(10))
    assert task.mean == (125.3 / 255, 123.0 / 255, 113.9 / 255)
    assert task.std == (63.0 / 255, 62.1 / 255, 66.7 / 255)
    assert task.train.inputs.flags.c_contiguous


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch", "batches.meta"])
def test_a_changed_pickle_is_never_opened(small_cifar, name):
    folder, _ = small_cifar

    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was opened",))

    (folder / name).write_bytes(pickle.dumps(Trap()))
    for _ in range(2):
        with pytest.raises(DataError, match="cifar-10-batches-py is truncated, changed or"):
            Data(name="cifar10").load()
        (folder / name).unlink(missing_ok=True)


@pytest.fixture
def fake_torchvision(monkeypatch):
    """Stands in for torchvision's downloader; set `.reader` to what MNIST should do."""
    fake = types.SimpleNamespace(reader=None, calls=[])

    def mnist(root, train, download):
        fake.calls.append((root, train, download))
        return fake.reader(root)

    fake.datasets = types.SimpleNamespace(MNIST=mnist)
    monkeypatch.setattr(_torchvision, "load", lambda: fake)
    return fake


def test_a_download_goes_to_the_cache_and_is_found_there(fake_torchvision, write_mnist, cache_dir):
    with pytest.raises(DataMissingError):
        Data(name="mnist").load()
    assert fake_torchvision.calls == []  # loading never downloads
    fake_torchvision.reader = write_mnist
    where = sets.download("mnist")
    assert where == str(cache_dir / "downloads" / "MNIST" / "raw")
    assert fake_torchvision.calls == [
        (cache_dir / "downloads", is_train, True) for is_train in (True, False)
    ]
    assert sets.download("mnist") == where
    assert len(fake_torchvision.calls) == 2  # what is there is not fetched again


def test_a_failed_download_says_what_to_do(fake_torchvision):
    def unreachable(root):
        raise urllib.error.URLError("no route to host")

    fake_torchvision.reader = unreachable
    with pytest.raises(DataMissingError, match=r"no route to host.*TUNEPARTS_DATA"):
        sets.download("mnist")


def test_a_set_without_downloader_keeps_its_cure():
    with pytest.raises(DataMissingError, match=r"image-net\.org"):
        sets.download("imagenet")


def test_real_mnist_has_its_known_counts(real_data):
    found = _published.find_idx("MNIST", real_data)
    if found is None:
        pytest.skip("no MNIST in TUNEPARTS_DATA")
    parts = found.read(Data(name="mnist"), None)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(parts.train.labels).tolist() == counts
    assert parts.test.inputs.shape == (10_000, 1, 28, 28)
    assert round(float(parts.train.inputs.mean()) / 255, 4) == 0.1307


def test_files_of_old_torchvisions_are_not_read(data_dir, write_mnist):
    torch = pytest.importorskip("torch")
    arrays = write_mnist(data_dir)
    old = data_dir / "MNIST" / "processed"
    old.mkdir()
    for name, num in (("training", 40), ("test", 20)):
        wrong = (torch.full((num, 28, 28), 255, dtype=torch.uint8), torch.full((num,), 99))
        torch.save(wrong, old / f"{name}.pt")
    task = Data(name="mnist").load()
    np.testing.assert_array_equal(task.train.inputs[:, 0], arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(task.train.labels, arrays["train-labels-idx1-ubyte"])


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
    task = Data(name="tinyimagenet").load()
    assert task.in_shape == (3, 64, 64)
    assert task.train.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert task.test.labels.tolist() == [2, 0, 1, 0]
    np.testing.assert_allclose(task.test.inputs.mean(axis=(1, 2, 3)), [160, 0, 80, 0], atol=2)


def test_tiny_imagenet_may_be_shrunk(tiny):
    assert Data(name="tinyimagenet", image_size=32).load().in_shape == (3, 32, 32)


def test_annotations_that_are_missing_or_wrong_are_named(tiny):
    path = tiny / "val" / "val_annotations.txt"
    path.write_text(path.read_text().replace("n02", "n99"))
    with pytest.raises(DataError, match=r"val_annotations\.txt does not give .*n99"):
        Data(name="tinyimagenet").load()
    path.unlink()
    with pytest.raises(DataError, match=r"labels in .*val_annotations\.txt"):
        Data(name="tinyimagenet").load()


def test_an_image_without_annotation_is_named(tiny, write_image):
    write_image(tiny / "val" / "images" / "val_9.JPEG", 0, (64, 64))
    with pytest.raises(DataError, match=r"val_9\.JPEG has no label"):
        Data(name="tinyimagenet").load()


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
    task = Data(name="imagenet", image_size=32).load()
    assert task.in_shape == (3, 32, 32)
    assert task.test.labels.tolist() == [0, 1, 2]
    np.testing.assert_allclose(task.test.inputs.mean(axis=(1, 2, 3)), [0, 80, 160], atol=2)


def test_the_usual_size_is_224(imagenet, write_image):
    write_image(imagenet / "val" / "n01" / "a.JPEG", 0, (64, 64))
    assert Data(name="imagenet").load().in_shape == (3, 224, 224)


def test_flat_validation_images_with_a_label_file(imagenet, write_image):
    _flat_val(imagenet, write_image)
    lines = [f"ILSVRC2012_val_{i:08d}.JPEG {wnid}\n" for i, wnid in enumerate(VAL, start=1)]
    (imagenet / "val_labels.txt").write_text("".join(lines))
    _check(Data(name="imagenet", image_size=32).load())


def test_flat_validation_images_with_the_development_kit(imagenet, write_image):
    _flat_val(imagenet, write_image)
    _devkit(imagenet, [3, 1, 2])
    _check(Data(name="imagenet", image_size=32).load())


@pytest.mark.parametrize("ids", [[3, 1, 9], [3, 1, 4]])
def test_a_kit_that_names_no_class_of_the_training_part_is_refused(imagenet, write_image, ids):
    _flat_val(imagenet, write_image)
    _devkit(imagenet, ids)
    with pytest.raises(DataError, match=r"ground_truth\.txt does not give"):
        Data(name="imagenet", image_size=32).load()


def test_flat_validation_images_without_labels_say_what_to_do(imagenet, write_image):
    _flat_val(imagenet, write_image)
    with pytest.raises(DataError, match=r"labels in .*val_labels\.txt or .*a line"):
        Data(name="imagenet", image_size=32).load()


def test_missing_validation_images_are_named(imagenet):
    with pytest.raises(DataError, match=r"imagenet/val must hold"):
        Data(name="imagenet", image_size=32).load()


def test_the_inventory_gives_the_official_sizes(imagenet, tiny):
    rows = {name: found for name, found, _ in sets.inventory()}
    assert rows["imagenet"].num_train == 1_281_167
    assert rows["tinyimagenet"].where == str(tiny)


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
    task = Data(name="cifar10").load()
    assert task.train.inputs[:, 1, 5, 5].tolist() == [10, 20, 30, 40]
    assert task.train.labels.tolist() == [2, 0, 1, 2]
    assert task.test.labels.tolist() == [1, 0]
    assert task.num_classes == 3
    assert task.in_shape == (3, 32, 32)


@pytest.mark.parametrize("keep", [0, 10, 400])
def test_a_truncated_archive_is_named(archives, keep):
    archives["train"].write_bytes(archives["train"].read_bytes()[:keep])
    with pytest.raises(DataError, match=r"cifar10_jpeg_train\.npz is truncated"):
        Data(name="cifar10").load()


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": np.array([0, 1, 2], np.uint8)},
        {"labels": np.array([0, 1, 2, 3], np.uint8)},
        {"labels": np.array([0, 1, -1, 2], np.int8)},
        {"offsets": np.array([0, 5, 3, 9, 12])},
        {"jpeg": np.zeros(7, np.uint8)},
    ],
)
def test_arrays_that_do_not_fit_are_refused(archives, changes):
    _pack(archives["train"], [10, 20, 30, 40], [2, 0, 1, 2], changes)
    with pytest.raises(DataError, match=r"cifar10_jpeg_train\.npz: offsets, labels"):
        Data(name="cifar10").load()


def test_a_broken_image_is_named_by_number(archives):
    with np.load(archives["test"]) as archive:
        arrays = dict(archive)
    start, end = arrays["offsets"][1:3]
    arrays["jpeg"] = arrays["jpeg"].copy()
    arrays["jpeg"][start:end] = 0
    np.savez(archives["test"], **arrays)
    with pytest.raises(DataError, match=r"cifar10_jpeg_test\.npz/1 cannot be decoded"):
        Data(name="cifar10").load()


def test_one_archive_alone_is_not_the_set(archives, data_dir):
    archives["test"].unlink()
    assert _published.find_packed(data_dir, name="cifar10", image_size=32) is None


@pytest.mark.slow
def test_real_cifar10_looks_as_published(real_data):
    found = _published.find_packed(real_data, name="cifar10", image_size=32)
    if found is None:
        pytest.skip("no packed CIFAR-10 in TUNEPARTS_DATA")
    task = Data(name="cifar10").load()
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
        Data(name="cifar10").load()
    assert {name: found for name, found, _ in sets.inventory()}["cifar10"] is None


def test_a_listing_reads_headers_alone(archives, monkeypatch):
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("it was read"))
    row = sets.lookup("cifar10").find(sets._roots())
    assert (row.num_train, row.num_test, row.num_classes) == (4, 2, 3)
