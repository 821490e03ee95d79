"""Handwritten digits that scikit-learn ships: 1,797 grey images of 8 x 8, ten classes.

The set has no official split; 500 images, stratified, are its test part: those of a replicate's own
draw, or where the data is fixed, the same ones for ever.
"""

import functools
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tuneparts.core import seeding
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
    pixels, labels = _pixels_and_labels()
    # Ink counts 0..16 stretched to 0..255, so that scaling by 255 gives [0, 1] as for any image.
    images = np.round(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    everything = Examples(images, labels.astype(np.int64))
    seed = request.seed if request.is_drawn else 0
    order = stratified_order(everything.labels, seeding.numpy_generator(seed, "data", "digits"))
    return Parts(
        train=everything.subset(np.sort(order[NUM_TEST:])),
        test=everything.subset(np.sort(order[:NUM_TEST])),
        num_classes=10,
    )


@functools.cache
def _pixels_and_labels() -> tuple[np.ndarray, np.ndarray]:
    """Ink counts, 64 a row, and classes.

    scikit-learn takes one to two seconds to import, so its file is read instead; its own reader is
    asked where a version keeps the file elsewhere.
    """
    package = find_spec("sklearn")
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        path = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if path.exists():
            table = np.loadtxt(path, delimiter=",")
            return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels
