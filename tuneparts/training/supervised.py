"""What methods that train on one labelled data set share, and those that train one net."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.data.batches import Batches
from tuneparts.data.device_examples import DeviceExamples, kept_on_device
from tuneparts.data.target import Reduction
from tuneparts.data.task import Examples
from tuneparts.hypers.hypers import Hypers
from tuneparts.models.survey import draws_globally
from tuneparts.training.config import MembersConfig, OptimiserConfig, SupervisedConfig
from tuneparts.training.learner import Context
from tuneparts.training.loop import LoopLearner, Step, UnderHypers
from tuneparts.training.scores import EVAL_BATCH, evaluate
from tuneparts.training.state import Stateful
from tuneparts.training.step import Batch, gradient_step, loss_on, set_lr


class DataLearner(LoopLearner):
    """A learner with the parts of its data on the device."""

    config: SupervisedConfig | MembersConfig

    def __init__(self, config: SupervisedConfig | MembersConfig, context: Context) -> None:
        super().__init__(config, context)
        task = context.task
        is_held_out = config.train_on == "train"
        self.train_data = self._on_device(
            task.train if is_held_out else task.train.joined(task.val)
        )
        self._val = self._on_device(task.val) if is_held_out else None
        self._test = self._on_device(task.test)

    def generator(self, *stream: str) -> torch.Generator:
        """A named stream of this run, on the device."""
        return seeding.torch_generator(self.context.seed, *stream, device=self.context.device)

    def scored(self) -> dict[str, DeviceExamples]:
        """The parts of the data that are scored at the end of the present interval, by name."""
        found = {}
        if self._val is not None and len(self._val):
            found["val"] = self._val
        if len(self._test) and (self.finished or self.context.score_test_always):
            found["test"] = self._test
        return found

    def _on_device(self, examples: Examples) -> DeviceExamples:
        task = self.context.task
        return kept_on_device(examples, mean=task.mean, std=task.std, device=self.context.device)


class SupervisedLearner(DataLearner, parts=("hypers",)):
    """Data on the device, a net with hypers, and scores of it on validation and test data."""

    config: SupervisedConfig

    def __init__(
        self, config: SupervisedConfig, context: Context, *, learns_hypers: bool = False
    ) -> None:
        super().__init__(config, context)
        task = context.task
        with seeding.isolated(context.seed, "init"):
            net = self.laid_out(config.net.build(task.in_shape, task.num_outputs))
        self.hypers: Hypers = config.hypers.build(
            learnable=learns_hypers,
            net=net,
            in_shape=task.in_shape,
            num_outputs=task.num_outputs,
            through_step=config.hyper_gradient == "through a step",
        ).to(context.device)
        self.net: nn.Module = net.to(context.device)
        if len(self.train_data):
            x, _ = self.train_data.take(torch.arange(min(2, len(self.train_data))))
            self.hypers.draws_globally = draws_globally(self.net, x)

    def predict(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Outputs (B, K) as used for scores; methods with other forward views override it."""
        return self.hypers.predict(self.net, x, generator=generator, training=False)

    def batch_loss(
        self,
        batch: Batch,
        generator: torch.Generator,
        *,
        net: Callable[[Tensor], Tensor] | None = None,
        reduction: Reduction = "mean",
        held_out: bool = False,
    ) -> Tensor:
        """The training loss of the net, or of another, under the hypers: see `loss_on`."""
        return loss_on(
            batch,
            net=self.net if net is None else net,
            hypers=self.hypers,
            target=self.target,
            generator=generator,
            reduction=reduction,
            held_out=held_out,
        )

    def trained_net(self) -> nn.Module:
        """The net that `predict` predicts with, as an ordinary module.

        A method whose `predict` reads other weights than those of `net` overrides both.
        """
        return self.net

    def predictor(self) -> nn.Module:
        return UnderHypers(self.trained_net(), self.hypers, self.context.seed)

    def evaluate(self) -> dict[str, float]:
        metrics = self.hypers.values()
        for split, examples in self.scored().items():
            metrics |= self.score(examples, split)
        return metrics

    def score(self, examples: DeviceExamples, split: str) -> dict[str, float]:
        """Scores of a split, always under the same augmentation draws."""
        generator = self.generator(f"evaluate {split}")
        was_training = self.net.training
        self.net.eval()
        scores = evaluate(
            lambda x: self.predict(x, generator),
            examples,
            split,
            target=self.target,
            batch_size=self.scored_at_once,
        )
        self.net.train(was_training)
        return scores

    @property
    def scored_at_once(self) -> int:
        """Examples of a batch in evaluation."""
        return max(1, EVAL_BATCH // self.hypers.num_samples(training=False))


class Release(Stateful, parts=("optimiser", "batches", "augmentation")):
    """The last stage of a run: ordinary steps of all weights on all data, hypers held.

    A method that keeps data from some weights to judge hypers by it can give the data back once the
    hypers are found. Validation-set optimisation calls this fine-tuning (Mlodozeniec et al. 2023,
    I.4).
    """

    # Its net and hypers belong to the learner, which saves them.

    def __init__(self, learner: SupervisedLearner, optimiser: OptimiserConfig | None) -> None:
        self._hypers, self._net, self._loss = learner.hypers, learner.net, learner.batch_loss
        self.examples = learner.train_data
        self.config = optimiser or learner.config.optimiser
        self.optimiser = self.config.build(learner.net)
        self.batches = Batches(
            len(self.examples),
            learner.config.batch_size,
            seed=learner.context.seed,
            stream=("release", "batches"),
            replacement=False,
        )
        self.augmentation = learner.generator("augment release")

    def step(self, progress: float) -> Step:
        """One update, one pass."""
        set_lr(self.optimiser, self.config.lr_at(progress))
        batch = self.examples.take(self.batches.next(), of=self.batches)
        with self._hypers.detached():
            loss = self._loss(batch, self.augmentation)
        gradient_step(self._hypers.penalised(loss, self._net.parameters()), self.optimiser)
        return Step(passes=1, losses={"train/loss": loss.detach()})
