"""The table of data sets: the name of each, where it is looked for, and how to get it.

A set is looked for in `TUNEPARTS_DATA`, then in what dependencies ship, then in the cache that
`download` fills. Nothing is downloaded unless it is asked for.

The digits of scikit-learn are 1,797 grey images of 8 x 8 in ten classes, without an official split;
500 images, stratified, are its test part: those of a seed's own draw, or where the data is
fixed, the same ones for ever. A larger request extends a generated set: its first examples stay.

Shapes: N examples, D features, S side of an image.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from tuneparts.core import _torchvision, seeding, settings
from tuneparts.core.config import Config
from tuneparts.core.errors import DataError, DataMissingError, UnknownNameError
from tuneparts.core.registry import Registry
from tuneparts.data import _published, own
from tuneparts.data._images import find_folder
from tuneparts.data.chunks import _stratified_order
from tuneparts.data.task import Examples, _DataSource, _Parts

if TYPE_CHECKING:
    from tuneparts.data.config import Data

_PUBLISHED = ("digits", "mnist", "fashion_mnist", "cifar10", "cifar100", "tinyimagenet", "imagenet")
_GENERATED = ("input_selection", "blobs", "stripes")
REGISTRY = Registry(
    "data set",
    {name: f"{__name__}:{name.upper()}" for name in (*_PUBLISHED, *_GENERATED)},
    group="tuneparts.data",
)
"""Our own names lead to a `DataSet`; import paths, and entry points of packages, to functions."""
_FOLDER_PREFIX = "folder:"
_CIFAR_SCALE: dict[str, Any] = {
    "mean": (125.3 / 255, 123.0 / 255, 113.9 / 255),
    "std": (63.0 / 255, 62.1 / 255, 66.7 / 255),
}
_IMAGENET_SCALE: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_SIDE = 8  # of images of stripes; a blob has as many dimensions
_NUM_DIGITS_TEST = 500
_Finder: TypeAlias = Callable[[Path], _DataSource | None]


class _InputSelection(Config):
    """Vectors of which some inputs are the label plus noise, and the others noise alone.

    After the input-selection experiment of Lyle et al. (2020) and Mlodozeniec et al. (2023). The
    sizes 3,000 and 1,000 are theirs; the generator and its defaults are a reconstruction.
    """

    num_informative: int = Field(default=15, ge=1)
    """Inputs `y + noise * N(0, 1)`; they come first."""
    num_spurious: int = Field(default=15, ge=0)
    """Inputs `N(0, 1)` that know nothing of the label."""
    noise: float = Field(default=1.0, ge=0)
    """Standard deviation of the noise on informative inputs."""
    num_inputs: int | None = Field(default=None, ge=1)
    """Keep only the first inputs; None keeps all."""

    @model_validator(mode="after")
    def _check_num_inputs(self) -> Self:
        num_all = self.num_informative + self.num_spurious
        if self.num_inputs is not None and self.num_inputs > num_all:
            raise ValueError(f"`num_inputs` = {self.num_inputs}: there are only {num_all}.")
        return self

    def draw(self, count: int, *, seed: int, part: str) -> Examples:
        """Draw from two classes, float32 (N, D); the noise does not depend on `num_inputs`."""
        num, num_all = self.num_informative, self.num_informative + self.num_spurious
        labels = _stream(seed, "input_selection", part, "labels").integers(0, 2, count)
        normal = _stream(seed, "input_selection", part, "noise").standard_normal((count, num_all))
        normal[:, :num] = labels[:, None] + self.noise * normal[:, :num]
        kept = normal[:, : self.num_inputs]
        return Examples(kept.astype(np.float32), labels.astype(np.int64))


def _blobs(count: int, *, seed: int, part: str) -> Examples:
    """Draw from three Gaussian clouds around the first unit vectors times three; float32 (N, 8)."""
    labels = _stream(seed, "blobs", part, "labels").integers(0, 3, count)
    noise = _stream(seed, "blobs", part, "noise").standard_normal((count, _SIDE))
    centres = 3 * np.eye(3, _SIDE)
    return Examples((centres[labels] + noise).astype(np.float32), labels.astype(np.int64))


def _stripes(count: int, *, seed: int, part: str) -> Examples:
    """Draw noisy stripes in four directions with random phase; uint8 (N, 1, 8, 8)."""
    labels = _stream(seed, "stripes", part, "labels").integers(0, 4, count)
    phases = _stream(seed, "stripes", part, "phases").uniform(0, 2 * np.pi, count)
    noise = _stream(seed, "stripes", part, "noise").standard_normal((count, _SIDE, _SIDE))
    direction = labels * (np.pi / 4)
    y, x = np.mgrid[:_SIDE, :_SIDE] * (2 * np.pi / 4)
    along_NSS = np.cos(direction)[:, None, None] * x + np.sin(direction)[:, None, None] * y
    wave_NSS = np.sin(along_NSS + phases[:, None, None])
    images = np.clip(127.5 + 80 * wave_NSS + 25 * noise, 0, 255).round().astype(np.uint8)
    return Examples(images[:, None], labels.astype(np.int64))


def _stream(seed: int, *name: str) -> np.random.Generator:
    return seeding.numpy_generator(seed, "data", *name)


def _read_digits(_: "Data", draw: int | None) -> _Parts:
    pixels, labels = _pixels_and_labels()
    # Ink counts 0..16 stretched to 0..255, so that scaling by 255 gives [0, 1] as for any image.
    images = np.round(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    everything = Examples(images, labels.astype(np.int64))
    order = _stratified_order(everything.labels, _stream(draw or 0, "digits"))
    test, train = np.sort(order[:_NUM_DIGITS_TEST]), np.sort(order[_NUM_DIGITS_TEST:])
    return _Parts(everything.subset(train), everything.subset(test), num_classes=10)


@cache
def _pixels_and_labels() -> tuple[np.ndarray, np.ndarray]:
    """Ink counts, 64 a row, and classes, from the file: scikit-learn takes seconds to import."""
    package = find_spec("sklearn")
    for place in (package.submodule_search_locations or ()) if package is not None else ():
        path = Path(place) / "datasets" / "data" / "digits.csv.gz"
        if path.exists():
            table = np.loadtxt(path, delimiter=",")
            return table[:, :-1], table[:, -1]
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    return pixels, labels


@dataclass(frozen=True)
class DataSet:
    """A data set that can be asked for by name."""

    name: str
    advice: str
    """What to do when the set is not found."""
    finders: tuple[_Finder, ...]
    """Tried on each folder, the first layout that is there wins."""
    mean: tuple[float, ...] = (0.0,)
    """Of inputs scaled to [0, 1]."""
    std: tuple[float, ...] = (1.0,)
    is_image: bool = True
    is_resizable: bool = False
    """Whether `image_size` may be chosen."""
    torchvision_kind: str | None = None
    """The class whose downloader gets the set."""
    own_path: str | None = None
    """Import path of the function, for your own data."""

    def find(self, folders: Iterable[Path]) -> _DataSource:
        """Look for the set in these folders; the first that has it wins."""
        looked = list(folders)
        for root in looked:
            for finder in self.finders:
                if found := finder(root):
                    return found
        where = ", ".join(map(str, looked))
        unset = "" if settings.current().data_dir else " (TUNEPARTS_DATA is not set)"
        raise DataMissingError(f"`{self.name}` was not found in {where}{unset}. {self.advice}")


def _generated(
    name: str,
    draw: "Callable[[Data], Callable[..., Examples]]",
    sizes: tuple[int, int],
    shape: tuple[int, ...],
    num_classes: int,
) -> DataSet:
    """A generated set, which makes more than its usual sizes when asked to."""

    def read(config: "Data", replicate: int | None) -> _Parts:
        seed = (config.seed or 0) if replicate is None else replicate
        num_train = max(sizes[0], (config.num_train or 0) + config.num_val)
        train = draw(config)(num_train, seed=seed, part="train")
        test = draw(config)(max(sizes[1], config.num_test or 0), seed=seed, part="test")
        return _Parts(train, test, num_classes)

    source = _DataSource("generated", *sizes, shape, num_classes, read)
    return DataSet(name, "It is generated.", (lambda _: source,), is_image=len(shape) == 3)


def _downloaded(name: str, kind: str, layout: str, *finders: _Finder) -> DataSet:
    advice = f"Run `tuneparts data --download {name}`, or set TUNEPARTS_DATA to a folder that holds"
    scale = _CIFAR_SCALE if kind.startswith("CIFAR") else {}
    return DataSet(name, f"{advice} {layout}.", finders, torchvision_kind=kind, **scale)


def _photographs(name: str, advice: str, finder: _Finder) -> DataSet:
    return DataSet(name, advice, (finder,), is_resizable=True, **_IMAGENET_SCALE)


_DIGITS = _DataSource("scikit-learn", 1297, _NUM_DIGITS_TEST, (1, 8, 8), 10, _read_digits)
DIGITS = DataSet("digits", "It comes with scikit-learn.", (lambda _: _DIGITS,))
MNIST, FASHION_MNIST = (
    _downloaded(
        name,
        kind,
        f"{kind}/raw/train-images-idx3-ubyte and its three siblings",
        partial(_published.find_idx, kind),
    )
    for name, kind in (("mnist", "MNIST"), ("fashion_mnist", "FashionMNIST"))
)
CIFAR10 = _downloaded(
    "cifar10",
    "CIFAR10",
    "cifar-10-batches-py/, cifar10/{train,test}/<class>/ or cifar10_jpeg_{train,test}.npz",
    partial(_published.find_cifar, "CIFAR10"),
    lambda root: find_folder(root / "cifar10", title="cifar10", image_size=32),
    partial(_published.find_packed, name="cifar10", image_size=32),
)
CIFAR100 = _downloaded(
    "cifar100", "CIFAR100", "cifar-100-python/", partial(_published.find_cifar, "CIFAR100")
)
TINYIMAGENET = _photographs(
    "tinyimagenet",
    "Unpack tiny-imagenet-200.zip (cs231n.stanford.edu) in the folder TUNEPARTS_DATA.",
    partial(
        _published.find_photographs,
        ("tiny-imagenet-200", "tinyimagenet"),
        (100_000, 10_000, (3, 64, 64), 200),
        title="tinyimagenet",
        inner="images",
    ),
)
IMAGENET = _photographs(
    "imagenet",
    "Get ILSVRC 2012 from image-net.org and unpack it as imagenet/train/<wnid>/ and "
    "imagenet/val/ in the folder TUNEPARTS_DATA.",
    partial(
        _published.find_photographs,
        ("imagenet", "ILSVRC2012"),
        (1_281_167, 50_000, (3, 224, 224), 1000),
        title="imagenet",
    ),
)
INPUT_SELECTION = _generated(
    "input_selection",
    lambda config: (config.input_selection or _InputSelection()).draw,
    (3000, 1000),
    (30,),
    2,
)
BLOBS = _generated("blobs", lambda _: _blobs, (600, 300), (8,), 3)
STRIPES = _generated("stripes", lambda _: _stripes, (600, 300), (1, 8, 8), 4)


def lookup(name: str) -> DataSet:
    """The set of that name: ours, of a package, a function's import path, or `folder:PATH`."""
    if name.startswith(_FOLDER_PREFIX):
        path = Path(name.removeprefix(_FOLDER_PREFIX)).expanduser()
        return _photographs(
            name,
            "An image folder holds train/<class>/*.jpg, and test/ or val/ next to train/; a "
            "relative path starts from those folders.",
            lambda root: find_folder(root / path, title="folder"),
        )
    if name in REGISTRY.known:
        found: DataSet = REGISTRY.find(name)
        return found
    try:
        path_of = REGISTRY.path_of(name)
    except UnknownNameError:
        known = [*REGISTRY.names(), f"{_FOLDER_PREFIX}PATH", "package.module:function"]
        raise UnknownNameError("data set", name, known) from None
    source = _DataSource(path_of, None, None, None, None, partial(own.read, path_of))
    advice = "It is made by a function."
    return DataSet(name, advice, (lambda _: source,), is_resizable=True, own_path=path_of)


def _roots(override: str | None = None) -> list[Path]:
    """Folders in which sets are looked for, in order; an override replaces them all."""
    if override is not None:
        return [Path(override).expanduser().absolute()]
    data_dir = settings.current().data_dir
    return [*([data_dir] if data_dir else []), settings.current().cache_dir / "downloads"]


def download(name: str) -> str:
    """Fetch a set into our cache by torchvision unless it is there; returns where it is."""
    data_set, folder = lookup(name), _roots()[-1]
    try:
        return data_set.find(_roots()).where
    except DataError:  # damaged counts as not there: the downloader mends what it can
        if data_set.torchvision_kind is None:
            raise
    fetch = getattr(_torchvision.load().datasets, data_set.torchvision_kind)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        for train in (True, False):
            fetch(folder, train=train, download=True)
    except (OSError, RuntimeError) as error:
        raise DataMissingError(
            f"`{name}` could not be downloaded to {folder}: {error}. Check the network, or copy "
            "the set to a folder and name it in TUNEPARTS_DATA."
        ) from error
    return data_set.find(_roots()).where


def inventory() -> list[tuple[str, _DataSource | None, str]]:
    """Every named set: where it is, or how to get it or what is wrong; only headers are read."""
    rows: list[tuple[str, _DataSource | None, str]] = []
    for name in REGISTRY.names():
        data_set = lookup(name)
        try:
            rows.append((name, data_set.find(_roots()), ""))
        except DataError as error:
            is_missing = isinstance(error, DataMissingError)
            rows.append((name, None, data_set.advice if is_missing else str(error)))
    return rows
