"""Shapeshifter Networks as an ensemble from one budget (SSN, Plummer et al. 2022).

The baseline of Teterwak et al. (2024, supplementary): layers are grouped by depth, by hand, and
draw from the bank of their group; coefficients, norms and heads are a member's own. Nothing is
learnt about who shares with whom. Their SSN for one net learns groups by clustering coefficients
after a short training; that search is not here.
"""

from dataclasses import replace
from typing import Literal

from pydantic import Field
from torch import nn

from tuneparts.core import seeding
from tuneparts.methods.superweights.allocation import MAX_TEMPLATES
from tuneparts.methods.superweights.clusters import depth_bins, largest_member, layers_of
from tuneparts.methods.superweights.flat_bank import FlatBank
from tuneparts.methods.superweights.members import BankMembers
from tuneparts.models import Net
from tuneparts.training.config import MembersConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.members import NetMembersLearner


class SsnConfig(MembersConfig):
    """Several nets whose layers read from banks of weights; a single member shares within itself.

    Example:
        >>> SsnConfig(members=("digits_cnn", "digits_cnn"), budget=20_000).num_groups
        4
    """

    method: Literal["ssn"] = "ssn"
    members: tuple[Net, ...] = Field(
        default=("digits_cnn", "digits_cnn"), min_length=1, validate_default=True
    )
    """The nets, of any width, depth and family; the first one decides how deep a group is."""
    budget: int | None = Field(default=None, gt=0)
    """Weights of all banks; None for those that the largest member's shared layers have alone."""
    num_groups: int | None = Field(default=4, ge=1)
    """Groups of layers by relative depth; None for one per layer of the first member."""
    max_templates: int = Field(default=MAX_TEMPLATES, ge=1)
    """Most templates that a layer sums."""

    def build(self, context: Context) -> Learner:
        return SsnLearner(self, context)


class SsnLearner(NetMembersLearner):
    """Minimises the sum of the members' losses; coefficients are not decayed."""

    config: SsnConfig
    model: BankMembers
    bank: FlatBank

    def __init__(self, config: SsnConfig, context: Context) -> None:
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
        if len(bank.coefficients_RK):
            self.optimiser.add_param_group(
                {"params": list(bank.coefficients_RK), "lr_factor": 1.0, "weight_decay": 0.0}
            )

    def evaluate(self) -> dict[str, float]:
        return super().evaluate() | {
            "size/templates": float(self.bank.num_weights),
            "superweights/clusters": float(len(self.bank.banks_P)),
            "superweights/vectors": float(self.bank.num_vectors),
        }
