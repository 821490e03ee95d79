"""Executors play the clients of a round: in this process one after another, or in tasks beside it.

Both ways give the same bits: a client's work follows from what the server sent, from its data and
from streams of its own. A client that fails, diverges or is late is dropped, and the others go on.
"""

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from pydantic import Field

from tuneparts.core.config import Config
from tuneparts.methods.federated.assignments import Assignment
from tuneparts.methods.federated.client import Client
from tuneparts.methods.federated.exchange import Broadcast, Dropped, Update
from tuneparts.training.learner import TaskRunner

Answer = Update | Dropped
START_SECONDS = 120.0
"""What a task may take besides its clients: a process starts and imports torch."""


class Executor(Protocol):
    """Plays the clients of a round."""

    def run(self, broadcast: Broadcast, assignments: Sequence[Assignment]) -> list[Answer]:
        """The answer of each client, in the order of `assignments`."""
        ...


@dataclass(frozen=True)
class SequentialExecutor:
    """Plays the clients of a round in this process."""

    client: Client
    timeout: float | None

    def run(self, broadcast: Broadcast, assignments: Sequence[Assignment]) -> list[Answer]:
        self.client.receive(broadcast)
        return [attempt(self.client, assignment, self.timeout) for assignment in assignments]


class TasksConfig(Config):
    """Clients of a round in processes of their own; their numbers stay the same, bit for bit."""

    clients_per_task: int = Field(default=1, ge=1)
    """Clients that one task plays, one after another."""
    num_tasks: int = Field(default=1, ge=1)
    """Tasks at a time; a trial occupies so many bundles besides its own resources."""
    cpus: float = Field(default=1, gt=0)
    """Of each task."""
    gpus: float = Field(default=0, ge=0)
    """Of each task."""

    def bundles(self) -> list[dict[str, float]]:
        """What a trial reserves for its tasks."""
        amounts = {"CPU": self.cpus} | ({"GPU": self.gpus} if self.gpus else {})
        return [dict(amounts) for _ in range(self.num_tasks)]


@dataclass(frozen=True)
class Blueprint:
    """What a task needs to play any client of a run."""

    make_client: Callable[[], Client]
    """Builds the run's client again; importable by name in another process."""
    device: torch.device
    timeout: float | None
    """Seconds for each client; None waits."""
    num_threads: int
    """Of torch in the run itself: sums of another number of threads have other bits."""
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells runs apart in a process that serves several."""


class TaskExecutor:
    """Plays the clients of a round in other processes, several to a task.

    Args:
        runner: where tasks run.
        tasks: how many at once, and what each gets.
        blueprint: of the run.
    """

    def __init__(self, runner: TaskRunner, tasks: TasksConfig, blueprint: Blueprint) -> None:
        self._runner = runner
        self._tasks = tasks
        self._timeout = blueprint.timeout
        self._device = blueprint.device
        self._blueprint = runner.share(blueprint)

    def run(self, broadcast: Broadcast, assignments: Sequence[Assignment]) -> list[Answer]:
        size = self._tasks.clients_per_task
        jobs = [assignments[start : start + size] for start in range(0, len(assignments), size)]
        results = self._runner.run(
            play,
            (self._blueprint, self._runner.share(broadcast.to(torch.device("cpu")))),
            jobs,
            cpus=self._tasks.cpus,
            gpus=self._tasks.gpus,
            at_once=self._tasks.num_tasks,
            timeout=None if self._timeout is None else START_SECONDS + size * self._timeout,
        )
        answers: list[Answer] = []
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, BaseException):
                answers += [Dropped(assignment.client, _reason(result)) for assignment in job]
            else:
                answers += [
                    answer.to(self._device) if isinstance(answer, Update) else answer
                    for answer in result
                ]
        return answers


_clients: dict[str, Client] = {}
"""The run that this process last served; building one takes longer than a round."""


def play(
    blueprint: Blueprint, broadcast: Broadcast, assignments: Sequence[Assignment]
) -> list[Answer]:
    """Play some clients of a round, as a task; answers are on the CPU."""
    torch.set_num_threads(blueprint.num_threads)
    if blueprint.key not in _clients:
        _clients.clear()
        _clients[blueprint.key] = blueprint.make_client()
    client = _clients[blueprint.key]
    client.receive(broadcast.to(blueprint.device))
    answers = [attempt(client, assignment, blueprint.timeout) for assignment in assignments]
    cpu = torch.device("cpu")
    return [answer.to(cpu) if isinstance(answer, Update) else answer for answer in answers]


def attempt(client: Client, assignment: Assignment, timeout: float | None) -> Answer:
    """A client's answer, or why it is dropped."""
    start = time.monotonic()
    try:
        update = client.work(assignment)
    except Exception as error:  # whatever it was, the round goes on without this client
        return Dropped(assignment.client, _reason(error))
    seconds = time.monotonic() - start
    if timeout is not None and seconds > timeout:
        return Dropped(assignment.client, f"late: {seconds:.1f} s, allowed {timeout:g} s")
    return update


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
