"""Handwritten digits that scikit-learn ships: 1,797 grey images of 8 x 8, ten classes.

The set has no official split; 500 images, stratified and fixed for ever, are its test part.
"""

import numpy as np

from tuneparts import seeding
from tuneparts.data.source import DataSource, Parts, Request
from tuneparts.data.split import stratified_order
from tuneparts.data.task import Examples

NUM_TEST = 500


def find() -> DataSource:
    """The digits; they are always there."""
    return DataSource(
        where="scikit-learn",
        num_train=1797 - NUM_TEST,
        num_test=NUM_TEST,
        shape=(1, 8, 8),
        num_classes=10,
        read=_read,
    )


def _read(request: Request) -> Parts:
    del request
    from sklearn.datasets import load_digits  # slow to import

    bunch = load_digits()
    # Ink counts 0..16 stretched to 0..255, so that scaling by 255 gives [0, 1] as for any image.
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)[:, None]
    everything = Examples(images, bunch.target.astype(np.int64))
    order = stratified_order(everything.labels, seeding.numpy_generator(0, "data", "digits"))
    return Parts(
        train=everything.subset(np.sort(order[NUM_TEST:])),
        test=everything.subset(np.sort(order[:NUM_TEST])),
        num_classes=10,
    )
