"""Validation-set optimisation: weights on one part of the data, hypers by gradient on the rest.

The baseline of Mlodozeniec et al. (2023), table 2: what partitioned training becomes when all
weights lie in the first partition. Afterwards the held-out part may be given back: fine-tuning on
all data at the hypers found.
"""

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from tuneparts.data.batches import Batches
from tuneparts.data.chunks import Chunks
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step
from tuneparts.training.optimisers import set_lr
from tuneparts.training.release import Release, ReleaseConfig
from tuneparts.training.step import gradient_step, loss_on
from tuneparts.training.supervised import SupervisedConfig, SupervisedLearner


class ValidationConfig(SupervisedConfig):
    """A weight step and a hyper step in turn, each on its own data."""

    method: Literal["validation"] = "validation"
    train_on: Literal["train", "all"] = "all"
    """The data that is split; `all` is as much as partitioned training sees."""
    holdout: float = Field(default=0.2, gt=0, lt=1)
    """Share of the data that only hypers are learnt from."""
    hyper_lr: float = Field(default=1e-3, gt=0)
    """Adam's constant rate for the hypers. A range moves by about this much a step."""
    finetune: ReleaseConfig | None = None
    """Last stage on all data at frozen hypers; None for no such stage."""

    def build(self, context: Context) -> Learner:
        return ValidationLearner(self, context)


class ValidationLearner(
    SupervisedLearner,
    parts=(
        "net",
        "optimiser",
        "_hyper_optimiser",
        "_weight_batches",
        "_hyper_batches",
        "_weight_augmentation",
        "_hyper_augmentation",
        "_finetuning",
    ),
):
    """Two data streams that never mix, until fine-tuning joins them."""

    config: ValidationConfig

    def __init__(self, config: ValidationConfig, context: Context) -> None:
        super().__init__(config, context, learns_hypers=True)
        shares = (1 - config.holdout, config.holdout)
        self.chunks = Chunks(len(self.train_data), shares, seed=context.seed)
        self._sources = [torch.from_numpy(self.chunks.chunk(k).copy()) for k in (1, 2)]
        # Streams are named as in partitioned training, of which this is a special case.
        self._weight_batches, self._hyper_batches = (
            Batches(
                len(source),
                config.batch_size,
                seed=context.seed,
                stream=(f"{side} steps", "batch", k),
                replacement=True,
            )
            for k, side, source in zip((1, 2), ("weight", "hyper"), self._sources, strict=True)
        )
        self.optimiser = config.optimiser.build(self.net)
        psi = self.hypers.learnable()
        self._hyper_optimiser = torch.optim.Adam(psi, lr=config.hyper_lr) if psi else None
        self._weight_augmentation = self.generator("augment weight steps")
        self._hyper_augmentation = self.generator("augment hyper steps")
        self._finetuning: Release | None = None

    @property
    def searched_passes(self) -> int:
        """Passes before fine-tuning."""
        finetune, passes = self.config.finetune, self.config.passes
        return passes if finetune is None else finetune.start(passes)

    @property
    def progress(self) -> float:
        finetune = self.config.finetune
        if finetune is None:
            return super().progress
        return finetune.progress(self.passes, self.config.passes)

    def step(self) -> Step:
        if self.passes >= self.searched_passes:
            if self._finetuning is None:
                self._finetuning = self._release()
            return self._finetuning.step(self.progress)
        losses = {"train/loss": self.weight_step()}
        if self._hyper_optimiser is not None and self.passes + 1 < self.searched_passes:
            losses["train/hyper_loss"] = self.hyper_step()
        return Step(passes=len(losses), losses=losses)

    def weight_step(self) -> Tensor:
        """Move the weights by a batch of the first part."""
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.progress))
        batch = self.train_data.take(self._sources[0][self._weight_batches.next()])
        with self.hypers.detached():
            loss = loss_on(
                batch,
                net=self.net,
                hypers=self.hypers,
                target=self.target,
                generator=self._weight_augmentation,
            )
        gradient_step(loss, self.optimiser)
        return loss.detach()

    def hyper_step(self) -> Tensor:
        """Move the hypers by a batch of the held-out part."""
        assert self._hyper_optimiser is not None
        batch = self.train_data.take(self._sources[1][self._hyper_batches.next()])
        # In evaluation mode the norms neither see nor remember the held-out batch.
        self.net.eval()
        loss = loss_on(
            batch,
            net=self.net,
            hypers=self.hypers,
            target=self.target,
            generator=self._hyper_augmentation,
        )
        self.net.train()
        gradient_step(loss, self._hyper_optimiser)
        return loss.detach()

    def _release(self) -> Release:
        config = self.config
        assert config.finetune is not None
        return Release(
            self.net,
            self.hypers,
            self.train_data,
            target=self.target,
            optimiser=config.finetune.optimiser or config.optimiser,
            batch_size=config.batch_size,
            seed=self.context.seed,
            augmentation=self.generator("augment release"),
        )

    def restore(self, state: Mapping[str, Any]) -> None:
        self._finetuning = None if state["finetuning"] is None else self._release()
        super().restore(state)
