"""Partitioned, then released: once hypers are found, all weights train on all data.

Partitioning costs capacity (Mlodozeniec et al. 2023, appendix H): each weight is trained under one
subnetwork, and those of later partitions rarely. Here the last part of the passes merges the
partitions into the ordinary net and trains it by an ordinary optimiser at the hypers found. From
then on every weight has seen every chunk, so L_ML would mean nothing and is no longer reported.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tuneparts.core.errors import ConfigError
from tuneparts.methods.partitioned.learner import PartitionedConfig, PartitionedLearner
from tuneparts.training.config import ReleaseConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step
from tuneparts.training.supervised import Release, SupervisedLearner


class ReleasedConfig(PartitionedConfig):
    """Partitioned training with a last stage of ordinary training."""

    # A pydantic subclass narrows its tag to another word, which the type of the base forbids.
    method: Literal["released"] = "released"  # type: ignore[assignment]
    release: ReleaseConfig = ReleaseConfig()

    def build(self, context: Context) -> Learner:
        return ReleasedLearner(self, context)


class ReleasedLearner(PartitionedLearner, parts=("_released",)):
    """Merges at the release: products and sums of affine parts and the last statistics stay.

    Layers that were learnt as a hyper are held with the other hypers. With `select_by_lml` the
    release starts from the state with the largest L_ML.
    """

    config: ReleasedConfig

    def __init__(self, config: ReleasedConfig, context: Context) -> None:
        task = context.task
        num = len(task.train) + (len(task.val) if config.train_on == "all" else 0)
        if config.batch_size > num:
            raise ConfigError(
                f"`batch_size` = {config.batch_size}: must not exceed the {num} examples, which "
                "the release draws without replacement. Lower it."
            )
        super().__init__(config, context)
        self._held = self.parts.held()
        self._released: Release | None = None

    @property
    def release_at(self) -> int:
        """Passes before the release."""
        return self.config.release.start(self.config.passes)

    @property
    def progress(self) -> float:
        return self.config.release.progress(self.passes, self.config.passes)

    def step(self) -> Step:
        if self.passes < self.release_at:
            return super().step()
        return self.released().step(self.progress)

    def released(self) -> Release:
        """The last stage, begun where it was not: from the best state, if one was selected."""
        if self._released is None:
            if self._best is not None:
                self._load_model_state(self._best["model"])
                self._best = None
            self.merged()
            self._released = self._release()
        return self._released

    def predict(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if self._released is None:
            return super().predict(x, generator)
        return SupervisedLearner.predict(self, x, generator)

    def finish(self) -> nn.Module:
        return super().finish() if self._released is None else self.net

    def trained_net(self) -> nn.Module:
        return super().trained_net() if self._released is None else self.net

    def evaluate(self) -> dict[str, float]:
        if self._released is None:
            return super().evaluate()
        return SupervisedLearner.evaluate(self)

    def _release(self) -> Release:
        for parameter in self._held:
            parameter.requires_grad_(False)
        return Release(
            self.net,
            self.hypers,
            self.train_data,
            target=self.target,
            optimiser=self.config.release.optimiser or self.config.optimiser,
            batch_size=self.config.batch_size,
            seed=self.context.seed,
            augmentation=self.generator("augment release"),
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        for parameter in self._held:
            parameter.requires_grad_(True)
        self._released = None if state["released"] is None else self._release()
        super().restore(state)
