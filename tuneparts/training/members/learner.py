"""What every method that trains several members on one data set shares.

A pass is one batch through all members: methods are compared at equally many updates, and
`size/flops` says what each costs.

Legend: M members, B batch, N examples, K classes.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.data.batches import Batches
from tuneparts.data.device_examples import DeviceExamples, kept_on_device
from tuneparts.data.target import Classes, Reduction
from tuneparts.data.task import Examples, Task
from tuneparts.hypers.fixed import FixedConfig
from tuneparts.models import NetConfig
from tuneparts.models.sizes import count_flops, count_parameters
from tuneparts.training import fitness
from tuneparts.training.final_module import MeanOfMembers
from tuneparts.training.learner import Context, MethodConfig
from tuneparts.training.loop import LoopLearner, Step
from tuneparts.training.members.interpolation import accuracies_between
from tuneparts.training.members.model import Members, NetMembers
from tuneparts.training.members.predictions import OperatingPoint, differences, operating_points
from tuneparts.training.optimisers import OptimiserConfig, set_lr
from tuneparts.training.passes import run
from tuneparts.training.scores import EVAL_BATCH
from tuneparts.training.step import gradient_step


class MembersConfig(MethodConfig):
    """An optimiser, batches, and what is measured at the end."""

    takes_runtime = True
    optimiser: OptimiserConfig = OptimiserConfig()
    batch_size: int = Field(default=50, gt=0)
    """Examples in the batch of one pass."""
    train_on: Literal["train", "all"] = "train"
    """`train` keeps the validation split for selection; `all` trains on both."""
    augmentation: FixedConfig = FixedConfig()
    """Crop, flip and cutout of training images, the same for all members."""
    interpolation_points: int = Field(default=0, ge=0)
    """Points on the line between the first two members to score at the end; 0 for none."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of every training label that all classes have alike (Szegedy et al. 2016)."""
    decays_norms: bool = True
    """Whether the optimiser's weight decay acts on the parameters of norms too."""

    @field_validator("interpolation_points")
    @classmethod
    def _check_has_two_ends(cls, value: int) -> int:
        if value == 1:
            raise ValueError("a line has two ends: use 0 for none, or 2 points and more")
        return value

    def check_task(self, task: Task) -> None:
        super().check_task(task)
        if self.label_smoothing:
            fitness.refuse_target(self, task, "its `label_smoothing` is over classes")
        if self.interpolation_points:
            fitness.refuse_target(self, task, "its `interpolation_points` are scored by accuracy")


class MembersLearner(LoopLearner, parts=("model", "optimiser", "_batches", "_augmentation")):
    """One step updates all members on the same batch; scores are those of the mean prediction.

    A method sets `model` and `optimiser`, and may have other losses.
    """

    config: MembersConfig
    model: Members
    optimiser: torch.optim.Optimizer

    def __init__(self, config: MembersConfig, context: Context) -> None:
        super().__init__(config, context)
        task = context.task
        if len(task.in_shape) != 3 and config.augmentation != FixedConfig():
            raise ConfigError(
                f"`augmentation` acts on images (C, H, W), but inputs have shape {task.in_shape}. "
                "Leave it out."
            )
        is_held_out = config.train_on == "train"
        self.train_data = self._on_device(
            task.train if is_held_out else task.train.joined(task.val)
        )
        self._val = self._on_device(task.val) if is_held_out and len(task.val) else None
        self._test = self._on_device(task.test)
        self._batches = Batches(
            len(self.train_data), config.batch_size, seed=context.seed, replacement=False
        )
        self._augmentation = self.generator("augment")

    def generator(self, *stream: str) -> torch.Generator:
        """A named stream of this run, on the device."""
        return seeding.torch_generator(self.context.seed, *stream, device=self.context.device)

    def initial_nets(self, members: Sequence[NetConfig]) -> tuple[list[nn.Module], list[int]]:
        """A net per member, each from a seed of its own, and the FLOPs of each for one example."""
        task, nets = self.context.task, []
        for member, config in enumerate(members):
            with seeding.isolated(self.context.seed, "init", member):
                nets.append(self.laid_out(config.build(task.in_shape, task.num_outputs)))
        return nets, [count_flops(net, task.in_shape, is_whole=task.has_tokens) for net in nets]

    @property
    def schedule_progress(self) -> float:
        """What the learning rate is a function of."""
        return self.progress

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Augmented inputs and labels (B,)."""
        return self.augmented(self._batches.next(), of=self._batches)

    def augmented(self, indices_B: Tensor, *, of: Batches | None = None) -> tuple[Tensor, Tensor]:
        """Augmented inputs and labels of these training examples."""
        x, y_B = self.train_data.take(indices_B, of=of)
        return self.config.augmentation(x, self._augmentation), y_B

    def new_optimiser(self, module: nn.Module) -> torch.optim.Optimizer:
        """An optimiser over all parameters of a module, as the config has it."""
        config = self.config
        return config.optimiser.build(module, decays_norms=config.decays_norms)

    def training_loss(
        self, outputs_BK: Tensor, y_B: Tensor, *, reduction: Reduction = "mean"
    ) -> Tensor:
        """The loss by labels that is minimised: smoothed, where the config smooths labels."""
        smoothing = self.config.label_smoothing
        if not smoothing:
            return self.target.loss(outputs_BK, y_B, reduction=reduction)
        return cross_entropy(outputs_BK, y_B, reduction=reduction, label_smoothing=smoothing)

    def losses(self, x: Tensor, y_B: Tensor) -> Tensor:
        """Mean loss of each member (M,)."""
        outputs_MBK = run(self.model, x)
        num_members = len(outputs_MBK)
        repeated = y_B.repeat(num_members, *[1] * (y_B.ndim - 1))
        flat = self.training_loss(outputs_MBK.flatten(0, 1), repeated, reduction="none")
        return flat.view(num_members, -1).mean(dim=1)

    def combined(self, outputs_MBK: Tensor) -> Tensor:
        """The prediction (B, K) of all members together."""
        return self.target.combined(outputs_MBK)

    def objective(self, loss_M: Tensor) -> Tensor:
        """What is minimised: the sum over members, so that one member alone trains as ever."""
        return loss_M.sum()

    def step(self) -> Step:
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.schedule_progress))
        loss_M = self.update()
        return Step(passes=1, losses={"train/loss": loss_M.detach().mean()})

    def update(self) -> Tensor:
        """Move all parameters by the gradient of one batch; the loss of each member (M,)."""
        loss_M = self.losses(*self.next_batch())
        gradient_step(self.objective(loss_M), self.optimiser)
        return loss_M

    def predictor(self) -> nn.Module:
        return MeanOfMembers(self.model.materialised(), self.target)

    def evaluate(self) -> dict[str, float]:
        metrics = {
            "train/lr": self.optimiser.param_groups[0]["lr"],
            "size/parameters": float(count_parameters(self.model)),
            "size/flops": float(sum(self.model.member_flops())),
        }
        was_training = self.model.training
        self.model.eval()
        with torch.no_grad(), self.model.prepared():
            if self._val is not None:
                val_logits_MNK, val_labels_N = self._logits(self._val)
                metrics |= self._scores(val_logits_MNK, val_labels_N, "val")
                if self.finished:
                    for point in self.points(val_logits_MNK, val_labels_N):
                        metrics[f"anytime/val_nll.{point.name}"] = point.nll
            if len(self._test) and (self.finished or self.context.score_test_always):
                logits_MNK, labels_N = self._logits(self._test)
                metrics |= self._scores(logits_MNK, labels_N, "test")
                if self.finished:
                    metrics |= self._final(logits_MNK, labels_N)
        self.model.train(was_training)
        return metrics

    def _logits(self, examples: DeviceExamples) -> tuple[Tensor, Tensor]:
        parts = [(self.model(x), y) for x, y in examples.iterate(EVAL_BATCH)]
        return torch.cat([p for p, _ in parts], dim=1), torch.cat([y for _, y in parts])

    def _scores(self, logits_MNK: Tensor, labels_N: Tensor, split: str) -> dict[str, float]:
        found = self.target.scores(self.combined(logits_MNK), labels_N)
        if isinstance(self.target, Classes):
            found |= differences(logits_MNK, labels_N)
        return {f"{split}/{name}": value for name, value in found.items()}

    def _final(self, logits_MNK: Tensor, labels_N: Tensor) -> dict[str, float]:
        """What is measured once, on test data."""
        metrics: dict[str, float] = {}
        for point in self.points(logits_MNK, labels_N):
            metrics[f"anytime/accuracy.{point.name}"] = point.accuracy
            metrics[f"anytime/nll.{point.name}"] = point.nll
            metrics[f"anytime/flops.{point.name}"] = float(point.flops)
        return metrics | self._interpolation()

    def points(self, logits_MNK: Tensor, labels_N: Tensor) -> list[OperatingPoint]:
        """Where a prediction may stop: subsets of members with their costs and scores."""
        if not isinstance(self.target, Classes):
            return []
        return operating_points(logits_MNK, labels_N, self.model.member_flops())

    def _interpolation(self) -> dict[str, float]:
        num_points = self.config.interpolation_points
        if not num_points or self.model.num_members == 1:
            return {}
        one, other = self.model.plain(0), self.model.plain(1)
        if one is None or other is None or _shapes(one) != _shapes(other):
            return {}
        found = accuracies_between(one, other, self._test.iterate(EVAL_BATCH), num_points)
        return {f"interpolation/accuracy.{i}": value for i, value in enumerate(found)}

    def _on_device(self, examples: Examples) -> DeviceExamples:
        task = self.context.task
        return kept_on_device(examples, mean=task.mean, std=task.std, device=self.context.device)


class NetMembersLearner(MembersLearner):
    """A learner whose members have a net each, and may share weights.

    It minimises the sum of the members' losses. Members go through a step one after another, so
    that only one holds its activations in memory.
    """

    model: NetMembers

    def batches(self) -> list[tuple[Tensor, Tensor]]:
        """Augmented inputs and labels for each member."""
        return [self.next_batch()] * self.model.num_members

    def update(self) -> Tensor:
        def loss(outputs_BK: Tensor, y_B: Tensor) -> Tensor:
            return self.training_loss(outputs_BK, y_B, reduction="none").mean()

        self.optimiser.zero_grad()
        loss_M = self.model.backward(self.batches(), loss)
        self.optimiser.step()
        return loss_M


def _shapes(net: torch.nn.Module) -> list[tuple[str, torch.Size]]:
    return [(name, p.shape) for name, p in net.named_parameters()]
