"""Tiny ImageNet and ImageNet (ILSVRC 2012) in the folders that their archives unpack to.

The official validation parts carry labels and serve as test parts; validation data is split off
the training part, as for every set.
"""

from pathlib import Path

import numpy as np

from tuneparts.core.errors import DataError
from tuneparts.data.image_folder import ImageFiles, class_names, image_names, list_images
from tuneparts.data.source import DataSource, Parts, Request

TINY_FOLDERS = ("tiny-imagenet-200", "tinyimagenet")
FOLDERS = ("imagenet", "ILSVRC2012")
_GROUND_TRUTH = Path("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt")
_MOST_BYTES = 1 << 20
"""Of the table of classes; the published one has 48 thousand."""


def find_tiny(root: Path) -> DataSource | None:
    """Tiny ImageNet: `train/<wnid>/images/`, `val/images/` and `val/val_annotations.txt`."""
    folder = next((root / n for n in TINY_FOLDERS if (root / n / "train").is_dir()), None)
    if folder is None:
        return None

    def read(request: Request) -> Parts:
        classes = class_names(folder / "train")
        train = list_images(folder / "train", classes, inner="images")
        labels_by_name = _label_file(folder / "val" / "val_annotations.txt", classes)
        val = _flat(folder / "val" / "images", labels_by_name)
        size = request.image_size or 64
        return Parts(
            train=train.examples(image_size=size, title="tinyimagenet-train"),
            test=val.examples(image_size=size, title="tinyimagenet-val"),
            num_classes=len(classes),
        )

    return DataSource(
        where=str(folder),
        num_train=100_000,
        num_test=10_000,
        shape=(3, 64, 64),
        num_classes=200,
        read=read,
    )


def find(root: Path) -> DataSource | None:
    """ImageNet: `train/<wnid>/*.JPEG`, and `val/` sorted into folders or flat.

    The labels of a flat `val/` are read from `val_labels.txt` beside it (`file wnid` a line), or
    from the unpacked development kit `ILSVRC2012_devkit_t12/`.
    """
    folder = next((root / n for n in FOLDERS if (root / n / "train").is_dir()), None)
    if folder is None:
        return None

    def read(request: Request) -> Parts:
        classes = class_names(folder / "train")
        train = list_images(folder / "train", classes)
        val = _validation(folder, classes)
        size = request.image_size or 224
        return Parts(
            train=train.examples(image_size=size, title="imagenet-train"),
            test=val.examples(image_size=size, title="imagenet-val"),
            num_classes=len(classes),
        )

    return DataSource(
        where=str(folder),
        num_train=1_281_167,
        num_test=50_000,
        shape=(3, 224, 224),
        num_classes=1000,
        read=read,
    )


def _validation(folder: Path, classes: list[str]) -> ImageFiles:
    val = folder / "val"
    if not val.is_dir():
        raise DataError(
            f"{val} is missing beside {folder / 'train'}. Unpack the validation images."
        )
    if any(entry.is_dir() for entry in val.iterdir()):
        return list_images(val, classes)
    if (folder / "val_labels.txt").exists():
        return _flat(val, _label_file(folder / "val_labels.txt", classes))
    if (folder / _GROUND_TRUTH).exists():
        return _flat(val, _devkit(folder, classes))
    raise DataError(
        f"{val} is not sorted into class folders and has no labels beside it. Sort it, write "
        f"{folder / 'val_labels.txt'} with a line `file wnid` per image, or unpack the development "
        f"kit so that {folder / _GROUND_TRUTH} exists."
    )


def _label_file(path: Path, classes: list[str]) -> dict[str, int]:
    """Image name to label, from lines that begin with a file's name and its wnid."""
    label = {name: i for i, name in enumerate(classes)}
    try:
        rows = [line.split() for line in path.read_text().splitlines() if line.strip()]
        return {row[0]: label[row[1]] for row in rows}
    except (OSError, UnicodeDecodeError, IndexError, KeyError) as error:
        raise DataError(
            f"{path} must say `file wnid` on every line, with wnids of the training part: "
            f"{error!r}. Get the set again."
        ) from error


def _devkit(folder: Path, classes: list[str]) -> dict[str, int]:
    """Image name to label, from the development kit's ground truth and its table of classes."""
    from scipy.io import loadmat  # slow to import

    truth, meta = folder / _GROUND_TRUTH, (folder / _GROUND_TRUTH).with_name("meta.mat")
    label = {name: i for i, name in enumerate(classes)}
    try:
        if meta.stat().st_size > _MOST_BYTES:  # it is compressed, and could unpack to anything
            raise ValueError(f"a table of classes has at most {_MOST_BYTES:,} bytes")
        synsets = loadmat(meta, squeeze_me=True)["synsets"]
        # The kit numbers the classes in an order of its own.
        wnids = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in synsets}
        ids = [int(line) for line in truth.read_text().split()]
        return {
            f"ILSVRC2012_val_{i:08d}.JPEG": label[wnids[number]]
            for i, number in enumerate(ids, start=1)
        }
    except Exception as error:  # SciPy raises many types for files of other kinds
        raise DataError(
            f"{truth} and {meta} do not give every validation image a class of {folder / 'train'}: "
            f"{error!r}. Unpack the development kit again."
        ) from error


def _flat(folder: Path, labels: dict[str, int]) -> ImageFiles:
    names = image_names(folder)
    unlabelled = [name for name in names if name not in labels]
    if unlabelled or not names:
        what = f"{unlabelled[0]} has none" if unlabelled else "there is no image"
        raise DataError(
            f"every image in {folder} must have a label, but {what}. Get the set again."
        )
    return ImageFiles(folder, names, np.array([labels[name] for name in names], np.int64))
