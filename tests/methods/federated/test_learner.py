"""Federated runs as a whole: what they reduce to, what leaks nowhere, and how they resume."""

import dataclasses
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

from tests.methods.federated.conftest import broadcast_of, rows_of, same
from tuneparts import nets
from tuneparts.core import seeding
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.task import Examples
from tuneparts.methods.federated import FedAvg, Federated
from tuneparts.training import checkpoint

FROZEN = {"affine": {"rotation": 0.3}, "frozen": ("affine",), "samples": 2}


@pytest.mark.parametrize("method", ["federated", "fedavg"])
def test_one_client_with_all_data_is_centralised_sgd(start, stripes, method):
    """Bit for bit, by torch's own optimiser on an ordinary net."""
    single = {"proportions": (1.0,)} if method == "federated" else {}
    learner = start(
        method,
        **single,
        clients={"num": 1},
        clients_per_round=1,
        server={"kind": "average"},
        optimiser={"kind": "sgd", "lr": 0.1, "momentum": 0.0, "schedule": "cosine"},
        rounds=4,
        steps=10**6,
        hypers={},
        batch_size=16,
    )
    with seeding.isolated(0, "init"):
        net = learner.config.net.build(stripes.in_shape, stripes.num_classes)
    net = learner.laid_out(net)  # another order of pixels rounds differently
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    num_steps = 0
    for number in range(4):
        (assignment,) = learner.schedule.assignments(number, 10**6)
        batches = list(islice(learner.client.batches(assignment), assignment.steps[1]))
        assert sorted(torch.cat(batches).tolist()) == list(range(100))
        for group in optimiser.param_groups:
            group["lr"] = learner.config.optimiser.lr_at(number / 4)
        for indices_B in batches:
            x, y = learner.train_data.take(indices_B)
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()
            num_steps += 1
        assert learner.step().cost == len(batches) == 7
        tensors = learner.parts.view(1).tensors
        assert all(torch.equal(tensors[name], p) for name, p in net.named_parameters())
    assert num_steps == 28
    assert learner.finished


def test_one_chunk_is_federated_averaging(start):
    """The two methods share everything but the division."""
    fields = {"hypers": FROZEN, "steps": 60, "interval": 20}
    partitioned = start(proportions=(1.0,), **fields)
    plain = start("fedavg", **fields)
    assert rows_of(partitioned) == rows_of(plain)
    assert same(dict(partitioned.state_dict()), dict(plain.state_dict()))


@pytest.mark.parametrize("chunk", [2, 3])
def test_data_of_a_chunk_never_reaches_earlier_partitions(start, stripes, chunk):
    """Hypers frozen: other labels for clients of chunk k leave partitions 1..k-1 as they are."""
    learner = start(hypers=FROZEN)
    labels = stripes.train.labels.copy()
    changed = [i for i, k in learner.chunk_of.items() if k == chunk]
    rows = np.concatenate([learner.clients[i].numpy() for i in changed])
    # Chunks are dealt by client, and clients by labels: keep who holds what, change what they hold.
    other = start(hypers=FROZEN)
    labels[rows] = (labels[rows] + 1) % stripes.num_classes
    task = dataclasses.replace(stripes, train=Examples(stripes.train.inputs, labels))
    other.train_data = other._on_device(task.train)
    other.client.examples = other.train_data
    for _ in range(4):
        learner.step(), other.step()
    ours, theirs = learner.server.weights(), other.server.weights()
    for k in (1, 2, 3):
        unchanged = all(map(torch.equal, ours[k], theirs[k]))
        assert unchanged == (k < chunk)


def test_hypers_move_by_adam_on_the_mean_gradient_of_later_chunks(start):
    """Against plain arithmetic in float64 over three rounds."""
    learner = start(hypers={"temperature": 2.0}, hyper_lr=0.05, clients_per_round=8)
    raw = learner.hypers.learnable()[0].item()
    first = second = 0.0
    for number in range(3):
        learner.client.receive(broadcast_of(learner, number, lr=0.05))
        assignments = learner.schedule.assignments(number, 10**6)
        judges = [learner.client.work(o) for o in assignments if o.chunk > 1]
        assert judges
        total = sum(u.num_examples for u in judges)
        mean = sum(u.num_examples * float(u.hyper_grads[0]) for u in judges) / total
        first, second = 0.9 * first + 0.1 * mean, 0.999 * second + 0.001 * mean**2
        step = (first / (1 - 0.9 ** (number + 1))) / (
            np.sqrt(second / (1 - 0.999 ** (number + 1))) + 1e-8
        )
        raw -= 0.05 * step
        learner.step()
        assert learner.hypers.learnable()[0].item() == pytest.approx(raw, rel=1e-4)


def test_a_round_without_later_chunks_leaves_the_hypers_alone(start, monkeypatch):
    learner = start()
    assignments = [o for o in learner.schedule.assignments(0, 10**6) if o.chunk == 1]
    monkeypatch.setattr(type(learner.schedule), "assignments", lambda *_: assignments)
    before = learner.hypers.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    step = learner.step()
    assert same(dict(learner.hypers.state_dict()), before)
    assert list(step.losses) == ["train/loss"]


def test_dropout_and_affine_ranges_are_learnt(start):
    rows = rows_of(start(hyper_lr=0.05, steps=10**6, rounds=4, rounds_per_report=1))
    for name in ("hyper/rotation", "hyper/shear", "hyper/dropout.0", "hyper/dropout.3"):
        assert len({row[name] for row in rows}) == 4
    fixed = start("fedavg", hypers={"dropout": {"rate": 0.1}}, steps=20)
    assert {row["hyper/dropout.0"] for row in rows_of(fixed)} == {0.1}


def test_clients_stay_and_chunks_and_weights_move_with_the_seed(start):
    one, two = start(seed=1), start(seed=2)
    assert all(map(torch.equal, one.clients, two.clients))
    assert one.chunk_of != two.chunk_of
    assert sorted(one.chunk_of.values()) == [1] * 7 + [2] * 2 + [3]
    assert all(map(torch.equal, one.clients, start("fedavg", seed=3).clients))


def test_rounds_end_a_run_and_time_its_reports(start):
    learner = start(steps=10**6, rounds=7, rounds_per_report=3)
    rows = rows_of(learner)
    assert [row["federated/rounds"] for row in rows] == [3, 6, 7]
    assert rows[-1]["communication/total"] > rows[0]["communication/total"]
    for name in ("up", "down"):
        before, after = (rows[i][f"communication/{name}"] for i in (0, 1))
        assert rows[1][f"communication/{name}_per_round"] == pytest.approx((after - before) / 3)
    assert learner.progress == 1.0
    assert "test/accuracy" in rows[-1]


def test_steps_end_a_run_in_the_middle_of_a_round(start):
    learner = start(steps=37, interval=10)
    rows = rows_of(learner)
    assert rows[-1]["cost/steps"] == learner.steps == 37
    assert learner.steps < sum(
        assignment.total
        for number in range(int(rows[-1]["federated/rounds"]))
        for assignment in learner.schedule.assignments(number, 10**6)
    )


@pytest.mark.parametrize("kind", ["average", "sgd", "adam"])
@pytest.mark.parametrize("method", ["federated", "fedavg"])
def test_resumed_in_the_middle_is_the_uninterrupted_run(start, method, kind):
    fields = {"server": {"kind": kind, "lr": 0.01}, "steps": 80, "interval": 15}
    whole, stopped, resumed = (start(method, **fields) for _ in range(3))
    expected = rows_of(whole)
    stopped.advance(), stopped.advance()
    resumed.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(stopped.state_dict())))
    assert rows_of(resumed) == expected[2:]
    finals = [checkpoint.to_bytes(learner.state_dict()) for learner in (resumed, whole)]
    assert finals[0] == finals[1]


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        ({"local_epochs": 2}, True),
        ({"server": {"kind": "sgd", "lr": 1.0}}, True),
        ({"server": {"kind": "adam", "lr": 1e-3, "eps": 1e-3}}, True),
        ({"clients": {"num": 10, "alpha": 0.5, "seed": 1}}, True),
        ({"defaults": "initial"}, True),
        ({"parameter_proportions": (0.4, 0.3, 0.3)}, True),
        ({"hyper_lr": 0.1}, True),
        ({"hyper_batches": 1, "batch_size": 3}, True),
        ({"min_clients": 2}, False),
        ({"client_timeout": 1e6}, False),
    ],
)
def test_every_field_matters_or_changes_no_number(start, fields, changed):
    base = {"steps": 10**6, "rounds": 2, **{k: v for k, v in fields.items() if k == "batch_size"}}
    one = rows_of(start(**base))
    assert (rows_of(start(**{**base, **fields})) != one) == changed


@pytest.mark.parametrize(
    ("config", "fields", "message"),
    [
        (FedAvg, {"clients_per_round": 11}, "clients_per_round <= clients.num"),
        (FedAvg, {"min_clients": 3}, "min_clients <= clients_per_round"),
        (Federated, {"clients": {"num": 4}}, r"are \(3, 1, 0\). Use more clients"),
        (Federated, {"parameter_proportions": (1.0, 0.0)}, "3 entries"),
        (Federated, {"proportions": (0.0, 1.0)}, "partition 1"),
    ],
)
def test_what_does_not_fit_together_is_refused(config, fields, message):
    with pytest.raises(ConfigError, match=message):
        parse(config, fields)


def test_weights_in_one_partition_optimise_hypers_on_the_other_clients(start):
    """Proportions (1, 0) of the weights: later clients judge and train nothing."""
    learner = start(proportions=(0.8, 0.2), parameter_proportions=(1.0, 0.0))
    for assignment in learner.schedule.assignments(0, 10**6):
        assert list(assignment.steps) == ([1] if assignment.chunk == 1 else [])
        assert bool(assignment.hyper_batches) == (assignment.chunk == 2)
    learner.step()
    assert learner.server.num_steps == {1: 1}


def test_nets_with_running_statistics_are_refused(start):
    with pytest.raises(ConfigError, match=r"BatchNorm2d\) keeps running statistics"):
        start("fedavg", net=nets.ResNet18())
