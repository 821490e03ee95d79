"""Ray's view of a plan: a searcher that suggests the next segment and hears how it went."""

from collections.abc import Mapping
from typing import Any

from ray.tune.search import Searcher

from tuneparts.search.halt import Halt, full
from tuneparts.search.plan import Plan
from tuneparts.search.runner import MAX_WORKER_FAILURES, to_rows
from tuneparts.search.segment import Segment


class PlanSearcher(Searcher):  # type: ignore[misc]
    """Hands out segments in the plan's order."""

    def __init__(self, plan: Plan, needs: Mapping[str, list[dict[str, float]]], halt: Halt) -> None:
        super().__init__()
        self._halt = halt
        self._plan = plan
        self._needs = needs
        self._segments: dict[str, Segment] = {}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._plan.done or self._halt.reason is not None:
            return str(Searcher.FINISHED)
        segment = self._plan.next()
        if segment is None:
            return None
        self._segments[trial_id] = segment
        bundles = self._needs[segment.trial.arm]
        return {"segment": segment.to_json(), "bundles": bundles, "cpus": bundles[0]["CPU"]}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if self._is_halted(result):
            return
        segment = self._segments[trial_id]
        with self._halt.guard():
            self._plan.rows(segment, to_rows(segment, result.get("rows", [])))

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        result = result or {}
        if self._is_halted(result):
            return
        segment = self._segments.pop(trial_id)
        failure = result.get("failure")
        if error:
            failure = (
                f"the worker process died {MAX_WORKER_FAILURES + 1} times; what it said last is in "
                "the trial's log."
            )
        with self._halt.guard():
            if not error:
                self._plan.rows(segment, to_rows(segment, result.get("rows", [])))
            self._plan.complete(segment, finished=bool(result.get("finished")), failure=failure)

    def _is_halted(self, result: dict[str, Any]) -> bool:
        """Whether the search stops: what Ray then ends early has not ended for the plan."""
        if "halt" in result and self._halt.reason is None:
            self._halt.reason = full(result["halt"])
        return self._halt.reason is not None

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Ray pickles its searcher for a restore that we never ask for."""
        return {}

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the journal has it."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: a plan is made from the journal."""
