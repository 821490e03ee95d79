"""How many templates each slot gets, without ever exceeding the budget.

Every slot needs one template. What is left is dealt out in rounds, first to slots with more uses
than templates, then to all (the default of Teterwak et al. 2024, as released). The release exceeds
a budget that is too small for one template a slot; here it is refused.
"""

from collections.abc import Sequence

from tuneparts.errors import ConfigError

MAX_TEMPLATES = 8
"""The cap of the released code."""


def split_budget(
    sizes: Sequence[int],
    uses: Sequence[int],
    *,
    budget: int,
    max_templates: int = MAX_TEMPLATES,
) -> list[int]:
    """Templates per slot; their weights sum to at most `budget`.

    Args:
        sizes: weights of one template of each slot, in the order of service.
        uses: layers that use each slot.
        budget: weights of all templates together.
        max_templates: of one slot.
    """
    least = sum(sizes)
    if budget < least:
        raise ConfigError(
            f"the budget must hold one template for each of {len(sizes)} slots, which takes "
            f"{least} weights, but is {budget}. Raise it, use fewer clusters, or let clusters be "
            "merged (`when_short`)."
        )
    templates = [1] * len(sizes)
    left = budget - least
    for needs_users in (True, False):
        for already in range(1, max_templates):
            for slot, size in enumerate(sizes):
                is_wanted = uses[slot] > already if needs_users else templates[slot] < max_templates
                if is_wanted and size <= left:
                    templates[slot] += 1
                    left -= size
    return templates
