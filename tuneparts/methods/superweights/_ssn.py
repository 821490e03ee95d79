"""Shapeshifter Networks as an ensemble from one budget (SSN, Plummer et al. 2022).

The baseline of Teterwak et al. (2024, supplementary): layers are grouped by depth, by hand, and
draw from the bank of their group; coefficients, norms and heads are a member's own. The search for
groups by clustering coefficients, as their SSN for one net has it, is not here.

A bank is a flat row of weights, which layers of any size read. A layer of n weights reads as
many templates of n weights as the bank has room for, eight at most, and sums them with coefficients
of its own. A layer larger than its bank reads a smaller weight and stretches it bilinearly. Banks
divide the budget by the sizes of their groups; a layer that is alone in its group owns its weight.

Legend: P weights of a bank, K templates of a layer, R layers with as many templates, O rows of a
weight (outputs), C its columns (inputs times kernel area).
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.superweights._bank import BankMembers, WeightBank
from tuneparts.methods.superweights._clusters import Layer, depth_bins, largest_member, layers_of
from tuneparts.methods.superweights._similarity import Labels, members_of
from tuneparts.methods.superweights.config import MAX_TEMPLATES, Ssn
from tuneparts.training.learner import Context
from tuneparts.training.members import NetMembersLearner


@dataclass(frozen=True)
class Reading:
    start: int
    num_templates: int
    rows: int
    columns: int
    """Shape of a template; smaller than the layer's weight where that is stretched."""

    @property
    def length(self) -> int:
        return self.num_templates * self.rows * self.columns


def bank_sizes(layers: Sequence[Layer], labels: Labels, budget: int) -> list[int]:
    """Divide a budget between groups, by the number of weights that their layers have alone."""
    # The released code rounds to the nearest weight and can exceed the budget; this rounds down.
    groups = [[layers[p].size for p in positions] for positions in members_of(labels).values()]
    alone = sum(sizes[0] for sizes in groups if len(sizes) == 1)
    left, shared = budget - alone, sum(map(sum, groups)) - alone
    found = [own[0] if len(own) == 1 else sum(own) * left // shared for own in groups]
    if left < 0 or min(found) < 1:
        raise ConfigError(
            f"every one of {len(groups)} groups must have weights, and a layer that is alone in "
            f"its group has its own, {alone} in all, but the budget is {budget}. Raise it, or use "
            "fewer groups."
        )
    return found


def readings(
    layers: Sequence[Layer], size: int, max_templates: int = MAX_TEMPLATES
) -> list[Reading]:
    """Find what each layer of a group reads of its bank of P weights, as the released code does.

    Layers that read equally many weights read one stretch of the bank after another, and begin
    again at its start where it ends. The most common shape is placed first.
    """
    found: dict[int, Reading] = {}
    following: dict[int, int] = {}
    taken = 0
    for shape in _common_shapes(layers):
        for position, layer in enumerate(layers):
            if layer.shape != shape:
                continue
            count, rows, columns = _template(layer, size, max_templates)
            length = count * rows * columns
            if length not in following:
                first = math.ceil(taken / length)
                following[length] = first if first < count else 0
                taken = taken + length if first < count else 0
            start = following[length] * length
            if start + length > size:
                start = following[length] = 0
            following[length] += 1
            found[position] = Reading(start, count, rows, columns)
    return [found[position] for position in range(len(layers))]


def _common_shapes(layers: Sequence[Layer]) -> list[tuple[int, ...]]:
    return [shape for shape, _ in Counter(layer.shape for layer in layers).most_common()]


def _template(layer: Layer, size: int, max_templates: int) -> tuple[int, int, int]:
    if layer.size <= size:
        return min(size // layer.size, max_templates), layer.num_out, layer.fan_in
    factor = 0.95
    while factor > 0.025:
        rows, columns = round(layer.num_out * factor), round(layer.num_in * factor) * layer.area
        if 0 < rows * columns <= size:
            return 1, rows, columns
        factor -= 0.05  # summed up like this by the released code, which decides ties of rounding
    raise ConfigError(
        "a layer is stretched from a twentieth of its rows and columns at least, but "
        f"`{layer.name}` of member {layer.member} has shape {layer.shape} and a bank of {size} "
        "weights. Raise the budget, or use fewer groups."
    )


class FlatBank(WeightBank):
    """The parameters of a Shapeshifter Network: a bank for each group, and coefficients."""

    def __init__(
        self,
        layers: Sequence[Layer],
        labels: Labels,
        *,
        budget: int,
        max_templates: int = MAX_TEMPLATES,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.layers = tuple(layers)
        self._rows: dict[int, tuple[int, int]] = {}
        self._readings: dict[int, tuple[int, Reading]] = {}
        sizes = bank_sizes(layers, labels, budget)
        banks: list[Tensor] = []
        coefficients: list[Tensor] = []
        for group, positions in enumerate(members_of(labels).values()):
            own = [layers[p] for p in positions]
            # A layer that is alone has the one template that is its weight.
            found = readings(own, sizes[group], max_templates if len(own) > 1 else 1)
            self._readings |= {p: (group, one) for p, one in zip(positions, found, strict=True)}
            banks.append(_initial(own, found, sizes[group], generator))
            alike: dict[tuple[int, int], list[int]] = {}  # by member and number of templates
            for position, layer, one in zip(positions, own, found, strict=True):
                if one.num_templates > 1:
                    alike.setdefault((layer.member, one.num_templates), []).append(position)
            for (_, num_templates), places in alike.items():
                alpha_RK = torch.empty(len(places), num_templates)
                nn.init.orthogonal_(alpha_RK, generator=generator)
                self._rows |= {p: (len(coefficients), row) for row, p in enumerate(places)}
                coefficients.append(alpha_RK)
        self.banks_P = nn.ParameterList(banks)
        self.coefficients_RK = nn.ParameterList(coefficients)

    @property
    def num_weights(self) -> int:
        return sum(bank_P.numel() for bank_P in self.banks_P)

    @property
    def num_vectors(self) -> int:
        return len(self._rows)

    def compose(self) -> list[Tensor]:
        weights = []
        for position, layer in enumerate(self.layers):
            group, one = self._readings[position]
            part = self.banks_P[group][one.start : one.start + one.length]
            if position in self._rows:
                matrix, row = self._rows[position]
                part = self.coefficients_RK[matrix][row] @ part.view(one.num_templates, -1)
            weight_OC = part.view(1, 1, one.rows, one.columns)
            whole = [layer.num_out, layer.fan_in]
            if [one.rows, one.columns] != whole:
                weight_OC = F.interpolate(weight_OC, whole, mode="bilinear", align_corners=False)
            weights.append(weight_OC.reshape(layer.shape))
        return weights


def _initial(
    layers: Sequence[Layer], found: Sequence[Reading], size: int, generator: torch.Generator
) -> Tensor:
    """Draw a bank (P,) with variance 2 / fan_in of the most common shape that reads an entry."""
    widest = max(layer.fan_in for layer in layers)
    std_P = torch.full((size,), math.sqrt(2 / widest))
    for shape in reversed(_common_shapes(layers)):
        for layer, one in zip(layers, found, strict=True):
            if layer.shape == shape and layer.size <= size:
                std_P[one.start : one.start + one.length] = math.sqrt(2 / layer.fan_in)
    return torch.randn(size, generator=generator) * std_P


class SsnLearner(NetMembersLearner):
    """Minimises the sum of the members' losses; coefficients are not decayed."""

    config: Ssn
    model: BankMembers
    bank: FlatBank

    def __init__(self, config: Ssn, context: Context) -> None:
        super().__init__(config, context)
        nets, flops = self.initial_nets(config.members)
        layers = [layer for member, net in enumerate(nets) for layer in layers_of(net, member)]
        # A flat bank serves any kernel, so that depth alone decides.
        labels = depth_bins([replace(layer, kind="any") for layer in layers], config.num_groups)
        bank = FlatBank(
            layers,
            labels,
            budget=config.budget or largest_member(layers),
            max_templates=config.max_templates,
            generator=seeding.torch_generator(context.seed, "init", "banks"),
        )
        self.model = BankMembers(nets, bank, flops).to(context.device)
        self.bank = bank
        self.optimiser = self.new_optimiser(nn.ModuleList([self.model.nets, bank.banks_P]))
        if alphas := list(bank.coefficients_RK):
            group = {"params": alphas, "lr_factor": 1.0, "weight_decay": 0.0}
            self.optimiser.add_param_group(group)

    def evaluate(self) -> dict[str, float]:
        return super().evaluate() | {
            "size/templates": float(self.bank.num_weights),
            "superweights/clusters": float(len(self.bank.banks_P)),
            "superweights/vectors": float(self.bank.num_vectors),
        }
