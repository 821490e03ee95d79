"""The settings of federated training: partitioned (Mlodozeniec et al. 2023, J), and averaging."""

from typing import Literal, Self

from pydantic import Field, model_validator

from tuneparts.config import Config
from tuneparts.data.proportions import sizes
from tuneparts.federated.clients import ClientsConfig
from tuneparts.federated.server import ServerConfig
from tuneparts.partition.assign import checked_proportions
from tuneparts.partition.subnetwork import Defaults
from tuneparts.training.learner import Context, Learner
from tuneparts.training.optimisers import OptimiserConfig
from tuneparts.training.supervised import SupervisedConfig


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
    def _enough_clients(self) -> Self:
        if not self.min_clients <= self.clients_per_round <= self.clients.num:
            raise ValueError(
                "`min_clients <= clients_per_round <= clients.num` must hold, but got "
                f"{self.min_clients}, {self.clients_per_round} and {self.clients.num}."
            )
        return self

    def division(self) -> Division:
        """How data and weights are divided; not at all unless a method says so."""
        return Division()

    def task_bundles(self) -> list[dict[str, float]]:
        return [] if self.tasks is None else self.tasks.bundles()

    def build(self, context: Context) -> Learner:
        from tuneparts.federated.learner import FederatedLearner  # which reads this config

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
    def _fits_together(self) -> Self:
        owned = self.parameter_proportions or self.proportions
        checked_proportions(self.proportions)
        checked_proportions(owned)
        if len(owned) != len(self.proportions):
            raise ValueError(
                f"chunks and partitions are equally many, but `proportions` has "
                f"{len(self.proportions)} entries and `parameter_proportions` {len(owned)}."
            )
        dealt = sizes(self.clients.num, self.proportions)
        if 0 in dealt:
            raise ValueError(
                f"every chunk needs a client, but {self.clients.num} clients in proportions "
                f"{self.proportions} are {dealt}. Use more clients or fewer chunks."
            )
        return self

    def division(self) -> Division:
        return Division(
            data=self.proportions,
            weights=self.parameter_proportions or self.proportions,
            defaults=self.defaults,
            hyper_lr=self.hyper_lr,
            hyper_batches=self.hyper_batches,
        )
