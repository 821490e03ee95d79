"""The sparse process against dense ones, in float64; what each step moves, costs and follows."""

import copy
import math

import pytest
import torch
from torch import nn

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines._last_layer import (
    InducedFeatures,
    Posterior,
    bound,
    last_linear,
    median_distance,
    rbf,
)
from tuneparts.methods.baselines.config import LastLayer

NOISE = 0.05


def draws(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


LENGTH = torch.tensor(1.5, dtype=torch.float64)


def dense(K_NN, y_NK):
    """log N(Y | 0, K + v I) of all outputs."""
    covariance = K_NN + NOISE * torch.eye(len(K_NN)).double()
    normal = torch.distributions.MultivariateNormal(torch.zeros(len(K_NN)).double(), covariance)
    return normal.log_prob(y_NK.T).sum()


def test_fewer_inducing_features_give_a_lower_bound():
    z, y = draws(12, 4), draws(12, 3, seed=1)
    exact = dense(rbf(z, z, LENGTH), y)
    found = [bound(InducedFeatures(z[:m], LENGTH).averages(z[:, None]), y, NOISE) for m in (3, 6)]
    assert found[0] < found[1] < exact


def test_any_other_posterior_is_worse():
    z, y = draws(8, 3), draws(8, 2, seed=1)
    found = InducedFeatures(z[:4], LENGTH).averages(z[:, None])
    best = Posterior.best(found.second, found.psi_BM.T @ y, NOISE)
    at_best = best.expected(found, y, NOISE) - best.divergence()
    other = Posterior(best.m_MK * 1.1, best.C_MM * 0.9)
    assert other.expected(found, y, NOISE) - other.divergence() < at_best
    torch.testing.assert_close(at_best, bound(found, y, NOISE))


def test_averages_are_those_of_loops_over_samples_and_their_pairs():
    z_BSD, Z = draws(3, 4, 2), draws(5, 2, seed=1)
    found = InducedFeatures(Z, LENGTH).averages(z_BSD)
    L = torch.linalg.cholesky(rbf(Z, Z, LENGTH) + 1e-8 * torch.eye(5).double())
    prior = 0.0
    for b in range(3):
        psi = [torch.linalg.solve(L, rbf(Z, z_BSD[b, s : s + 1], LENGTH))[:, 0] for s in range(4)]
        torch.testing.assert_close(found.psi_BM[b], sum(psi) / 4)
        for s in range(4):
            for t in range(4):
                gap = float((z_BSD[b, s] - z_BSD[b, t]).square().sum())
                prior += math.exp(-gap / (2 * 1.5**2)) / 16
    assert float(found.prior_variance) == pytest.approx(prior)


def test_with_all_features_induced_the_bound_of_averages_is_exact():
    z_BSD, y = draws(4, 3, 2), draws(4, 3, seed=1)
    K = rbf(z_BSD.flatten(0, 1), z_BSD.flatten(0, 1), LENGTH)
    averaged = K.view(4, 3, 4, 3).mean(dim=(1, 3))
    found = InducedFeatures(z_BSD.flatten(0, 1), LENGTH).averages(z_BSD)
    torch.testing.assert_close(bound(found, y, NOISE), dense(averaged, y), rtol=1e-5, atol=1e-5)


def test_it_stays_a_bound_where_samples_are_few_and_far_apart():
    z_BSD, y = 3 * draws(20, 2, 2), draws(20, 1, seed=1)
    K = rbf(z_BSD.flatten(0, 1), z_BSD.flatten(0, 1), LENGTH)
    exact = dense(K.view(20, 2, 20, 2).mean(dim=(1, 3)), y)
    found = InducedFeatures(draws(15, 2, seed=2), LENGTH).averages(z_BSD)
    assert bound(found, y, NOISE) < exact


def test_the_median_distance():
    assert float(median_distance(torch.tensor([[0.0], [1.0], [4.0]]))) == 3
    assert float(median_distance(torch.zeros(3, 2))) == 1
    assert float(median_distance(torch.zeros(1, 2))) == 1


HYPERS = {"affine": {"rotation": 0.3}, "samples": 3}


def _learner(context, small, **fields):
    fields = {"hypers": HYPERS, "num_inducing": 12, **small, **fields}
    return parse(LastLayer, fields).build(context)


def test_a_hyper_step_moves_hypers_alone_and_a_weight_step_weights_alone(context, small):
    learner = _learner(context, small)
    weights = copy.deepcopy(learner.net.state_dict())
    hypers = copy.deepcopy(learner.hypers.state_dict())
    hooks = [dict(module._forward_pre_hooks) for module in learner.net.modules()]
    learner.hyper_step()
    assert all(torch.equal(weights[name], t) for name, t in learner.net.state_dict().items())
    assert all(not torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())
    assert all(p.grad is None for p in learner.net.parameters())
    assert [dict(module._forward_pre_hooks) for module in learner.net.modules()] == hooks
    hypers = copy.deepcopy(learner.hypers.state_dict())
    learner.weight_step()
    assert all(torch.equal(hypers[name], t) for name, t in learner.hypers.state_dict().items())
    assert any(not torch.equal(weights[name], t) for name, t in learner.net.state_dict().items())


def test_the_gradient_is_that_of_the_bound(context, small):
    """At the best q of a batch the slope of the bound is the slope at fixed q."""
    learner = _learner(context, {**small, "batch_size": 80}, memory=0.0)
    batch = copy.deepcopy(learner._hyper_batches).next()
    x, y_B = learner.train_data.take(batch)
    psi = learner.hypers.learnable()
    learner.net.eval()
    found = learner._induced().averages(
        learner._features(x, learner.generator("augment hyper steps"))
    )
    value = -bound(found, learner._targets(y_B), learner.config.noise) / 80
    expected = torch.autograd.grad(value, psi)
    loss = learner.hyper_step()
    assert float(loss) == pytest.approx(float(value.detach()), rel=1e-5)
    for parameter, grad in zip(psi, expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad, rtol=1e-3, atol=1e-6)


def test_hyper_steps_wait_for_the_burn_in_and_keep_the_budget(context, small):
    learner = _learner(context, small, burn_in=0.5, hyper_every=3)
    kinds = []
    while not learner.finished:
        step = learner.step()
        learner._steps += step.cost
        kinds.append("hyper" if "train/hyper_loss" in step.losses else "weight")
    assert learner.steps == 40
    assert kinds[:20] == ["weight"] * 20
    assert kinds[20:25] == ["hyper", "weight", "weight", "weight", "hyper"]


@pytest.mark.parametrize(("num_inducing", "steps"), [(12, 1), (24, 1), (25, 2), (100, 3)])
def test_inducing_examples_count_as_steps(small, num_inducing, steps):
    config = parse(LastLayer, {**small, "hypers": HYPERS, "num_inducing": num_inducing})
    assert config.batch_size * config.hypers.samples == 24
    assert config.hyper_steps == steps


def test_the_evidence_is_a_number_of_all_data(context, small):
    learner = _learner(context, small)
    row = {}
    while not learner.finished:
        row = learner.advance()
    assert row["lml/total"] == pytest.approx(learner.evidence())
    assert row["lml/per_example"] == pytest.approx(row["lml/total"] / 80)
    assert row["lml/total"] > -80 * 4 * 20


def test_what_cannot_be_is_refused_with_the_cure(context, small):
    with pytest.raises(ConfigError, match="`temperature` acts on outputs"):
        _learner(context, small, hypers={**HYPERS, "temperature": 2.0})
    with pytest.raises(ConfigError, match="the net has none"):
        last_linear(nn.Sequential(nn.Conv2d(1, 1, 1)))
