"""The data of a search: a set by name or a function, its variant, its subsets and its splits."""

import math
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, SerializeAsAny, field_validator, model_validator

from tuneparts.core import import_path, schema
from tuneparts.core.config import Config
from tuneparts.core.errors import ConfigError, DataError
from tuneparts.data import chunks, images, own, sets, target, variants
from tuneparts.data.source import InputSelection, Parts, Request
from tuneparts.data.target import Classes, Target
from tuneparts.data.task import Examples, StoredImages, Task, channel_statistics


class DataConfig(Config):
    """A data set by name, with its variant and its split into train, validation and test.

    Example:
        >>> task = DataConfig(name="digits", rotated=True, num_train=500, num_val=100).load()
        >>> len(task.train), len(task.val), len(task.test), task.in_shape
        (500, 100, 500, (1, 8, 8))
    """

    name: str
    """A set of `tuneparts data`, `folder:PATH` for an image folder, or a function of one's own, by
    itself or by its import path; see `docs/extending.md`."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """What a function of one's own is called with."""
    target: SerializeAsAny[Target] = Classes()
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
    """None: every replicate of a search draws anew: subsets, splits, generated examples, angles,
    and the test part of a set that has no official one. A number fixes all of it in all
    replicates; it chooses subsets, splits and generated examples."""
    root: str | None = None
    """The only folder to look in; None looks in the usual places."""
    image_size: int | None = Field(default=None, ge=1)
    """Side that images of a folder are scaled to when they are decoded."""
    input_selection: InputSelection | None = None
    """How the set `input_selection` is generated; None for its defaults."""
    corrupted: variants.Kinds | None = None
    """Score the published corruptions of the test images too (CIFAR-10-C, CIFAR-100-C), as means
    over kinds and severities: the fifteen kinds of published means (`main`), or all nineteen."""

    @field_validator("name", mode="before")
    @classmethod
    def _name_function(cls, value: Any) -> Any:
        return import_path.of(value) if callable(value) else value

    @field_validator("target", mode="before")
    @classmethod
    def _parse_target(cls, value: Any) -> Any:
        return target.from_anything(value)

    @model_validator(mode="after")
    def _declare_metrics(self) -> Self:
        # Driver, workers and readers of a run all parse the config, so all know the metrics.
        schema.declare(*self.target.reported())
        return self

    @model_validator(mode="after")
    def _check_set(self) -> Self:
        data_set = sets.lookup(self.name)
        if data_set.own_path is not None:
            own.check_arguments(data_set.own_path, self.arguments)
        elif self.arguments:
            raise ValueError(
                f"`arguments` are those of a function of one's own, but `{self.name}` is none"
            )
        if not data_set.is_image and (self.rotated or self.pool > 1):
            raise ValueError(f"`rotated` and `pool` need images, but `{self.name}` has vectors.")
        if self.image_size is not None and not data_set.is_resizable:
            raise ValueError(
                f"`{self.name}` has images of one size; leave `image_size` out and use `pool`."
            )
        if self.corrupted is not None and (self.name not in variants.CORRUPTED or self.rotated):
            raise ValueError(
                "published corruptions are of the upright images of "
                f"{' and '.join(variants.CORRUPTED)}, but this is "
                f"{'rotated ' * self.rotated}`{self.name}`; leave `corrupted` out"
            )
        if self.corrupted is not None and not isinstance(self.target, Classes):
            raise ValueError("`corrupted` images have classes as labels; leave `target` out")
        if self.input_selection is not None and self.name != "input_selection":
            raise ValueError(f"`input_selection` is not a part of the set `{self.name}`.")
        return self

    @property
    def truth(self) -> dict[str, float]:
        """The values that a method should find, where examples are made with them: by metric."""
        found = {"hyper/rotation": math.pi} if self.rotated else {}
        if self.name == "input_selection":
            made = self.input_selection or InputSelection()
            found["hyper/num_kept"] = float(min(made.num_informative, made.num_inputs or math.inf))
        return found

    @property
    def is_own(self) -> bool:
        """Whether a function of one's own, or another target than classes, is part of it."""
        return sets.lookup(self.name).own_path is not None or self.target != Classes()

    def load(self, replicate: int | None = None) -> Task:
        """Read the set and split it.

        Args:
            replicate: seed of the replicate whose draw of the data it is; without one, and where
                `seed` is given, it is one fixed draw.
        """
        draw = replicate if self.seed is None else None
        data_set = sets.lookup(self.name)
        seed = (self.seed or 0) if draw is None else draw
        parts = self._read(data_set, seed, is_drawn=draw is not None)
        strata = self.target.strata
        rest = np.arange(len(parts.train))
        if parts.test is None:
            rest, test_indices = chunks.held_out(
                strata(parts.train.labels), num=self.num_test, seed=seed
            )
            test = self._variant(parts.train, test_indices, part="train", draw=draw)
        else:
            test_indices = chunks.subset(strata(parts.test.labels), num=self.num_test, seed=seed)
            test = self._variant(parts.test, test_indices, part="test", draw=draw)
        train_indices, val_indices = chunks.train_val(
            strata(parts.train.labels[rest]),
            num_train=self.num_train,
            num_val=self.num_val if parts.val is None else 0,
            seed=seed,
        )
        train = self._variant(parts.train, rest[train_indices], part="train", draw=draw)
        if parts.val is None:
            val = self._variant(parts.train, rest[val_indices], part="train", draw=draw)
        else:
            num, labels = self.num_val or None, strata(parts.val.labels)
            chosen = chunks.subset(labels, num=num, seed=seed, part="val")
            val = self._variant(parts.val, chosen, part="val", draw=draw)
        mean, std = (
            channel_statistics(train.inputs) if self.standardise else (data_set.mean, data_set.std)
        )
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

    def _corrupted(self, seed: int, num_classes: int) -> variants.CorruptedTest | None:
        """Corrupted versions of the same test images, or of as many where the order differs."""
        if self.corrupted is None:
            return None
        whole = variants.find_corrupted(self.name, self.corrupted, sets.roots(self.root))
        if whole.labels.max(initial=0) >= num_classes:
            raise DataError(
                f"`{self.name}` has {num_classes} classes here, but labels of {whole.folder} go up "
                f"to {whole.labels.max()}. Get the corrupted images of the same set."
            )
        rows = chunks.subset(whole.labels, num=self.num_test, seed=seed)
        return replace(whole, rows=rows, labels=whole.labels[rows], pool=self.pool)

    def _read(self, data_set: sets.DataSet, seed: int, *, is_drawn: bool) -> Parts:
        roots = sets.roots(self.root)
        request = Request(
            image_size=self.image_size,
            num_train=(self.num_train or 0) + self.num_val,
            num_test=self.num_test or 0,
            seed=seed,
            is_drawn=is_drawn,
            input_selection=self.input_selection,
            arguments=self.arguments,
            target=self.target,
            roots=tuple(roots),
        )
        parts = data_set.find(roots).read(request)
        if data_set.own_path is not None or isinstance(self.target, Classes):
            return parts

        def prepared(part: Examples) -> Examples:
            return replace(part, labels=self.target.prepared(part.labels))

        return replace(parts, train=prepared(parts.train), test=parts.test and prepared(parts.test))

    def _variant(
        self,
        official: Examples,
        indices: npt.NDArray[np.int64],
        *,
        part: Literal["train", "val", "test"],
        draw: int | None,
    ) -> Examples:
        chosen = official.subset(indices)
        if not self.rotated and self.pool == 1:
            return chosen
        if official.inputs.dtype != np.uint8:
            raise DataError(
                f"`rotated` and `pool` need images as uint8 (N, C, H, W), but `{self.name}` has "
                f"{official.inputs.dtype} {official.inputs.shape}."
            )
        stored = chosen.inputs
        if isinstance(stored, StoredImages) and stored.nbytes > images.IN_MEMORY_BYTES:
            raise ConfigError(
                "rotated and pooled images are held in memory, at most "
                f"{images.IN_MEMORY_BYTES >> 20} MiB a part, but {len(chosen)} images of "
                f"`{self.name}` take {stored.nbytes >> 20} MiB. Lower `num_train`, "
                "`num_test` or `image_size`."
            )
        degrees = variants.angles(len(official), part, draw)[indices] if self.rotated else None
        turned = variants.resample(np.asarray(chosen.inputs), degrees_N=degrees, pool=self.pool)
        return Examples(turned, chosen.labels, degrees)
