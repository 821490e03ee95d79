"""MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100 in torchvision's layouts.

torchvision is imported when a set is read or downloaded, never to look whether it is there.
"""

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuneparts.core import torchvision_door
from tuneparts.core.errors import DataError, DataMissingError
from tuneparts.data.source import DataSource, Parts
from tuneparts.data.task import Examples

_IDX_DIMENSIONS = {
    "train-images-idx3-ubyte": 3,
    "train-labels-idx1-ubyte": 1,
    "t10k-images-idx3-ubyte": 3,
    "t10k-labels-idx1-ubyte": 1,
}
_IDX_CLASSES = 10
CIFAR_FOLDERS = {"CIFAR10": "cifar-10-batches-py", "CIFAR100": "cifar-100-python"}


def find_idx(kind: str, root: Path) -> DataSource | None:
    """Find MNIST or a set of its format under `root`; every file's header and size are checked.

    Args:
        kind: name of torchvision's class, which is also the folder's name.
        root: folder that holds `kind/raw/`.
    """
    raw = root / kind / "raw"
    paths = {name: raw / name for name in _IDX_DIMENSIONS}
    if not any(path.exists() for path in paths.values()):
        return None
    counts = {name: _idx_shape(path, _IDX_DIMENSIONS[name]) for name, path in paths.items()}
    for part in ("train", "t10k"):
        images, labels = counts[f"{part}-images-idx3-ubyte"], counts[f"{part}-labels-idx1-ubyte"]
        if images[0] != labels[0]:
            raise DataError(
                f"every image must have a label, but {raw} has {images[0]} images and "
                f"{labels[0]} labels in its `{part}` files. Delete it and get the set again."
            )
    shape = counts["train-images-idx3-ubyte"]
    return DataSource(
        where=str(raw),
        num_train=shape[0],
        num_test=counts["t10k-labels-idx1-ubyte"][0],
        shape=(1, *shape[1:]),
        num_classes=_IDX_CLASSES,
        read=lambda _: _read_idx(raw),
    )


def _idx_shape(path: Path, dimensions: int) -> tuple[int, ...]:
    """The shape in an IDX file's header, after checking that the file is as long as it says."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(4 + 4 * dimensions)
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}), but other files of the set lie beside it. "
            "Delete it and get the set again."
        ) from error
    shape = tuple(np.frombuffer(header[4:], ">u4").tolist()) if len(header) % 4 == 0 else ()
    expected = len(header) + math.prod(shape)
    if header[:4] != bytes([0, 0, 8, dimensions]) or size != expected:
        raise DataError(
            f"{path} is truncated or not an IDX file: it has {size} bytes, its header asks for "
            f"{expected} (shape {shape}). Delete it and get the set again."
        )
    return shape


def _read_idx(raw: Path) -> Parts:
    """Read the files whose headers were checked.

    Not by torchvision, which prefers `processed/*.pt` where such files of its old versions lie
    beside them, and checks nothing of those.
    """

    def part(name: str) -> Examples:
        images = _idx_array(raw / f"{name}-images-idx3-ubyte", 3)
        labels = _idx_array(raw / f"{name}-labels-idx1-ubyte", 1)
        if labels.max(initial=0) >= _IDX_CLASSES:
            raise DataError(
                f"labels of {raw} are digits, but its `{name}` files hold {labels.max()}. "
                "Delete it and get the set again."
            )
        return Examples(images[:, None], labels.astype(np.int64))

    return Parts(train=part("train"), test=part("t10k"), num_classes=_IDX_CLASSES)


def _idx_array(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    shape = _idx_shape(path, dimensions)
    return np.fromfile(path, np.uint8, math.prod(shape), offset=4 + 4 * dimensions).reshape(shape)


def find_cifar(kind: str, root: Path) -> DataSource | None:
    """Find CIFAR-10 or CIFAR-100 under `root`, as torchvision unpacks them."""
    folder = root / CIFAR_FOLDERS[kind]
    if not folder.is_dir():
        return None
    return DataSource(
        where=str(folder),
        num_train=50_000,
        num_test=10_000,
        shape=(3, 32, 32),
        num_classes={"CIFAR10": 10, "CIFAR100": 100}[kind],
        read=lambda _: _read_cifar(kind, root),
    )


def _read_cifar(kind: str, root: Path) -> Parts:
    torchvision = torchvision_door.load()
    reader = getattr(torchvision.datasets, kind)
    files = [*reader.train_list, *reader.test_list]
    files.append((reader.meta["filename"], reader.meta["md5"]))
    # Checked before reading: these files are pickles, and a pickle may run any code.
    for name, md5 in files:
        path = root / reader.base_folder / name
        if not torchvision.datasets.utils.check_integrity(str(path), md5):
            state = "has another checksum than" if path.exists() else "is missing from"
            raise DataError(
                f"{path} {state} the published {kind}: it is truncated, changed or not part of "
                "it. Delete it and get the set again."
            )

    def part(train: bool) -> Examples:
        data = reader(root, train=train, download=False)
        images: npt.NDArray[np.uint8] = data.data.transpose(0, 3, 1, 2)
        return Examples(np.ascontiguousarray(images), np.array(data.targets, np.int64))

    train = part(True)
    return Parts(train=train, test=part(False), num_classes=int(train.labels.max()) + 1)


def download(kind: str, root: Path) -> None:
    """Fetch a set into `root` with torchvision's downloader."""
    reader = getattr(torchvision_door.load().datasets, kind)
    root.mkdir(parents=True, exist_ok=True)
    try:
        reader(root, train=True, download=True)
        reader(root, train=False, download=True)
    except (OSError, RuntimeError) as error:
        raise DataMissingError(
            f"{kind} could not be downloaded to {root}: {error}. Check the network, or copy the "
            "set to a folder and name it in TUNEPARTS_DATA."
        ) from error
