"""Which executor suits a search, where nobody has said (docs/decisions/0090)."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # torch takes seconds to import
    from tuneparts.search.spec import Search

MOST_LOCAL_TRIALS = 200
"""Trials up to which this machine's own processes are taken."""


def num_trials(search: "Search") -> int:
    """Count the trials of all arms and seeds."""
    return sum(arm.trials_per_seed * len(search.seeds_of(arm)) for arm in search.arms)


def suited(search: "Search") -> Literal["local", "ray"]:
    """Choose the local executor for small searches, and Ray for large ones.

    Ray is also taken for what only Ray has: GPUs, resources with names of a cluster's own,
    and learners that run parts of their work in tasks beside them.

    Example:
        >>> from tuneparts.search import load
        >>> suited(load.load("rotated_digits", scale="smoke"))
        'local'
    """
    needs_ray = any(
        arm.resources.gpus or arm.resources.custom or arm.config.task_bundles()
        for arm in search.arms
    )
    return "ray" if needs_ray or num_trials(search) > MOST_LOCAL_TRIALS else "local"
