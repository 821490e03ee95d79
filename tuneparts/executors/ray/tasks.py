"""Runs parts of a learner's work as Ray tasks, on resources that its trial reserved for them.

Ray starts the tasks of a trial inside the trial's placement group. They never wait for resources
that another trial holds, so trials that wait for their tasks cannot block each other.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayError

from tuneparts.search.code import Code


class RayTasks:
    """The `TaskRunner` of a trial.

    Args:
        code: what the search brings along; tasks import from it too.
    """

    def __init__(self, code: Code | None = None) -> None:
        self._code = code or Code()

    def share(self, value: Any) -> Any:
        """A reference into Ray's object store, which keeps one copy per node."""
        return ray.put(value)

    def run(
        self,
        function: Callable[..., Any],
        shared: Sequence[Any],
        jobs: Sequence[Any],
        *,
        cpus: float,
        gpus: float,
        at_once: int,
        timeout: float | None,
    ) -> list[Any]:
        # A job that failed would fail again, and one that was killed is late already: no retries.
        remote = ray.remote(_with_code).options(num_cpus=cpus, num_gpus=gpus, max_retries=0)
        waiting = deque(enumerate(jobs))
        running: dict[Any, tuple[int, float]] = {}
        results: list[Any] = [None] * len(jobs)
        while waiting or running:
            while waiting and len(running) < at_once:
                position, job = waiting.popleft()
                running[remote.remote(self._code, function, *shared, job)] = (
                    position,
                    time.monotonic(),
                )
            oldest = min(start for _, start in running.values())
            left = None if timeout is None else max(0.0, oldest + timeout - time.monotonic())
            done, _ = ray.wait(list(running), num_returns=1, timeout=left)
            for reference in done:
                position, _ = running.pop(reference)
                results[position] = _result(reference)
            if timeout is not None:
                for position in _end_late(running, timeout):
                    results[position] = TimeoutError(f"no answer within {timeout:g} s")
        return results


def _with_code(code: Code, function: Callable[..., Any], *arguments: Any) -> Any:
    with code.importable():
        return function(*arguments)


def _result(reference: Any) -> Any:
    """Get what a task returned, or the exception that it ended with."""
    try:
        return ray.get(reference)
    except RayError as error:  # the task raised, or its worker died
        return getattr(error, "cause", None) or error


def _end_late(running: dict[Any, tuple[int, float]], timeout: float) -> list[int]:
    """Cancel the tasks that ran too long; returns their positions."""
    now = time.monotonic()
    late = [reference for reference, (_, start) in running.items() if now - start > timeout]
    for reference in late:
        ray.cancel(reference, force=True)
    return [running.pop(reference)[0] for reference in late]
