"""Training of one net by its own loss, at given hyperparameters or with Augerino's reward.

Standard training under a search algorithm is random search. Augerino (Benton et al. 2020) moves
weights and augmentation widths by one joint step. The training loss alone never asks for
augmentation, so a regulariser rewards wide ranges: loss = cross-entropy - reg * ||widths||_2. It is
unbounded below; the `safe` variant switches the reward off as long as any width is 10 or more
(Mlodozeniec et al. 2023, appendix E).
"""

import torch
from torch import Tensor

from tuneparts.hypers.affine import Exponential
from tuneparts.methods.baselines.config import Augerino, Standard
from tuneparts.training.config import SupervisedMethod
from tuneparts.training.learner import Context
from tuneparts.training.loop import Step, SupervisedLearner
from tuneparts.training.pack import PackableLearner
from tuneparts.training.step import Batch, adam, gradient_step, set_lr

SAFE_WIDTH = 10.0


class _OneNetLearner(SupervisedLearner, parts=("net", "optimiser", "_batches", "augmentation")):
    """One net, its optimiser, and batches for it drawn without replacement."""

    def __init__(
        self, config: SupervisedMethod, context: Context, *, learns_hypers: bool = True
    ) -> None:
        super().__init__(config, context, learns_hypers=learns_hypers)
        self.optimiser = config.optimiser.build(self.net)
        self._batches = self.new_batches()
        self.augmentation = self.generator("augment")

    def batch(self) -> Batch:
        return self.train_data.take(self._batches.next(), of=self._batches)

    def next_loss(self) -> Tensor:
        """The loss of the next batch; the optimiser gets the schedule's rate for a step by it."""
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.progress))
        return self.batch_loss(self.batch(), self.augmentation)

    def weight_step(self) -> Tensor:
        """Move the weights by one batch under the present hyperparameters; returns its loss."""
        with self.hypers.detached():
            loss = self.next_loss()
        gradient_step(loss + self.energy(), self.optimiser)
        return loss.detach()

    def energy(self) -> Tensor | float:
        return 0.0

    def is_lml_due(self, every: int) -> bool:
        """Whether this report has the evidence: each `every`-th does, and the last."""
        return self.finished or -(-self.steps // self.config.interval) % every == 0

    def lml(self, total: float) -> dict[str, float]:
        """The evidence of all training data by metric name."""
        return {"lml/total": total, "lml/per_example": total / len(self.train_data)}


class StandardLearner(_OneNetLearner, PackableLearner, parts=("_fixed_augmentation",)):
    """Steps by the loss of the target."""

    config: Standard

    def __init__(self, config: Standard, context: Context) -> None:
        super().__init__(config, context, learns_hypers=False)
        self._fixed_augmentation = self.generator("fixed augmentation")

    def batch(self) -> Batch:
        x, y_B = super().batch()
        return self.config.augmentation(x, self._fixed_augmentation), y_B

    def skip_to(self, other: "StandardLearner") -> None:
        self._batches.load_state_dict(other._batches.state_dict())
        self._fixed_augmentation.set_state(other._fixed_augmentation.get_state())

    def step(self) -> Step:
        loss = self.next_loss()
        gradient_step(self.hypers.penalised(loss, self.net.parameters()), self.optimiser)
        return Step(cost=1, losses={"train/loss": loss.detach()})


def _reward(widths: Tensor, *, reg: float, safe: bool) -> Tensor:
    found: Tensor = reg * torch.linalg.vector_norm(widths)
    return found * (widths < SAFE_WIDTH).all() if safe else found


class _AugerinoLearner(_OneNetLearner, parts=("_hyper_optimiser",)):
    """One backward pass moves weights and hyperparameters alike."""

    config: Augerino

    def __init__(self, config: Augerino, context: Context) -> None:
        super().__init__(config, context)
        self._hyper_optimiser = adam(self.hypers.learnable(), lr=config.hyper_lr)

    def step(self) -> Step:
        loss = self.next_loss()
        affine = self.hypers.affine
        assert isinstance(affine, Exponential)  # its config refuses others
        rewarded = _reward(affine.ranges(), reg=self.config.reg, safe=self.config.safe)
        gradient_step(loss - rewarded, self.optimiser, self._hyper_optimiser)
        # Without the reward, so that losses compare between methods.
        return Step(cost=1, losses={"train/loss": loss.detach()})
