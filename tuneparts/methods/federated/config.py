"""What a federated run is: who holds which data, how a round goes, and what the server does.

Each client draws its own mixture of groups from a Dirichlet distribution around the mixture of the
whole, and is filled from it without replacement; a group that runs out is left out of the mixture
(Hsu et al. 2019; Reddi et al. 2020). Groups are labels, or bins of the angle that an image was
turned by (Mlodozeniec et al. 2023, appendix J).

Shapes: N examples, G groups, n examples of a client.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from tuneparts.core import seeding
from tuneparts.core.config import Config
from tuneparts.core.errors import ConfigError
from tuneparts.data.chunks import sizes
from tuneparts.data.task import Examples, Task
from tuneparts.hypers import HyperGradient
from tuneparts.methods.partitioned.config import Defaults, _check_division
from tuneparts.training.config import AnyOptimiser, Sgd, SupervisedMethod

if TYPE_CHECKING:
    import torch
    from torch import nn

Indices = npt.NDArray[np.int64]


class ClientsConfig(Config):
    """How training data is dealt out; its own seed keeps it fixed across methods and seeds."""

    num: int = Field(default=10, ge=1)
    """Clients, all of the same size up to one example."""
    skew: Literal["auto", "none", "labels", "rotation"] = "auto"
    """What clients differ in; `auto`: rotation where images were rotated, labels elsewhere, and
    nothing where labels are no classes."""
    alpha: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Concentration: clients of a small one hold a single group, of a large one all alike."""
    rotation_alpha: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The same where clients differ in rotation; as `alpha` if None."""
    num_bins: int = Field(default=10, ge=2)
    """Bins of the full circle, where clients differ in rotation."""
    seed: int = 0
    """Chooses who holds what; not the seed of a run."""

    def deal(self, examples: Examples) -> list[Indices]:
        """The examples of each client: int64 (n,), ascending, disjoint, and all of them."""
        if len(examples) < self.num:
            raise ConfigError(
                f"every client needs an example, but there are {len(examples)} for {self.num} "
                "clients. Use more training data or fewer clients."
            )
        skew = self.skew_of(examples)
        alpha, groups_N = self.alpha, np.zeros(len(examples), np.int64)
        if skew == "labels":
            groups_N = examples.labels
        if skew == "rotation":
            assert examples.degrees is not None  # or `skew_of` would have refused
            turned = np.floor((examples.degrees + 180.0) / 360.0 * self.num_bins)
            groups_N = np.clip(turned, 0, self.num_bins - 1).astype(np.int64)
            alpha = self.rotation_alpha or alpha
        generator = seeding.numpy_generator(self.seed, "federated", "clients")
        return _split(groups_N, num_clients=self.num, alpha=alpha, generator=generator)

    def skew_of(self, examples: Examples) -> str:
        """What clients of these examples differ in; refuses what these examples do not have."""
        has_classes = examples.labels.ndim == 1 and examples.labels.dtype == np.int64
        if self.skew == "auto":
            by_label = "labels" if has_classes else "none"
            return by_label if examples.degrees is None else "rotation"
        if self.skew == "labels" and not has_classes:
            raise ConfigError(
                "clients can differ in labels only where labels are classes, but these are "
                f"{examples.labels.dtype} {examples.labels.shape}. Set `skew` to `none`."
            )
        if self.skew == "rotation" and examples.degrees is None:
            raise ConfigError(
                "clients can differ in rotation only where images were rotated, but this data "
                "has no angles. Set `rotated` in the data config, or another `skew`."
            )
        return self.skew


def _split(
    groups_N: Indices, *, num_clients: int, alpha: float, generator: np.random.Generator
) -> list[Indices]:
    """Deal out examples to clients of equal size, each with a mixture of groups of its own.

    A client's mixture is Dirichlet with parameters alpha times the overall mixture. Returned are
    ascending indices per client, a partition of all N.
    """
    names, counts_G = np.unique(groups_N, return_counts=True)
    pools = [generator.permutation(np.flatnonzero(groups_N == name)) for name in names]
    left_G = counts_G.copy()
    clients = []
    for size in sizes(len(groups_N), (1.0,) * num_clients):
        mixture_G = generator.dirichlet(alpha * counts_G / counts_G.sum())
        taken_G = np.zeros_like(left_G)
        # What a group cannot give is drawn again from the groups that still can, which is the same
        # in law as drawing example by example and dropping a group once it is empty.
        while (missing := size - int(taken_G.sum())) > 0:
            rest_G = left_G - taken_G
            weights_G = np.where(rest_G > 0, mixture_G, 0.0)
            if not weights_G.sum() > 0:  # a small alpha puts all its mass on groups that are empty
                weights_G = rest_G.astype(float)
            drawn_G = generator.multinomial(missing, weights_G / weights_G.sum())
            taken_G += np.minimum(drawn_G, rest_G)
        ends = zip(pools, left_G, taken_G, strict=True)
        own = np.concatenate([pool[rest - taken : rest] for pool, rest, taken in ends])
        left_G -= taken_G
        clients.append(np.sort(own).astype(np.int64))
    return clients


class ServerConfig(Config):
    """What the server does with the mean of the clients' values."""

    kind: Literal["average", "sgd", "adam"] = "adam"
    """Take the mean as it is (McMahan et al. 2017), or step by its difference to the present
    values as by a gradient (Reddi et al. 2020)."""
    lr: float = Field(default=1e-3, gt=0)
    """Not used by `average`."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """`sgd` only."""
    eps: float = Field(default=1e-8, gt=0)
    """`adam` only."""

    def build(self, values: "Sequence[nn.Parameter]") -> "torch.optim.Optimizer | None":
        """An optimiser of these values; None where their mean is taken."""
        import torch

        if self.kind == "adam":
            return torch.optim.Adam(values, lr=self.lr, eps=self.eps)
        if self.kind == "sgd":
            return torch.optim.SGD(values, lr=self.lr, momentum=self.momentum)
        return None


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


class ExchangeConfig(SupervisedMethod):
    """What all methods share in which a server and clients exchange weights.

    `optimiser` is that of local training, and `batch_size` of its steps; its schedule follows the
    whole run.
    """

    learner = "tuneparts.methods.federated.learner:FederatedLearner"
    optimiser: AnyOptimiser = Sgd(lr=0.05, momentum=0.0)
    clients: ClientsConfig = ClientsConfig()
    clients_per_round: int = Field(default=2, ge=1)
    """Clients that are asked in each round, drawn anew each time."""
    local_epochs: int = Field(default=1, ge=1)
    """Times that a client goes through its data in a round."""
    server: ServerConfig = ServerConfig()
    rounds: int | None = Field(default=None, ge=1)
    """End after so many rounds, even if steps are left; None spends all steps, and cuts the last
    round where they end."""
    rounds_per_report: int | None = Field(default=None, ge=1)
    """Report after so many rounds; None reports after `interval` steps."""
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

    def division(self) -> "Federated":
        """How clients and weights are divided; not at all unless a method says so."""
        return Federated(proportions=(1.0,))

    def task_bundles(self) -> list[dict[str, float]]:
        if self.tasks is None:
            return []
        amounts = {"CPU": self.tasks.cpus} | ({"GPU": self.tasks.gpus} if self.tasks.gpus else {})
        return [dict(amounts) for _ in range(self.tasks.num_tasks)]


class FedAvg(ExchangeConfig):
    """One net, trained by all clients (McMahan et al. 2017; Reddi et al. 2020)."""

    method: Literal["fedavg"] = "fedavg"


class Federated(ExchangeConfig):
    """Partitioned training over clients: those of later chunks learn the hyperparameters."""

    method: Literal["federated"] = "federated"
    proportions: tuple[float, ...] = (0.7, 0.2, 0.1)
    """Share of the clients per chunk."""
    parameter_proportions: tuple[float, ...] | None = None
    """Share of the weights per partition; as `proportions` if None."""
    defaults: Defaults = "zero"
    """What a subnetwork reads for later partitions: zeros, or the initial weights, as deep nets
    without norms need."""
    hyper_lr: float = Field(default=1e-3, gt=0)
    """Adam's rate for them, on the server. A range moves by about this much a round."""
    hyper_batches: int | None = Field(default=None, ge=1)
    """Batches of a client's gradient of the hyperparameters; None for all of its data."""

    @model_validator(mode="after")
    def _check_fields_agree(self) -> Self:
        _check_division(self.proportions, self.parameter_proportions or self.proportions)
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

    def division(self) -> "Federated":
        return self
