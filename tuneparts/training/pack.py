"""Training of several trials at once, each in a slot of one packed net.

A slot draws what its trial draws alone, from the same generators in the same order, and its
optimiser makes the same step; only the arithmetic of the net is common. So a packed trial has the
numbers of the same trial alone up to rounding, and its state is that of its own learner.

Legend: P slots, B examples, S samples of each, N = B * S, K outputs.
"""

import dataclasses
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tuneparts.core.errors import ConfigError, DivergedError
from tuneparts.data.target import Binary, Classes, Values
from tuneparts.hypers.affine import Affine
from tuneparts.hypers.affine.augmentation import resample
from tuneparts.hypers.hyper import Hyper
from tuneparts.training.allocator import keep_freed_memory
from tuneparts.training.loop import Step
from tuneparts.training.optimisers import set_lr
from tuneparts.training.packed import Acts, PackedNet
from tuneparts.training.runtime import Runtime
from tuneparts.training.state import lay_out_moments
from tuneparts.training.step import Batch
from tuneparts.training.supervised import SupervisedConfig, SupervisedLearner

_SHARED = {"kind", "momentum", "nesterov", "scalar_lr_factor"}
"""Fields of the optimiser that are the same in a pack; rates, schedules and decay may differ."""


def pack_key(config: SupervisedConfig) -> str:
    """What the configs of one pack have in common, as text.

    The numbers of hypers may differ, but not whether they do something. Where several samples are
    averaged, those at an end of their range may not: there a hyper may draw nothing.
    """
    hypers = config.hypers
    tree = config.model_dump(mode="json", exclude={"hypers", "optimiser"})
    tree["optimiser"] = config.optimiser.model_dump(mode="json", include=_SHARED)
    tree["hypers"] = [hypers.samples, hypers.averaging]
    tree["parts"] = {name: _fixed(part, hypers.samples > 1) for name, part in hypers.parts.items()}
    return json.dumps(tree, sort_keys=True)


def _fixed(hyper: Hyper, has_samples: bool) -> list[Any]:
    """What a hyper is besides its numbers, whether it does something, and which are at an end."""
    numbers, ends, is_still = hyper.numbers(), {}, True
    for field, number in numbers.items():
        value = getattr(hyper, field)
        for place, one in enumerate(value if isinstance(value, tuple) else (value,)):
            is_still &= one == number.identity
            if has_samples and one in (number.link.low, number.link.high, number.identity):
                ends[f"{field}.{place}"] = one
    fixed = hyper.model_dump(mode="json", exclude=set(numbers))
    return [type(hyper).__qualname__, fixed, is_still, ends]


class PackableLearner(SupervisedLearner):
    """A learner of one net whose step is one of `optimiser`, by the loss on `batch`."""

    optimiser: torch.optim.Optimizer
    augmentation: torch.Generator

    @abstractmethod
    def batch(self) -> Batch:
        """Draw the examples of a step."""

    @abstractmethod
    def skip_to(self, other: Any) -> None:
        """Draw batches from where another learner of the same class and seed has come to."""


class Pack:
    """Learners of one seed that have spent the same passes, trained together.

    Args:
        learners: slot -> learner, of configs with the same `pack_key`.
        width: number of slots. It and the slot of a trial decide how its numbers are rounded; what
            other slots hold does not, so those without a learner are computed as well.
    """

    def __init__(self, learners: Mapping[int, PackableLearner], width: int) -> None:
        keep_freed_memory()  # a step of a pack frees blocks that a net by itself never has
        self._learners, self._width = learners, width
        first = self._first = next(iter(learners.values()))
        nets = {slot: learner.net for slot, learner in learners.items()}
        self._net = PackedNet(nets, width, 1 + len(first.context.task.in_shape))
        self._acts = self._at_slots()
        if first.hypers.draws_globally or (self._acts and not self._net.has_forms):
            raise ConfigError(
                f"net {type(first.net).__name__}: every trial has draws of its own, but there is "
                "dropout inside of code of its own"
            )
        hypers = [learner.hypers for learner in learners.values()]
        self._parts = [list(one.acting("inputs")) for one in hypers]
        is_plain = not any(any(one.acting("outputs", "loss")) for one in hypers)
        self._is_plain = is_plain and type(first.target) in (Classes, Binary, Values)
        """Whether the losses of all slots are those of one larger batch."""
        named = dict(first.net.named_parameters())
        self._all = [self._net.tensors[name] for name in named]
        self._names = [name for name, one in named.items() if one.requires_grad]
        self._moving = [self._net.tensors[name] for name in self._names]
        self._adam: dict[int, list[tuple[Any, ...]]] = {}

    def advance(self) -> dict[int, dict[str, float] | DivergedError]:
        """Train for one interval; returns what each slot reports, or why it cannot go on."""
        first, start = self._first, self._first.passes
        common = dataclasses.replace(first.context, stream=())  # the same, whichever is first
        losses: list[Tensor] = []
        found: dict[int, dict[str, float] | DivergedError] = {}
        with Runtime().numerics(first.context.device, is_training=False):
            with common.seeded_globals(start):
                while not (first.finished or first.interval_is_over(start)):
                    losses.append(self.step())
                    for learner in self._learners.values():
                        learner.count(Step(passes=1, losses={"train/loss": losses[-1]}))
            for slot, learner in self._learners.items():
                learner.skip_to(first)
                own = torch.stack(losses)[:, slot]
                try:
                    with learner.context.seeded_globals(start):
                        found[slot] = learner.report({"train/loss": list(own)}, start)
                except DivergedError as error:
                    found[slot] = error
        return found

    def step(self) -> Tensor:
        """One update of all slots; returns their losses (P,)."""
        x, y_B = self._first.batch()
        losses_P = self._losses(self._net(self._inputs(x), self._acts), y_B)
        objective = losses_P.sum()
        for slot, learner in self._learners.items():
            weights = (weight[slot] for weight in self._all)
            objective = learner.hypers.penalised(objective, weights)
        found = torch.autograd.grad(objective, self._moving, allow_unused=True)
        # torch's fused kernels read gradients in memory order, whatever their strides.
        each = [None if one is None else one.contiguous().unbind() for one in found]
        for slot, learner in self._learners.items():
            self._move(slot, learner, [None if one is None else one[slot] for one in each])
        return losses_P.detach()

    def _inputs(self, x: Tensor) -> Tensor:
        """What all slots see (N, ...), or what each of them sees (P, N, ...)."""
        if not any(self._parts):
            return self._first.hypers.inputs(x, self._first.augmentation, training=True)
        if all(len(one) == 1 and isinstance(one[0], Affine) for one in self._parts):
            # All samples of an image stand together: one call that takes half as long.
            B, S = len(x), self._first.hypers.num_samples(training=True)
            streams = [learner.augmentation for learner in self._learners.values()]
            drawn = [p.sample(B * S, s) for (p,), s in zip(self._parts, streams, strict=True)]
            A_BPS23 = torch.unflatten(self._filled(drawn), 1, (B, S)).transpose(0, 1)
            moved = resample(x, A_BPS23.reshape(-1, 2, 3))
            return torch.unflatten(moved, 0, (B, self._width, S)).transpose(0, 1).flatten(1, 2)
        each = self._learners.values()
        return self._filled([o.hypers.inputs(x, o.augmentation, training=True) for o in each])

    def _filled(self, drawn: Sequence[Tensor]) -> Tensor:
        """What was drawn for each learner as (P, ...); others have the first's."""
        by_slot = dict(zip(self._learners, drawn, strict=True))
        return torch.stack([by_slot.get(slot, drawn[0]) for slot in range(self._width)])

    def _at_slots(self) -> Acts:
        found: list[Any] = [None] * self._width
        for slot, learner in self._learners.items():
            act = learner.hypers.at_slots(training=True)
            found[slot] = None if act is None else (act, learner.augmentation)
        return found if any(found) else []

    def _losses(self, outputs_PNK: Tensor, y_B: Tensor) -> Tensor:
        """The loss of each slot (P,)."""
        target, P = self._first.target, self._width
        if self._is_plain:
            outputs = self._first.hypers.combined(outputs_PNK.flatten(0, 1), training=True)
            labels = y_B.repeat(P, *[1] * (y_B.dim() - 1))
            return target.losses(outputs, labels).view(P, -1).mean(1)
        losses = list(outputs_PNK.new_zeros(P))
        for slot, learner in self._learners.items():
            outputs_BK = learner.hypers.combined(outputs_PNK[slot], training=True)
            losses[slot] = learner.hypers.loss(outputs_BK, y_B, target.loss)
        return torch.stack(losses)

    def _move(
        self, slot: int, learner: PackableLearner, gradients: Sequence[Tensor | None]
    ) -> None:
        """One step of a learner's optimiser: Adam's kernel itself, or a tenth of it is Python."""
        set_lr(learner.optimiser, learner.config.optimiser.lr_at(learner.progress))
        if not self._adam.get(slot) or any(one is None for one in gradients):
            parameters = [learner.net.get_parameter(name) for name in self._names]
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            lay_out_moments(learner.optimiser)
            learner.optimiser.step()
            self._adam[slot] = _adam_groups(learner.optimiser, parameters)
            return
        for group, places, weights, first, second, counts in self._adam[slot]:
            own, (beta1, beta2) = [gradients[place] for place in places], group["betas"]
            rule = {k: group[k] for k in ("lr", "weight_decay", "eps", "amsgrad", "maximize")}
            torch._foreach_add_(counts, 1)
            torch._fused_adam_(
                weights, own, first, second, [], counts, beta1=beta1, beta2=beta2, **rule
            )


def _adam_groups(
    optimiser: torch.optim.Optimizer, parameters: Sequence[Tensor]
) -> list[tuple[Any, ...]]:
    """What Adam's kernel takes, group by group; empty for other optimisers."""
    places, found = {id(one): place for place, one in enumerate(parameters)}, []
    for group in optimiser.param_groups:
        moved = [one for one in group["params"] if id(one) in places]
        states = [optimiser.state[one] for one in moved]
        if any("exp_avg" not in state for state in states):
            return []
        lists = [[state[name] for state in states] for name in ("exp_avg", "exp_avg_sq", "step")]
        weights = [one.detach() for one in moved]
        found.append((group, [places[id(one)] for one in moved], weights, *lists))
    return [one for one in found if one[1]]
