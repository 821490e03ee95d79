"""Published sets in the layouts that their archives unpack to.

MNIST, Fashion-MNIST and CIFAR as torchvision has them, which is imported when a set is read or
downloaded, never to look whether it is there. Tiny ImageNet and ImageNet (ILSVRC 2012), whose
official validation parts carry labels and serve as test parts. Image files packed into one archive
per part, `<name>_jpeg_{train,test}.npz`, with the arrays `jpeg` (all files end to end, uint8),
`offsets` (where each begins, int64 (N + 1,)), `labels` (N,) and `classes` (their names).
"""

import io
import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from tuneparts.core import _torchvision
from tuneparts.core.errors import DataError, DataMissingError
from tuneparts.data.images import ImageFiles, class_names, decode, image_names, list_images
from tuneparts.data.source import DataSource, Parts, Request
from tuneparts.data.task import Examples

_IDX_DIMENSIONS = {
    "train-images-idx3-ubyte": 3,
    "train-labels-idx1-ubyte": 1,
    "t10k-images-idx3-ubyte": 3,
    "t10k-labels-idx1-ubyte": 1,
}
_IDX_CLASSES = 10
_CIFAR_FOLDERS = {"CIFAR10": "cifar-10-batches-py", "CIFAR100": "cifar-100-python"}


def find_idx(kind: str, root: Path) -> DataSource | None:
    """Find MNIST or a set of its format in `root/kind/raw/`; headers and sizes are checked."""
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
        str(raw),
        shape[0],
        counts["t10k-labels-idx1-ubyte"][0],
        (1, *shape[1:]),
        _IDX_CLASSES,
        lambda _: _read_idx(raw),
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
    folder = root / _CIFAR_FOLDERS[kind]
    if not folder.is_dir():
        return None
    num_classes = {"CIFAR10": 10, "CIFAR100": 100}[kind]
    read = partial(_read_cifar, kind, root)
    return DataSource(str(folder), 50_000, 10_000, (3, 32, 32), num_classes, lambda _: read())


def _read_cifar(kind: str, root: Path) -> Parts:
    torchvision = _torchvision.load()
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
    reader = getattr(_torchvision.load().datasets, kind)
    root.mkdir(parents=True, exist_ok=True)
    try:
        reader(root, train=True, download=True)
        reader(root, train=False, download=True)
    except (OSError, RuntimeError) as error:
        raise DataMissingError(
            f"{kind} could not be downloaded to {root}: {error}. Check the network, or copy the "
            "set to a folder and name it in TUNEPARTS_DATA."
        ) from error


_GROUND_TRUTH = Path("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt")
_MOST_BYTES = 1 << 20
"""Of the table of classes; the published one has 48 thousand."""


def find_tiny(root: Path) -> DataSource | None:
    """Tiny ImageNet: `train/<wnid>/images/`, `val/images/` and `val/val_annotations.txt`."""

    def validation(folder: Path, classes: list[str]) -> ImageFiles:
        labels_by_name = _label_file(folder / "val" / "val_annotations.txt", classes)
        return _flat(folder / "val" / "images", labels_by_name)

    names, sizes = ("tiny-imagenet-200", "tinyimagenet"), (100_000, 10_000, (3, 64, 64), 200)
    return _find_photographs(root, "tinyimagenet", names, sizes, validation, inner="images")


def find_imagenet(root: Path) -> DataSource | None:
    """ImageNet: `train/<wnid>/*.JPEG`, and `val/` sorted into folders or flat.

    The labels of a flat `val/` are read from `val_labels.txt` beside it (`file wnid` a line), or
    from the unpacked development kit `ILSVRC2012_devkit_t12/`.
    """
    names, sizes = ("imagenet", "ILSVRC2012"), (1_281_167, 50_000, (3, 224, 224), 1000)
    return _find_photographs(root, "imagenet", names, sizes, _validation)


def _find_photographs(
    root: Path,
    title: str,
    names: tuple[str, ...],
    sizes: tuple[int, int, tuple[int, int, int], int],
    validation: Callable[[Path, list[str]], ImageFiles],
    *,
    inner: str = "",
) -> DataSource | None:
    """The set of published `sizes` in the first folder of these names that has `train/`."""
    folder = next((root / n for n in names if (root / n / "train").is_dir()), None)
    if folder is None:
        return None

    def read(request: Request) -> Parts:
        classes = class_names(folder / "train")
        train = list_images(folder / "train", classes, inner=inner)
        val = validation(folder, classes)
        size = request.image_size or sizes[2][1]
        return Parts(
            train=train.examples(image_size=size, title=f"{title}-train"),
            test=val.examples(image_size=size, title=f"{title}-val"),
            num_classes=len(classes),
        )

    return DataSource(str(folder), *sizes, read)


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


_MOST_UNPACKED = 64
"""How many times its size on disk an array may have; labels in order shrink well, images do not."""


@dataclass(frozen=True)
class _PackedFiles:
    """The image files of one archive."""

    path: Path
    data: bytes
    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def name(self, index: int) -> str:
        """The archive, and the number of one image in it."""
        return f"{self.path} (image {index})"

    def open(self, index: int) -> IO[bytes]:
        """Open one file of the archive."""
        return io.BytesIO(self.data[self.offsets[index] : self.offsets[index + 1]])

    def fingerprint(self) -> Iterator[str]:
        """Name, size and time of change of the archive."""
        status = self.path.stat()
        yield f"{self.path.name}\t{status.st_size}\t{status.st_mtime_ns}"


def find_packed(root: Path, *, name: str, image_size: int) -> DataSource | None:
    """Find the packed set `name` under `root`; None unless the archives of both parts are there."""
    paths = {part: root / f"{name}_jpeg_{part}.npz" for part in ("train", "test")}
    if not all(path.exists() for path in paths.values()):
        return None
    counts = {part: _packed_length(path, "labels") for part, path in paths.items()}
    num_classes = _packed_length(paths["train"], "classes")

    def examples(part: str) -> Examples:
        path = paths[part]
        labels, offsets, data = (
            _packed_array(path, name) for name in ("labels", "offsets", "jpeg")
        )
        sound = (
            len(offsets) == len(labels) + 1
            and bool(np.all(np.diff(offsets) > 0))
            and offsets[0] == 0
            and offsets[-1] == len(data)
            and labels.min(initial=0) >= 0
            and labels.max(initial=0) < num_classes
        )
        if not sound:
            raise DataError(f"{path}: offsets, labels and data do not fit together. Get it again.")
        files = _PackedFiles(path, data.tobytes(), offsets)
        images = decode(files, image_size=image_size, title=f"{name}-{part}")
        return Examples(images, labels.astype(np.int64))

    return DataSource(
        str(root / f"{name}_jpeg_*.npz"),
        counts["train"],
        counts["test"],
        (3, image_size, image_size),
        num_classes,
        lambda _: Parts(examples("train"), examples("test"), num_classes),
    )


def _packed_length(path: Path, name: str) -> int:
    """How long an array is, from its header; the array itself is not read."""
    with _archive(path) as archive:
        return _packed_shape(path, archive, name)[0]


def _packed_array(path: Path, name: str) -> npt.NDArray[Any]:
    with _archive(path) as archive:
        _packed_shape(path, archive, name)
        with archive.open(f"{name}.npy") as file:
            array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            yield archive
    except DataError:
        raise
    except Exception as error:  # zip, zlib and numpy raise many types for hostile files
        raise DataError(
            f"{path} is truncated or not an archive of images: {error!r:.200}. Get it again."
        ) from error


def _packed_shape(path: Path, archive: zipfile.ZipFile, name: str) -> tuple[int, ...]:
    """The shape of an array, after checking that memory is asked for only what the file can hold.

    Raises:
        DataError: The array is not a row of numbers or names, or would be larger than any archive
            of images that is as small as this one.
    """
    size = archive.getinfo(f"{name}.npy").file_size
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0
        shape, _, dtype = (read if version == (1, 0) else np.lib.format.read_array_header_2_0)(file)
        begin = file.tell()
    is_row = len(shape) == 1 and dtype.kind in ("U" if name == "classes" else "iu")
    if not is_row or begin + shape[0] * dtype.itemsize != size:
        raise DataError(
            f"{path}: `{name}` is not a row of {'names' if name == 'classes' else 'whole numbers'} "
            f"that is as long as its header says ({dtype} {shape}, {size} bytes). Get it again."
        )
    most = _MOST_UNPACKED * path.stat().st_size
    if size > most:
        raise DataError(
            f"images are packed already, so arrays of {path} have at most {most:,} bytes, but "
            f"`{name}` would have {size:,}. Get it again."
        )
    return shape
