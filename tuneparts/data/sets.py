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
from tuneparts.data import digits, image_folder, imagenet, own, packed, torchvision_sets
from tuneparts.data.source import DataSource, Parts, Request
from tuneparts.data.synthetic import InputSelection, blobs, stripes
from tuneparts.data.task import Examples

FOLDER_PREFIX = "folder:"
_CIFAR_MEAN = (125.3 / 255, 123.0 / 255, 113.9 / 255)
_CIFAR_STD = (63.0 / 255, 62.1 / 255, 66.7 / 255)
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)

Finder = Callable[[Path], DataSource | None]


@dataclass(frozen=True)
class DataSet:
    """A data set that can be asked for by name."""

    name: str
    cure: str
    """What to do when the set is not found."""
    finders: Sequence[Finder] = ()
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
        raise DataMissingError(f"`{self.name}` was not found in {where}{unset}. {self.cure}")


def _generated(
    make: Callable[[Request, int, int], Parts],
    sizes: tuple[int, int],
    shape: tuple[int, ...],
    num_classes: int,
) -> Callable[[], DataSource]:
    """A finder of a generated set, which makes more than its usual sizes when asked to."""

    def read(request: Request) -> Parts:
        return make(request, max(sizes[0], request.num_train), max(sizes[1], request.num_test))

    return lambda: DataSource("generated", sizes[0], sizes[1], shape, num_classes, read)


def _simple(
    draw: Callable[..., Examples], num_classes: int
) -> Callable[[Request, int, int], Parts]:
    def make(request: Request, num_train: int, num_test: int) -> Parts:
        train = draw(num_train, seed=request.seed, part="train")
        return Parts(train, draw(num_test, seed=request.seed, part="test"), num_classes)

    return make


def _input_selection(request: Request, num_train: int, num_test: int) -> Parts:
    draw = (request.input_selection or InputSelection()).draw
    return _simple(draw, 2)(request, num_train, num_test)


def _download_cure(name: str, layout: str) -> str:
    return (
        f"Run `tuneparts data --download {name}`, or set TUNEPARTS_DATA to a folder that holds "
        f"{layout}."
    )


def _cifar10_folder(root: Path) -> DataSource | None:
    return image_folder.find(root / "cifar10", title="cifar10", image_size=32)


_TABLE = [
    DataSet("digits", cure="It comes with scikit-learn.", shipped=digits.find),
    DataSet(
        "mnist",
        cure=_download_cure("mnist", "MNIST/raw/train-images-idx3-ubyte and its three siblings"),
        finders=[partial(torchvision_sets.find_idx, "MNIST")],
        torchvision_kind="MNIST",
    ),
    DataSet(
        "fashion_mnist",
        cure=_download_cure(
            "fashion_mnist", "FashionMNIST/raw/train-images-idx3-ubyte and its three siblings"
        ),
        finders=[partial(torchvision_sets.find_idx, "FashionMNIST")],
        torchvision_kind="FashionMNIST",
    ),
    DataSet(
        "cifar10",
        cure=_download_cure(
            "cifar10",
            "cifar-10-batches-py/, cifar10/{train,test}/<class>/ or cifar10_jpeg_{train,test}.npz",
        ),
        finders=[
            partial(torchvision_sets.find_cifar, "CIFAR10"),
            _cifar10_folder,
            partial(packed.find, name="cifar10", image_size=32),
        ],
        mean=_CIFAR_MEAN,
        std=_CIFAR_STD,
        torchvision_kind="CIFAR10",
    ),
    DataSet(
        "cifar100",
        cure=_download_cure("cifar100", "cifar-100-python/"),
        finders=[partial(torchvision_sets.find_cifar, "CIFAR100")],
        mean=_CIFAR_MEAN,
        std=_CIFAR_STD,
        torchvision_kind="CIFAR100",
    ),
    DataSet(
        "tinyimagenet",
        cure="Unpack tiny-imagenet-200.zip (cs231n.stanford.edu) in the folder TUNEPARTS_DATA.",
        finders=[imagenet.find_tiny],
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
        is_resizable=True,
    ),
    DataSet(
        "imagenet",
        cure="Get ILSVRC 2012 from image-net.org and unpack it as imagenet/train/<wnid>/ and "
        "imagenet/val/ in the folder TUNEPARTS_DATA.",
        finders=[imagenet.find],
        mean=_IMAGENET_MEAN,
        std=_IMAGENET_STD,
        is_resizable=True,
    ),
    DataSet(
        "input_selection",
        cure="It is generated.",
        shipped=_generated(_input_selection, (3000, 1000), (30,), 2),
        is_image=False,
    ),
    DataSet(
        "blobs",
        cure="It is generated.",
        shipped=_generated(_simple(blobs, 3), (600, 300), (8,), 3),
        is_image=False,
    ),
    DataSet(
        "stripes",
        cure="It is generated.",
        shipped=_generated(_simple(stripes, 4), (600, 300), (1, 8, 8), 4),
    ),
]
SETS = {data_set.name: data_set for data_set in _TABLE}


def lookup(name: str) -> DataSet:
    """The set of that name: of our table, of an installed package, or a function's import path.

    `folder:PATH` is an image folder anywhere.

    Example:
        >>> lookup("digits").find([]).num_train
        1297
    """
    if name.startswith(FOLDER_PREFIX):
        path = name.removeprefix(FOLDER_PREFIX)
        return DataSet(
            name,
            cure="An image folder holds train/<class>/*.jpg, and test/ or val/ beside train/; a "
            "relative path starts from those folders.",
            finders=[
                lambda root: image_folder.find(root / Path(path).expanduser(), title="folder")
            ],
            mean=_IMAGENET_MEAN,
            std=_IMAGENET_STD,
            is_resizable=True,
        )
    if name in SETS:
        return SETS[name]
    own_path = name if ":" in name else own.installed().get(name)
    if own_path is None:
        known = [*SETS, *own.installed(), f"{FOLDER_PREFIX}PATH", "package.module:function"]
        raise UnknownNameError("data set", name, known)
    return DataSet(
        name,
        cure="It is made by a function.",
        shipped=lambda: DataSource(own_path, 0, 0, None, 0, partial(own.read, own_path)),
        is_resizable=True,
        own_path=own_path,
    )


def roots(override: str | None = None) -> list[Path]:
    """Folders in which sets are looked for, in order; an override replaces them all."""
    if override is not None:
        return [Path(override).expanduser().absolute()]
    here = settings.current()
    return [*([here.data_dir] if here.data_dir else []), download_dir()]


def download_dir() -> Path:
    """Where downloads go: never into `TUNEPARTS_DATA`, which may be shared and read-only."""
    return settings.current().cache_dir / "downloads"


def download(name: str) -> str:
    """Fetch a set with torchvision's downloader unless it is there; returns where it lies."""
    data_set = lookup(name)
    try:
        return data_set.find(roots()).where
    except DataError:  # damaged counts as not there: the downloader mends what it can
        if data_set.torchvision_kind is None:
            raise
    torchvision_sets.download(data_set.torchvision_kind, download_dir())
    return data_set.find(roots()).where


@dataclass(frozen=True)
class InventoryRow:
    """What `tuneparts data` says of one set."""

    name: str
    where: str | None
    """None when it was not found, or is damaged."""
    num_train: int | None
    num_test: int | None
    shape: tuple[int, ...] | None
    num_classes: int | None
    advice: str
    """What to do to get the set, or what is wrong with it; empty when it is there."""


def inventory() -> list[InventoryRow]:
    """What is known of every set that has a name; reads file names and headers only."""
    rows = []
    for data_set in _TABLE:
        try:
            found = data_set.find(roots())
        except DataMissingError:
            rows.append(_absent(data_set.name, data_set.cure))
        except DataError as error:
            rows.append(_absent(data_set.name, str(error)))
        else:
            rows.append(
                InventoryRow(
                    name=data_set.name,
                    where=found.where,
                    num_train=found.num_train,
                    num_test=found.num_test,
                    shape=found.shape,
                    num_classes=found.num_classes,
                    advice="",
                )
            )
    for name, path in own.installed().items():
        rows.append(InventoryRow(name, path, None, None, None, None, ""))
    return rows


def _absent(name: str, advice: str) -> InventoryRow:
    return InventoryRow(name, None, None, None, None, None, advice)
