"""The settings of nets that share weights, and the stages of a run; nothing here imports torch."""

from enum import StrEnum
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from tuneparts.core.config import Config
from tuneparts.nets import DigitsCnn, Net, WideResNet
from tuneparts.training.config import EnsembleMethod

ChainKind = Literal["growth", "envelope"]
"""Sorting by size is no order on (out, in). `growth` crops rows or columns where the next shape has
fewer, as the authors do; `envelope` grows the running maximum instead and crops at the end, so that
every layer is the top left corner of one large weight."""
Initialisation = Literal["own", "fan_in", "released"]
"""`own` gives every composed weight the standard deviation with which its net starts it, so that
nets with an initialisation of their own, such as FixUp, keep it; `fan_in` the variance 2 / fan_in
(He et al. 2015); `released` draws templates with variance 2 / 9 whatever the layer, as the authors'
code does."""
MAX_TEMPLATES = 8
"""Most templates of a slot in the released code."""


class AllocationConfig(Config):
    """Number of template weights, and how layers are put together from them."""

    budget: int | None = Field(default=None, gt=0)
    """Weights of all templates; None for `relative` times the largest member's."""
    relative: float = Field(default=1.0, gt=0)
    """Budget as a multiple of the weights that the largest member's shared layers have alone."""
    when_short: Literal["refuse", "merge"] = "refuse"
    """If the budget cannot hold one template for each slot of the bins: `refuse` the config, or
    `merge` neighbouring bins until it can."""
    max_templates: int = Field(default=MAX_TEMPLATES, ge=1)
    """Most templates of one slot."""
    chain: ChainKind = "growth"
    """Crop weights on the way from shape to shape, or at the end."""
    initialisation: Initialisation = "own"
    """Scale at which templates start."""


class SharingConfig(Config):
    """Rules by which layers share templates and coefficients."""

    num_bins: int | None = Field(default=4, ge=1)
    """Bins of relative depth that clusters start as; None for one per layer of a member."""
    clusters: Literal["depth", "gradient", "random"] = "gradient"
    """Keep the bins, split them by gradients, or split them at random into clusters of the sizes
    that gradients give: the control."""
    scope: Literal["all", "reference", "released"] = "all"
    """Compare the layers of all members, or those of the first, whom the others follow by
    similarity; `released` does the latter, and unties, by the rules of the authors' code."""
    tau: float = 0.1
    """Layers with a larger gradient cosine share templates. Lowered until the budget fits."""
    coefficients: Literal["private", "mapped", "shared"] = "mapped"
    """At the start each use has its own (`private`), those of a layer of the first member
    (`mapped`), or all uses of a slot have the same (`shared`)."""
    beta: float | None = 0.9
    """Uses with a larger cosine stay tied; None never unties."""


class StagesConfig(Config):
    """Length of each stage, as a fraction of the steps."""

    search: float = Field(default=0.1, gt=0, lt=1)
    """Training before clusters are learnt; its weights are thrown away."""
    untie: float = Field(default=0.05, gt=0, lt=1)
    """Training before coefficients are untied."""
    analysis: float = Field(default=0.01, gt=0, lt=1)
    """Each comparison of gradients; the authors take an epoch."""
    norms: Literal["eval", "train"] = "eval"
    """Statistics of norms during a comparison: running ones (`eval`), or those of the batch
    (`train`). Cosines are smaller with those of the batch; `tau` does not carry over."""


class _SharingStage(StrEnum):
    """What the next step does."""

    SEARCH = "search"
    """Train with one coefficient vector per slot: hard sharing."""
    COMPARE_LAYERS = "compare layers"
    """Sum gradients of the layers; then form clusters and start from new weights."""
    TRAIN = "train"
    """Train with the coefficients tied as at the start."""
    COMPARE_USES = "compare uses"
    """Sum gradients again; then untie coefficients that conflict."""
    FINISH = "finish"
    """Train to the end."""


class Timetable(NamedTuple):
    """Steps at which the stages end."""

    search: int
    compare_layers: int
    train: int
    compare_uses: int
    finish: int

    def at(self, steps: int) -> _SharingStage:
        """Return the stage of the step that follows after this many."""
        return list(_SharingStage)[sum(steps >= end for end in self[:-1])]

    @property
    def trained(self) -> int:
        """Steps that train the weights which are kept: all but the search and the comparisons."""
        return self.finish - self.compare_layers - (self.compare_uses - self.train)

    def progress(self, steps: int) -> float:
        """Return the fraction of the learning rate schedule, which the new start begins again."""
        start = self.compare_layers
        return (steps if steps < start else steps - start) / (self.finish - start)


class SuperWeights(EnsembleMethod):
    """Several nets from one budget; a single member makes it parameter allocation search."""

    method: Literal["superweights"] = "superweights"
    learner = "tuneparts.methods.superweights._learner:SuperweightsLearner"
    members: tuple[Net, ...] = Field(
        default=(WideResNet(depth=16), WideResNet(depth=10)), min_length=1
    )
    """The nets, of any width, depth and family; the first one is the reference."""
    allocation: AllocationConfig = AllocationConfig()
    sharing: SharingConfig = SharingConfig()
    stages: StagesConfig = StagesConfig()

    @model_validator(mode="after")
    def _check_time_to_train(self) -> Self:
        taken = self.timetable.compare_uses
        if taken >= self.steps:
            raise ValueError(
                f"the stages before the last must leave it a step, but take {taken} of "
                f"{self.steps} steps; give more steps, or shorten `stages`"
            )
        return self

    @property
    def timetable(self) -> Timetable:
        """Steps at which the stages of this run end; each that takes place has at least one."""
        sharing, stages = self.sharing, self.stages
        learns = sharing.clusters != "depth"
        has_ties = sharing.coefficients == "shared" or (
            sharing.coefficients == "mapped" and len(self.members) > 1
        )
        unties = has_ties and sharing.beta is not None

        def share(fraction: float, takes_place: bool) -> int:
            return max(1, round(fraction * self.steps)) if takes_place else 0

        searched = share(stages.search, learns)
        looked = share(stages.analysis, learns)
        compared = searched + (min(looked, 1) if sharing.scope == "released" else looked)
        trained = compared + share(stages.untie, unties)
        untied = trained + share(stages.analysis, unties)
        return Timetable(searched, compared, trained, untied, self.steps)


class Ssn(EnsembleMethod):
    """Several nets whose layers read from banks of weights; a single one shares within itself."""

    method: Literal["ssn"] = "ssn"
    learner = "tuneparts.methods.superweights._ssn:SsnLearner"
    members: tuple[Net, ...] = Field(default=(DigitsCnn(), DigitsCnn()), min_length=1)
    """The nets, of any width, depth and family; the first one decides how deep a group is."""
    budget: int | None = Field(default=None, gt=0)
    """Weights of all banks; None for those that the largest member's shared layers have alone."""
    num_groups: int | None = Field(default=4, ge=1)
    """Groups of layers by relative depth; None for one per layer of the first member."""
    max_templates: int = Field(default=MAX_TEMPLATES, ge=1)
    """Most templates that a layer sums."""
