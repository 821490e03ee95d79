"""Federated training as a learner: a step is a round (Mlodozeniec et al. 2023, appendix J).

The server sends all partitions and the hyperparameters to some clients; each trains the partitions
from its own chunk on and sends back those; the server moves each partition by the clients that
trained it, and the hyperparameters by the mean of the gradients that clients of later chunks sent.
With a single chunk and partition this is federated averaging.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from tuneparts.core.errors import ConfigError, RoundError
from tuneparts.data.chunks import Chunks
from tuneparts.methods.federated._client import Assignment, Client, Schedule
from tuneparts.methods.federated._exchange import (
    Answer,
    Broadcast,
    Dropped,
    Server,
    Traffic,
    Update,
    mean_over,
    moved,
)
from tuneparts.methods.federated.config import ExchangeConfig
from tuneparts.methods.partitioned.learner import _SubnetworkLearner
from tuneparts.methods.partitioned.subnetwork import PartitionedNet
from tuneparts.training import forward
from tuneparts.training.learner import Context
from tuneparts.training.loop import Step

START_SECONDS = 120.0
"""What a task may take besides its clients: a process starts and imports torch."""
_CPU = torch.device("cpu")


class FederatedLearner(
    _SubnetworkLearner,
    parts=("server", "_hyper_optimiser"),
    values=(
        "_num_rounds", "_num_answers", "_num_dropped",
        "_traffic", "_reported_rounds", "_reported_traffic",
    ),
):  # fmt: skip
    """Exchanges weights with clients, round by round; predicts with all partitions."""

    # `server` comes after the partitions: it takes its weights over from them when a state loads.
    config: ExchangeConfig

    def __init__(self, config: ExchangeConfig, context: Context) -> None:
        division = config.division()
        super().__init__(config, context, learns_hypers=len(division.proportions) > 1)
        for name, module in self.net.named_modules():
            if getattr(module, "running_mean", None) is not None:
                raise ConfigError(
                    "clients share weights and no statistics of their data, but layer "
                    f"`{name}` ({type(module).__name__}) keeps running statistics. Use a net with "
                    "GroupNorm, such as `resnet9`, or without norms."
                )
        self.parts = PartitionedNet(
            self.net,
            proportions=division.parameter_proportions or division.proportions,
            seed=context.seed,
            defaults=division.defaults,
        )
        task = context.task
        examples = task.train if config.train_on == "train" else task.train.joined(task.val)
        self.clients = [torch.from_numpy(own) for own in config.clients.deal(examples)]
        chunks = Chunks(config.clients.num, division.proportions, seed=context.seed)
        self.chunk_of = {int(i): k for k in range(1, len(chunks) + 1) for i in chunks.chunk(k)}
        self._psi: list[nn.Parameter] = self.hypers.learnable()
        self.schedule = Schedule(
            chunk_of=[self.chunk_of[client] for client in range(config.clients.num)],
            batches_of=[-(-len(own) // config.batch_size) for own in self.clients],
            filled=self.parts.filled,
            num_asked=config.clients_per_round,
            epochs=config.local_epochs,
            hyper_batches=division.hyper_batches if self._psi else 0,
            seed=context.seed,
        )
        self.client = Client(
            self.parts, self.hypers, self.train_data, self.target, self.clients,
            optimiser=config.optimiser, batch_size=config.batch_size,
            seed=context.seed, forward=self.forward,
        )  # fmt: skip
        self.server = Server(self.parts, config.server)
        self._hyper_optimiser = None
        if self._psi:
            self._hyper_optimiser = torch.optim.Adam(
                self._psi, lr=division.hyper_lr, eps=config.server.eps
            )
        self._num_rounds = self._num_answers = self._num_dropped = self._reported_rounds = 0
        self._traffic = self._reported_traffic = Traffic()
        if context.tasks is not None and config.tasks is not None:
            alone = Context(task=task, seed=context.seed, device=context.device)
            blueprint = _Blueprint(config, alone, torch.get_num_threads(), uuid.uuid4().hex)
            self._blueprint = context.tasks.share(blueprint)

    @property
    def finished(self) -> bool:
        return super().finished or self._num_rounds == self.config.rounds

    @property
    def progress(self) -> float:
        rounds = self.config.rounds
        return super().progress if rounds is None else self._num_rounds / rounds

    def interval_is_over(self, start: int) -> bool:
        if self.config.rounds_per_report is None:
            return super().interval_is_over(start)
        return self._num_rounds - self._reported_rounds >= self.config.rounds_per_report

    def step(self) -> Step:
        assignments = self.schedule.assignments(self._num_rounds, self.config.steps - self.steps)
        broadcast = Broadcast(
            number=self._num_rounds,
            lr=self.config.optimiser.lr_at(self.progress),
            weights=self.server.weights(),
            hypers=[parameter.detach().clone() for parameter in self._psi],
        )
        updates = self._kept(self._answers(broadcast, assignments))
        forward.ran_elsewhere()
        self.server.step(updates)
        self._hyper_step([update for update in updates if update.hyper_grads])
        self._traffic = self._traffic.after(broadcast, num_asked=len(assignments), updates=updates)
        self._num_rounds += 1
        found = {
            "train/loss": [update.loss for update in updates if update.loss is not None],
            "train/hyper_loss": [u.hyper_loss for u in updates if u.hyper_loss is not None],
        }
        means = {name: sum(values) / len(values) for name, values in found.items() if values}
        losses = {name: torch.tensor(mean, dtype=torch.float64) for name, mean in means.items()}
        return Step(cost=sum(assignment.total for assignment in assignments), losses=losses)

    def _answers(self, broadcast: Broadcast, assignments: Sequence[Assignment]) -> list[Answer]:
        """Play the clients of a round in this process, or several to a task, with the same bits."""
        tasks, runner = self.config.tasks, self.context.tasks
        timeout = self.config.client_timeout
        if tasks is None or runner is None:
            return self.client.play(broadcast, assignments, timeout)
        size = tasks.clients_per_task
        jobs = [assignments[start : start + size] for start in range(0, len(assignments), size)]
        results = runner.run(
            _play,
            (self._blueprint, runner.share(moved(broadcast, _CPU))),
            jobs,
            cpus=tasks.cpus,
            gpus=tasks.gpus,
            at_once=tasks.num_tasks,
            timeout=None if timeout is None else START_SECONDS + size * timeout,
        )
        answers: list[Answer] = []
        for job, result in zip(jobs, results, strict=True):
            if isinstance(result, BaseException):
                answers += [Dropped.by(result, assignment.client) for assignment in job]
            else:
                answers += [moved(answer, self.context.device) for answer in result]
        return answers

    def _kept(self, answers: Sequence[Answer]) -> list[Update]:
        kept = [answer for answer in answers if isinstance(answer, Update)]
        lost = [answer for answer in answers if isinstance(answer, Dropped)]
        self._num_answers += len(kept)
        self._num_dropped += len(lost)
        needed = min(self.config.min_clients, len(answers))  # the last round may ask fewer
        if len(kept) < needed:
            raise RoundError(
                f"a round needs the answers of {needed} clients, but in round {self._num_rounds} "
                f"{len(kept)} of {len(answers)} answered. First lost: client {lost[0].client} "
                f"({lost[0].reason}). Ask more clients, allow them more time, or lower "
                "`min_clients`."
            )
        return kept

    def _hyper_step(self, judges: Sequence[Update]) -> None:
        """Move psi by the mean gradient of the clients of later chunks, if any took part."""
        if not judges or self._hyper_optimiser is None:
            return
        means = mean_over([(update, update.hyper_grads) for update in judges])
        for parameter, mean in zip(self._psi, means, strict=True):
            parameter.grad = mean
        self._hyper_optimiser.step()
        self._hyper_optimiser.zero_grad(set_to_none=True)

    def evaluate(self) -> dict[str, float]:
        traffic = self._reported_traffic
        num_new = max(1, self._num_rounds - self._reported_rounds)
        sent = {
            "communication/up": self._traffic.up,
            "communication/down": self._traffic.down,
            "communication/hypers": self._traffic.hypers,
            "communication/total": self._traffic.total,
            "communication/up_per_round": (self._traffic.up - traffic.up) / num_new,
            "communication/down_per_round": (self._traffic.down - traffic.down) / num_new,
            "federated/rounds": self._num_rounds,
            "federated/clients": self._num_answers,
            "federated/dropped": self._num_dropped,
            **{f"partition/steps.{k}": n for k, n in self.server.num_steps.items()},
        }
        self._reported_rounds, self._reported_traffic = self._num_rounds, self._traffic
        return {**super().evaluate(), **{name: float(value) for name, value in sent.items()}}


@dataclass(frozen=True)
class _Blueprint:
    """What a task needs to build the client of a run again, in another process."""

    config: ExchangeConfig
    context: Context
    num_threads: int
    """Of torch in the run itself: sums of another number of threads have other bits."""
    key: str
    """Tells runs apart in a process that serves several."""


_clients: dict[str, Client] = {}
"""The run that this process last served; building one takes longer than a round."""


def _play(blueprint: _Blueprint, broadcast: Broadcast, jobs: Sequence[Assignment]) -> list[Answer]:
    """Play some clients of a round, as a task; answers are on the CPU."""
    torch.set_num_threads(blueprint.num_threads)
    config, context = blueprint.config, blueprint.context
    if blueprint.key not in _clients:
        _clients.clear()
        _clients[blueprint.key] = FederatedLearner(config, context).client
    client = _clients[blueprint.key]
    answers = client.play(moved(broadcast, context.device), jobs, config.client_timeout)
    return [moved(answer, _CPU) for answer in answers]
