"""The sparse process against dense Gaussian processes, in float64."""

import math

import pytest
import torch

from tuneparts.methods.baselines.last_layer import (
    InducedFeatures,
    Posterior,
    bound,
    median_distance,
    rbf,
)

NOISE = 0.05


def draws(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


LENGTH = torch.tensor(1.5, dtype=torch.float64)


def dense(K_NN, y_NK):
    """log N(Y | 0, K + v I) of all outputs."""
    covariance = K_NN + NOISE * torch.eye(len(K_NN)).double()
    normal = torch.distributions.MultivariateNormal(torch.zeros(len(K_NN)).double(), covariance)
    return normal.log_prob(y_NK.T).sum()


def test_with_all_features_induced_the_bound_is_exact():
    z, y = draws(9, 4), draws(9, 3, seed=1)
    found = InducedFeatures(z, LENGTH).averages(z[:, None])
    expected = dense(rbf(z, z, LENGTH), y)
    torch.testing.assert_close(bound(found, y, NOISE), expected, rtol=1e-5, atol=1e-5)


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


def test_samples_that_do_not_differ_count_once():
    z, Z = draws(4, 1, 3), draws(3, 3, seed=1)
    one = InducedFeatures(Z, LENGTH).averages(z)
    many = InducedFeatures(Z, LENGTH).averages(z.expand(4, 5, 3))
    torch.testing.assert_close(one.second, many.second)
    torch.testing.assert_close(one.prior_variance, many.prior_variance)


def test_an_invariant_function_has_more_evidence_under_its_invariance():
    """Labels depend on the radius alone; the orbit is the circle, sampled at 40 angles."""
    generator = torch.Generator().manual_seed(0)
    angles = 2 * math.pi * torch.rand(30, dtype=torch.float64, generator=generator)
    radii = torch.rand(30, dtype=torch.float64, generator=generator) * 2
    y = torch.sin(3 * radii)[:, None]
    Z = draws(25, 2)

    def evidence(width):
        turns = width * torch.linspace(-1, 1, 40).double()
        turned = angles[:, None] + turns
        z = torch.stack([radii[:, None] * turned.cos(), radii[:, None] * turned.sin()], dim=-1)
        return bound(InducedFeatures(Z, LENGTH * 0.5).averages(z), y, NOISE)

    assert evidence(math.pi) > evidence(1.0) > evidence(0.1)


def test_the_median_distance():
    assert float(median_distance(torch.tensor([[0.0], [1.0], [4.0]]))) == 3
    assert float(median_distance(torch.zeros(3, 2))) == 1
    assert float(median_distance(torch.zeros(1, 2))) == 1
