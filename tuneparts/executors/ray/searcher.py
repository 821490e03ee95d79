"""Ray's view of a plan: a searcher that suggests the next segment and hears how it went."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ray.tune.search import Searcher

from tuneparts.executors.ray.stopper import DiskFullStopper
from tuneparts.executors.worker import Report, deliver
from tuneparts.search.plan import Plan
from tuneparts.search.segment import Segment

_FIELDS = [field.name for field in fields(Report)]


class PlanSearcher(Searcher):  # type: ignore[misc]
    """Hands out segments in the plan's order, and tells the plan what workers report of them."""

    def __init__(
        self,
        plan: Plan,
        needs: Mapping[str, list[dict[str, float]]],
        stopper: DiskFullStopper,
    ) -> None:
        super().__init__()
        self._stopper = stopper
        self._plan = plan
        self._needs = needs
        self._segments: dict[str, Segment] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._plan.done or self._stopper.reason is not None:
            return str(Searcher.FINISHED)
        segment = self._plan.next()
        if segment is None:
            return None  # Ray asks again after the next event
        self._segments[trial_id] = segment
        bundles = self._needs[segment.trial.arm]
        return {"segment": segment.to_json(), "bundles": bundles, "cpus": bundles[0]["CPU"]}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self._deliver(trial_id, _report(result))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        if error and self._stopper.reason is None:  # the worker died
            with self._stopper.guard():
                self._plan.lost(self._segments.pop(trial_id))
        else:
            self._deliver(trial_id, _report({**(result or {}), "done": True}))

    def _deliver(self, trial_id: str, report: Report) -> None:
        # Once the search stops, Ray ends every trial early: none of them may count as ended.
        if self._stopper.reason is not None:
            return
        with self._stopper.guard():
            deliver(self._plan, self._segments[trial_id], report)
        if report.done:
            del self._segments[trial_id]

    def __getstate__(self) -> dict[str, Any]:
        """Give Ray nothing to pickle: it would be for a restore that we never ask for."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Save nothing: the journal has it."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing: a plan is made from the journal."""


def _report(result: Mapping[str, Any]) -> Report:
    """Recover what a worker reported from Ray's result, which holds facts of Ray's own too."""
    return Report(**{name: result[name] for name in _FIELDS if name in result})
