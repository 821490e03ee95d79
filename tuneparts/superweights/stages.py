"""When a run shares, looks, regroups and unties: stages as numbers of passes."""

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """What the next pass does."""

    SEARCH = "search"
    """Train with one coefficient vector per slot: hard sharing."""
    COMPARE_LAYERS = "compare layers"
    """Sum gradients of the layers; then form clusters and start again from new weights."""
    TRAIN = "train"
    """Train with the coefficients tied as they began."""
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

    def at(self, passes: int) -> Stage:
        """The stage of the pass after this many."""
        ends = (self.search, self.compare_layers, self.train, self.compare_uses)
        return list(Stage)[sum(passes >= end for end in ends)]

    def progress(self, passes: int) -> float:
        """Fraction of the schedule: the search begins it, and the start anew begins it again."""
        start = self.compare_layers
        elapsed = passes if passes < start else passes - start
        return elapsed / (self.finish - start)


def timetable(
    passes: int, *, search: float, untie: float, analysis: float, learns: bool, unties: bool
) -> Timetable:
    """Stages of a budget; each that takes place has at least one pass.

    Args:
        passes: the whole budget.
        search: fraction for training before clusters are learnt.
        untie: fraction for training before coefficients are untied.
        analysis: fraction for each of the two looks at gradients.
        learns: whether clusters are learnt at all.
        unties: whether coefficients are untied at all.
    """

    def share(fraction: float) -> int:
        return max(1, round(fraction * passes))

    searched = share(search) if learns else 0
    compared = searched + (share(analysis) if learns else 0)
    trained = compared + (share(untie) if unties else 0)
    untied = trained + (share(analysis) if unties else 0)
    return Timetable(searched, compared, trained, untied, passes)
