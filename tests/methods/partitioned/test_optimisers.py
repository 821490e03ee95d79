"""Per-partition optimisers against torch's own, run on each partition's vector by itself."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tuneparts.core import seeding
from tuneparts.methods.partitioned.steps import PartitionedOptimiser, decay_factors
from tuneparts.methods.partitioned.subnetwork import Partitioned
from tuneparts.models.layers import Bias, ScalarMultiplier
from tuneparts.training import checkpoint
from tuneparts.training.optimisers import OptimiserConfig, set_lr

KINDS = {
    "adam": OptimiserConfig(kind="adam", lr=0.05),
    "adam, decay": OptimiserConfig(kind="adam", lr=0.05, weight_decay=0.1),
    "sgd": OptimiserConfig(kind="sgd", lr=0.1, momentum=0.0),
    "momentum": OptimiserConfig(kind="sgd", lr=0.1, momentum=0.9, weight_decay=0.01),
    "nesterov": OptimiserConfig(kind="sgd", lr=0.1, momentum=0.8, nesterov=True),
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


def _setup(config, proportions=(0.5, 0.3, 0.2), factors=FACTORS):
    parts = Partitioned(_net(), proportions=proportions, seed=0)
    return parts, PartitionedOptimiser(parts, config, decay_factors=factors)


def _grads(parts, k, generator):
    x = torch.randn(5, 4, generator=generator)
    view = parts.view(k, trainable=True)
    loss = parts.run(view, x).square().mean()
    return torch.autograd.grad(loss, view.leaves)


def test_each_partition_follows_torch_on_its_own_vector(config):
    parts, optimiser = _setup(config)
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
    parts, optimiser = _setup(config)
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


def test_one_partition_is_torch_bit_for_bit(config):
    parts, optimiser = _setup(config, proportions=(1.0,), factors=(1.0,))
    twin = _net()
    standard = config.build(twin)
    for t in range(12):
        x = torch.randn(5, 4, generator=seeding.torch_generator(t, "x"))
        lr = config.lr * (1 - t / 30)
        view = parts.view(1, trainable=True)
        optimiser.step(
            1, torch.autograd.grad(parts.run(view, x).square().mean(), view.leaves), lr=lr
        )
        set_lr(standard, lr)
        standard.zero_grad()
        twin(x).square().mean().backward()
        standard.step()
    for name, parameter in parts.merged().named_parameters():
        assert parameter.isfinite().all()
        assert torch.equal(parameter, twin.get_parameter(name)), name


def test_a_parameter_without_gradient_is_left_alone(config):
    parts, optimiser = _setup(config)
    before = copy.deepcopy(parts.state_dict())
    optimiser.step(1, [None] * len(parts.shares(1)), lr=1.0)
    assert all(torch.equal(t, before[n]) for n, t in parts.state_dict().items())


def test_resumed_steps_equal_uninterrupted_ones_and_share_no_memory(config):
    parts, optimiser = _setup(config)
    generator = seeding.torch_generator(0, "grads")
    for k in (1, 3, 1, 2):
        optimiser.step(k, _grads(parts, k, generator), lr=0.1)
    other, resumed = _setup(config)
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


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6))
def test_decay_falls_to_one_with_the_data_a_partition_sees(sizes):
    for scaling, power in (("reciprocal", 1.0), ("sqrt", 0.5), ("off", 0.0)):
        factors = decay_factors(sizes, scaling)
        assert factors[-1] == 1.0
        assert list(factors) == sorted(factors, reverse=True)
        for k, factor in enumerate(factors, start=1):
            assert factor == pytest.approx((sum(sizes) / sum(sizes[:k])) ** power)


def test_decay_factors_of_the_paper():
    assert decay_factors((80, 10, 10), "reciprocal") == pytest.approx((1.25, 10 / 9, 1))
    assert decay_factors((80, 10, 10), "sqrt") == pytest.approx((1.118, 1.0541, 1), abs=1e-4)
