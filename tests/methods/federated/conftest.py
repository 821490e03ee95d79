"""Small federated runs on stripes, and how to look inside them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tuneparts import nets
from tuneparts.core.config import parse
from tuneparts.data.config import Data
from tuneparts.data.task import Task
from tuneparts.methods import catalog
from tuneparts.methods.federated._exchange import Broadcast
from tuneparts.methods.federated.learner import FederatedLearner
from tuneparts.training.learner import Context

SMALL = {
    "net": nets.MnistCnn(channels=(4, 6), hidden=(12, 10)),
    "batch_size": 16,
    "clients": {"num": 10, "alpha": 0.5},
    "clients_per_round": 5,
    "steps": 200,
    "interval": 20,
}
LEARNT = {"affine": {"rotation": 0.3}, "dropout": {"rate": 0.1}, "samples": 2}


@pytest.fixture(scope="session")
def stripes() -> Task:
    return Data(name="stripes", num_train=100, num_val=20, num_test=20).load()


@pytest.fixture
def start(stripes) -> Callable[..., FederatedLearner]:
    """A learner at its start; fields of its config by keyword."""

    def make(method: str = "federated", *, seed: int = 0, task=stripes, **fields: Any):
        hypers = {"hypers": LEARNT} if method == "federated" else {}
        config = parse(catalog.config_class(method), {**SMALL, **hypers, **fields})
        return config.build(Context(task=task, seed=seed, device=torch.device("cpu")))

    return make


def broadcast_of(learner: FederatedLearner, number: int = 0, lr: float = 0.05) -> Broadcast:
    """What the clients of a round would get now."""
    return Broadcast(
        number=number,
        lr=lr,
        weights=learner.server.weights(),
        hypers=[p.detach().clone() for p in learner.hypers.learnable()],
    )


def same(a: Any, b: Any) -> bool:
    """Whether two trees of tensors and numbers hold the same bits."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def rows_of(learner: FederatedLearner) -> list[dict[str, float]]:
    """The reports of a learner to its end."""
    rows = []
    while not learner.finished:
        rows.append(learner.advance())
    return rows
