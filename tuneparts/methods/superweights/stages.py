"""Stages of a run: when it shares, compares gradients, forms clusters and unties coefficients."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import Field

from tuneparts.core.config import Config


class StagesConfig(Config):
    """Length of each stage, as a fraction of the passes."""

    search: float = Field(default=0.1, gt=0, lt=1)
    """Training before clusters are learnt; its weights are thrown away."""
    untie: float = Field(default=0.05, gt=0, lt=1)
    """Training before coefficients are untied."""
    analysis: float = Field(default=0.01, gt=0, lt=1)
    """Each comparison of gradients; the authors take an epoch."""
    norms: Literal["eval", "train"] = "eval"
    """Statistics of norms during a comparison: running ones (`eval`), or those of the batch
    (`train`). Cosines are smaller with those of the batch; `tau` does not carry over."""


class SharingStage(StrEnum):
    """What the next pass does."""

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


@dataclass(frozen=True)
class Timetable:
    """Passes at which the stages end."""

    search: int
    compare_layers: int
    train: int
    compare_uses: int
    finish: int

    def at(self, passes: int) -> SharingStage:
        """Return the stage of the pass that follows after this many."""
        ends = (self.search, self.compare_layers, self.train, self.compare_uses)
        return list(SharingStage)[sum(passes >= end for end in ends)]

    @property
    def trained(self) -> int:
        """Passes that train the weights which are kept: all but the search and the comparisons."""
        return self.finish - self.compare_layers - (self.compare_uses - self.train)

    def progress(self, passes: int) -> float:
        """Return the fraction of the learning rate schedule, which the new start begins again."""
        start = self.compare_layers
        elapsed = passes if passes < start else passes - start
        return elapsed / (self.finish - start)


def timetable(
    passes: int,
    *,
    search: float,
    untie: float,
    analysis: float,
    learns: bool,
    unties: bool,
    compares_one_batch: bool = False,
) -> Timetable:
    """Divide a budget of passes; each stage that takes place has at least one.

    Args:
        passes: the whole budget.
        search: fraction for training before clusters are learnt.
        untie: fraction for training before coefficients are untied.
        analysis: fraction for each of the two comparisons of gradients.
        learns: whether clusters are learnt at all.
        unties: whether coefficients are untied at all.
        compares_one_batch: whether layers are compared on a single batch, whatever `analysis`.

    Example:
        >>> timetable(100, search=0.1, untie=0.05, analysis=0.01, learns=True, unties=True)
        Timetable(search=10, compare_layers=11, train=16, compare_uses=17, finish=100)
    """

    def share(fraction: float) -> int:
        return max(1, round(fraction * passes))

    searched = share(search) if learns else 0
    compared_on = 1 if compares_one_batch else share(analysis)
    compared = searched + (compared_on if learns else 0)
    trained = compared + (share(untie) if unties else 0)
    untied = trained + (share(analysis) if unties else 0)
    return Timetable(searched, compared, trained, untied, passes)
