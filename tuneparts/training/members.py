"""What every method that trains several members on one data set shares.

A pass is one batch through all members: methods are compared at equally many updates, and
`size/flops` says what each costs.

Legend: M members, B batch, N examples, K classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.data.batches import Batches
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.target import Classes, Reduction
from tuneparts.hypers.config import FixedConfig
from tuneparts.models import NetConfig
from tuneparts.models.reweighted import reweighted, standalone
from tuneparts.models.sizes import count_flops, count_parameters
from tuneparts.training.config import MembersConfig
from tuneparts.training.learner import Context
from tuneparts.training.loop import EVAL_BATCH, MeanOfMembers, Step
from tuneparts.training.passes import run
from tuneparts.training.predictions import (
    OperatingPoint,
    accuracies_between,
    differences,
    operating_points,
)
from tuneparts.training.step import gradient_step, set_lr
from tuneparts.training.supervised import DataLearner


class Members(nn.Module, ABC):
    """Several predictors in one module, whatever they share."""

    @property
    @abstractmethod
    def num_members(self) -> int:
        """M."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Logits (M, B, K) of a batch (B, ...)."""

    @abstractmethod
    def member_flops(self) -> list[int]:
        """Operations of each member for one example.

        A method whose members cannot run alone gives one number, that of all together.
        """

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """A block in which parameters stay as they are: work on them may be done once."""
        yield

    def plain(self, member: int) -> nn.Module | None:
        """A member as an ordinary net with weights of its own; None where there is no such net."""
        del member
        return None

    def materialised(self) -> "Members":
        """Members that predict the same and compute no weights any more: what is served."""
        return self


class NetMembers(Members):
    """Members that have a net each, and may lend it weights that they share."""

    def __init__(self, nets: Sequence[nn.Module], flops: Sequence[int]) -> None:
        super().__init__()
        self.nets = nn.ModuleList(nets)
        self._flops = list(flops)

    @property
    def num_members(self) -> int:
        return len(self.nets)

    def member_flops(self) -> list[int]:
        return list(self._flops)

    @abstractmethod
    def lent(self) -> list[dict[str, Tensor]]:
        """For each member the weights that its net does not own, by name, as part of a graph."""

    def forward(self, x: Tensor) -> Tensor:
        return self.under(self.lent(), x)

    def under(self, lent: Sequence[Mapping[str, Tensor]], x: Tensor) -> Tensor:
        """Logits (M, B, K) of the nets with these weights."""
        members = zip(self.nets, lent, strict=True)
        return torch.stack([reweighted(net, own)(x) for net, own in members])

    def backward(
        self,
        batches: Sequence[tuple[Tensor, Tensor]],
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> Tensor:
        """Add the gradients of the sum of all members' losses to the parameters' `grad`.

        Shared weights are computed once, and members follow one another: the activations of one
        member at a time are in memory.

        Args:
            batches: inputs (B, ...) and labels of each member.
            loss: of outputs (B, K) and labels.

        Returns:
            The loss of each member (M,), without a graph.
        """
        lent = self.lent()
        losses, weights, gradients = [], [], []
        for net, own, (x, y_B) in zip(self.nets, lent, batches, strict=True):
            leaves = {name: weight.detach().requires_grad_() for name, weight in own.items()}
            value = loss(run(reweighted(net, leaves), x), y_B)
            value.backward()  # type: ignore[no-untyped-call]
            losses.append(value.detach())
            for name, leaf in leaves.items():
                if leaf.grad is not None:
                    weights.append(own[name])
                    gradients.append(leaf.grad)
        if weights:
            torch.autograd.backward(weights, gradients)
        return torch.stack(losses)

    def plain(self, member: int) -> nn.Module:
        with torch.no_grad():
            return standalone(self.nets[member], self.lent()[member])

    def materialised(self) -> "PlainMembers":
        with torch.no_grad():
            members = zip(self.nets, self.lent(), strict=True)
            return PlainMembers([standalone(net, own) for net, own in members], self._flops)


class PlainMembers(NetMembers):
    """Nets side by side that share nothing."""

    def lent(self) -> list[dict[str, Tensor]]:
        return [{} for _ in self.nets]

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([net(x) for net in self.nets])

    def plain(self, member: int) -> nn.Module:
        return self.nets[member]

    def materialised(self) -> "PlainMembers":
        return self


class MembersLearner(DataLearner, parts=("model", "optimiser", "_batches", "_augmentation")):
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
        self._batches = Batches(
            len(self.train_data), config.batch_size, seed=context.seed, replacement=False
        )
        self._augmentation = self.generator("augment")

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
            for split, examples in self.scored().items():
                logits_MNK, labels_N = self._logits(examples)
                metrics |= self._scores(logits_MNK, labels_N, split)
                if self.finished and split == "test":
                    metrics |= self._final(logits_MNK, labels_N)
                elif self.finished:
                    for point in self.points(logits_MNK, labels_N):
                        metrics[f"anytime/val_nll.{point.name}"] = point.nll
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
