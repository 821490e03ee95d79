"""Composition against layers put together by hand, in double precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.methods.superweights import ties as tying
from tuneparts.methods.superweights.allocation import (
    SharingPlan,
    assemble,
    least_weights,
    make_plan,
)
from tuneparts.methods.superweights.bank import TemplateBank
from tuneparts.methods.superweights.clusters import Layer, depth_bins
from tuneparts.methods.superweights.ties import Ties

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


def test_tied_layers_nest_bit_for_bit() -> None:
    layers = [Layer(0, f"l{i}", "linear", n, n, ()) for i, n in enumerate((3, 5, 5, 8))]
    plan = make_plan(layers, [0] * 4, budget=400)
    small, middle, twin, large = bank_of(plan, tying.shared(plan)).compose()
    assert torch.equal(small, middle[:3, :3])
    assert torch.equal(middle, twin)
    assert torch.equal(middle, large[:5, :5])


def test_gradients_of_templates_and_coefficients_are_those_of_the_formulas() -> None:
    plan = plan_of()
    ties = tying.mapped(plan, {3: 0, 5: 2})
    bank = bank_of(plan, ties)
    weights = bank.compose()
    generator = torch.Generator().manual_seed(1)
    gradients = [torch.randn(w.shape, generator=generator, dtype=w.dtype) for w in weights]
    torch.autograd.backward(weights, gradients)
    sent = bank.coefficient_gradients(gradients)
    (cluster,) = plan.clusters
    for slot in range(len(plan.slots)):
        expected_alpha = torch.zeros_like(bank.coefficients_RK[slot])
        for user, row in enumerate(ties[slot]):
            expected_alpha[row] += sent[slot][user]
        torch.testing.assert_close(bank.coefficients_RK[slot].grad, expected_alpha)
        # dL/dT_k = sum over uses of alpha_k dL/dw, from each use's own gradient.
        expected = torch.zeros_like(bank.templates_KD[slot])
        for user, position in enumerate(cluster.users(slot)):
            alone = torch.autograd.grad(
                bank.compose()[position], bank.templates_KD[slot], gradients[position]
            )[0]
            alpha = bank.coefficients_RK[slot][ties[slot][user]]
            shared = alone / alpha[:, None]
            torch.testing.assert_close(shared, shared[:1].expand_as(shared))
            expected += alone
        torch.testing.assert_close(bank.templates_KD[slot].grad, expected)
        assert (bank.templates_KD[slot].grad.abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize("ties", [tying.private, tying.shared])
def test_composed_weights_start_with_the_variance_of_their_fan_in(ties) -> None:
    sizes = [(0, 40, 20), (0, 80, 40), (1, 40, 20), (1, 80, 80)]
    layers = [Layer(m, f"l{i}", "conv3x3", o, n, (3, 3)) for i, (m, o, n) in enumerate(sizes)]
    plan = make_plan(layers, [0] * 4, budget=150_000)
    bank = bank_of(plan, ties(plan))
    for layer, weight in zip(layers, bank.compose(), strict=True):
        # Tied layers start at the variance of the largest of them.
        fan_in = layer.fan_in if ties is tying.private else 80 * 9
        assert float(weight.detach().std()) == pytest.approx((2 / fan_in) ** 0.5, rel=0.05)


@pytest.mark.parametrize("ties", [tying.private, tying.shared])
def test_composed_weights_start_at_the_scale_of_the_net_itself(ties) -> None:
    stds = [0.5, 0.02, 0.0]
    layers = [Layer(0, f"l{i}", "conv3x3", 40, 20, (3, 3), std) for i, std in enumerate(stds)]
    plan = make_plan(layers, [0] * 3, budget=40 * 20 * 9 * 3)
    bank = bank_of(plan, ties(plan), initialisation="own")
    for std, weight in zip(stds, bank.compose(), strict=True):
        # Tied layers start at the smallest of their scales.
        expected = std if ties is tying.private else 0.0
        assert float(weight.detach().std()) == pytest.approx(expected, rel=0.05)
    assert all(float(templates.detach().std()) > 0.4 for templates in bank.templates_KD)


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
