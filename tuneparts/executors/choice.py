"""Where trials run, and which executor suits a search by default (docs/decisions/0090)."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from tuneparts.core.errors import ConfigError

if TYPE_CHECKING:  # torch takes seconds to import
    from tuneparts.search.spec import Search

Executor = Literal["local", "ray"]
MOST_LOCAL_TRIALS = 200
"""Trials up to which this machine's own processes are taken."""


def num_trials(search: "Search") -> int:
    """Count the trials of all arms and seeds."""
    return sum(arm.trials_per_seed * len(search.seeds_of(arm)) for arm in search.arms)


def suited(search: "Search") -> Executor:
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


@dataclass(frozen=True)
class Place:
    """Where trials run."""

    address: str | None = None
    """HOST:PORT of a Ray cluster; None for this machine."""
    is_local: bool = False
    """Whether they run in processes of this machine, without Ray, whatever suits them."""
    is_ray: bool = False
    """Whether they run on Ray, whatever suits them."""
    cpus: float | None = None
    """CPUs that they may fill; None for all."""
    workers: int | None = None
    """Processes of the local executor; None for as many as there is room for."""

    def executor(self, search: "Search") -> Executor:
        """The executor that runs them: the one that was named, or the one that suits the search."""
        if self.is_local and (self.is_ray or self.address is not None):
            other = "--ray" if self.is_ray else "--address"
            raise ConfigError(f"`--local` runs a search without Ray, but got `{other}` too.")
        if self.is_ray or self.address is not None:
            return "ray"
        return "local" if self.is_local else suited(search)

    def settled(self, search: "Search") -> "Place":
        """The same place, whose executor no longer depends on the search."""
        is_local = self.executor(search) == "local"
        return replace(self, is_local=is_local, is_ray=not is_local)
