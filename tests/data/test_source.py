"""Sets that need no file: digits, and generated ones."""

import hashlib

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.datasets import load_digits

from tuneparts.data import source
from tuneparts.data.source import InputSelection, blobs, stripes


def test_the_parts_are_the_whole_set_without_overlap():
    parts = source._read_digits(None, None)
    bunch = load_digits()
    assert (len(parts.train), len(parts.test)) == (1297, 500)
    both = np.concatenate([parts.train.inputs, parts.test.inputs]).reshape(1797, 64)
    original = np.round(bunch.data * 255 / 16).astype(np.uint8)
    np.testing.assert_array_equal(both[np.lexsort(both.T)], original[np.lexsort(original.T)])
    labels = np.concatenate([parts.train.labels, parts.test.labels])
    np.testing.assert_array_equal(np.bincount(labels), np.bincount(bunch.target))


def test_ink_is_stretched_to_the_range_of_bytes():
    parts = source._read_digits(None, None)
    values = np.unique(parts.train.inputs)
    assert (values[0], values[-1], len(values)) == (0, 255, 17)


def test_the_test_part_is_stratified():
    parts = source._read_digits(None, None)
    share = np.bincount(parts.test.labels) / np.bincount(load_digits().target)
    np.testing.assert_allclose(share, 500 / 1797, atol=0.01)


def test_the_split_never_changes():
    parts = source._read_digits(None, None)
    digest = hashlib.sha256(parts.test.inputs.tobytes() + parts.test.labels.tobytes())
    assert digest.hexdigest()[:16] == "e94a066e5662f112"


def test_the_file_is_read_as_scikit_learn_reads_it() -> None:
    pixels, labels = source._pixels_and_labels()
    theirs = load_digits()
    np.testing.assert_array_equal(pixels, theirs.data)
    np.testing.assert_array_equal(labels, theirs.target)


def test_informative_inputs_are_the_label_plus_noise_and_the_rest_noise():
    examples = InputSelection().draw(20_000, seed=0, part="train")
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
    quiet = InputSelection(noise=0.0).draw(200, seed=0, part="train")
    np.testing.assert_array_equal(quiet.inputs[:, :15], np.repeat(quiet.labels[:, None], 15, 1))
    loud = InputSelection(noise=3.0).draw(200, seed=0, part="train")
    np.testing.assert_array_equal(loud.inputs[:, 15:], quiet.inputs[:, 15:])


def test_spurious_inputs_are_as_many_as_asked_for():
    examples = InputSelection(num_informative=2, num_spurious=3, noise=0.0).draw(
        5_000, seed=0, part="train"
    )
    assert examples.inputs.shape == (5_000, 5)
    told = [np.corrcoef(column, examples.labels)[0, 1] for column in examples.inputs.T]
    np.testing.assert_allclose(told[:2], 1)
    np.testing.assert_allclose(told[2:], 0, atol=6 / np.sqrt(5_000))


def test_keeping_fewer_inputs_keeps_their_columns():
    whole = InputSelection().draw(50, seed=1, part="train")
    kept = InputSelection(num_inputs=7).draw(50, seed=1, part="train")
    np.testing.assert_array_equal(kept.inputs, whole.inputs[:, :7])
    np.testing.assert_array_equal(kept.labels, whole.labels)


@pytest.mark.parametrize("fields", [{"num_inputs": 31}, {"num_inputs": 0}, {"num_informative": 0}])
def test_inputs_that_are_not_there_are_refused(fields):
    with pytest.raises(ValidationError):
        InputSelection(**fields)


@pytest.mark.parametrize("draw", [blobs, stripes, InputSelection().draw])
def test_the_seed_and_the_part_choose_the_examples(draw):
    first = draw(30, seed=0, part="train")
    np.testing.assert_array_equal(first.inputs, draw(30, seed=0, part="train").inputs)
    assert not np.array_equal(first.inputs, draw(30, seed=1, part="train").inputs)
    assert not np.array_equal(first.inputs, draw(30, seed=0, part="test").inputs)


@pytest.mark.parametrize("draw", [blobs, stripes, InputSelection().draw])
def test_asking_for_more_extends_the_set(draw):
    few, many = draw(10, seed=0, part="train"), draw(25, seed=0, part="train")
    np.testing.assert_array_equal(few.inputs, many.inputs[:10])
    np.testing.assert_array_equal(few.labels, many.labels[:10])


def test_blobs_can_be_told_by_the_nearest_centre():
    examples = blobs(1000, seed=0, part="test")
    guess = examples.inputs[:, :3].argmax(axis=1)
    assert examples.inputs.shape == (1000, 8)
    assert (guess == examples.labels).mean() > 0.9


def test_stripes_can_be_told_by_their_direction():
    examples = stripes(500, seed=0, part="test")
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
