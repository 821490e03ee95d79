"""The last stage of a run: all weights on all data, by an ordinary optimiser, hypers held.

A method that keeps data from some weights to judge hypers by it can give the data back once the
hypers are found. Validation-set optimisation calls this fine-tuning (Mlodozeniec et al. 2023, I.4).
"""

import torch
from pydantic import Field
from torch import nn

from tuneparts.core.config import Config
from tuneparts.data.batches import Batches
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.target import Target
from tuneparts.hypers import Hypers
from tuneparts.training.loop import Step
from tuneparts.training.optimisers import OptimiserConfig, set_lr
from tuneparts.training.state import Stateful
from tuneparts.training.step import gradient_step, loss_on


class ReleaseConfig(Config):
    """How long the stage is, and how it trains."""

    fraction: float = Field(default=0.25, gt=0, lt=1)
    """Share of the run's passes, at its end."""
    optimiser: OptimiserConfig | None = None
    """Its schedule runs over the stage; None for the settings of the run, started afresh."""

    def start(self, passes: int) -> int:
        """The pass at which the stage begins, in a run of so many; neither first nor last."""
        return max(1, min(passes - 1, passes - round(self.fraction * passes)))

    def progress(self, spent: int, passes: int) -> float:
        """Fraction of the present stage that is spent: what its schedule is a function of."""
        start = self.start(passes)
        if spent < start:
            return spent / start
        return (spent - start) / max(1, passes - start)


class Release(Stateful, parts=("optimiser", "batches", "augmentation")):
    """Ordinary steps of a net at hypers that no longer move.

    Args:
        net: all its parameters that require gradients are trained, from where they stand.
        hypers: read, never moved.
        examples: all data.
        target: of the task.
        optimiser: fresh state, schedule over this stage.
        batch_size: examples per step, drawn without replacement.
        seed: of the run, for the order of the data.
        augmentation: source of the hypers' draws, on the device.
    """

    # Its net and hypers belong to the learner, which saves them.

    def __init__(
        self,
        net: nn.Module,
        hypers: Hypers,
        examples: DeviceExamples,
        *,
        target: Target,
        optimiser: OptimiserConfig,
        batch_size: int,
        seed: int,
        augmentation: torch.Generator,
    ) -> None:
        self._net = net
        self._hypers = hypers
        self.examples = examples
        self._target = target
        self.config = optimiser
        self.optimiser = optimiser.build(net)
        self.batches = Batches(
            len(examples), batch_size, seed=seed, stream=("release", "batches"), replacement=False
        )
        self.augmentation = augmentation

    def step(self, progress: float) -> Step:
        """One update, one pass.

        Args:
            progress: fraction of the stage that is spent.
        """
        set_lr(self.optimiser, self.config.lr_at(progress))
        batch = self.examples.take(self.batches.next(), of=self.batches)
        with self._hypers.detached():
            loss = loss_on(
                batch,
                net=self._net,
                hypers=self._hypers,
                target=self._target,
                generator=self.augmentation,
            )
        gradient_step(self._hypers.penalised(loss, self._net.parameters()), self.optimiser)
        return Step(passes=1, losses={"train/loss": loss.detach()})
