"""The data of a search: a set by name, its variant, its subsets and its splits."""

from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from tuneparts.config import Config
from tuneparts.data import decoding, sets, split
from tuneparts.data.source import Request
from tuneparts.data.stored import StoredImages
from tuneparts.data.synthetic import InputSelection
from tuneparts.data.task import Examples, Task
from tuneparts.errors import ConfigError


class DataConfig(Config):
    """A data set by name, with its variant and its split into train, validation and test.

    Example:
        >>> task = DataConfig(name="digits", rotated=True, num_train=500, num_val=100).load()
        >>> len(task.train), len(task.val), len(task.test), task.in_shape
        (500, 100, 500, (1, 8, 8))
    """

    name: str
    """A set of `tuneparts data`, or `folder:PATH` for an image folder."""
    rotated: bool = False
    """Turn every image by its own fixed angle, uniform over the full circle."""
    num_train: int | None = Field(default=None, ge=1)
    """Training examples, stratified; None takes all that validation leaves."""
    num_val: int = Field(default=0, ge=0)
    """Validation examples, split off the official training part, stratified."""
    num_test: int | None = Field(default=None, ge=1)
    """Test examples, stratified; None takes the whole official test part."""
    pool: int = Field(default=1, ge=1)
    """Average blocks of this side, after any rotation: 2 makes 28 x 28 images 14 x 14."""
    seed: int = 0
    """Chooses splits, subsets and generated examples; angles do not depend on it."""
    root: str | None = None
    """The only folder to look in; None looks in the usual places."""
    image_size: int | None = Field(default=None, ge=1)
    """Side that images of a folder are scaled to when they are decoded."""
    input_selection: InputSelection | None = None
    """How the set `input_selection` is generated; None for its defaults."""

    @model_validator(mode="after")
    def _check_set(self) -> Self:
        data_set = sets.lookup(self.name)
        if not data_set.is_image and (self.rotated or self.pool > 1):
            raise ValueError(f"`rotated` and `pool` need images, but `{self.name}` has vectors.")
        if self.image_size is not None and not data_set.is_resizable:
            raise ValueError(
                f"`{self.name}` has images of one size; leave `image_size` out and use `pool`."
            )
        if self.input_selection is not None and self.name != "input_selection":
            raise ValueError(f"`input_selection` is not a part of the set `{self.name}`.")
        return self

    def load(self) -> Task:
        """Read the set and split it."""
        data_set = sets.lookup(self.name)
        parts = data_set.find(sets.roots(self.root)).read(
            Request(
                image_size=self.image_size,
                num_train=(self.num_train or 0) + self.num_val,
                num_test=self.num_test or 0,
                seed=self.seed,
                input_selection=self.input_selection,
            )
        )
        train_indices, val_indices = split.train_val(
            parts.train.labels, num_train=self.num_train, num_val=self.num_val, seed=self.seed
        )
        test_indices = split.subset(parts.test.labels, num=self.num_test, seed=self.seed)
        return Task(
            name=f"rotated_{self.name}" if self.rotated else self.name,
            train=self._variant(parts.train, train_indices, part="train"),
            val=self._variant(parts.train, val_indices, part="train"),
            test=self._variant(parts.test, test_indices, part="test"),
            num_classes=parts.num_classes,
            mean=data_set.mean,
            std=data_set.std,
        )

    def _variant(
        self,
        official: Examples,
        indices: npt.NDArray[np.int64],
        *,
        part: Literal["train", "test"],
    ) -> Examples:
        chosen = official.subset(indices)
        if not self.rotated and self.pool == 1:
            return chosen
        from tuneparts.data.resampling import angles, resample  # brings torch in

        stored = chosen.inputs
        if isinstance(stored, StoredImages) and stored.nbytes > decoding.IN_MEMORY_BYTES:
            raise ConfigError(
                "rotated and pooled images are held in memory, at most "
                f"{decoding.IN_MEMORY_BYTES >> 20} MiB a part, but {len(chosen)} images of "
                f"`{self.name}` take {stored.nbytes >> 20} MiB. Lower `num_train`, "
                "`num_test` or `image_size`."
            )
        degrees = angles(len(official), part)[indices] if self.rotated else None
        images = resample(np.asarray(chosen.inputs), degrees_N=degrees, pool=self.pool)
        return Examples(images, chosen.labels, degrees)
