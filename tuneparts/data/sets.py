"""The table of data sets: the name of each, where it is looked for, and how to get it.

A set is looked for in `TUNEPARTS_DATA`, then in what dependencies ship, then in the cache that
`download` fills. Nothing is downloaded unless it is asked for.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tuneparts.core import settings
from tuneparts.core.errors import DataError, DataMissingError, UnknownNameError
from tuneparts.core.registry import Registry
from tuneparts.data import own, published
from tuneparts.data.images import find_folder
from tuneparts.data.source import (
    DataSource,
    InputSelection,
    Parts,
    Request,
    blobs,
    find_digits,
    stripes,
)
from tuneparts.data.task import Examples

REGISTRY = Registry(
    "data set",
    {
        name: f"tuneparts.data.sets:{name.upper()}"
        for name in (
            "digits",
            "mnist",
            "fashion_mnist",
            "cifar10",
            "cifar100",
            "tinyimagenet",
            "imagenet",
            "input_selection",
            "blobs",
            "stripes",
        )
    },
    group="tuneparts.data",
)
"""Our own names lead to a `DataSet`; import paths, and entry points of packages, to functions."""
_FOLDER_PREFIX = "folder:"
_CIFAR_MEAN = (125.3 / 255, 123.0 / 255, 113.9 / 255)
_CIFAR_STD = (63.0 / 255, 62.1 / 255, 66.7 / 255)
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class DataSet:
    """A data set that can be asked for by name."""

    name: str
    advice: str
    """What to do when the set is not found."""
    finders: Sequence[Callable[[Path], DataSource | None]] = ()
    """Tried on each folder, the first layout that is there wins."""
    shipped: Callable[[], DataSource] | None = None
    """For sets that need no folder."""
    mean: tuple[float, ...] = (0.0,)
    """Of inputs scaled to [0, 1]."""
    std: tuple[float, ...] = (1.0,)
    is_image: bool = True
    is_resizable: bool = False
    """Whether `image_size` may be chosen."""
    torchvision_kind: str | None = None
    """The class whose downloader gets the set."""
    own_path: str | None = None
    """Import path of the function, for data of one's own."""

    def find(self, roots: Iterable[Path]) -> DataSource:
        """Look for the set in these folders; the first that has it wins."""
        if self.shipped is not None:
            return self.shipped()
        looked = list(roots)
        for root in looked:
            for finder in self.finders:
                if found := finder(root):
                    return found
        where = ", ".join(map(str, looked))
        unset = "" if settings.current().data_dir else " (TUNEPARTS_DATA is not set)"
        raise DataMissingError(f"`{self.name}` was not found in {where}{unset}. {self.advice}")


def _generated(
    name: str,
    draw: Callable[[Request], Callable[..., Examples]],
    sizes: tuple[int, int],
    shape: tuple[int, ...],
    num_classes: int,
) -> DataSet:
    """A generated set, which makes more than its usual sizes when asked to."""

    def read(request: Request) -> Parts:
        train, test = (
            draw(request)(max(usual, asked), seed=request.seed, part=part)
            for part, usual, asked in (
                ("train", sizes[0], request.num_train),
                ("test", sizes[1], request.num_test),
            )
        )
        return Parts(train, test, num_classes)

    return DataSet(
        name,
        advice="It is generated.",
        shipped=lambda: DataSource("generated", *sizes, shape, num_classes, read),
        is_image=len(shape) == 3,
    )


def _downloaded(
    name: str, kind: str, layout: str, finders: Sequence[Callable[[Path], DataSource | None]]
) -> DataSet:
    """A set that torchvision has a downloader for."""
    is_cifar = kind.startswith("CIFAR")
    return DataSet(
        name,
        advice=f"Run `tuneparts data --download {name}`, or set TUNEPARTS_DATA to a folder that "
        f"holds {layout}.",
        finders=finders,
        mean=_CIFAR_MEAN if is_cifar else (0.0,),
        std=_CIFAR_STD if is_cifar else (1.0,),
        torchvision_kind=kind,
    )


def _photographs(name: str, advice: str, finder: Callable[[Path], DataSource | None]) -> DataSet:
    return DataSet(
        name, advice, [finder], mean=_IMAGENET_MEAN, std=_IMAGENET_STD, is_resizable=True
    )


DIGITS = DataSet("digits", advice="It comes with scikit-learn.", shipped=find_digits)
MNIST = _downloaded(
    "mnist",
    "MNIST",
    "MNIST/raw/train-images-idx3-ubyte and its three siblings",
    [partial(published.find_idx, "MNIST")],
)
FASHION_MNIST = _downloaded(
    "fashion_mnist",
    "FashionMNIST",
    "FashionMNIST/raw/train-images-idx3-ubyte and its three siblings",
    [partial(published.find_idx, "FashionMNIST")],
)
CIFAR10 = _downloaded(
    "cifar10",
    "CIFAR10",
    "cifar-10-batches-py/, cifar10/{train,test}/<class>/ or cifar10_jpeg_{train,test}.npz",
    [
        partial(published.find_cifar, "CIFAR10"),
        lambda root: find_folder(root / "cifar10", title="cifar10", image_size=32),
        partial(published.find_packed, name="cifar10", image_size=32),
    ],
)
CIFAR100 = _downloaded(
    "cifar100", "CIFAR100", "cifar-100-python/", [partial(published.find_cifar, "CIFAR100")]
)
TINYIMAGENET = _photographs(
    "tinyimagenet",
    "Unpack tiny-imagenet-200.zip (cs231n.stanford.edu) in the folder TUNEPARTS_DATA.",
    published.find_tiny,
)
IMAGENET = _photographs(
    "imagenet",
    "Get ILSVRC 2012 from image-net.org and unpack it as imagenet/train/<wnid>/ and "
    "imagenet/val/ in the folder TUNEPARTS_DATA.",
    published.find_imagenet,
)
INPUT_SELECTION = _generated(
    "input_selection",
    lambda request: (request.input_selection or InputSelection()).draw,
    (3000, 1000),
    (30,),
    2,
)
BLOBS = _generated("blobs", lambda _: blobs, (600, 300), (8,), 3)
STRIPES = _generated("stripes", lambda _: stripes, (600, 300), (1, 8, 8), 4)


def lookup(name: str) -> DataSet:
    """The set of that name: ours, of an installed package, or a function's import path.

    `folder:PATH` is an image folder anywhere.

    Example:
        >>> lookup("digits").find([]).num_train
        1297
    """
    if name.startswith(_FOLDER_PREFIX):
        path = Path(name.removeprefix(_FOLDER_PREFIX)).expanduser()
        return _photographs(
            name,
            "An image folder holds train/<class>/*.jpg, and test/ or val/ beside train/; a "
            "relative path starts from those folders.",
            lambda root: find_folder(root / path, title="folder"),
        )
    if name in REGISTRY.known:
        found: DataSet = REGISTRY.find(name)
        return found
    try:
        own_path = REGISTRY.path_of(name)
    except UnknownNameError:
        known = [*REGISTRY.names(), f"{_FOLDER_PREFIX}PATH", "package.module:function"]
        raise UnknownNameError("data set", name, known) from None
    return DataSet(
        name,
        advice="It is made by a function.",
        shipped=lambda: DataSource(own_path, 0, 0, None, 0, partial(own.read, own_path)),
        is_resizable=True,
        own_path=own_path,
    )


def roots(override: str | None = None) -> list[Path]:
    """Folders in which sets are looked for, in order; an override replaces them all."""
    if override is not None:
        return [Path(override).expanduser().absolute()]
    data_dir = settings.current().data_dir
    return [*([data_dir] if data_dir else []), _download_dir()]


def _download_dir() -> Path:
    """Where downloads go: never into `TUNEPARTS_DATA`, which may be shared and read-only."""
    return settings.current().cache_dir / "downloads"


def download(name: str) -> str:
    """Fetch a set with torchvision's downloader unless it is there; returns where it is."""
    data_set = lookup(name)
    try:
        return data_set.find(roots()).where
    except DataError:  # damaged counts as not there: the downloader mends what it can
        if data_set.torchvision_kind is None:
            raise
    published.download(data_set.torchvision_kind, _download_dir())
    return data_set.find(roots()).where


@dataclass(frozen=True)
class InventoryRow:
    """What `tuneparts data` says of one set."""

    name: str
    where: str | None = None
    """None when it was not found, or is damaged."""
    num_train: int | None = None
    num_test: int | None = None
    shape: tuple[int, ...] | None = None
    num_classes: int | None = None
    advice: str = ""
    """What to do to get the set, or what is wrong with it; empty when it is there."""


def inventory() -> list[InventoryRow]:
    """What is known of every set that has a name; reads file names and headers only."""
    rows = []
    for name, path in REGISTRY.names().items():
        if name not in REGISTRY.known:
            rows.append(InventoryRow(name, path))
            continue
        data_set = lookup(name)
        try:
            found = data_set.find(roots())
        except DataError as error:
            is_missing = isinstance(error, DataMissingError)
            advice = data_set.advice if is_missing else str(error)
            rows.append(InventoryRow(name, advice=advice))
        else:
            sizes = (found.num_train, found.num_test, found.shape, found.num_classes)
            rows.append(InventoryRow(name, found.where, *sizes))
    return rows
