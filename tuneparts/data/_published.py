"""Published sets in the layouts that their archives unpack to.

MNIST, Fashion-MNIST and CIFAR as torchvision has them, which is imported when a set is read or
downloaded, never to look whether it is there. Tiny ImageNet and ImageNet (ILSVRC 2012), whose
official validation parts carry labels and serve as test parts. Image files packed into one archive
per part, `<name>_jpeg_{train,test}.npz`, with the arrays `jpeg` (all files end to end, uint8),
`offsets` (where each begins, int64 (N + 1,)), `labels` (N,) and `classes` (their names).
"""

import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tuneparts.core import _torchvision
from tuneparts.core.errors import DataError
from tuneparts.data._images import ImageFiles, class_names, image_names, list_images
from tuneparts.data.task import Examples, _DataSource, _Parts

if TYPE_CHECKING:
    from tuneparts.data.config import Data

_CIFAR = {"CIFAR10": ("cifar-10-batches-py", 10), "CIFAR100": ("cifar-100-python", 100)}
_GROUND_TRUTH = Path("ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt")
_MOST_BYTES = 1 << 20
"""Of the table of classes; the published one has 48 thousand."""
_MOST_UNPACKED = 64
"""How many times its size on disk an array may have; labels in order shrink well, images do not."""


def find_idx(kind: str, root: Path) -> _DataSource | None:
    """Find MNIST or a set of its format in `root/kind/raw/`."""
    # Not by torchvision, which prefers an unchecked `processed/*.pt` of its old versions.
    raw = root / kind / "raw"
    if not any(raw.glob("*-ubyte")):
        return None

    def part(name: str) -> Examples:
        images_NHW, labels_N = (
            _idx(raw / f"{name}-{what}-ubyte", dimensions)
            for what, dimensions in (("images-idx3", 3), ("labels-idx1", 1))
        )
        if len(images_NHW) != len(labels_N) or labels_N.max(initial=0) > 9:
            raise DataError(
                f"{raw}: `{name}` has {len(images_NHW)} images and {len(labels_N)} labels from 0 "
                f"to {labels_N.max(initial=0)}, not one digit each. Delete it and get it again."
            )
        return Examples(images_NHW[:, None], labels_N.astype(np.int64))

    def read(*_: Any) -> _Parts:
        train, test = (Examples(np.array(p.inputs), p.labels) for p in map(part, ("train", "t10k")))
        return _Parts(train, test, num_classes=10)

    train, test = part("train"), part("t10k")
    return _DataSource(str(raw), len(train), len(test), train.inputs.shape[1:], 10, read)


def _idx(path: Path, dimensions: int) -> npt.NDArray[np.uint8]:
    begin = 4 + 4 * dimensions
    try:
        content = np.memmap(path, np.uint8, "r")
        if bytes(content[:4]) != bytes([0, 0, 8, dimensions]):
            raise ValueError(f"it does not begin as bytes of {dimensions} dimensions")
        return content[begin:].reshape(content[4:begin].view(">u4").tolist())
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} is truncated, missing or not an IDX file: {error}. Delete it and get the set "
            "again."
        ) from error


def find_cifar(kind: str, root: Path) -> _DataSource | None:
    """Find CIFAR-10 or CIFAR-100 under `root`, as torchvision unpacks them."""
    folder, num_classes = root / _CIFAR[kind][0], _CIFAR[kind][1]

    def part(*, train: bool) -> Examples:
        reader = getattr(_torchvision.load().datasets, kind)
        try:
            # It looks at checksums first: these files are pickles, and a pickle may run any code.
            data = reader(root, train=train)
        except RuntimeError as error:
            raise DataError(
                f"{folder} is truncated, changed or incomplete: {error}. Delete it and get the set "
                "again."
            ) from error
        images: npt.NDArray[np.uint8] = data.data.transpose(0, 3, 1, 2)
        return Examples(np.ascontiguousarray(images), np.array(data.targets, np.int64))

    def read(*_: Any) -> _Parts:
        return _Parts(part(train=True), part(train=False), num_classes)

    source = _DataSource(str(folder), 50_000, 10_000, (3, 32, 32), num_classes, read)
    return source if folder.is_dir() else None


def find_photographs(
    names: tuple[str, ...],
    sizes: tuple[int, int, tuple[int, int, int], int],
    root: Path,
    *,
    title: str,
    inner: str = "",
) -> _DataSource | None:
    """The set of published `sizes` in the first folder of these names that has `train/`.

    Tiny ImageNet has images in folders `images/`, and labels in `val/val_annotations.txt`; ImageNet
    has class folders, or labels in `val_labels.txt` (`file wnid` a line) or the development kit.
    """
    folder = next((root / n for n in names if (root / n / "train").is_dir()), None)
    if folder is None:
        return None

    def read(config: "Data", _: int | None) -> _Parts:
        classes, size = class_names(folder / "train"), config.image_size or sizes[2][1]
        train = list_images(folder / "train", classes, inner=inner)
        test = _validation(folder, classes, inner=inner)
        return _Parts(
            train.examples(image_size=size, title=f"{title}-train"),
            test.examples(image_size=size, title=f"{title}-val"),
            len(classes),
        )

    return _DataSource(str(folder), *sizes, read)


def _validation(folder: Path, classes: list[str], *, inner: str) -> ImageFiles:
    """The images of `val/`: in class folders, or all in one with a file of their labels."""
    val = folder / "val"
    if not inner and val.is_dir() and any(entry.is_dir() for entry in val.iterdir()):
        return list_images(val, classes)
    beside = ("val/val_annotations.txt",) if inner else ("val_labels.txt", _GROUND_TRUTH)
    files = [folder / name for name in beside]
    names, path = image_names(val / inner), next((p for p in files if p.exists()), None)
    if not names or path is None:
        raise DataError(
            f"{val} must hold class folders, or images with their labels in "
            f"{' or '.join(map(str, files))}: a line `file wnid` each, or the development kit."
        )
    labels = _labels(path, classes)
    if unlabelled := [name for name in names if name not in labels]:
        raise DataError(f"{val / inner / unlabelled[0]} has no label in {path}. Get the set again.")
    return ImageFiles(val / inner, names, np.array([labels[name] for name in names], np.int64))


def _labels(path: Path, classes: list[str]) -> dict[str, int]:
    """Image name to label, from lines `file wnid ...` or the development kit's ground truth."""
    label = {wnid: i for i, wnid in enumerate(classes)}
    try:
        lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
        if path.name != _GROUND_TRUTH.name:
            return {line[0]: label[line[1]] for line in lines}
        from scipy.io import loadmat  # slow to import

        meta = path.with_name("meta.mat")
        if meta.stat().st_size > _MOST_BYTES:  # it is compressed, and could unpack to anything
            raise ValueError(f"{meta.name} has more than {_MOST_BYTES:,} bytes")
        # The kit numbers the classes in an order of its own.
        synsets = loadmat(meta, squeeze_me=True)["synsets"]
        wnids = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in synsets}
        numbers = enumerate((int(line[0]) for line in lines), start=1)
        return {f"ILSVRC2012_val_{i:08d}.JPEG": label[wnids[number]] for i, number in numbers}
    except Exception as error:  # SciPy raises many types for files of other kinds
        raise DataError(
            f"{path} does not give every image a class of the training part: {error!r}. Get the "
            "set again."
        ) from error


@dataclass(frozen=True)
class _PackedFiles(ImageFiles):
    """The image files of one archive, which `folder` is; they are named by their numbers."""

    data: bytes
    offsets: npt.NDArray[np.int64]

    def open(self, index: int) -> IO[bytes]:
        return io.BytesIO(self.data[self.offsets[index] : self.offsets[index + 1]])

    def fingerprint(self) -> Iterator[str]:
        status = self.folder.stat()
        yield f"{self.folder.name}\t{status.st_size}\t{status.st_mtime_ns}"


def find_packed(root: Path, *, name: str, image_size: int) -> _DataSource | None:
    """Find the packed set `name` under `root`; None unless the archives of both parts are there."""
    paths = {part: root / f"{name}_jpeg_{part}.npz" for part in ("train", "test")}
    if not all(path.exists() for path in paths.values()):
        return None
    num_classes = _packed_length(paths["train"], "classes")

    def examples(part: str) -> Examples:
        path = paths[part]
        labels, offsets, data = (_packed_array(path, n) for n in ("labels", "offsets", "jpeg"))
        is_sound = (
            len(offsets) == len(labels) + 1
            and bool(np.all(np.diff(offsets) > 0))
            and (offsets[0], offsets[-1]) == (0, len(data))
            and labels.min(initial=0) >= 0
            and labels.max(initial=0) < num_classes
        )
        if not is_sound:
            raise DataError(f"{path}: offsets, labels and data do not fit together. Get it again.")
        numbers = [str(i) for i in range(len(labels))]
        files = _PackedFiles(path, numbers, labels.astype(np.int64), data.tobytes(), offsets)
        return files.examples(image_size=image_size, title=f"{name}-{part}")

    return _DataSource(
        str(root / f"{name}_jpeg_*.npz"),
        _packed_length(paths["train"], "labels"),
        _packed_length(paths["test"], "labels"),
        (3, image_size, image_size),
        num_classes,
        lambda *_: _Parts(examples("train"), examples("test"), num_classes),
    )


def _packed_length(path: Path, name: str) -> int:
    with _packed(path, name) as (_, length):
        return length


def _packed_array(path: Path, name: str) -> npt.NDArray[Any]:
    with _packed(path, name) as (file, _):
        array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


@contextmanager
def _packed(path: Path, name: str) -> Iterator[tuple[IO[bytes], int]]:
    """An array of an archive as a file, and its length; a few bytes can unpack to anything."""
    formats, most = np.lib.format, _MOST_UNPACKED * path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
            size = archive.getinfo(f"{name}.npy").file_size
            is_first = formats.read_magic(file) == (1, 0)
            read = formats.read_array_header_1_0 if is_first else formats.read_array_header_2_0
            shape, _, dtype = read(file)
            is_row = len(shape) == 1 and dtype.kind in ("U" if name == "classes" else "iu")
            if not is_row or file.tell() + shape[0] * dtype.itemsize != size:
                raise ValueError(f"`{name}` is {dtype} {shape} in {size} bytes")
            if size > most:
                raise ValueError(f"`{name}` would have {size:,} bytes, more than {most:,}")
            file.seek(0)
            yield file, shape[0]
    except Exception as error:  # zip, zlib and numpy raise many types for hostile files
        raise DataError(
            f"{path} is truncated or not an archive of images: {error!r:.200}. Get it again."
        ) from error
