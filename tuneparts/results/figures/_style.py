"""How an arm is drawn, everywhere: one colour, dash and marker (after Okabe and Ito 2008).

Orange and sky blue are darker than theirs, and black and yellow left out: every colour stands out
at least 3:1 from the white and from the dark page, as WCAG 2.2 asks. An arm's colour follows from
its name alone unless two arms of a search would share it.
"""

import hashlib
from dataclasses import dataclass
from html import escape

from tuneparts.search.card import ArmCard, RunCard

COLOURS = ("#0072B2", "#B97700", "#009E73", "#D55E00", "#CC79A7", "#3A97D0", "#7f868d")
_DASHES = ("solid", "dash", "dot", "dashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
_USUAL = ("partitioned", "random", "validation", "augerino", "laplace", "retrained", "none")
"""Names that occur in many searches: each has its own slot, so that they never collide."""
MOST_ARMS = len(COLOURS)
"""Arms that a figure of lines draws at once; the others are shown by a click on the legend."""


@dataclass(frozen=True)
class ArmStyle:
    """Colour, dash and marker of an arm, recognisable in print and to the colour-blind."""

    name: str  # escaped: plotly reads a subset of HTML in its texts
    colour: str
    dash: str
    symbol: str

    @property
    def wash(self) -> str:
        red, green, blue = (int(self.colour[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.18)"


def arm_styles(metadata: RunCard) -> dict[str, ArmStyle]:
    """Return the style of each arm by its name."""
    taken: dict[str, int] = {}
    names, num = [arm.name for arm in metadata.arms], len(COLOURS)
    for name in sorted(names, key=lambda name: (name not in _USUAL, names.index(name))):
        digest = hashlib.sha256(name.encode()).digest()[0]
        slot = _USUAL.index(name) if name in _USUAL else digest % num
        rounds = len(taken) // num * num
        while slot + rounds in taken.values():
            slot = (slot + 1) % num
        taken[name] = slot + rounds
    return {
        name: ArmStyle(
            escape(name, quote=False),
            COLOURS[taken[name] % num],
            _DASHES[taken[name] // num % len(_DASHES)],
            _SYMBOLS[(taken[name] + taken[name] // num) % len(_SYMBOLS)],
        )
        for name in names
    }


def in_focus(metadata: RunCard) -> frozenset[str]:
    """The arms that a figure of many lines shows at first: all while there are enough colours.

    Otherwise those of the search's contrast and its references, those with usual names, then arms
    that search, then the rest in their order; arms with a source arm come last.
    """
    first = (*metadata.compare, *metadata.references)

    def place(arm: ArmCard) -> tuple[bool, ...]:
        is_first, is_usual = arm.name in first, arm.name in _USUAL
        return not is_first, arm.source is not None, not is_usual, arm.trials_per_seed == 1

    return frozenset(arm.name for arm in sorted(metadata.arms, key=place)[:MOST_ARMS])


def focus_note(metadata: RunCard) -> str:
    """A sentence for captions where not every arm is shown at first."""
    if (num := len(metadata.arms)) <= MOST_ARMS:
        return ""
    how = "a click on a name in the legend shows or hides it"
    return f" {MOST_ARMS} of {num} arms are shown; {how}."
