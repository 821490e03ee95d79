"""The table of sets, and those that need no file: digits, and generated ones."""

import hashlib
import time

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.datasets import load_digits

from tuneparts.core.errors import DataMissingError, UnknownNameError
from tuneparts.data import sets
from tuneparts.data.config import Data
from tuneparts.data.sets import _blobs, _InputSelection, _stripes


def test_the_data_folder_comes_before_downloads(data_dir, cache_dir, write_mnist):
    write_mnist(cache_dir / "downloads", num_train=30)
    assert len(Data(name="mnist").load().train) == 30
    write_mnist(data_dir, num_train=40)
    assert len(Data(name="mnist").load().train) == 40


def test_without_a_data_folder_downloads_are_found(cache_dir, write_mnist, monkeypatch):
    monkeypatch.delenv("TUNEPARTS_DATA")
    write_mnist(cache_dir / "downloads", num_train=30)
    assert len(Data(name="mnist").load().train) == 30


def test_an_override_is_the_only_place(data_dir, tmp_path, write_mnist):
    write_mnist(data_dir)
    with pytest.raises(DataMissingError, match=f"not found in {tmp_path / 'other'}"):
        Data(name="mnist", root=str(tmp_path / "other")).load()


def test_a_missing_set_names_the_folders_and_the_cure(data_dir, cache_dir):
    with pytest.raises(DataMissingError) as caught:
        Data(name="mnist").load()
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
    found = sets.lookup(name).find(sets._roots())
    task = Data(name=name).load()
    assert (found.num_train, found.num_test) == (len(task.train), len(task.test))
    assert (found.shape, found.num_classes) == (task.in_shape, task.num_classes)


def test_the_parts_are_the_whole_set_without_overlap():
    parts = sets._read_digits(None, None)
    bunch = load_digits()
    assert (len(parts.train), len(parts.test)) == (1297, 500)
    both = np.concatenate([parts.train.inputs, parts.test.inputs]).reshape(1797, 64)
    original = np.round(bunch.data * 255 / 16).astype(np.uint8)
    np.testing.assert_array_equal(both[np.lexsort(both.T)], original[np.lexsort(original.T)])
    labels = np.concatenate([parts.train.labels, parts.test.labels])
    np.testing.assert_array_equal(np.bincount(labels), np.bincount(bunch.target))


def test_ink_is_stretched_to_the_range_of_bytes():
    parts = sets._read_digits(None, None)
    values = np.unique(parts.train.inputs)
    assert (values[0], values[-1], len(values)) == (0, 255, 17)


def test_the_test_part_is_stratified():
    parts = sets._read_digits(None, None)
    share = np.bincount(parts.test.labels) / np.bincount(load_digits().target)
    np.testing.assert_allclose(share, 500 / 1797, atol=0.01)


def test_the_split_never_changes():
    parts = sets._read_digits(None, None)
    digest = hashlib.sha256(parts.test.inputs.tobytes() + parts.test.labels.tobytes())
    assert digest.hexdigest()[:16] == "e94a066e5662f112"


def test_the_file_is_read_as_scikit_learn_reads_it() -> None:
    pixels, labels = sets._pixels_and_labels()
    theirs = load_digits()
    np.testing.assert_array_equal(pixels, theirs.data)
    np.testing.assert_array_equal(labels, theirs.target)


def test_informative_inputs_are_the_label_plus_noise_and_the_rest_noise():
    examples = _InputSelection().draw(20_000, seed=0, part="train")
    assert examples.inputs.dtype == np.float32
    x, y = examples.inputs.astype(np.float64), examples.labels
    residual = x - y[:, None] * (np.arange(30) < 15)
    # Six standard errors of a mean and of a standard deviation over 20,000 draws.
    np.testing.assert_allclose(residual.mean(axis=0), 0, atol=6 / np.sqrt(20_000))
    np.testing.assert_allclose(residual.std(axis=0), 1, atol=6 / np.sqrt(40_000))
    for label in (0, 1):
        np.testing.assert_allclose(residual[y == label].mean(axis=0), 0, atol=6 / np.sqrt(9_000))
    assert abs(y.mean() - 0.5) < 3 / np.sqrt(20_000)


def test_noise_acts_on_informative_inputs_alone():
    quiet = _InputSelection(noise=0.0).draw(200, seed=0, part="train")
    np.testing.assert_array_equal(quiet.inputs[:, :15], np.repeat(quiet.labels[:, None], 15, 1))
    loud = _InputSelection(noise=3.0).draw(200, seed=0, part="train")
    np.testing.assert_array_equal(loud.inputs[:, 15:], quiet.inputs[:, 15:])


def test_spurious_inputs_are_as_many_as_asked_for():
    examples = _InputSelection(num_informative=2, num_spurious=3, noise=0.0).draw(
        5_000, seed=0, part="train"
    )
    assert examples.inputs.shape == (5_000, 5)
    told = [np.corrcoef(column, examples.labels)[0, 1] for column in examples.inputs.T]
    np.testing.assert_allclose(told[:2], 1)
    np.testing.assert_allclose(told[2:], 0, atol=6 / np.sqrt(5_000))


def test_keeping_fewer_inputs_keeps_their_columns():
    whole = _InputSelection().draw(50, seed=1, part="train")
    kept = _InputSelection(num_inputs=7).draw(50, seed=1, part="train")
    np.testing.assert_array_equal(kept.inputs, whole.inputs[:, :7])
    np.testing.assert_array_equal(kept.labels, whole.labels)


@pytest.mark.parametrize("fields", [{"num_inputs": 31}, {"num_inputs": 0}, {"num_informative": 0}])
def test_inputs_that_are_not_there_are_refused(fields):
    with pytest.raises(ValidationError):
        _InputSelection(**fields)


@pytest.mark.parametrize("draw", [_blobs, _stripes, _InputSelection().draw])
def test_the_seed_and_the_part_choose_the_examples(draw):
    first = draw(30, seed=0, part="train")
    np.testing.assert_array_equal(first.inputs, draw(30, seed=0, part="train").inputs)
    assert not np.array_equal(first.inputs, draw(30, seed=1, part="train").inputs)
    assert not np.array_equal(first.inputs, draw(30, seed=0, part="test").inputs)


@pytest.mark.parametrize("draw", [_blobs, _stripes, _InputSelection().draw])
def test_asking_for_more_extends_the_set(draw):
    few, many = draw(10, seed=0, part="train"), draw(25, seed=0, part="train")
    np.testing.assert_array_equal(few.inputs, many.inputs[:10])
    np.testing.assert_array_equal(few.labels, many.labels[:10])


def test_blobs_can_be_told_by_the_nearest_centre():
    examples = _blobs(1000, seed=0, part="test")
    guess = examples.inputs[:, :3].argmax(axis=1)
    assert examples.inputs.shape == (1000, 8)
    assert (guess == examples.labels).mean() > 0.9


def test_stripes_can_be_told_by_their_direction():
    examples = _stripes(500, seed=0, part="test")
    assert examples.inputs.shape == (500, 1, 8, 8)
    assert examples.inputs.dtype == np.uint8
    # A stripe of direction k repeats along the perpendicular: neighbours there are alike.
    x = examples.inputs[:, 0].astype(np.float64)
    shifts = [(1, 0), (1, -1), (0, 1), (1, 1)]
    roughness = [
        np.abs(np.roll(x, shift, axis=(1, 2)) - x)[:, 1:-1, 1:-1].mean(axis=(1, 2))
        for shift in shifts
    ]
    assert (np.argmin(roughness, axis=0) == examples.labels).mean() > 0.95
