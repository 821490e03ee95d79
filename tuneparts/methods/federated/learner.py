"""Federated training as a learner: a step is a round (Mlodozeniec et al. 2023, appendix J).

The server sends all partitions and the hypers to some clients; each trains the partitions from its
own chunk on and sends back those; the server moves each partition by the clients that trained it,
and the hypers by the mean of the gradients that clients of later chunks sent. With a single chunk
and partition this is federated averaging.
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from tuneparts.core.config import Config
from tuneparts.core.errors import ConfigError, RoundError
from tuneparts.data.chunks import Chunks, sizes
from tuneparts.data.task import Task
from tuneparts.hypers import HyperGradient
from tuneparts.methods.federated.assignments import Schedule
from tuneparts.methods.federated.client import Client
from tuneparts.methods.federated.client_data import ClientsConfig
from tuneparts.methods.federated.exchange import Broadcast, Dropped, Traffic, Update
from tuneparts.methods.federated.executor import (
    Answer,
    Blueprint,
    Executor,
    SequentialExecutor,
    TaskExecutor,
    TasksConfig,
)
from tuneparts.methods.federated.server import Server, ServerConfig, mean_over
from tuneparts.methods.partitioned.config import Defaults, check_division
from tuneparts.methods.partitioned.learner import SubnetworkLearner
from tuneparts.methods.partitioned.subnetwork import Partitioned
from tuneparts.training import passes
from tuneparts.training.config import OptimiserConfig, SupervisedConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step


class Division(Config):
    """How data and weights are divided; one of each where nothing is."""

    data: tuple[float, ...] = (1.0,)
    """Share of the clients per chunk."""
    weights: tuple[float, ...] = (1.0,)
    """Share of the weights per partition."""
    defaults: Defaults = "zero"
    hyper_lr: float = 1e-3
    hyper_batches: int | None = None


class ExchangeConfig(SupervisedConfig):
    """What all methods share in which a server and clients exchange weights.

    `optimiser` is that of local training, and `batch_size` of its steps; its schedule follows the
    whole run.
    """

    optimiser: OptimiserConfig = OptimiserConfig(kind="sgd", lr=0.05, momentum=0.0)
    clients: ClientsConfig = ClientsConfig()
    clients_per_round: int = Field(default=2, ge=1)
    """Clients that are asked in each round, drawn anew each time."""
    local_epochs: int = Field(default=1, ge=1)
    """Times that a client goes through its data in a round."""
    server: ServerConfig = ServerConfig()
    rounds: int | None = Field(default=None, ge=1)
    """End after so many rounds, even if passes are left; None spends all passes, and cuts the last
    round where they end."""
    rounds_per_report: int | None = Field(default=None, ge=1)
    """Report after so many rounds; None reports after `interval` passes."""
    min_clients: int = Field(default=1, ge=1)
    """Clients that a round needs after some were dropped; fewer end the run with an error."""
    client_timeout: float | None = Field(default=None, gt=0)
    """Seconds after which a client's answer is too late and the client is dropped; None waits."""
    tasks: TasksConfig | None = None
    """Play clients in tasks where the run has somewhere to send them; None plays them in turn."""

    @model_validator(mode="after")
    def _check_enough_clients(self) -> Self:
        if not self.min_clients <= self.clients_per_round <= self.clients.num:
            raise ValueError(
                "`min_clients <= clients_per_round <= clients.num` must hold, but got "
                f"{self.min_clients}, {self.clients_per_round} and {self.clients.num}."
            )
        return self

    def check(self, task: Task | None = None, *, copies_state: bool = False) -> None:
        super().check(task, copies_state=copies_state)
        if task is not None:
            self.clients.skew_of(task.train)

    def division(self) -> Division:
        """How data and weights are divided; not at all unless a method says so."""
        return Division()

    def task_bundles(self) -> list[dict[str, float]]:
        return [] if self.tasks is None else self.tasks.bundles()

    def build(self, context: Context) -> Learner:
        return FederatedLearner(self, context)


class FedAvgConfig(ExchangeConfig):
    """One net at given hypers, trained by all clients (McMahan et al. 2017; Reddi et al. 2020)."""

    method: Literal["fedavg"] = "fedavg"


class FederatedConfig(ExchangeConfig):
    """Weights in partitions, clients in chunks, hypers learnt by the clients of later chunks."""

    method: Literal["federated"] = "federated"
    proportions: tuple[float, ...] = (0.7, 0.2, 0.1)
    """Share of the clients per chunk."""
    parameter_proportions: tuple[float, ...] | None = None
    """Share of the weights per partition; as `proportions` if None."""
    defaults: Defaults = "zero"
    """What a subnetwork reads for later partitions: zeros, or the initial weights, as deep nets
    without norms need."""
    hyper_lr: float = Field(default=1e-3, gt=0)
    """Adam's rate for the hypers, on the server. A range moves by about this much a round."""
    hyper_batches: int | None = Field(default=None, ge=1)
    """Batches of a client's gradient of the hypers; None for all of its data."""

    @model_validator(mode="after")
    def _check_fields_agree(self) -> Self:
        check_division(self.proportions, self.parameter_proportions or self.proportions)
        dealt = sizes(self.clients.num, self.proportions)
        if 0 in dealt:
            raise ValueError(
                f"every chunk needs a client, but {self.clients.num} clients in proportions "
                f"{self.proportions} are {dealt}. Use more clients or fewer chunks."
            )
        return self

    @property
    def hyper_gradient(self) -> HyperGradient:
        return "fixed weights" if len(self.proportions) > 1 else "none"

    def division(self) -> Division:
        return Division(
            data=self.proportions,
            weights=self.parameter_proportions or self.proportions,
            defaults=self.defaults,
            hyper_lr=self.hyper_lr,
            hyper_batches=self.hyper_batches,
        )


class FederatedLearner(
    SubnetworkLearner,
    parts=("server", "_hyper_optimiser"),
    values=(
        "_num_rounds",
        "_num_answers",
        "_num_dropped",
        "_traffic",
        "_reported_rounds",
        "_reported_traffic",
    ),
):
    """Exchanges weights with clients, round by round; predicts with all partitions."""

    # `server` comes after the partitions: it takes its weights over from them when a state loads.
    config: ExchangeConfig

    def __init__(self, config: ExchangeConfig, context: Context) -> None:
        division = config.division()
        super().__init__(config, context, learns_hypers=len(division.data) > 1)
        _refuse_running_statistics(self.net)
        self.parts = Partitioned(
            self.net, proportions=division.weights, seed=context.seed, defaults=division.defaults
        )
        task = context.task
        examples = task.train if config.train_on == "train" else task.train.joined(task.val)
        self.clients = [torch.from_numpy(own) for own in config.clients.deal(examples)]
        chunks = Chunks(config.clients.num, division.data, seed=context.seed)
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
            self.parts,
            self.hypers,
            self.train_data,
            target=self.target,
            clients=self.clients,
            optimiser=config.optimiser,
            batch_size=config.batch_size,
            seed=context.seed,
            passes=self.training_passes,
        )
        self.server = Server(self.parts, config.server)
        self._hyper_optimiser = (
            torch.optim.Adam(self._psi, lr=division.hyper_lr, eps=config.server.eps)
            if self._psi
            else None
        )
        self._executor = self._make_executor()
        self._num_rounds = 0
        self._num_answers = 0
        self._num_dropped = 0
        self._traffic = Traffic()
        self._reported_rounds = 0
        self._reported_traffic = Traffic()

    def _make_executor(self) -> Executor:
        config, context = self.config, self.context
        if context.tasks is None or config.tasks is None:
            return SequentialExecutor(self.client, config.client_timeout)
        blueprint = Blueprint(
            partial(make_client, config, context.task, context.seed, context.device),
            context.device,
            config.client_timeout,
            torch.get_num_threads(),
        )
        return TaskExecutor(context.tasks, config.tasks, blueprint)

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
        """One round."""
        assignments = self.schedule.assignments(self._num_rounds, self.config.passes - self.passes)
        broadcast = Broadcast(
            number=self._num_rounds,
            lr=self.config.optimiser.lr_at(self.progress),
            weights=self.server.weights(),
            hypers=[parameter.detach().clone() for parameter in self._psi],
        )
        updates = self._kept(self._executor.run(broadcast, assignments))
        passes.ran_elsewhere()
        self.server.step(updates)
        self._hyper_step([update for update in updates if update.hyper_grads])
        self._traffic = self._traffic.after(broadcast, num_asked=len(assignments), updates=updates)
        self._num_rounds += 1
        losses = {
            "train/loss": [update.loss for update in updates if update.loss is not None],
            "train/hyper_loss": [u.hyper_loss for u in updates if u.hyper_loss is not None],
        }
        return Step(
            passes=sum(assignment.passes for assignment in assignments),
            losses={name: _mean(values) for name, values in losses.items() if values},
        )

    def _kept(self, answers: Sequence[Answer]) -> list[Update]:
        """The clients that answered; refuses to go on with too few."""
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
        """Move the hypers by the mean gradient of the clients of later chunks, if any took part."""
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


def make_client(config: ExchangeConfig, task: Task, seed: int, device: torch.device) -> Client:
    """The client of a run, built anew: what a task in another process plays clients with."""
    return FederatedLearner(config, Context(task=task, seed=seed, device=device)).client


def _mean(values: Sequence[float]) -> Tensor:
    return torch.tensor(sum(values) / len(values), dtype=torch.float64)


def _refuse_running_statistics(net: nn.Module) -> None:
    for name, module in net.named_modules():
        if getattr(module, "running_mean", None) is not None:
            raise ConfigError(
                "clients share weights and no statistics of their data, but layer "
                f"`{name}` ({type(module).__name__}) keeps running statistics. Use a net with "
                "GroupNorm, such as `resnet9`, or without norms."
            )
