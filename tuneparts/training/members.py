"""What every method that trains several members on one data set shares.

A step is one batch through all members: methods are compared at equally many updates, and
`size/flops` says what each costs. An ensemble can stop after any of its members: every subset is an
operating point, accuracy against operations (the anytime inference of Teterwak et al. 2024), and
costs what its members cost.

Legend: M members, B batch, N examples, K classes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate, combinations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tuneparts.core import seeding
from tuneparts.data.batches import Batches
from tuneparts.data.target import Classes, Reduction
from tuneparts.nets import NetConfig
from tuneparts.nets.sizes import count_flops, count_parameters
from tuneparts.nets.surgery import reweighted, standalone
from tuneparts.training.config import EnsembleMethod
from tuneparts.training.forward import run
from tuneparts.training.learner import Context
from tuneparts.training.loop import EVAL_BATCH, Step, _DataLearner, _MeanOfMembers, outputs_of
from tuneparts.training.step import Batch, gradient_step, set_lr

ALL_SUBSETS_UP_TO = 6
"""Members; larger ensembles have the points of their first 1, 2, ... members only."""


def _differences(logits_MNK: Tensor, labels_N: Tensor) -> dict[str, float]:
    """Accuracy of members; disagreement of pairs, and that over the error (Fort et al. 2019)."""
    predicted_MN = logits_MNK.argmax(dim=2)
    error_M = (predicted_MN != labels_N).double().mean(dim=1)
    values = {"member_accuracy": 1 - float(error_M.mean())}
    if (num := len(logits_MNK)) == 1:
        return values
    differ_MM = (predicted_MN[:, None] != predicted_MN[None]).double().mean(dim=2)
    is_pair_MM = ~torch.eye(num, dtype=torch.bool, device=logits_MNK.device)
    values["disagreement"] = float(differ_MM[is_pair_MM].mean())
    usable_MM = is_pair_MM & (error_M > 0)[:, None]
    if usable_MM.any():
        ratios_MM = differ_MM / error_M.clamp_min(torch.finfo(torch.float64).tiny)[:, None]
        values["diversity"] = float(ratios_MM[usable_MM].mean())
    return values


@dataclass(frozen=True)
class OperatingPoint:
    """A subset of members with its cost and scores."""

    members: tuple[int, ...]
    flops: int
    accuracy: float
    nll: float

    def metrics(self, split: str) -> dict[str, float]:
        """What is reported of it, with its members joined, as in `0_2`."""
        name = "_".join(map(str, self.members))
        if split == "val":
            return {f"anytime/val_nll.{name}": self.nll}
        return {
            f"anytime/accuracy.{name}": self.accuracy,
            f"anytime/nll.{name}": self.nll,
            f"anytime/flops.{name}": float(self.flops),
        }


def _subsets(num_members: int) -> list[tuple[int, ...]]:
    """Every non-empty subset, or the prefixes of a large ensemble."""
    everyone = range(num_members)
    if num_members > ALL_SUBSETS_UP_TO:
        return [tuple(everyone[: size + 1]) for size in everyone]
    return [chosen for size in everyone for chosen in combinations(everyone, size + 1)]


def _operating_points(
    logits_MNK: Tensor, labels_N: Tensor, flops: Sequence[int]
) -> list[OperatingPoint]:
    """The points of all subsets, cheapest first; one where `flops` is of all members together."""
    points, target = [], Classes()
    run_alone = len(flops) == len(logits_MNK)
    for members in _subsets(len(logits_MNK)) if run_alone else [tuple(range(len(logits_MNK)))]:
        found = target.scores(target.combined(logits_MNK[list(members)]), labels_N)
        cost = sum(flops[m] for m in members) if run_alone else sum(flops)
        points.append(OperatingPoint(members, cost, found["accuracy"], found["nll"]))
    return sorted(points, key=lambda point: (point.flops, point.members))


def nested_points(
    predictions: Sequence[tuple[tuple[int, ...], Tensor]], labels_N: Tensor, added: Sequence[int]
) -> list[OperatingPoint]:
    """The points of members that are always evaluated in one order, each on top of the last."""
    points = []
    for (members, logits_NK), cost in zip(predictions, accumulate(added), strict=True):
        found = Classes().scores(logits_NK, labels_N)
        points.append(OperatingPoint(members, cost, found["accuracy"], found["nll"]))
    return points


@torch.no_grad()
def _accuracies_between(
    one: nn.Module, other: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], num_points: int
) -> list[float]:
    """Accuracy on the line from `one` to `other`, ends included (Fort et al. 2019)."""
    # No running statistics are valid in between, so norms use those of the batch.
    data = list(batches)
    between = deepcopy(one).train()
    ends = [dict(net.named_parameters()) for net in (one, other)]
    found = []
    for i in range(num_points):
        t = i / (num_points - 1)
        for name, parameter in between.named_parameters():
            # Exact at both ends, unlike a + t (b - a).
            parameter.copy_((1 - t) * ends[0][name] + t * ends[1][name])
        num_right = sum(int((between(x).argmax(dim=1) == y).sum()) for x, y in data)
        found.append(num_right / sum(len(y) for _, y in data))
    return found


class Members(nn.Module, ABC):
    """Several predictors in one module, whatever they share."""

    def __init__(self, num_members: int, flops: Sequence[int]) -> None:
        super().__init__()
        self.num_members = num_members
        self.flops = list(flops)
        """Operations of each member for one example; one number, that of all together, where
        members cannot run alone."""

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """Logits (M, B, K) of a batch (B, ...)."""

    @contextmanager
    def prepared(self) -> Iterator[None]:
        """A block in which parameters stay as they are: work on them may be done once."""
        yield

    def plain(self, member: int) -> nn.Module | None:
        """A member as an ordinary net with weights of its own; None where there is no such net."""

    def materialised(self) -> "Members":
        """Members that predict the same and compute no weights any more: what is served."""
        return self


class NetMembers(Members):
    """Members that have a net each, and lend it weights that they share; here they share none."""

    def __init__(self, nets: Sequence[nn.Module], flops: Sequence[int]) -> None:
        super().__init__(len(nets), flops)
        self.nets = nn.ModuleList(nets)

    def lent(self) -> list[dict[str, Tensor]]:
        """For each member the weights that its net does not own, by name, as part of a graph."""
        return [{} for _ in self.nets]

    def forward(self, x: Tensor) -> Tensor:
        return self.under(self.lent(), x)

    def under(self, lent: Sequence[Mapping[str, Tensor]], x: Tensor) -> Tensor:
        """Logits (M, B, K) of the nets with these weights."""
        members = zip(self.nets, lent, strict=True)
        return torch.stack([(reweighted(net, own) if own else net)(x) for net, own in members])

    def backward(
        self, batches: Sequence[Batch], loss: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Add the gradients of all losses (M,) to `grad`, one member's activations in memory."""
        losses, found = [], []
        for net, own, (x, y_B) in zip(self.nets, self.lent(), batches, strict=True):
            leaves = {name: weight.detach().requires_grad_() for name, weight in own.items()}
            value = loss(run(reweighted(net, leaves), x), y_B)
            value.backward()  # type: ignore[no-untyped-call]
            losses.append(value.detach())
            found += [(own[n], leaf.grad) for n, leaf in leaves.items() if leaf.grad is not None]
        if found:
            torch.autograd.backward([one for one, _ in found], [grad for _, grad in found])
        return torch.stack(losses)

    @torch.no_grad()
    def plain(self, member: int) -> nn.Module:
        own = self.lent()[member]
        return standalone(self.nets[member], own) if own else self.nets[member]

    def materialised(self) -> "NetMembers":
        return NetMembers([self.plain(member) for member in range(self.num_members)], self.flops)


class MembersLearner(_DataLearner, parts=("model", "optimiser", "_batches", "_augmentation")):
    """One step updates all members on one batch; a method sets `model` and `optimiser`."""

    config: EnsembleMethod
    model: Members
    optimiser: torch.optim.Optimizer

    def __init__(self, config: EnsembleMethod, context: Context) -> None:
        super().__init__(config, context)
        self._batches = self.new_batches()
        self._augmentation = self.generator("augment")

    def initial_nets(
        self, members: Sequence[NetConfig], *stream: str
    ) -> tuple[list[nn.Module], list[int]]:
        """A net per member, each from a seed of its own, and the FLOPs of each for one example."""
        task, nets = self.context.task, []
        for member, config in enumerate(members):
            with seeding.isolated(self.context.seed, "init", *stream, member):
                nets.append(self.laid_out(config.build(task.in_shape, task.num_outputs)))
        return nets, [count_flops(net, task.in_shape, is_whole=task.has_tokens) for net in nets]

    def next_batch(self) -> Batch:
        """Augmented inputs and labels (B,)."""
        return self.augmented(self._batches.next(), of=self._batches)

    def augmented(self, indices_B: Tensor, *, of: Batches | None = None) -> Batch:
        x, y_B = self.train_data.take(indices_B, of=of)
        return self.config.augmentation(x, self._augmentation), y_B

    def new_optimiser(self, module: nn.Module) -> torch.optim.Optimizer:
        return self.config.optimiser.build(module, decays_norms=self.config.decays_norms)

    def training_loss(
        self, outputs_BK: Tensor, y_B: Tensor, *, reduction: Reduction = "mean"
    ) -> Tensor:
        """The loss by labels that is minimised: smoothed, where the config smooths labels."""
        smoothing = self.config.label_smoothing
        if not smoothing:
            return self.target.loss(outputs_BK, y_B, reduction=reduction)
        return cross_entropy(outputs_BK, y_B, reduction=reduction, label_smoothing=smoothing)

    def losses(self, x: Tensor, y_B: Tensor) -> Tensor:
        outputs_MBK = run(self.model, x)
        M = len(outputs_MBK)
        repeated = y_B.repeat(M, *[1] * (y_B.ndim - 1))
        flat = self.training_loss(outputs_MBK.flatten(0, 1), repeated, reduction="none")
        return flat.view(M, -1).mean(dim=1)

    def combined(self, outputs_MBK: Tensor) -> Tensor:
        return self.target.combined(outputs_MBK)

    def objective(self, loss_M: Tensor) -> Tensor:
        """What is minimised: the sum over members, so that one member alone trains as ever."""
        return loss_M.sum()

    def step(self) -> Step:
        set_lr(self.optimiser, self.config.optimiser.lr_at(self.progress))
        loss_M = self.update()
        return Step(cost=1, losses={"train/loss": loss_M.detach().mean()})

    def update(self) -> Tensor:
        """Move all parameters by the gradient of one batch; the loss of each member (M,)."""
        loss_M = self.losses(*self.next_batch())
        gradient_step(self.objective(loss_M), self.optimiser)
        return loss_M

    def predictor(self) -> nn.Module:
        return _MeanOfMembers(self.model.materialised(), self.target)

    def evaluate(self) -> dict[str, float]:
        metrics = {
            "train/lr": self.optimiser.param_groups[0]["lr"],
            "size/parameters": float(count_parameters(self.model)),
            "size/flops": float(sum(self.model.flops)),
        }
        was_training = self.model.training
        self.model.eval()
        with torch.no_grad(), self.model.prepared():
            for split, examples in self.scored().items():
                logits_MNK, labels_N = outputs_of(self.model, examples)
                found = self.target.scores(self.combined(logits_MNK), labels_N)
                if isinstance(self.target, Classes):
                    found |= _differences(logits_MNK, labels_N)
                metrics |= {f"{split}/{name}": value for name, value in found.items()}
                for point in self.points(logits_MNK, labels_N) if self.finished else ():
                    metrics |= point.metrics(split)
                if split == "test" and self.finished:
                    metrics |= self._interpolation()
        self.model.train(was_training)
        return metrics

    def points(self, logits_MNK: Tensor, labels_N: Tensor) -> list[OperatingPoint]:
        """Where a prediction may stop: subsets of members with their costs and scores."""
        if not isinstance(self.target, Classes):
            return []
        return _operating_points(logits_MNK, labels_N, self.model.flops)

    def _interpolation(self) -> dict[str, float]:
        num_points = self.config.interpolation_points
        if not num_points or self.model.num_members == 1:
            return {}
        ends = [net for net in map(self.model.plain, (0, 1)) if net is not None]
        shapes = [[(n, p.shape) for n, p in net.named_parameters()] for net in ends]
        if len(shapes) < 2 or shapes[0] != shapes[1]:
            return {}
        found = _accuracies_between(ends[0], ends[1], self._test.iterate(EVAL_BATCH), num_points)
        return {f"interpolation/accuracy.{i}": value for i, value in enumerate(found)}


class NetMembersLearner(MembersLearner):
    """A learner of nets that may share weights; one at a time holds its activations in memory."""

    model: NetMembers

    def batches(self) -> list[Batch]:
        return [self.next_batch()] * self.model.num_members

    def update(self) -> Tensor:
        def loss(outputs_BK: Tensor, y_B: Tensor) -> Tensor:
            return self.training_loss(outputs_BK, y_B, reduction="none").mean()

        self.optimiser.zero_grad()
        loss_M = self.model.backward(self.batches(), loss)
        self.optimiser.step()
        return loss_M
