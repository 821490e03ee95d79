import time

import pytest

from tuneparts.core.errors import DataMissingError, UnknownNameError
from tuneparts.data import sets, source
from tuneparts.data.config import DataConfig


def test_the_data_folder_comes_before_downloads(data_dir, cache_dir, write_mnist):
    write_mnist(cache_dir / "downloads", num_train=30)
    assert len(DataConfig(name="mnist").load().train) == 30
    write_mnist(data_dir, num_train=40)
    assert len(DataConfig(name="mnist").load().train) == 40


def test_without_a_data_folder_downloads_are_found(cache_dir, write_mnist, monkeypatch):
    monkeypatch.delenv("TUNEPARTS_DATA")
    write_mnist(cache_dir / "downloads", num_train=30)
    assert len(DataConfig(name="mnist").load().train) == 30


def test_an_override_is_the_only_place(data_dir, tmp_path, write_mnist):
    write_mnist(data_dir)
    with pytest.raises(DataMissingError, match=f"not found in {tmp_path / 'other'}"):
        DataConfig(name="mnist", root=str(tmp_path / "other")).load()


def test_a_missing_set_names_the_folders_and_the_cure(data_dir, cache_dir):
    with pytest.raises(DataMissingError) as caught:
        DataConfig(name="mnist").load()
    message = str(caught.value)
    assert str(data_dir) in message
    assert str(cache_dir / "downloads") in message
    assert "tuneparts data --download mnist" in message
    assert isinstance(caught.value, FileNotFoundError)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UnknownNameError, match=r"Did you mean `mnist`\?.*cifar10.*folder:PATH"):
        sets.lookup("mnst")


def test_the_inventory_tells_found_from_missing_and_damaged(data_dir, write_mnist):
    write_mnist(data_dir)
    (data_dir / "FashionMNIST" / "raw").mkdir(parents=True)
    (data_dir / "FashionMNIST" / "raw" / "train-images-idx3-ubyte").write_bytes(b"short")
    rows = {name: (found, advice) for name, found, advice in sets.inventory()}
    assert set(rows) == set(sets.REGISTRY.known)
    mnist, advice = rows["mnist"]
    assert (mnist.num_train, mnist.num_test, mnist.shape) == (40, 20, (1, 28, 28))
    assert mnist.where == str(data_dir / "MNIST" / "raw")
    assert advice == ""
    assert rows["cifar100"][0] is rows["fashion_mnist"][0] is None
    assert "--download cifar100" in rows["cifar100"][1]
    assert "truncated" in rows["fashion_mnist"][1]
    assert rows["digits"][0].where == "scikit-learn"


def test_the_inventory_is_quick(real_data):
    start = time.perf_counter()
    sets.inventory()
    assert time.perf_counter() - start < 1


@pytest.mark.parametrize("name", ["digits", "input_selection", "blobs", "stripes"])
def test_the_inventory_agrees_with_what_is_read(name):
    found = sets.lookup(name).find(source.roots())
    task = DataConfig(name=name).load()
    assert (found.num_train, found.num_test) == (len(task.train), len(task.test))
    assert (found.shape, found.num_classes) == (task.in_shape, task.num_classes)
