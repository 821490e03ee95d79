"""Predictions and losses of all lanes, each under its own hypers and by its own random stream.

What is drawn for a lane is what its trial would draw alone: the same numbers from the same
generator, in the same order. Only the arithmetic is done for all lanes together.

Legend: P lanes, B examples, S samples of each, N = B * S, K outputs.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tuneparts.augment.affine import Affine, Benton, Lila
from tuneparts.augment.affine.augmentation import resample
from tuneparts.augment.affine.exponential import exponential
from tuneparts.augment.averaging import average
from tuneparts.data.target import Binary, Classes, Target, Values
from tuneparts.training.hyper import Hypers
from tuneparts.training.packed.forms import Act
from tuneparts.training.packed.layout import wide
from tuneparts.training.packed.net import LaneNet

Streams = Mapping[int, torch.Generator]
"""The generators of the lanes that train, by lane. The others are computed, and draw nothing."""


class LanePrediction:
    """A lane net under the hypers of its lanes.

    Args:
        net: of all lanes.
        hypers: of each lane; all act in the same places.
    """

    def __init__(self, net: LaneNet, hypers: Sequence[Hypers]) -> None:
        self._net = net
        self._hypers = hypers
        self._lanes = range(len(hypers))

    def __call__(
        self,
        x: Tensor,
        streams: Streams,
        *,
        training: bool,
        net: Callable[..., Tensor] | None = None,
    ) -> Tensor:
        """Predictions (P, B, K), to be used like any logits.

        Args:
            x: inputs (B, ...), the same for all lanes.
            streams: sources of all draws.
            training: as of `Hypers.predict`.
            net: called as a `LaneNet` is, in place of the net itself.
        """
        first = self._hypers[next(iter(streams))]
        seen, is_shared = self._inputs(x, streams, training=training)
        acts = self._acts(streams, training=training)
        outputs_PNK = (net or self._net)(seen, acts, is_shared=is_shared)
        num_samples = first.num_samples(training=training)
        averaged = average(outputs_PNK.flatten(0, 1), num_samples, first.averaging)
        outputs_PBK = torch.unflatten(averaged, 0, (len(self._lanes), -1))
        if not any(True for _ in first.acting("outputs")):
            return outputs_PBK
        return torch.stack(
            [
                _through(hypers.acting("outputs"), outputs_BK)
                for hypers, outputs_BK in zip(self._hypers, outputs_PBK, strict=True)
            ]
        )

    def losses(
        self, outputs_PBK: Tensor, y_B: Tensor, target: Target, *, held_out: bool = False
    ) -> Tensor:
        """The loss of each lane (P,); `held_out` as of `Hypers.loss`."""
        if self._are_apart(target):
            return self.each_loss(outputs_PBK, y_B, target).mean(1)
        each = zip(self._hypers, outputs_PBK, strict=True)
        return torch.stack(
            [hypers.loss(outputs, y_B, target.loss, held_out=held_out) for hypers, outputs in each]
        )

    def each_loss(self, outputs_PBK: Tensor, y_B: Tensor, target: Target) -> Tensor:
        """The training loss of each example in each lane (P, B)."""
        if self._are_apart(target):
            labels = y_B.repeat(len(self._lanes), *[1] * (y_B.dim() - 1))
            return target.losses(outputs_PBK.flatten(0, 1), labels).view(len(self._lanes), -1)
        each = zip(self._hypers, outputs_PBK, strict=True)
        return torch.stack(
            [hypers.loss(outputs, y_B, target.loss, reduction="none") for hypers, outputs in each]
        )

    def _are_apart(self, target: Target) -> bool:
        """Whether each example has a loss by itself, under no hyper: then lanes can be joined."""
        is_plain = not any(True for hypers in self._hypers for _ in hypers.acting("loss"))
        return is_plain and type(target) in (Classes, Binary, Values)

    def penalties(self) -> Tensor | None:
        """The sum over lanes of what their hypers ask for weights; None for nothing."""
        if not any(True for hypers in self._hypers for _ in hypers.acting("weights")):
            return None
        lanes = zip(*(stacked.unbind() for stacked in self._net.stack.parameters), strict=True)
        nothing = self._net.stack.parameters[0].new_zeros(())
        each = zip(self._hypers, lanes, strict=True)
        return torch.stack([hypers.penalised(nothing, weights) for hypers, weights in each]).sum()

    def _inputs(self, x: Tensor, streams: Streams, *, training: bool) -> tuple[Tensor, bool]:
        """What the net sees, and whether it is the same for all lanes."""
        lane, generator = next(iter(streams.items()))
        parts = list(self._hypers[lane].acting("inputs"))
        if not parts:
            return self._hypers[lane].inputs(x, generator, training=training), True
        if len(parts) == 1 and isinstance(parts[0], Affine):
            return self._moved(x, streams, training=training), False
        drawn = self._for_all(
            {p: self._hypers[p].inputs(x, one, training=training) for p, one in streams.items()}
        )
        return (wide(drawn) if drawn.dim() == 5 else drawn), False

    def _moved(self, x_BCHW: Tensor, streams: Streams, *, training: bool) -> Tensor:
        """Images moved by each lane's affine draws, wide; one call for all lanes."""
        B, S = len(x_BCHW), next(iter(self._hypers)).num_samples(training=training)
        parts: dict[int, Any] = {p: next(self._hypers[p].acting("inputs")) for p in streams}
        if all(isinstance(part, Lila | Benton) for part in parts.values()):
            drawn = {p: part.exponents(B * S, streams[p]) for p, part in parts.items()}
            A_PN23 = torch.unflatten(
                exponential(self._for_all(drawn).flatten(0, 1)), 0, (-1, B * S)
            )
        else:
            A_PN23 = self._for_all({p: one.sample(B * S, streams[p]) for p, one in parts.items()})
        # All samples of an image stand together, so that images are never repeated.
        by_image = torch.unflatten(A_PN23, 1, (B, S)).transpose(0, 1).reshape(-1, 2, 3)
        moved = torch.unflatten(resample(x_BCHW, by_image), 0, (B, len(self._lanes), S))
        channels_last = moved.permute(0, 2, 4, 5, 1, 3)  # (B, S, H, W, P, C)
        return channels_last.flatten(0, 1).flatten(3).permute(0, 3, 1, 2)

    def _for_all(self, drawn: Mapping[int, Tensor]) -> Tensor:
        """What was drawn for each lane; those that do not train see what the first one sees."""
        first = next(iter(drawn.values())).detach()  # whose hypers they must not move
        return torch.stack([drawn.get(lane, first) for lane in self._lanes])

    def _acts(self, streams: Streams, *, training: bool) -> list[Act]:
        found: list[Act] = []
        for lane, hypers in enumerate(self._hypers):
            act = hypers.at_slots(training=training)
            if act is None:
                return []
            is_drawn = lane in streams
            found.append(partial(_with, act, streams[lane]) if is_drawn else _unchanged)
        return found


def _with(
    act: Callable[[Tensor, int, torch.Generator], Tensor],
    generator: torch.Generator,
    h: Tensor,
    slot: int,
) -> Tensor:
    return act(h, slot, generator)


def _unchanged(h: Tensor, slot: int) -> Tensor:  # noqa: ARG001
    return h


def _through(parts: Any, outputs_BK: Tensor) -> Tensor:
    for part in parts:
        outputs_BK = part(outputs_BK)
    return outputs_BK
