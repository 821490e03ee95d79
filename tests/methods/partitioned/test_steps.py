"""What steps see, how each partition moves against torch's own optimisers, and L_ML by hand."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tuneparts.core import seeding
from tuneparts.data.chunks import Chunks
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.target import Classes
from tuneparts.data.task import Examples
from tuneparts.methods.partitioned.steps import (
    PartitionedOptimiser,
    _hyper_stream,
    _weight_stream,
    decay_factors,
    evidence,
)
from tuneparts.methods.partitioned.subnetwork import PartitionedNet
from tuneparts.nets.layers import Bias, ScalarMultiplier
from tuneparts.training import checkpoint
from tuneparts.training.config import Adam, Sgd
from tuneparts.training.step import set_lr

CHUNKS = Chunks(100, (0.8, 0.1, 0.1), seed=0)
SETTINGS = {"batch_size": 7, "seed": 0}


def _counts(stream, num):
    drawn = torch.tensor([stream.next()[0] for _ in range(num)])
    return torch.bincount(drawn, minlength=4)[1:].numpy()


def test_partitions_are_drawn_by_the_sizes_of_chunks():
    counts = _counts(_weight_stream(CHUNKS, [1, 2, 3], **SETTINGS), 3000)
    assert stats.chisquare(counts, [2400, 300, 300]).pvalue > 1e-3
    uneven = Chunks(100, (0.5, 0.4, 0.1), seed=0)
    counts = _counts(_hyper_stream(uneven, **SETTINGS), 3000)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:], [2400, 600]).pvalue > 1e-3


def test_batches_hold_only_what_the_step_may_see():
    weights = _weight_stream(CHUNKS, [1, 2, 3], batch_size=50, seed=0)
    hypers = _hyper_stream(CHUNKS, **SETTINGS)
    seen = {k: set() for k in (1, 2, 3)}
    for _ in range(400):
        k, indices = weights.next()
        assert indices.shape == (50,)
        seen[k] |= set(indices.tolist())
        k, indices = hypers.next()
        assert set(indices.tolist()) <= set(CHUNKS.chunk(k).tolist())
        assert k > 1
    for k in (1, 2, 3):
        assert seen[k] == set(CHUNKS.cumulative(k).tolist())


def test_examples_of_a_mixed_batch_come_from_what_their_partition_may_see():
    stream = _weight_stream(CHUNKS, [1, 2, 3], batch_size=50, seed=0)
    total = torch.zeros(4, dtype=torch.long)
    for _ in range(60):
        levels, indices = stream.next_mixed()
        assert torch.equal(levels, levels.sort().values)
        assert levels.shape == indices.shape == (50,)
        for k in (1, 2, 3):
            assert set(indices[levels == k].tolist()) <= set(CHUNKS.cumulative(k).tolist())
        total += torch.bincount(levels, minlength=4)
    assert stats.chisquare(total[1:].numpy(), [2400, 300, 300]).pvalue > 1e-3


def test_empty_partitions_and_chunks_are_never_drawn():
    assert set(_counts(_weight_stream(CHUNKS, [1], **SETTINGS), 50).tolist()) == {50, 0}
    assert _hyper_stream(Chunks(10, (1.0,), seed=0), **SETTINGS) is None
    assert _hyper_stream(Chunks(10, (1.0, 0.0), seed=0), **SETTINGS) is None


def test_a_chunk_of_another_size_shifts_no_batch_of_the_first():
    # Both have 40 examples in D_1, and the same stream draws from them.
    short, long = Chunks(50, (0.8, 0.2), seed=0), Chunks(80, (0.5, 0.25, 0.25), seed=0)
    batches = []
    for chunks in (short, long):
        stream = _weight_stream(chunks, [1], **SETTINGS)
        position = {int(index): i for i, index in enumerate(chunks.chunk(1))}
        batches.append([[position[i] for i in stream.next()[1].tolist()] for _ in range(5)])
    assert batches[0] == batches[1]


@pytest.mark.parametrize("how", ["next", "next_mixed"])
def test_a_stream_resumes_from_bytes(how):
    stream = _weight_stream(CHUNKS, [1, 2, 3], **SETTINGS)
    for _ in range(5):
        getattr(stream, how)()
    state = checkpoint.from_bytes(checkpoint.to_bytes(stream.state_dict()))
    resumed = _weight_stream(CHUNKS, [1, 2, 3], **SETTINGS)
    resumed.load_state_dict(state)
    for _ in range(20):
        for a, b in zip(getattr(stream, how)(), getattr(resumed, how)(), strict=True):
            assert torch.equal(torch.as_tensor(a), torch.as_tensor(b))


KINDS = {
    "adam": Adam(lr=0.05),
    "adam, decay": Adam(lr=0.05, weight_decay=0.1),
    "sgd": Sgd(lr=0.1, momentum=0.0),
    "momentum": Sgd(lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": Sgd(lr=0.1, momentum=0.8, nesterov=True),
}
FACTORS = (2.0, 1.5, 1.0)


@pytest.fixture(params=list(KINDS))
def config(request):
    return KINDS[request.param]


def _net():
    with seeding.isolated(0, "init"):
        return nn.Sequential(
            nn.Linear(4, 9), nn.LayerNorm(9), ScalarMultiplier(), Bias(), nn.ReLU(), nn.Linear(9, 3)
        )


def _optimised(config, proportions=(0.5, 0.3, 0.2), factors=FACTORS):
    parts = PartitionedNet(_net(), proportions=proportions, seed=0)
    return parts, PartitionedOptimiser(parts, config, decay_factors=factors)


def _grads(parts, k, generator):
    x = torch.randn(5, 4, generator=generator)
    view = parts.view(k, trainable=True)
    loss = parts.run(view, x).square().mean()
    return torch.autograd.grad(loss, view.leaves)


def test_each_partition_follows_torch_on_its_own_vector(config):
    parts, optimiser = _optimised(config)
    scalars = {"2.scale", "3.bias"}
    twins, own = {}, {}
    for k in (1, 2, 3):
        shares = parts.shares(k)
        twins[k] = [nn.Parameter(s.gather(s.flat_n).clone()) for s in shares]
        groups = [
            {"params": [p], "lr_factor": config.scalar_lr_factor if s.name in scalars else 1.0}
            for s, p in zip(shares, twins[k], strict=True)
        ]
        decay = config.weight_decay * FACTORS[k - 1]
        own[k] = (
            torch.optim.Adam(groups, weight_decay=decay, fused=True)
            if config.kind == "adam"
            else torch.optim.SGD(
                groups, momentum=config.momentum, nesterov=config.nesterov, weight_decay=decay
            )
        )
    generator = seeding.torch_generator(0, "grads")
    for t, k in enumerate([1, 1, 3, 2, 1, 3, 3, 2, 1, 2]):
        lr = config.lr * (1 - t / 20)
        grads = _grads(parts, k, generator)
        for share, twin, grad in zip(parts.shares(k), twins[k], grads, strict=True):
            twin.grad = share.gather(grad).clone()
        set_lr(own[k], lr)
        own[k].step()
        optimiser.step(k, grads, lr=lr)
        for j in (1, 2, 3):
            for share, twin in zip(parts.shares(j), twins[j], strict=True):
                assert torch.equal(share.gather(share.flat_n), twin.detach()), (t, share.name)
    assert optimiser.num_steps == {1: 4, 2: 3, 3: 3}


def test_a_step_leaves_every_other_weight_and_state_as_it_was(config):
    parts, optimiser = _optimised(config)
    generator = seeding.torch_generator(0, "grads")
    for k in (1, 2, 3, 2):
        optimiser.step(k, _grads(parts, k, generator), lr=0.1)
    # Bits that arithmetic would lose: a negative zero and a NaN outside partition 2.
    for k, odd in ((1, -0.0), (3, float("nan"))):
        share = next(s for s in parts.shares(k) if s.index_m is not None)
        share.flat_n[share.index_m.long()[0]] = odd

    def bits(k):
        return [s.gather(s.flat_n).view(torch.int32).clone() for s in parts.shares(k)]

    before = {k: bits(k) for k in (1, 2, 3)}
    state = copy.deepcopy(optimiser.state_dict())
    grads = [torch.ones_like(g) for g in _grads(parts, 2, generator)]
    optimiser.step(2, grads, lr=0.1)
    for k in (1, 3):
        for a, b in zip(before[k], bits(k), strict=True):
            assert torch.equal(a, b)
        assert optimiser.num_steps[k] == state["num_steps"][k]
        for name, moments in optimiser.state_dict()["moments"][k].items():
            for a, b in zip(moments, state["moments"][k][name], strict=True):
                assert torch.equal(a, b)
    assert any(not torch.equal(a, b) for a, b in zip(before[2], bits(2), strict=True))
    assert optimiser.num_steps[2] == state["num_steps"][2] + 1


def test_a_parameter_without_gradient_is_left_alone(config):
    parts, optimiser = _optimised(config)
    before = copy.deepcopy(parts.state_dict())
    optimiser.step(1, [None] * len(parts.shares(1)), lr=1.0)
    assert all(torch.equal(t, before[n]) for n, t in parts.state_dict().items())


def test_resumed_steps_equal_uninterrupted_ones_and_share_no_memory(config):
    parts, optimiser = _optimised(config)
    generator = seeding.torch_generator(0, "grads")
    for k in (1, 3, 1, 2):
        optimiser.step(k, _grads(parts, k, generator), lr=0.1)
    other, resumed = _optimised(config)
    other.load_state_dict(parts.state_dict())
    resumed.load_state_dict(checkpoint.from_bytes(checkpoint.to_bytes(optimiser.state_dict())))
    in_memory = PartitionedOptimiser(other, config, decay_factors=FACTORS)
    in_memory.load_state_dict(optimiser.state_dict())
    kept = copy.deepcopy(in_memory.state_dict())
    for k in (3, 2, 1):
        grads = _grads(parts, k, generator)
        optimiser.step(k, grads, lr=0.1)
        resumed.step(k, grads, lr=0.1)
    for name, tensor in parts.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    for k, moments in in_memory.state_dict()["moments"].items():
        for name, pair in moments.items():
            assert all(map(torch.equal, pair, kept["moments"][k][name]))


def test_decay_factors_of_the_paper():
    assert decay_factors((80, 10, 10), "reciprocal") == pytest.approx((1.25, 10 / 9, 1))
    assert decay_factors((80, 10, 10), "sqrt") == pytest.approx((1.118, 1.0541, 1), abs=1e-4)


def _examples(inputs, labels):
    examples = Examples(np.asarray(inputs, np.float32), np.asarray(labels, np.int64))
    return DeviceExamples(examples, mean=(0.0,), std=(1.0,), device=torch.device("cpu"))


def _predict(level, x):
    """Logits (level * x, 0): the subnetwork's number is its only weight."""
    return torch.stack([level * x[:, 0], torch.zeros(len(x))], dim=1)


def test_the_value_by_hand_on_six_examples():
    inputs = [[0.5], [-1.0], [2.0], [0.1], [-0.3], [1.5]]
    labels = [0, 1, 0, 0, 1, 1]
    chunks = Chunks(6, (3, 2, 1), seed=0)
    expected = {}
    for k in (2, 3):
        expected[k] = 0.0
        for i in chunks.chunk(k):
            z = (k - 1) * inputs[i][0]
            sign = 1 if labels[i] == 0 else -1
            expected[k] += -math.log1p(math.exp(-sign * z))
    found = evidence(_predict, _examples(inputs, labels), chunks, loss=Classes().loss, batch_size=2)
    assert found.total == pytest.approx(sum(expected.values()), rel=1e-6)
    metrics = found.metrics()
    assert metrics["lml/total"] == found.total
    assert metrics["lml/per_example"] == pytest.approx(found.total / 3)
    assert metrics["lml/term.2"] == pytest.approx(expected[2] / 2, rel=1e-6)
    assert metrics["lml/term.3"] == pytest.approx(expected[3], rel=1e-6)
    assert set(metrics) == {"lml/total", "lml/per_example", "lml/term.2", "lml/term.3"}


def test_order_within_a_chunk_and_the_batch_size_do_not_matter():
    rng = np.random.default_rng(0)
    inputs, labels = rng.normal(size=(40, 1)), rng.integers(0, 2, 40)
    chunks = Chunks(40, (0.5, 0.25, 0.25), seed=1)
    order = np.arange(40)
    for k in (1, 2, 3):  # examples change places inside their chunk
        own = chunks.chunk(k)
        order[own] = rng.permutation(own)
    a = evidence(_predict, _examples(inputs, labels), chunks, loss=Classes().loss, batch_size=40)
    b = evidence(
        _predict, _examples(inputs[order], labels[order]), chunks, loss=Classes().loss, batch_size=3
    )
    assert a.total == pytest.approx(b.total, rel=1e-12)


def test_a_chunk_without_examples_has_no_term():
    chunks = Chunks(4, (2, 2, 0), seed=0)
    found = evidence(
        _predict, _examples([[1.0]] * 4, [0] * 4), chunks, loss=Classes().loss, batch_size=9
    )
    assert list(found.sums) == [2]
