"""Who plays the clients of a round: this process, one after another, or tasks beside it.

Both ways give the same bits: a client's work follows from what the server sent, from its data and
from streams of its own. A client that fails, diverges or is late is dropped, and the others go on.
"""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from tuneparts.data.task import Task
from tuneparts.federated.config import ExchangeConfig, TasksConfig
from tuneparts.federated.exchange import Broadcast, Dropped, Update
from tuneparts.federated.orders import Order
from tuneparts.federated.site import Site
from tuneparts.training.learner import Context, TaskRunner

Answer = Update | Dropped
START_SECONDS = 120.0
"""What a task may take besides its clients: a process starts and imports torch."""


class Crew(Protocol):
    """Plays clients."""

    def run(self, broadcast: Broadcast, orders: Sequence[Order]) -> list[Answer]:
        """The answer of each client, in the order of `orders`."""
        ...


@dataclass(frozen=True)
class InTurn:
    """Plays the clients of a round in this process."""

    site: Site
    timeout: float | None

    def run(self, broadcast: Broadcast, orders: Sequence[Order]) -> list[Answer]:
        self.site.receive(broadcast)
        return [attempt(self.site, order, self.timeout) for order in orders]


@dataclass(frozen=True)
class Blueprint:
    """What a task needs to play any client of a run: enough to build the run again."""

    config: ExchangeConfig
    task: Task
    seed: int
    device: torch.device
    num_threads: int
    """Of torch in the run itself: sums of another number of threads have other bits."""
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Tells runs apart in a process that serves several."""


class InTasks:
    """Plays the clients of a round in other processes, several to a task."""

    def __init__(
        self, runner: TaskRunner, tasks: TasksConfig, config: ExchangeConfig, context: Context
    ) -> None:
        self._runner = runner
        self._tasks = tasks
        self._timeout = config.client_timeout
        self._device = context.device
        blueprint = Blueprint(
            config, context.task, context.seed, context.device, torch.get_num_threads()
        )
        self._blueprint = runner.share(blueprint)

    def run(self, broadcast: Broadcast, orders: Sequence[Order]) -> list[Answer]:
        size = self._tasks.clients_per_task
        jobs = [orders[start : start + size] for start in range(0, len(orders), size)]
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
                answers += [Dropped(order.client, _reason(result)) for order in job]
            else:
                answers += [
                    answer.to(self._device) if isinstance(answer, Update) else answer
                    for answer in result
                ]
        return answers


_sites: dict[str, Site] = {}
"""The run that this process last served; building one takes longer than a round."""


def play(blueprint: Blueprint, broadcast: Broadcast, orders: Sequence[Order]) -> list[Answer]:
    """Play some clients of a round, as a task; answers are on the CPU."""
    torch.set_num_threads(blueprint.num_threads)
    if blueprint.key not in _sites:
        from tuneparts.federated.learner import FederatedLearner  # which uses this module

        context = Context(task=blueprint.task, seed=blueprint.seed, device=blueprint.device)
        _sites.clear()
        _sites[blueprint.key] = FederatedLearner(blueprint.config, context).site
    site = _sites[blueprint.key]
    site.receive(broadcast.to(blueprint.device))
    answers = [attempt(site, order, blueprint.config.client_timeout) for order in orders]
    cpu = torch.device("cpu")
    return [answer.to(cpu) if isinstance(answer, Update) else answer for answer in answers]


def attempt(site: Site, order: Order, timeout: float | None) -> Answer:
    """A client's answer, or why it is dropped."""
    start = time.monotonic()
    try:
        update = site.work(order)
    except Exception as error:  # whatever it was, the round goes on without this client
        return Dropped(order.client, _reason(error))
    seconds = time.monotonic() - start
    if timeout is not None and seconds > timeout:
        return Dropped(order.client, f"late: {seconds:.1f} s, allowed {timeout:g} s")
    return update


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
