"""What a client does: which partitions, from which values, by which data."""

import copy
import dataclasses
import itertools

import pytest
import torch
from torch import nn

from tests.methods.federated.conftest import broadcast_of, same
from tuneparts import nets
from tuneparts.core import seeding
from tuneparts.core.errors import DivergedError
from tuneparts.methods.federated._client import Assignment

NETS = {
    "mnist_cnn": {"net": nets.MnistCnn(channels=(4, 6), hidden=(12, 10))},
    "resnet9": {"net": nets.ResNet9(width=4)},
    "fixup_resnet": {
        "net": nets.FixupResNet(depth=8, planes=4),
        "hypers": {"affine": {}, "temperature": 2.0},
        "defaults": "initial",
    },
}


def assignment_for(learner, chunk: int, number: int = 0) -> Assignment:
    """The assignment of some client of this chunk."""
    schedule = learner.schedule
    client = list(schedule.chunk_of).index(chunk)
    return schedule._cut(number, client, 10**6)


def scramble(learner, *numbers: int) -> None:
    generator = seeding.torch_generator(0, "noise")
    for k in numbers:
        for share in learner.parts.shares(k):
            share.scatter(torch.randn(share.gather(share.flat_n).shape, generator=generator))


@pytest.mark.parametrize("net", list(NETS))
@pytest.mark.parametrize("chunk", [1, 2, 3])
def test_only_partitions_from_the_own_chunk_on_are_sent(start, net, chunk):
    learner = start(**NETS[net])
    sent = broadcast_of(learner)
    generator = seeding.torch_generator(0, "noise")
    # FixUp starts at zeros, which have no gradient at first.
    noisy = {
        k: [v + 0.1 * torch.randn(v.shape, generator=generator) for v in values]
        for k, values in sent.weights.items()
    }
    learner.client.receive(dataclasses.replace(sent, weights=noisy))
    update = learner.client.work(assignment_for(learner, chunk))
    assert list(update.weights) == list(range(chunk, 4))
    assert bool(update.hyper_grads) == (chunk > 1)
    for j, values in update.weights.items():
        assert [v.shape for v in values] == [v.shape for v in noisy[j]]
        assert not all(map(torch.equal, values, noisy[j]))


@pytest.mark.parametrize("net", list(NETS))
def test_the_order_of_the_partitions_does_not_matter(start, net):
    learner = start(**NETS[net])
    learner.client.receive(broadcast_of(learner))
    assignment = assignment_for(learner, 1)
    found = []
    for numbers in itertools.permutations(assignment.steps):
        again = dataclasses.replace(assignment, steps={j: assignment.steps[j] for j in numbers})
        found.append(dict(sorted(learner.client.work(again).weights.items())))
    assert all(same(found[0], other) for other in found[1:])


@pytest.mark.parametrize("net", list(NETS))
def test_a_client_leaves_the_servers_values_behind(start, net):
    learner = start(**NETS[net])
    sent = broadcast_of(learner)
    learner.client.receive(sent)
    before = copy.deepcopy(learner.parts.state_dict())
    learner.client.work(assignment_for(learner, 2))
    assert same(dict(learner.parts.state_dict()), dict(before))
    assert same(broadcast_of(learner).hypers, sent.hypers)


@pytest.mark.parametrize("chunk", [2, 3])
def test_the_gradient_of_the_hypers_reads_partitions_below_the_chunk_only(start, chunk):
    """Neither local updates nor any value of partitions k..C can reach it."""
    learner = start()
    assignment = assignment_for(learner, chunk)
    learner.client.receive(broadcast_of(learner))
    expected = learner.client.work(assignment).hyper_grads
    assert all(grad.abs().max() > 0 for grad in expected)

    alone = dataclasses.replace(assignment, steps={})
    assert same(learner.client.work(alone).hyper_grads, expected)
    learner.client.receive(broadcast_of(learner, lr=0.2))
    assert same(learner.client.work(assignment).hyper_grads, expected)
    scramble(learner, *range(chunk, 4))
    assert same(learner.client.work(alone).hyper_grads, expected)
    scramble(learner, chunk - 1)
    assert not same(learner.client.work(alone).hyper_grads, expected)


def test_the_gradient_of_the_hypers_is_that_of_the_whole_client(start):
    """Against one backward pass over all examples; nothing random, so no draws to match."""
    learner = start(hypers={"temperature": 2.0}, batch_size=3)
    assignment = assignment_for(learner, 2)
    assert assignment.hyper_batches > 1
    learner.client.receive(broadcast_of(learner))
    update = learner.client.work(assignment)
    x, y = learner.train_data.take(learner.clients[assignment.client])
    (raw,) = learner.hypers.learnable()
    loss = nn.functional.cross_entropy(learner.parts(x, 1) / raw.exp(), y)
    (expected,) = torch.autograd.grad(loss, raw)
    assert update.hyper_grads[0].item() == pytest.approx(expected.item(), rel=1e-4)
    assert update.hyper_loss == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("partition", [1, 2, 3])
def test_local_training_is_sgd_in_the_subnetwork_of_the_partition(start, partition):
    """Against autograd through masked weights, in plain torch."""
    learner = start(hypers={}, batch_size=4, local_epochs=2)
    sent = broadcast_of(learner, lr=0.1)
    learner.client.receive(sent)
    assignment = assignment_for(learner, 1)
    update = learner.client.work(assignment)

    weights = {n: p.detach().clone() for n, p in learner.net.named_parameters()}
    masks = {n: learner.parts.map_of(n) for n in weights}
    batches = learner.client.batches(assignment)
    for indices_B in itertools.islice(batches, assignment.steps[partition]):
        x, y = learner.train_data.take(indices_B)
        leaves = {n: w.requires_grad_() for n, w in weights.items()}
        seen = {n: torch.where(masks[n] <= partition, w, 0.0) for n, w in leaves.items()}
        loss = nn.functional.cross_entropy(torch.func.functional_call(learner.net, seen, (x,)), y)
        grads = torch.autograd.grad(loss, list(leaves.values()))
        weights = {
            n: torch.where(masks[n] == partition, w - 0.1 * g, w).detach()
            for (n, w), g in zip(leaves.items(), grads, strict=True)
        }
    shares = learner.parts.shares(partition)
    for share, values in zip(shares, update.weights[partition], strict=True):
        torch.testing.assert_close(values, share.gather(weights[share.name]), rtol=1e-5, atol=1e-6)


def test_batches_cover_the_client_once_an_epoch(start):
    learner = start(batch_size=4)
    assignment = assignment_for(learner, 1)
    own = learner.clients[assignment.client]
    per_epoch = -(-len(own) // 4)
    batches = list(itertools.islice(learner.client.batches(assignment), 2 * per_epoch))
    for epoch in (batches[:per_epoch], batches[per_epoch:]):
        assert sorted(torch.cat(epoch).tolist()) == own.tolist()
    assert not torch.equal(torch.cat(batches[:per_epoch]), torch.cat(batches[per_epoch:]))
    later = next(learner.client.batches(assignment_for(learner, 1, number=1)))
    assert not torch.equal(batches[0], later)


def test_a_client_that_diverges_sends_nothing(start):
    learner = start("fedavg", batch_size=2)
    learner.client.receive(broadcast_of(learner, lr=1e30))
    with pytest.raises(DivergedError, match="client 0 ended"):
        learner.client.work(assignment_for(learner, 1))
