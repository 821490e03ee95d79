"""Weights of many shapes from one chain of SuperWeights (Teterwak et al. 2024).

The shapes of a cluster are sorted from small to large. The first slot is the smallest layer;
each later slot holds what is missing to the next shape: new input columns for the rows that are
there, then new output rows over the full width. A layer is put together from the slots up to its
own shape.

Sorting by size is no order on (out, in). The growth chain crops rows or columns where the next
shape has fewer, as the authors do; the envelope chain grows the running maximum instead and crops
at the end, so that every layer is the top left corner of one large weight.

Legend: U uses, O rows (outputs), I columns (inputs), A kernel area, D size of a slot.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

ChainKind = Literal["growth", "envelope"]
Shape = tuple[int, int]
"""(outputs, inputs)"""


@dataclass(frozen=True)
class Growth:
    """One slot: what is kept of the weight so far, and what is added."""

    rows: int
    columns: int
    new_rows: int
    new_columns: int

    @property
    def shape(self) -> Shape:
        """After the slot is added."""
        return self.rows + self.new_rows, self.columns + self.new_columns

    @property
    def num_pairs(self) -> int:
        """Pairs of channels in the slot: those of the new columns, then those of the new rows."""
        return self.rows * self.new_columns + self.new_rows * self.shape[1]


@dataclass(frozen=True)
class Chain:
    """The slots of a cluster, and the last slot that each shape needs."""

    area: int
    slots: tuple[Growth, ...]
    last_slot: dict[Shape, int]

    @property
    def sizes(self) -> list[int]:
        """Weights of one template of each slot."""
        return [slot.num_pairs * self.area for slot in self.slots]


def build_chain(shapes: Iterable[Shape], area: int, kind: ChainKind) -> Chain:
    """The chain through these shapes; equal sizes are ordered by outputs.

    Args:
        shapes: of the layers of a cluster, in any order, with repetitions.
        area: weights per pair of channels.
        kind: crop on the way (`growth`) or at the end (`envelope`).
    """
    slots: list[Growth] = []
    last_slot: dict[Shape, int] = {}
    rows = columns = 0
    for shape in sorted(set(shapes), key=lambda s: (s[0] * s[1], s)):
        num_out, num_in = shape
        if kind == "envelope":
            num_out, num_in = max(rows, num_out), max(columns, num_in)
        kept = min(rows, num_out), min(columns, num_in)
        slot = Growth(*kept, num_out - kept[0], num_in - kept[1])
        if slot.num_pairs:
            slots.append(slot)
            rows, columns = slot.shape
        last_slot[shape] = len(slots) - 1
    return Chain(area, tuple(slots), last_slot)


def assemble(chain: Chain, parts_UD: Sequence[Tensor], shape: Shape) -> Tensor:
    """Weights (U, O, I, A) of one shape from flat SuperWeights of slots 0 to its last.

    Args:
        chain: of the cluster.
        parts_UD: (U, D) for each slot that the shape needs.
        shape: one of the chain's.
    """
    area = chain.area
    weight_UOIA = parts_UD[0].reshape(-1, *chain.slots[0].shape, area)
    for slot, part_UD in zip(chain.slots[1:], parts_UD[1:], strict=False):
        weight_UOIA = weight_UOIA[:, : slot.rows, : slot.columns]
        split = slot.rows * slot.new_columns * area
        if slot.new_columns:
            beside = part_UD[:, :split].reshape(-1, slot.rows, slot.new_columns, area)
            weight_UOIA = torch.cat([weight_UOIA, beside], dim=2)
        if slot.new_rows:
            below = part_UD[:, split:].reshape(-1, slot.new_rows, slot.shape[1], area)
            weight_UOIA = torch.cat([weight_UOIA, below], dim=1)
    return weight_UOIA[:, : shape[0], : shape[1]]


def disassemble(chain: Chain, gradient_UOIA: Tensor) -> list[Tensor]:
    """The adjoint of `assemble`: gradients (U, D) of each slot from those of the weights.

    Weights that are cropped away on the way have gradient zero.
    """
    num_uses, num_out, num_in, _ = gradient_UOIA.shape
    slots = chain.slots[: chain.last_slot[num_out, num_in] + 1]
    parts = []
    for slot in reversed(slots):
        grown = _padded(gradient_UOIA, slot.shape)
        beside = grown[:, : slot.rows, slot.columns :].reshape(num_uses, -1)
        below = grown[:, slot.rows :].reshape(num_uses, -1)
        parts.append(torch.cat([beside, below], dim=1))
        gradient_UOIA = grown[:, : slot.rows, : slot.columns]
    return parts[::-1]


def _padded(x_UOIA: Tensor, shape: Shape) -> Tensor:
    below, beside = shape[0] - x_UOIA.shape[1], shape[1] - x_UOIA.shape[2]
    return F.pad(x_UOIA, (0, 0, 0, beside, 0, below)) if below or beside else x_UOIA
