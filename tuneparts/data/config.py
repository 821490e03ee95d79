"""The data of a search: a set by name or a function, its variant, its subsets and its splits."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from tuneparts.core import schema
from tuneparts.core.config import Config, parse
from tuneparts.core.errors import ConfigError, DataError
from tuneparts.data import _images, _variants, chunks, own, sets
from tuneparts.data._variants import Part
from tuneparts.data.sets import _InputSelection
from tuneparts.data.target import Classes, ImportPath, Target, _from_anything
from tuneparts.data.task import Examples, StoredImages, Task, _channel_statistics


class Data(Config):
    """A data set, with its variant and its split into train, validation and test.

    Sets of ours have classes: `Digits`, `Mnist`, `Cifar10`, ... `Data(name=...)` is of a
    function, a folder, or a set of an installed package.

    Example:
        >>> task = Digits(rotated=True, num_train=500, num_val=100).load()
        >>> len(task.train), len(task.val), len(task.test), task.in_shape
        (500, 100, 500, (1, 8, 8))
    """

    name: ImportPath
    """A set of `tuneparts data`, `folder:PATH` for an image folder, or your own function,
    itself or by its import path; see `docs/extending.md`."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What your own function is called with."""
    target: Annotated[SerializeAsAny[Target], BeforeValidator(_from_anything)] = Classes()
    """What is predicted: `classes`, `binary`, `values`, a loss function, or a `Target`."""
    standardise: bool = False
    """Scale inputs, channel by channel, by mean and standard deviation of the training part."""
    rotated: bool = False
    """Turn every image by its own fixed angle, uniform over the full circle."""
    num_train: int | None = Field(default=None, ge=1)
    """Training examples, stratified; None takes all that validation leaves."""
    num_val: int = Field(default=0, ge=0)
    """Validation examples, split off the official training part, stratified; where a function
    gives a validation part, examples of it, and 0 takes all."""
    num_test: int | None = Field(default=None, ge=1)
    """Test examples, stratified; None takes the whole official test part, or a fifth of a set
    that has none."""
    pool: int = Field(default=1, ge=1)
    """Average blocks of this side, after any rotation: 2 makes 28 x 28 images 14 x 14."""
    seed: int | None = None
    """None: every seed of a search draws anew: subsets, splits, generated examples, angles,
    and the test part of a set that has no official one. A number fixes all of it for all
    seeds; it chooses subsets, splits and generated examples."""
    root: str | None = None
    """The only folder to look in; None looks in the usual places."""
    image_size: int | None = Field(default=None, ge=1)
    """Side that images of a folder are scaled to when they are decoded."""
    input_selection: _InputSelection | None = None
    """How the set `input_selection` is generated; None for its defaults."""
    corrupted: _variants.Kinds | None = None
    """Score the published corruptions of the test images too (CIFAR-10-C, CIFAR-100-C), as means
    over kinds and severities: the fifteen kinds of published means (`main`), or all nineteen."""

    @model_validator(mode="after")
    def _check_set(self) -> Self:
        # Driver, workers and readers of a run all parse the config, so all know the metrics.
        schema.declare(*self.target.reported())
        data_set = sets.lookup(self.name)
        if data_set.own_path is not None:
            own._check_arguments(data_set.own_path, self.arguments)
        elif self.arguments:
            raise ValueError(f"`arguments` are those of a function, but `{self.name}` is none.")
        if not data_set.is_image and (self.rotated or self.pool > 1):
            raise ValueError(f"`rotated` and `pool` need images, but `{self.name}` has vectors.")
        if self.image_size is not None and not data_set.is_resizable:
            raise ValueError(f"`{self.name}` has images of one size; use `pool`, not `image_size`.")
        if self.corrupted is not None and (self.name not in _variants.CORRUPTED or self.rotated):
            upright = " and ".join(_variants.CORRUPTED)
            raise ValueError(f"only upright {upright} are published corrupted; leave it out.")
        if self.corrupted is not None and not isinstance(self.target, Classes):
            raise ValueError("`corrupted` images have classes as labels; leave `target` out.")
        if self.input_selection is not None and self.name != "input_selection":
            raise ValueError(f"`input_selection` is not a part of the set `{self.name}`.")
        return self

    @property
    def truth(self) -> dict[str, float]:
        """The values that a method should find, where examples are made with them: by metric."""
        found = {"hyper/rotation": math.pi} if self.rotated else {}
        if self.name == "input_selection":
            made = self.input_selection or _InputSelection()
            found["hyper/num_kept"] = float(min(made.num_informative, made.num_inputs or math.inf))
        return found

    @property
    def roots(self) -> list[Path]:
        """Folders in which the set is looked for, in order."""
        return sets._roots(self.root)

    @property
    def is_own(self) -> bool:
        """Whether your own function, or another target than classes, is part of it."""
        return sets.lookup(self.name).own_path is not None or self.target != Classes()

    def load(self, replicate: int | None = None) -> Task:
        """Read the set and split it, as drawn for the seed `replicate` of a search, if given."""
        draw = replicate if self.seed is None else None
        seed = (self.seed or 0) if draw is None else draw
        data_set, strata = sets.lookup(self.name), self.target.strata
        parts = data_set.find(self.roots).read(self, draw)
        if data_set.own_path is None:
            prepared = self.target.prepared
            train = replace(parts.train, labels=prepared(parts.train.labels))
            official = parts.test and replace(parts.test, labels=prepared(parts.test.labels))
            parts = replace(parts, train=train, test=official)
        if parts.test is None:
            labels, num = strata(parts.train.labels), max(1, round(len(parts.train) / 5))
            rest, chosen = chunks._train_val(
                labels, num_train=None, num_val=self.num_test or num, seed=seed, held="num_test"
            )
            test = self._variant(parts.train, chosen, "train", draw)
        else:
            rest = np.arange(len(parts.train))
            chosen = chunks._subset(strata(parts.test.labels), num=self.num_test, seed=seed)
            test = self._variant(parts.test, chosen, "test", draw)
        train_indices, val_indices = chunks._train_val(
            strata(parts.train.labels[rest]),
            num_train=self.num_train,
            num_val=self.num_val if parts.val is None else 0,
            seed=seed,
        )
        train = self._variant(parts.train, rest[train_indices], "train", draw)
        if parts.val is None:
            val = self._variant(parts.train, rest[val_indices], "train", draw)
        else:
            num_val, labels = self.num_val or None, strata(parts.val.labels)
            chosen = chunks._subset(labels, num=num_val, seed=seed, part="val")
            val = self._variant(parts.val, chosen, "val", draw)
        mean, std = data_set.mean, data_set.std
        if self.standardise:
            mean, std = _channel_statistics(train.inputs)
        return Task(
            name=f"rotated_{self.name}" if self.rotated else self.name,
            train=train,
            val=val,
            test=test,
            num_classes=parts.num_classes if isinstance(self.target, Classes) else 0,
            mean=mean,
            std=std,
            target=self.target,
            corrupted=self._corrupted(seed, parts.num_classes),
        )

    def _corrupted(self, seed: int, num_classes: int) -> _variants.CorruptedTest | None:
        """Corrupted versions of the same test images, or of as many where the order differs."""
        if self.corrupted is None:
            return None
        whole = _variants.find_corrupted(self.name, self.corrupted, self.roots)
        if whole.labels.max(initial=0) >= num_classes:
            raise DataError(
                f"{whole.folder} has labels up to {whole.labels.max()}, but `{self.name}` only "
                f"{num_classes} classes. Get the corrupted images of the same set."
            )
        rows = chunks._subset(whole.labels, num=self.num_test, seed=seed)
        return replace(whole, rows=rows, labels=whole.labels[rows], pool=self.pool)

    def _variant(
        self, official: Examples, indices: npt.NDArray[np.int64], part: Part, draw: int | None
    ) -> Examples:
        chosen = official.subset(indices)
        inputs = chosen.inputs
        if not self.rotated and self.pool == 1:
            return chosen
        if inputs.dtype != np.uint8:
            raise DataError(
                f"`rotated` and `pool` need images as uint8 (N, C, H, W), but `{self.name}` has "
                f"{official.inputs.dtype} {official.inputs.shape}."
            )
        if isinstance(inputs, StoredImages) and inputs.nbytes > _images.IN_MEMORY_BYTES:
            raise ConfigError(
                f"{len(chosen)} images of `{self.name}` take {inputs.nbytes >> 20} MiB, but "
                "rotated and pooled ones are held in memory. Lower `num_train`, `num_test` or "
                "`image_size`."
            )
        degrees = _variants.angles(len(official), part, draw)[indices] if self.rotated else None
        turned = _variants.resample(np.asarray(inputs), degrees_N=degrees, pool=self.pool)
        return Examples(turned, chosen.labels, degrees)


class Digits(Data):
    """Handwritten digits of scikit-learn: 1,797 images of 8 x 8 pixels; always there."""

    name: Literal["digits"] = "digits"


class Mnist(Data):
    """Handwritten digits: 70,000 images of 28 x 28 pixels."""

    name: Literal["mnist"] = "mnist"


class FashionMnist(Data):
    """Clothes: 70,000 images of 28 x 28 pixels."""

    name: Literal["fashion_mnist"] = "fashion_mnist"


class Cifar10(Data):
    """Photographs of ten classes: 60,000 images of 32 x 32 pixels."""

    name: Literal["cifar10"] = "cifar10"


class Cifar100(Data):
    """Photographs of a hundred classes: 60,000 images of 32 x 32 pixels."""

    name: Literal["cifar100"] = "cifar100"


class TinyImagenet(Data):
    """Photographs of 200 classes: 110,000 images of 64 x 64 pixels."""

    name: Literal["tinyimagenet"] = "tinyimagenet"


class Imagenet(Data):
    """Photographs of 1,000 classes, scaled to `image_size` when they are read."""

    name: Literal["imagenet"] = "imagenet"


class InputSelection(Data):
    """Vectors of which half the inputs say something about the label, as Lyle et al. (2020)."""

    name: Literal["input_selection"] = "input_selection"


class Blobs(Data):
    """Generated vectors of three classes, far apart; learnt in a few steps."""

    name: Literal["blobs"] = "blobs"


class Stripes(Data):
    """Generated images of 8 x 8 pixels, striped in four directions; learnt in a few steps."""

    name: Literal["stripes"] = "stripes"


_CLASSES: dict[str, type[Data]] = {
    cls.model_fields["name"].default: cls for cls in Data.__subclasses__()
}


def read(value: Any) -> Any:
    """Data in any way that a search takes it, as an object of the class of its name."""
    if callable(value) or isinstance(value, str):
        value = {"name": value}
    if isinstance(value, Data):
        value = {one: getattr(value, one) for one in value.model_fields_set | {"name"}}
    if not isinstance(value, Mapping):
        return value
    return parse(_CLASSES.get(str(value.get("name")), Data), value)
