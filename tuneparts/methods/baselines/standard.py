"""Training of one net by its own loss: at given hypers, or with Augerino's reward for wide ones.

Standard training under a search algorithm is random search. Augerino (Benton et al. 2020) moves
weights and augmentation widths by one joint step. The training loss alone never asks for
augmentation, so a regulariser rewards wide ranges: loss = cross-entropy - reg * ||widths||_2. It is
unbounded below; the `safe` variant switches the reward off as long as any width is 10 or more
(Mlodozeniec et al. 2023, appendix E).
"""

import torch
from torch import Tensor

from tuneparts.data.batches import Batches
from tuneparts.hypers.affine import Exponential
from tuneparts.methods.baselines.config import AugerinoConfig, StandardConfig
from tuneparts.training.config import SupervisedConfig
from tuneparts.training.learner import Context
from tuneparts.training.loop import Step, SupervisedLearner
from tuneparts.training.pack import PackableLearner
from tuneparts.training.step import Batch, adam, gradient_step, loss_on, set_lr

SAFE_WIDTH = 10.0


class StandardLearner(
    PackableLearner,
    parts=("net", "optimiser", "_batches", "augmentation", "_fixed_augmentation"),
):
    """Cross-entropy on batches drawn without replacement."""

    config: StandardConfig

    def __init__(self, config: StandardConfig, context: Context) -> None:
        super().__init__(config, context)
        self.optimiser = config.optimiser.build(self.net)
        self._batches = Batches(
            len(self.train_data), config.batch_size, seed=context.seed, replacement=False
        )
        self.augmentation = self.generator("augment")
        self._fixed_augmentation = self.generator("fixed augmentation")

    def batch(self) -> Batch:
        x, y_B = self.train_data.take(self._batches.next(), of=self._batches)
        return self.config.augmentation(x, self._fixed_augmentation), y_B

    def skip_to(self, other: "StandardLearner") -> None:
        self._batches.load_state_dict(other._batches.state_dict())
        self._fixed_augmentation.set_state(other._fixed_augmentation.get_state())

    def step(self) -> Step:
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.progress))
        loss = loss_on(
            self.batch(),
            net=self.net,
            hypers=self.hypers,
            target=self.target,
            generator=self.augmentation,
        )
        gradient_step(self.hypers.penalised(loss, self.net.parameters()), self.optimiser)
        return Step(passes=1, losses={"train/loss": loss.detach()})


def reward(widths: Tensor, *, reg: float, safe: bool) -> Tensor:
    """What is taken off the loss: reg * ||widths||_2; if safe, nothing from one wide range on."""
    found: Tensor = reg * torch.linalg.vector_norm(widths)
    return found * (widths < SAFE_WIDTH).all() if safe else found


class JointLearner(SupervisedLearner):
    """What methods share that learn hypers beside one net: its optimiser, and batches for it."""

    def __init__(self, config: SupervisedConfig, context: Context) -> None:
        super().__init__(config, context, learns_hypers=True)
        self.optimiser = config.optimiser.build(self.net)
        self._batches = Batches(
            len(self.train_data), config.batch_size, seed=context.seed, replacement=False
        )
        self._augmentation = self.generator("augment")

    def _next_loss(self) -> Tensor:
        """The loss of the next batch; the optimiser gets the schedule's rate for a step by it."""
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.progress))
        return loss_on(
            self.train_data.take(self._batches.next(), of=self._batches),
            net=self.net,
            hypers=self.hypers,
            target=self.target,
            generator=self._augmentation,
        )


class AugerinoLearner(
    JointLearner, parts=("net", "optimiser", "_hyper_optimiser", "_batches", "_augmentation")
):
    """One backward pass moves weights and hypers alike."""

    config: AugerinoConfig

    def __init__(self, config: AugerinoConfig, context: Context) -> None:
        super().__init__(config, context)
        self._hyper_optimiser = adam(self.hypers.learnable(), lr=config.hyper_lr)

    def widths(self) -> Tensor:
        """The learnable ranges (6,), as they act."""
        affine = self.hypers.affine
        assert isinstance(affine, Exponential)  # its config refuses others
        return affine.ranges()

    def step(self) -> Step:
        loss = self._next_loss()
        rewarded = reward(self.widths(), reg=self.config.reg, safe=self.config.safe)
        gradient_step(loss - rewarded, self.optimiser, self._hyper_optimiser)
        # Without the reward, so that losses compare between methods.
        return Step(passes=1, losses={"train/loss": loss.detach()})
