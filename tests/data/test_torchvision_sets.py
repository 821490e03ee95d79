import hashlib
import pickle
import types
import urllib.error

import numpy as np
import pytest

from tuneparts.core import torchvision_door
from tuneparts.core.errors import DataError, DataMissingError
from tuneparts.data import published, sets
from tuneparts.data.config import DataConfig
from tuneparts.data.source import Request


@pytest.mark.parametrize(("name", "kind"), [("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST")])
def test_idx_sets_are_read_whole(data_dir, write_mnist, name, kind):
    arrays = write_mnist(data_dir, kind)
    task = DataConfig(name=name).load()
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
        DataConfig(name="mnist").load()


def test_an_idx_file_of_another_kind_is_named(data_dir, write_mnist, write_idx):
    write_mnist(data_dir)
    write_idx(data_dir / "MNIST" / "raw" / "train-images-idx3-ubyte", np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte is truncated or not an IDX"):
        DataConfig(name="mnist").load()


def test_a_missing_sibling_is_named(data_dir, write_mnist):
    write_mnist(data_dir)
    (data_dir / "MNIST" / "raw" / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"train-labels-idx1-ubyte cannot be read"):
        DataConfig(name="mnist").load()


def test_images_without_labels_are_refused(data_dir, write_mnist, write_idx):
    write_mnist(data_dir)
    write_idx(data_dir / "MNIST" / "raw" / "train-labels-idx1-ubyte", np.zeros(39))
    with pytest.raises(DataError, match="40 images and 39 labels"):
        DataConfig(name="mnist").load()


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
    reader = torchvision_door.load().datasets.CIFAR10
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
    task = DataConfig(name="cifar10").load()
    stacked = np.concatenate([images[f"data_batch_{i}"] for i in range(1, 6)])
    np.testing.assert_array_equal(task.train.inputs, stacked.reshape(50, 3, 32, 32))
    np.testing.assert_array_equal(task.test.labels, np.arange(10))
    assert task.mean == (125.3 / 255, 123.0 / 255, 113.9 / 255)
    assert task.std == (63.0 / 255, 62.1 / 255, 66.7 / 255)
    assert task.train.inputs.flags.c_contiguous


@pytest.mark.parametrize("name", ["data_batch_3", "test_batch", "batches.meta"])
def test_a_changed_pickle_is_named_and_never_opened(small_cifar, name):
    folder, _ = small_cifar

    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was opened",))

    (folder / name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match=f"{name} has another checksum"):
        DataConfig(name="cifar10").load()


def test_a_missing_pickle_is_named(small_cifar):
    folder, _ = small_cifar
    (folder / "data_batch_5").unlink()
    with pytest.raises(DataError, match="data_batch_5 is missing"):
        DataConfig(name="cifar10").load()


@pytest.fixture
def fake_torchvision(monkeypatch):
    """Stands in for torchvision's downloader; set `.reader` to what MNIST should do."""
    fake = types.SimpleNamespace(reader=None, calls=[])

    def mnist(root, train, download):
        fake.calls.append((root, train, download))
        return fake.reader(root)

    fake.datasets = types.SimpleNamespace(MNIST=mnist)
    monkeypatch.setattr(torchvision_door, "load", lambda: fake)
    return fake


def test_a_download_goes_to_the_cache_and_is_found_there(fake_torchvision, write_mnist, cache_dir):
    fake_torchvision.reader = write_mnist
    where = sets.download("mnist")
    assert where == str(cache_dir / "downloads" / "MNIST" / "raw")
    assert fake_torchvision.calls[0] == (cache_dir / "downloads", True, True)


def test_what_is_there_is_not_downloaded_again(fake_torchvision, write_mnist, data_dir):
    write_mnist(data_dir)
    assert sets.download("mnist") == str(data_dir / "MNIST" / "raw")
    assert fake_torchvision.calls == []


def test_loading_never_downloads(fake_torchvision):
    with pytest.raises(DataMissingError):
        DataConfig(name="mnist").load()
    assert fake_torchvision.calls == []


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
    found = published.find_idx("MNIST", real_data)
    if found is None:
        pytest.skip("no MNIST in TUNEPARTS_DATA")
    parts = found.read(Request())
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
    task = DataConfig(name="mnist").load()
    np.testing.assert_array_equal(task.train.inputs[:, 0], arrays["train-images-idx3-ubyte"])
    np.testing.assert_array_equal(task.train.labels, arrays["train-labels-idx1-ubyte"])


def test_labels_that_are_no_digits_are_refused(data_dir, write_mnist, write_idx):
    write_mnist(data_dir)
    raw = data_dir / "MNIST" / "raw"
    write_idx(raw / "train-labels-idx1-ubyte", np.full(40, 10))
    with pytest.raises(DataError, match="are digits, but its `train` files hold 10"):
        DataConfig(name="mnist").load()
