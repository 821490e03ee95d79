"""Bytes on the way: those of the tensors that are sent, and what the partitions save."""

import pytest
import torch

from tests.methods.federated.conftest import broadcast_of
from tuneparts import nets
from tuneparts.methods.federated._exchange import (
    Broadcast,
    Traffic,
    Update,
    num_bytes,
    weight_bytes,
)
from tuneparts.methods.partitioned._assign import Role
from tuneparts.nets.sizes import count_parameters

WIDE = nets.MnistCnn(channels=(16, 32), hidden=(64, 32))


def tensors(*sizes: int, dtype=torch.float32) -> list[torch.Tensor]:
    return [torch.zeros(size, dtype=dtype) for size in sizes]


def test_a_round_by_hand():
    broadcast = Broadcast(0, 0.1, {1: tensors(10, 2), 2: tensors(5)}, tensors(3))
    updates = [
        Update(0, 1, {1: tensors(10, 2), 2: tensors(5)}, [], 1.0, None),
        Update(1, 1, {2: tensors(5)}, tensors(3), 1.0, 1.0),
    ]
    traffic = Traffic(up=1, down=2, hypers=3).after(broadcast, num_asked=3, updates=updates)
    assert traffic == Traffic(up=1 + 4 * 22, down=2 + 3 * 4 * 17, hypers=3 + 3 * 12 + 12)
    assert traffic.total == traffic.up + traffic.down + traffic.hypers


def test_bytes_follow_the_type():
    assert num_bytes(tensors(3, dtype=torch.float64)) == 24
    assert num_bytes(tensors(3, dtype=torch.float16)) == 6


def test_everyone_downloads_one_model_and_norms_once_per_partition(start):
    plain = start("fedavg", net=WIDE)
    assert weight_bytes(broadcast_of(plain).weights) == 4 * count_parameters(plain.net)
    learner = start(net=nets.ResNet9(width=4))
    affine = sum(
        parameter.numel()
        for name, parameter in learner.net.named_parameters()
        if learner.parts.roles[name] is not Role.ENTRIES
    )
    assert affine
    expected = 4 * (count_parameters(learner.net) + 2 * affine)
    assert weight_bytes(broadcast_of(learner).weights) == expected


@pytest.mark.parametrize(
    ("proportions", "upload", "total"),
    [((0.7, 0.2, 0.1), 0.77, 0.885), ((0.9, 0.1), 0.91, 0.955)],
)
def test_a_round_of_all_clients_costs_the_published_shares(
    start, stripes, proportions, upload, total
):
    """Every client in proportion: sum_k u_k sum_{j >= k} v_j of a model up, one model down."""
    fields = {"net": WIDE, "clients_per_round": 10, "steps": 10**6, "rounds": 1}
    partitioned = start(proportions=proportions, **fields)
    plain = start("fedavg", **fields)
    partitioned.step(), plain.step()
    ours, theirs = partitioned._traffic, plain._traffic
    assert ours.down == theirs.down == theirs.up
    assert ours.up / theirs.up == pytest.approx(upload, abs=1e-3)
    assert (ours.up + ours.down) / (theirs.up + theirs.down) == pytest.approx(total, abs=1e-3)
    assert theirs.hypers == 0
    num_hypers = sum(p.numel() for p in partitioned.hypers.learnable())
    judges = sum(k > 1 for k in partitioned.chunk_of.values())
    assert ours.hypers == 4 * num_hypers * (10 + judges)
    assert ours.hypers < 0.02 * ours.up
