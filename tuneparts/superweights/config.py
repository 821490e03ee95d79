"""The settings of SuperWeight networks."""

from typing import Literal, Self

from pydantic import Field, model_validator

from tuneparts.config import Config
from tuneparts.models import Net
from tuneparts.superweights.bank import Initialisation
from tuneparts.superweights.budget import MAX_TEMPLATES
from tuneparts.superweights.chain import ChainKind
from tuneparts.superweights.stages import Timetable, timetable
from tuneparts.training.learner import Context, Learner
from tuneparts.training.members.learner import MembersConfig


class AllocationConfig(Config):
    """How many template weights there are, and how layers are put together from them."""

    budget: int | None = Field(default=None, gt=0)
    """Weights of all templates; None for `relative` times the largest member's."""
    relative: float = Field(default=1.0, gt=0)
    """Budget as a multiple of what the largest member's shared layers have on their own."""
    when_short: Literal["refuse", "merge"] = "refuse"
    """What happens when the budget does not hold one template for each slot of the bins."""
    max_templates: int = Field(default=MAX_TEMPLATES, ge=1)
    """Of one slot."""
    chain: ChainKind = "growth"
    """Crop weights on the way from shape to shape, or at the end."""
    initialisation: Initialisation = "fan_in"


class SharingConfig(Config):
    """Which layers share templates, and which of them coefficients."""

    num_bins: int | None = Field(default=4, ge=1)
    """Bins of relative depth that clusters start as; None for one per layer of a member."""
    clusters: Literal["depth", "gradient", "random"] = "gradient"
    """Keep the bins, split them by gradients, or split them at random into clusters of the very
    sizes that gradients give: the control."""
    scope: Literal["all", "reference"] = "all"
    """Compare the layers of all members, or those of the first, whom the others follow."""
    tau: float = 0.1
    """Layers with a larger gradient cosine share templates. Lowered until the budget fits."""
    coefficients: Literal["private", "mapped", "shared"] = "mapped"
    """How coefficients begin: each use its own, tied to a layer of the first member, or one vector
    per slot."""
    beta: float | None = 0.9
    """Uses with a larger cosine stay tied; None never unties."""


class StagesConfig(Config):
    """How long each stage takes, as fractions of the passes."""

    search: float = Field(default=0.1, gt=0, lt=1)
    """Training before clusters are learnt; all its weights are thrown away."""
    untie: float = Field(default=0.05, gt=0, lt=1)
    """Training before coefficients are untied."""
    analysis: float = Field(default=0.01, gt=0, lt=1)
    """Each look at the gradients; the authors take an epoch."""
    norms: Literal["eval", "train"] = "eval"
    """Statistics of norms during a look: running ones, or those of the batch. Cosines are smaller
    with those of the batch; `tau` does not carry over."""


class SuperweightsConfig(MembersConfig):
    """Several nets from one budget; a single member makes it parameter allocation search."""

    method: Literal["superweights"] = "superweights"
    members: tuple[Net, ...] = Field(
        default=({"name": "wide_resnet", "depth": 16}, {"name": "wide_resnet", "depth": 10}),
        min_length=1,
        validate_default=True,
    )
    """The nets, of any width, depth and family; the first one is the reference."""
    allocation: AllocationConfig = AllocationConfig()
    sharing: SharingConfig = SharingConfig()
    stages: StagesConfig = StagesConfig()

    @model_validator(mode="after")
    def _has_time_to_train(self) -> Self:
        times = self.timetable
        if times.compare_uses >= self.passes:
            raise ValueError(
                f"the stages before the last must leave it a pass, but take {times.compare_uses} "
                f"of {self.passes} passes; give more passes, or shorten `stages`"
            )
        return self

    @property
    def timetable(self) -> Timetable:
        """The stages of this run."""
        sharing = self.sharing
        has_ties = sharing.coefficients == "shared" or (
            sharing.coefficients == "mapped" and len(self.members) > 1
        )
        return timetable(
            self.passes,
            search=self.stages.search,
            untie=self.stages.untie,
            analysis=self.stages.analysis,
            learns=sharing.clusters != "depth",
            unties=has_ties and sharing.beta is not None,
        )

    def build(self, context: Context) -> Learner:
        from tuneparts.superweights.learner import SuperweightsLearner  # which reads this config

        return SuperweightsLearner(self, context)
