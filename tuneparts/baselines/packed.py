"""Standard training of several trials at once, each in a slot of one packed net.

A slot draws what its trial draws alone, from the same generators in the same order, and its
optimiser makes the same step; only the arithmetic of the net is common. So a packed trial has the
numbers of the same trial alone up to rounding, and its state is that of its own learner.

Legend: P slots, B examples, S samples of each, N = B * S, K outputs.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tuneparts.augment.affine import Affine, Benton, Lila
from tuneparts.augment.affine.augmentation import resample
from tuneparts.augment.affine.exponential import exponential
from tuneparts.augment.hyper import Hyper
from tuneparts.baselines.standard import StandardConfig, StandardLearner
from tuneparts.data.target import Binary, Classes, Values
from tuneparts.errors import ConfigError, DivergedError
from tuneparts.training.learner import Learner
from tuneparts.training.loop import Step
from tuneparts.training.optimisers import set_lr
from tuneparts.training.packed import Act, PackedNet
from tuneparts.training.runtime import Runtime
from tuneparts.training.state import lay_out_moments

_SHARED = {"kind", "momentum", "nesterov", "scalar_lr_factor"}
"""Fields of the optimiser that are the same in a pack; rates, schedules and decay may differ."""


def pack_key(config: StandardConfig) -> str:
    """What the configs of one pack have in common, as text.

    The numbers of hypers may differ. Where several samples are averaged, those that stand at an
    end of their range or at no effect may not: there a hyper may draw nothing, and its trial would
    have other samples than the others.
    """
    hypers = config.hypers
    tree = config.model_dump(mode="json", exclude={"hypers", "optimiser"})
    tree["optimiser"] = config.optimiser.model_dump(mode="json", include=_SHARED)
    tree["hypers"] = [hypers.samples, hypers.averaging]
    tree["parts"] = {name: _fixed(part, hypers.samples > 1) for name, part in hypers.parts.items()}
    return json.dumps(tree, sort_keys=True)


def _fixed(hyper: Hyper, has_samples: bool) -> list[Any]:
    """What a hyper is besides its numbers, and which of them stand where nothing may be drawn."""
    numbers = hyper.numbers()
    ends = {
        f"{field}.{place}": value
        for field, number in numbers.items()
        for place, value in enumerate(_each(getattr(hyper, field)))
        if has_samples and value in (number.link.low, number.link.high, number.identity)
    }
    return [type(hyper).__qualname__, hyper.model_dump(mode="json", exclude=set(numbers)), ends]


def _each(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class Pack:
    """Learners of one seed that have spent the same passes, trained together.

    Args:
        learners: slot -> learner, of configs with the same `pack_key`.
        width: number of slots. It and the slot of a trial decide how its numbers are rounded; what
            other slots hold does not, so those without a learner are computed as well.

    Raises:
        ConfigError: The learners cannot be trained together.
    """

    def __init__(self, learners: Mapping[int, Learner], width: int) -> None:
        self._learners: dict[int, StandardLearner] = {}
        for slot, learner in learners.items():
            if type(learner) is not StandardLearner:
                raise ConfigError(
                    f"{type(learner).__name__} cannot be packed: it may have another step than "
                    "StandardLearner. Leave `packed` out."
                )
            self._learners[slot] = learner
        first = self._first = next(iter(self._learners.values()))
        self._width = width
        x, _ = first.train_data.take(torch.arange(min(2, len(first.train_data))))
        nets = {slot: learner.net for slot, learner in self._learners.items()}
        self._net = PackedNet(nets, width, x)
        self._acts = self._at_slots()
        if first.hypers.draws_globally or (self._acts and not self._net.has_slots):
            raise ConfigError(
                f"net {type(first.net).__name__} cannot be packed: every trial has draws of its "
                "own, but dropout is inside of code of its own. Leave `packed` out."
            )
        hypers = [learner.hypers for learner in self._learners.values()]
        self._parts = [list(one.acting("inputs")) for one in hypers]
        is_plain = not any(any(one.acting("outputs", "loss")) for one in hypers)
        self._is_plain = is_plain and type(first.target) in (Classes, Binary, Values)
        """Whether the losses of all slots are those of one larger batch."""
        named = dict(first.net.named_parameters())
        self._all = [self._net.tensors[name] for name in named]
        parameters = [name for name, one in named.items() if one.requires_grad]
        self._moving = [self._net.tensors[name] for name in parameters]
        self._optimisers = {
            slot: _Optimiser(learner, parameters) for slot, learner in self._learners.items()
        }

    def advance(self) -> dict[int, dict[str, float] | DivergedError]:
        """Train for one interval; returns what each slot reports, or why it cannot go on."""
        first, start = self._first, self._first.passes
        seen: list[Tensor] = []
        with Runtime().numerics(first.context.device, is_training=False):
            while not (first.finished or first.interval_is_over(start)):
                seen.append(self.step())
                for learner in self._learners.values():
                    learner.count(Step(passes=1, losses={"train/loss": seen[-1]}))
            by_slot = torch.stack(seen).unbind(1)
            return {
                slot: self._report(learner, by_slot[slot], start)
                for slot, learner in self._learners.items()
            }

    def _report(
        self, learner: StandardLearner, losses: Tensor, start: int
    ) -> dict[str, float] | DivergedError:
        if learner is not self._first:
            learner.skip_to(self._first)
        try:
            return learner.report({"train/loss": list(losses)}, start)
        except DivergedError as error:
            return error

    def step(self) -> Tensor:
        """One update of all slots; returns their losses (P,)."""
        x, y_B = self._first.batch()
        seen, is_shared = self._inputs(x)
        losses_P = self._losses(self._net(seen, self._acts, is_shared=is_shared), y_B)
        objective = losses_P.sum()
        for slot, learner in self._learners.items():
            weights = (weight[slot] for weight in self._all)
            objective = learner.hypers.penalised(objective, weights)
        found = torch.autograd.grad(objective, self._moving, allow_unused=True)
        # torch's fused kernels read gradients in memory order, whatever their strides.
        each = [None if one is None else one.contiguous().unbind() for one in found]
        for slot, optimiser in self._optimisers.items():
            optimiser.step([None if one is None else one[slot] for one in each])
        return losses_P.detach()

    def _inputs(self, x: Tensor) -> tuple[Tensor, bool]:
        """What the net sees, and whether all slots see the same."""
        if not any(self._parts):
            first = self._first
            return first.hypers.inputs(x, first.augmentation, training=True), True
        if all(len(one) == 1 and isinstance(one[0], Affine) for one in self._parts):
            return self._moved(x), False
        drawn = [
            learner.hypers.inputs(x, learner.augmentation, training=True)
            for learner in self._learners.values()
        ]
        return self._filled(drawn), False

    def _moved(self, x_BCHW: Tensor) -> Tensor:
        """Images moved by each slot's affine draws, wide; in one call, which takes half as long."""
        B, S = len(x_BCHW), self._first.hypers.num_samples(training=True)
        streams = (learner.augmentation for learner in self._learners.values())
        each = [(part, stream) for (part,), stream in zip(self._parts, streams, strict=True)]
        if all(isinstance(part, Lila | Benton) for part, _ in each):
            drawn = [part.exponents(B * S, stream) for part, stream in each]
            A_PN23 = exponential(self._filled(drawn).flatten(0, 1)).unflatten(0, (-1, B * S))
        else:
            A_PN23 = self._filled([part.sample(B * S, stream) for part, stream in each])
        # All samples of an image stand together, so that images are never repeated.
        by_image = A_PN23.unflatten(1, (B, S)).transpose(0, 1).reshape(-1, 2, 3)
        moved = resample(x_BCHW, by_image).unflatten(0, (B, self._width, S))
        channels_last = moved.permute(0, 2, 4, 5, 1, 3)  # (B, S, H, W, P, C)
        return channels_last.flatten(0, 1).flatten(3).permute(0, 3, 1, 2)

    def _filled(self, drawn: Sequence[Tensor]) -> Tensor:
        """What was drawn for each learner as (P, ...); others have the first's."""
        by_slot = dict(zip(self._learners, drawn, strict=True))
        return torch.stack([by_slot.get(slot, drawn[0]) for slot in range(self._width)])

    def _at_slots(self) -> Sequence[Act | None]:
        """What the hypers of each slot do at dropout layers; empty for nothing."""
        found: list[Act | None] = [None] * self._width
        for slot, learner in self._learners.items():
            act = learner.hypers.at_slots(training=True)
            if act is not None:
                found[slot] = partial(_drawing, act, learner.augmentation)
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


def _drawing(act: Any, generator: torch.Generator, h: Tensor, slot: int) -> Tensor:
    found: Tensor = act(h, slot, generator)
    return found


class _Optimiser:
    """Steps the optimiser of a learner by gradients that it is given.

    Adam is stepped by its kernel itself as soon as it has moments: `Optimizer.step` takes a tenth
    of a small net's step in Python.

    Args:
        learner: whose parameters have become views.
        names: of those that get gradients, in the order of these.
    """

    def __init__(self, learner: StandardLearner, names: Sequence[str]) -> None:
        self._learner = learner
        self._parameters = [learner.net.get_parameter(name) for name in names]
        lay_out_moments(learner.optimiser)
        self._groups: list[tuple[Any, ...]] = []

    def step(self, gradients: Sequence[Tensor | None]) -> None:
        learner, optimiser = self._learner, self._learner.optimiser
        set_lr(optimiser, learner.config.optimiser.lr_at(learner.progress))
        if not self._groups or any(one is None for one in gradients):
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient
            optimiser.step()
            self._groups = self._known_groups()
            return
        for group, places, weights, first, second, counts in self._groups:
            torch._foreach_add_(counts, 1)
            torch._fused_adam_(
                weights,
                [gradients[place] for place in places],
                first,
                second,
                [],
                counts,
                lr=group["lr"],
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
                grad_scale=None,
                found_inf=None,
            )

    def _known_groups(self) -> list[tuple[Any, ...]]:
        """What Adam's kernel takes, group by group; empty for other optimisers."""
        places = {id(parameter): place for place, parameter in enumerate(self._parameters)}
        optimiser, found = self._learner.optimiser, []
        for group in optimiser.param_groups:
            moved = [one for one in group["params"] if id(one) in places]
            states = [optimiser.state[one] for one in moved]
            if any("exp_avg" not in state for state in states):
                return []
            lists = [[s[name] for s in states] for name in ("exp_avg", "exp_avg_sq", "step")]
            weights = [one.detach() for one in moved]
            found.append((group, [places[id(one)] for one in moved], weights, *lists))
        return found
