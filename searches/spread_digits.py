"""Where does the spread of a score over replicates come from: data, initialisation or the search?

The arms of the quickstart that follow no other, each with a twin for every source of randomness
that varies alone, after Bouthillier et al. (2021). `tuneparts report spread_digits --variance`
splits the spread.
"""

import rotated_digits

from tuneparts.search.crossing import by_source
from tuneparts.search.spec import Scale, Search

NOTES = """
Nets, data and settings of `rotated_digits`: 1,297 digits that are turned over the full circle, of
which random search holds 300 out; 500 others test. A twin holds what it does not vary at the first
seed, so what it shows is conditional on that; the sources need not add up.
"""


def search(scale: Scale) -> Search:
    """No augmentation, random search and partitioned training, each with its twins."""
    asked = rotated_digits.search(scale)
    arms = [arm for arm in asked.arms if arm.follows is None]
    return Search(
        name="spread_digits",
        question="Where does the spread of a score over replicates come from: data, "
        "initialisation or the search?",
        notes=NOTES,
        scale=scale,
        data=asked.data,
        metric=asked.metric,
        compare=("partitioned", "random"),
        references=asked.references,
        passes=asked.passes,
        seeds=scale.pick(smoke=(0, 1, 2), cpu=tuple(range(12)), paper=tuple(range(30))),
        arms=tuple(twin for arm in arms for twin in (arm, *by_source(arm))),
        figures=("scores",),
    )
