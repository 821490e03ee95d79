"""What every method that trains one net on one labelled data set shares."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from tuneparts.core import schema, seeding
from tuneparts.data.device_examples import DeviceExamples, kept_on_device
from tuneparts.data.task import Examples, Task
from tuneparts.hypers import HyperGradient, Hypers, HypersConfig, check_hypers
from tuneparts.models import Mlp, Net
from tuneparts.models.survey import draws_globally
from tuneparts.training import fitness
from tuneparts.training.final_module import UnderHypers
from tuneparts.training.learner import Context, MethodConfig
from tuneparts.training.loop import LoopLearner
from tuneparts.training.optimisers import OptimiserConfig
from tuneparts.training.scores import EVAL_BATCH, evaluate


class SupervisedConfig(MethodConfig):
    """A net, its hypers, an optimiser and batches."""

    net: Net = Mlp()
    """Which net, by name or as a config of its own."""
    hypers: HypersConfig = HypersConfig()
    """Augmentation and the like: learnt by some methods, given to others."""
    optimiser: OptimiserConfig = OptimiserConfig()
    batch_size: int = Field(default=50, gt=0)
    """Examples in the batch of one pass."""
    train_on: Literal["train", "all"] = "train"
    """`train` keeps the validation split for selection; `all` trains on both."""
    takes_runtime = True
    penalises_weights: ClassVar[bool] = False
    """Whether its steps take the penalty of hypers that act on weights."""

    @property
    def hyper_gradient(self) -> HyperGradient:
        """By which gradient its learner learns hypers."""
        return "none"

    @model_validator(mode="after")
    def _check_hypers(self) -> Self:
        check_hypers(self.hypers, self.hyper_gradient, penalises_weights=self.penalises_weights)
        return self

    def declared_metrics(self) -> tuple[schema.Metric, ...]:
        return (*super().declared_metrics(), *self.hypers.metrics())

    def check_task(self, task: Task) -> None:
        super().check_task(task)
        fitness.check_hypers(self.hypers, task, learnable=self.hyper_gradient != "none")


class SupervisedLearner(LoopLearner, parts=("hypers",)):
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
        self.train_data = self._on_device(
            task.train if config.train_on == "train" else task.train.joined(task.val)
        )
        self._val = self._on_device(task.val) if config.train_on == "train" else None
        self._test = self._on_device(task.test)
        if len(self.train_data):
            x, _ = self.train_data.take(torch.arange(min(2, len(self.train_data))))
            self.hypers.draws_globally = draws_globally(self.net, x)

    def generator(self, stream: str) -> torch.Generator:
        """A named stream of this run, on the device."""
        return seeding.torch_generator(self.context.seed, stream, device=self.context.device)

    def predict(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Outputs (B, K) as used for scores; methods with other forward views override it."""
        return self.hypers.predict(self.net, x, generator=generator, training=False)

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

    def scored(self) -> dict[str, DeviceExamples]:
        """The parts of the data that are scored at the end of the present interval, by name."""
        found = {}
        if self._val is not None and len(self._val):
            found["val"] = self._val
        if len(self._test) and (self.finished or self.context.score_test_always):
            found["test"] = self._test
        return found

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

    def _on_device(self, examples: Examples) -> DeviceExamples:
        task = self.context.task
        return kept_on_device(examples, mean=task.mean, std=task.std, device=self.context.device)
