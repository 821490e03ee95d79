"""Standard training at given hypers; under a search algorithm it is random search."""

from typing import Literal

from tuneparts.data.batches import Batches
from tuneparts.hypers import FixedConfig
from tuneparts.training.config import SupervisedConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step
from tuneparts.training.pack import PackableLearner
from tuneparts.training.step import Batch, gradient_step, loss_on, set_lr


class StandardConfig(SupervisedConfig):
    """Ordinary training of one net at given hypers."""

    method: Literal["standard"] = "standard"
    takes_runtime = "compiled"
    augmentation: FixedConfig = FixedConfig()
    """Random crop, flip and cutout of training images; not a hyper, and off in evaluation."""
    penalises_weights = True

    def build(self, context: Context) -> Learner:
        return StandardLearner(self, context)

    @property
    def can_be_packed(self) -> bool:
        return type(self).build is StandardConfig.build


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
