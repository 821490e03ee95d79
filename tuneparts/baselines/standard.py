"""Standard training at given hypers; under a search algorithm it is random search."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from tuneparts.augment.fixed import FixedConfig
from tuneparts.data.batches import Batches
from tuneparts.training.learner import Context, Learner, Pack
from tuneparts.training.loop import Step
from tuneparts.training.optimisers import set_lr
from tuneparts.training.packed.pack import SupervisedPack, exactly
from tuneparts.training.step import gradient_step, loss_on
from tuneparts.training.supervised import SupervisedConfig, SupervisedLearner


class StandardConfig(SupervisedConfig):
    """Ordinary training of one net at given hypers."""

    method: Literal["standard"] = "standard"
    compiles = True
    augmentation: FixedConfig = FixedConfig()
    """Random crop, flip and cutout of training images; not a hyper, and off in evaluation."""
    penalises_weights = True

    def build(self, context: Context) -> Learner:
        return StandardLearner(self, context)

    @property
    def why_unpacked(self) -> str:
        return "" if type(self).build is StandardConfig.build else super().why_unpacked

    def pack(self, lanes: Sequence[Learner]) -> Pack:
        return StandardPack(exactly(lanes, StandardLearner))


class StandardLearner(
    SupervisedLearner,
    parts=("net", "optimiser", "_batches", "_augmentation", "_fixed_augmentation"),
):
    """Cross-entropy on batches drawn without replacement."""

    config: StandardConfig

    def __init__(self, config: StandardConfig, context: Context) -> None:
        super().__init__(config, context)
        self.optimiser = config.optimiser.build(self.net)
        self._batches = Batches(
            len(self.train_data), config.batch_size, seed=context.seed, replacement=False
        )
        self._augmentation = self.generator("augment")
        self._fixed_augmentation = self.generator("fixed augmentation")

    def step(self) -> Step:
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.progress))
        x, y_B = self.train_data.take(self._batches.next(), of=self._batches)
        x = self.config.augmentation(x, self._fixed_augmentation)
        loss = loss_on(
            (x, y_B),
            net=self.net,
            hypers=self.hypers,
            target=self.target,
            generator=self._augmentation,
        )
        gradient_step(self.hypers.penalised(loss, self.net.parameters()), self.optimiser)
        return Step(passes=1, losses={"train/loss": loss.detach()})


class StandardPack(SupervisedPack[StandardLearner]):
    """Standard training of several trials as lanes of one net."""

    def __init__(self, lanes: Sequence[StandardLearner]) -> None:
        super().__init__(lanes, [lane.optimiser for lane in lanes])

    def step(self, leader: StandardLearner, training: Sequence[int]) -> Step:
        x, y_B = leader.train_data.take(leader._batches.next())
        x = leader.config.augmentation(x, leader._fixed_augmentation)
        streams = {lane: self.lanes[lane]._augmentation for lane in training}
        outputs_PBK = self.predict(x, streams, training=True)
        losses_P = self.predict.losses(outputs_PBK, y_B, leader.target)
        self.descend(losses_P.sum(), leader.progress, training)
        return Step(passes=1, losses={"train/loss": losses_P.detach()})

    def common(self, lane: StandardLearner) -> Iterable[Any]:
        return lane._batches, lane._fixed_augmentation
