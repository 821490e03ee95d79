"""How the server moves partitions: by whom, by how much, and with whose moments."""

import pytest
import torch

from tests.methods.federated.conftest import same
from tuneparts import nets
from tuneparts.core import seeding
from tuneparts.methods.federated._exchange import Server, Update, mean_over
from tuneparts.methods.federated.config import ServerConfig
from tuneparts.methods.partitioned.subnetwork import PartitionedNet

KINDS = {
    "average": ServerConfig(kind="average"),
    "sgd": ServerConfig(kind="sgd", lr=0.7, momentum=0.9),
    "adam": ServerConfig(kind="adam", lr=0.02, eps=1e-7),
}


@pytest.fixture
def parts() -> PartitionedNet:
    with seeding.isolated(0, "init"):
        net = nets.ResNet9(width=4).build((1, 8, 8), 4).double()
    return PartitionedNet(net, proportions=(0.6, 0.3, 0.1), seed=0)


def values_of(parts: PartitionedNet, k: int) -> list[torch.Tensor]:
    return [share.gather(share.flat_n).clone() for share in parts.shares(k)]


def updates_for(parts: PartitionedNet, chunks: list[int], seed: int) -> list[Update]:
    """One client of each of these chunks, with random values and sizes."""
    generator = seeding.torch_generator(seed, "updates")
    updates = []
    for client, chunk in enumerate(chunks):
        weights = {
            k: [v + torch.randn(v.shape, generator=generator).double() for v in values_of(parts, k)]
            for k in range(chunk, 4)
        }
        updates.append(Update(client, 5 + 3 * client, weights, [], 1.0, None))
    return updates


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_partition_moves_by_the_clients_that_trained_it(parts, kind):
    """Against torch's optimisers on each partition alone, in float64, over several rounds."""
    config = KINDS[kind]
    server = Server(parts, config)
    rounds = [[1, 2, 3], [3], [2, 2, 3], [1, 1]]
    expected = {k: [v.requires_grad_() for v in values_of(parts, k)] for k in (1, 2, 3)}
    optimisers = {
        k: torch.optim.Adam(v, lr=0.02, eps=1e-7)
        if kind == "adam"
        else torch.optim.SGD(v, lr=0.7, momentum=0.9)
        for k, v in expected.items()
    }
    for number, chunks in enumerate(rounds):
        updates = updates_for(parts, chunks, seed=number)
        server.step(updates)
        for k, values in expected.items():
            senders = [u for u, chunk in zip(updates, chunks, strict=True) if chunk <= k]
            total = sum(u.num_examples for u in senders)
            for position, value in enumerate(values):
                if senders:
                    mean = sum(u.num_examples * u.weights[k][position] for u in senders) / total
                    value.grad = value.detach() - mean
                    if kind == "average":
                        value.data = mean
                else:
                    value.grad = None
            if senders and kind != "average":
                optimisers[k].step()
            for value, found in zip(values, values_of(parts, k), strict=True):
                torch.testing.assert_close(found, value.detach(), rtol=1e-12, atol=1e-12)
    assert server.num_steps == {1: 2, 2: 3, 3: 4}


def test_the_order_of_answers_does_not_matter_and_one_client_keeps_its_bits(parts):
    updates = updates_for(parts, [1, 1, 1], seed=4)
    pairs = [(u, u.weights[1]) for u in updates]
    assert same(mean_over(pairs), mean_over(pairs[::-1]))
    assert same(mean_over(pairs[:1]), list(updates[0].weights[1]))
