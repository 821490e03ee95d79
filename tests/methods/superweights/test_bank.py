"""Composition against layers put together by hand, in double precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.methods.superweights import _ties as tying
from tuneparts.methods.superweights._allocation import (
    SharingPlan,
    assemble,
    least_weights,
    make_plan,
)
from tuneparts.methods.superweights._bank import TemplateBank
from tuneparts.methods.superweights._clusters import Layer, depth_bins
from tuneparts.methods.superweights._ties import Ties

SHAPES = [(0, 4, 2), (0, 6, 4), (0, 6, 6), (1, 4, 2), (1, 5, 7), (1, 6, 6)]
"""(member, outputs, inputs): two members, shapes that repeat, and one that shrinks the outputs."""


def plan_of(budget: int = 2000, chain: str = "growth") -> SharingPlan:
    layers = [Layer(m, f"l{i}", "conv3x3", o, n, (3, 3)) for i, (m, o, n) in enumerate(SHAPES)]
    return make_plan(layers, [0] * len(layers), budget=budget, chain=chain)


def bank_of(
    plan: SharingPlan, ties: Ties | None = None, initialisation: str = "fan_in"
) -> TemplateBank:
    return TemplateBank(
        plan,
        tying.private(plan) if ties is None else ties,
        initialisation=initialisation,
        generator=torch.Generator().manual_seed(0),
    ).double()


def by_hand(bank: TemplateBank, position: int) -> torch.Tensor:
    """One layer: a loop over slots and templates."""
    (cluster,) = bank.plan.clusters
    layer = bank.plan.layers[position]
    parts = []
    for slot in range(len(cluster.templates)):
        users = cluster.users(slot)
        if position in users:
            row = bank.ties[slot][users.index(position)]
            alpha, templates = bank.coefficients_RK[slot][row], bank.templates_KD[slot]
            parts.append(sum(a * t for a, t in zip(alpha, templates, strict=True))[None])
    weight = assemble(cluster.chain, parts, (layer.num_out, layer.num_in))
    return weight.reshape(layer.shape)


@pytest.mark.parametrize("chain", ["growth", "envelope"])
@pytest.mark.parametrize("ties", [tying.private, tying.shared])
def test_composed_weights_equal_a_loop_over_templates(chain, ties) -> None:
    plan = plan_of(chain=chain)
    bank = bank_of(plan, ties(plan))
    for position, weight in enumerate(bank.compose()):
        assert weight.shape == plan.layers[position].shape
        torch.testing.assert_close(weight, by_hand(bank, position))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 8), st.integers(1, 8)), min_size=1),
    st.integers(0, 3000),
    st.integers(1, 3),
)
def test_real_tensors_are_as_many_as_planned_and_within_budget(shapes, extra, bins) -> None:
    layers = [Layer(m, f"l{i}", "linear", o, n, ()) for i, (m, o, n) in enumerate(sorted(shapes))]
    labels = depth_bins(layers, bins)
    budget = least_weights(layers, labels) + extra
    plan = make_plan(layers, labels, budget=budget)
    bank = bank_of(plan)
    real = sum(p.numel() for p in {id(p): p for p in bank.templates_KD}.values())
    assert real == plan.num_weights <= budget
    assert all(torch.isfinite(p).all() for p in bank.parameters())
    for layer, weight in zip(layers, bank.compose(), strict=True):
        assert weight.shape == layer.shape


def test_the_released_initialisation_ignores_the_layer() -> None:
    layers = [Layer(0, f"l{i}", "conv1x1", 50, 50, (1, 1)) for i in range(3)]
    bank = bank_of(make_plan(layers, [0] * 3, budget=20_000), initialisation="released")
    assert float(bank.templates_KD[0].detach().std()) == pytest.approx((2 / 9) ** 0.5, rel=0.03)
    alpha = bank.coefficients_RK[0]
    torch.testing.assert_close(
        alpha @ alpha.T, torch.eye(3, dtype=torch.float64), atol=1e-5, rtol=0
    )


def test_retying_keeps_every_weight_and_gives_each_row_its_own_parameter() -> None:
    plan = plan_of()
    bank = bank_of(plan, tying.shared(plan))
    before = bank.compose()
    origins = [[0] * len(rows) for rows in tying.private(plan)]
    indices = bank.retie(tying.private(plan), origins)
    assert [len(index) for index in indices] == [len(rows) for rows in tying.private(plan)]
    for a, b in zip(before, bank.compose(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)
    assert bank.num_vectors == sum(len(rows) for rows in tying.private(plan))
    assert sum(len(p) for p in bank.coefficients_RK) == bank.num_vectors


def test_coefficients_get_the_sum_of_what_their_uses_send() -> None:
    plan = plan_of()
    ties = tying.mapped(plan, {3: 0, 5: 2})
    bank = bank_of(plan, ties)
    weights = bank.compose()
    generator = torch.Generator().manual_seed(1)
    gradients = [torch.randn(w.shape, generator=generator, dtype=w.dtype) for w in weights]
    torch.autograd.backward(weights, gradients)
    for slot, sent in enumerate(bank.coefficient_gradients(gradients)):
        expected = torch.zeros_like(bank.coefficients_RK[slot])
        for user, row in enumerate(ties[slot]):
            expected[row] += sent[user]
        torch.testing.assert_close(bank.coefficients_RK[slot].grad, expected)
        assert (bank.templates_KD[slot].grad.abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize("ties", [tying.private, tying.shared])
@pytest.mark.parametrize("initialisation", ["fan_in", "own"])
def test_composed_weights_start_at_their_scale(ties, initialisation) -> None:
    shapes = [(40, 20, 0.5), (80, 40, 0.02), (80, 80, 0.3), (80, 80, 0.0)]
    layers = [Layer(0, f"l{i}", "conv3x3", *s[:2], (3, 3), s[2]) for i, s in enumerate(shapes)]
    plan = make_plan(layers, [0] * 4, budget=150_000)
    own = initialisation == "own"
    scales = [layer.std if own else (2 / layer.fan_in) ** 0.5 for layer in layers]
    if ties is tying.shared:
        scales = [min(scales)] * 4  # of all that are tied the least
    bank = bank_of(plan, ties(plan), initialisation=initialisation)
    for scale, weight in zip(scales, bank.compose(), strict=True):
        assert float(weight.detach().std()) == pytest.approx(scale, rel=0.05)
    for slot, templates in enumerate(bank.templates_KD if own else ()):
        largest = max(layers[position].std for position in plan.clusters[0].users(slot))
        assert float(templates.detach().std()) > 0.8 * largest
