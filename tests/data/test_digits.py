import hashlib

import numpy as np
from sklearn.datasets import load_digits

from tuneparts.data import source
from tuneparts.data.source import Request


def test_the_parts_are_the_whole_set_without_overlap():
    parts = source.find_digits().read(Request())
    bunch = load_digits()
    assert (len(parts.train), len(parts.test)) == (1297, 500)
    both = np.concatenate([parts.train.inputs, parts.test.inputs]).reshape(1797, 64)
    original = np.round(bunch.data * 255 / 16).astype(np.uint8)
    np.testing.assert_array_equal(both[np.lexsort(both.T)], original[np.lexsort(original.T)])
    labels = np.concatenate([parts.train.labels, parts.test.labels])
    np.testing.assert_array_equal(np.bincount(labels), np.bincount(bunch.target))


def test_ink_is_stretched_to_the_range_of_bytes():
    parts = source.find_digits().read(Request())
    values = np.unique(parts.train.inputs)
    assert (values[0], values[-1], len(values)) == (0, 255, 17)


def test_the_test_part_is_stratified():
    parts = source.find_digits().read(Request())
    share = np.bincount(parts.test.labels) / np.bincount(load_digits().target)
    np.testing.assert_allclose(share, 500 / 1797, atol=0.01)


def test_the_split_never_changes():
    parts = source.find_digits().read(Request())
    digest = hashlib.sha256(parts.test.inputs.tobytes() + parts.test.labels.tobytes())
    assert digest.hexdigest()[:16] == "e94a066e5662f112"


def test_the_file_is_read_as_scikit_learn_reads_it() -> None:
    pixels, labels = source._pixels_and_labels()
    theirs = load_digits()
    np.testing.assert_array_equal(pixels, theirs.data)
    np.testing.assert_array_equal(labels, theirs.target)
