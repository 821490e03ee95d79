import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.methods.superweights.conftest import WrnLayers
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.task import Task
from tuneparts.methods.superweights._clusters import Layer, depth_bins
from tuneparts.methods.superweights._ssn import FlatBank, Reading, SsnLearner, bank_sizes, readings
from tuneparts.methods.superweights.config import Ssn
from tuneparts.nets.surgery import standalone
from tuneparts.training.learner import Context

WRN_16, WRN_10 = ({"name": "wide_resnet", "depth": depth, "width": 0.5} for depth in (16, 10))


def build(toy: Task, **changes: Any) -> SsnLearner:
    fields = {"steps": 4, "interval": 2, "batch_size": 8, "members": (WRN_16, WRN_10), **changes}
    learner = parse(Ssn, fields).build(Context(toy, 0, torch.device("cpu")))
    assert isinstance(learner, SsnLearner)
    return learner


def test_a_step_is_that_of_plain_nets_with_the_composed_weights(toy: Task) -> None:
    learner = build(toy)
    learner.model.double()
    x, y = learner.next_batch()
    x = x.double()
    weights = [w.detach().requires_grad_() for w in learner.bank.compose()]
    losses = []
    for member, net in enumerate(learner.model.nets):
        own = {
            f"{layer.name}.weight": weight
            for layer, weight in zip(learner.bank.layers, weights, strict=True)
            if layer.member == member
        }
        plain = standalone(net, own)
        loss = F.cross_entropy(plain(x), y)
        loss.backward()
        losses.append(loss.detach())
        for name, weight in own.items():
            weight.grad = plain.get_parameter(name).grad
    expected = torch.autograd.grad(
        learner.bank.compose(), list(learner.bank.parameters()), [w.grad for w in weights]
    )
    found = learner.model.backward([(x, y)] * 2, F.cross_entropy)
    torch.testing.assert_close(found, torch.stack(losses))
    for parameter, gradient in zip(learner.bank.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


def test_it_reports_what_is_shared_and_every_operating_point(toy: Task) -> None:
    learner = build(toy, budget=20_000)
    learner.advance()
    row = learner.advance()
    assert 20_000 - 4 <= row["size/templates"] <= 20_000
    assert row["superweights/clusters"] == 4
    assert row["size/parameters"] > row["size/templates"]
    assert {f"anytime/accuracy.{name}" for name in ("0", "1", "0_1")} <= row.keys()
    assert row["anytime/flops.0"] > row["anytime/flops.1"]


def test_coefficients_are_not_decayed(toy: Task) -> None:
    learner = build(toy, optimiser={"weight_decay": 0.1})
    decays = {
        id(p): group["weight_decay"]
        for group in learner.optimiser.param_groups
        for p in group["params"]
    }
    assert {decays[id(p)] for p in learner.bank.coefficients_RK} == {0.0}
    assert {decays[id(p)] for p in learner.bank.banks_P} == {0.1}
    assert decays.keys() == {id(p) for p in learner.model.parameters()}


@pytest.mark.parametrize(
    "change", [{"budget": 15_000}, {"num_groups": 2}, {"num_groups": None}, {"max_templates": 2}]
)
def test_every_field_matters(toy: Task, change: dict[str, Any]) -> None:
    assert (
        build(toy, budget=30_000).advance() != build(toy, **{"budget": 30_000, **change}).advance()
    )


def test_a_single_member_shares_within_itself(toy: Task) -> None:
    learner = build(toy, members=(WRN_16,), budget=10_000)
    assert learner.advance()["train/loss"] > 0
    assert all(len(bank) < 10_000 for bank in learner.bank.banks_P)


def linear(member: int, name: str, num_out: int, num_in: int) -> Layer:
    return Layer(member, name, "linear", num_out, num_in, ())


def conv(name: str, num_out: int, num_in: int, kernel: int = 3) -> Layer:
    return Layer(0, name, f"conv{kernel}x{kernel}", num_out, num_in, (kernel, kernel))


def bank(layers: list[Layer], labels: list[int], budget: int, **fields: int) -> FlatBank:
    generator = torch.Generator().manual_seed(0)
    return FlatBank(layers, labels, budget=budget, generator=generator, **fields)


def stretching(num_in: int, num_out: int) -> torch.Tensor:
    """Linear interpolation with pixel centres at halves, as a matrix, entry by entry."""
    matrix = torch.zeros(num_out, num_in, dtype=torch.float64)
    for i in range(num_out):
        at = max((i + 0.5) * num_in / num_out - 0.5, 0.0)
        low = min(int(at), num_in - 1)
        matrix[i, low] += 1 - (at - low)
        matrix[i, min(low + 1, num_in - 1)] += at - low
    return matrix


def composed_slowly(found: FlatBank, position: int) -> torch.Tensor:
    """The weight of a layer by a loop over its templates, in float64."""
    layer = found.layers[position]
    group, one = found._readings[position]
    alpha = [1.0]
    if position in found._rows:
        matrix, number = found._rows[position]
        alpha = found.coefficients_RK[matrix][number].tolist()
    small, size = torch.zeros(one.rows, one.columns, dtype=torch.float64), one.rows * one.columns
    for k, factor in enumerate(alpha):
        start = one.start + k * size
        small += factor * found.banks_P[group][start : start + size].view(one.rows, one.columns)
    rows, columns = stretching(one.rows, layer.num_out), stretching(one.columns, layer.fan_in)
    return (rows @ small @ columns.T).reshape(layer.shape)


MIXED = [conv("a", 4, 3), conv("b", 6, 4), conv("c", 6, 4), conv("d", 9, 6), conv("e", 6, 4, 1)]


@pytest.mark.parametrize("budget", [300, 700, 1600, 9000])
def test_weights_are_those_of_a_slow_sum_over_templates(budget: int) -> None:
    found = bank(MIXED, [0] * 5, budget).double()
    for position, weight in enumerate(found.compose()):
        assert weight.shape == MIXED[position].shape
        torch.testing.assert_close(weight, composed_slowly(found, position), rtol=0, atol=1e-12)


def test_a_layer_has_as_many_templates_as_fit_and_eight_at_most() -> None:
    layers = [linear(0, "a", 10, 10), linear(0, "b", 20, 10), linear(0, "c", 3, 3)]
    counts = [one.num_templates for one in readings(layers, 450)]
    assert counts == [4, 2, 8]
    assert [one.num_templates for one in readings(layers, 450, 3)] == [3, 2, 3]


def test_a_layer_larger_than_its_bank_reads_a_smaller_weight() -> None:
    (one, _) = readings([conv("a", 20, 10), conv("b", 20, 10)], 1500)
    # 0.95 and 0.9 and so on are tried: 0.9 has 18 x 9 x 9 = 1458 weights, 0.95 has 19 x 10 x 9.
    assert (one.rows, one.columns, one.num_templates) == (18, 81, 1)


def test_small_layers_read_one_stretch_after_another() -> None:
    layers = [linear(0, name, 2, 2) for name in "abcd"]
    starts = [one.start for one in readings(layers, 3 * 32)]
    assert starts == [0, 32, 64, 0]
    both = [*layers, linear(0, "e", 2, 3)]
    # The common shape took 32, which is less than a stretch of 48, so the next kind begins there.
    assert readings(both, 3 * 32)[-1] == Reading(48, 8, 2, 3)


def test_readings_are_inside_their_bank() -> None:
    for budget, *sizes in itertools.product((40, 200, 1000), (2, 5), (3, 7), (4, 9)):
        layers = [
            linear(0, str(i), n, m) for i, (n, m) in enumerate(itertools.permutations(sizes, 2))
        ]
        for one in readings(layers, budget):
            assert one.start >= 0
            assert one.start + one.length <= budget


@pytest.mark.parametrize("budget", [20_000, 173_488, 2_000_000])
def test_the_budget_is_spent_but_for_rounding(wrn_layers: WrnLayers, budget: int) -> None:
    layers = wrn_layers((16, 1), (10, 1.5))
    found = bank(layers, depth_bins(layers, 4), budget)
    assert budget - len(found.banks_P) <= found.num_weights <= budget
    assert all(w.shape == layer.shape for w, layer in zip(found.compose(), layers, strict=True))


def test_groups_have_weights_by_their_size(wrn_layers: WrnLayers) -> None:
    """Plummer et al. (2022), as released: private where alone, else the share of all layers."""
    layers = wrn_layers((28, 10))
    # The released groups by hand of a Wide ResNet 28-10: transitions apart, equal layers together.
    alike: dict[tuple[int, ...], list[int]] = {}
    for position, layer in enumerate(layers):
        alike.setdefault(layer.shape, []).append(position)
    labels = [list(alike).index(layer.shape) for layer in layers]
    budget = 12_000_000
    sizes = bank_sizes(layers, labels, budget)
    alone = {g for g, positions in enumerate(alike.values()) if len(positions) == 1}
    left = budget - sum(layers[p[0]].size for p in alike.values() if len(p) == 1)
    shared = sum(layer.size for layer, g in zip(layers, labels, strict=True) if g not in alone)
    for group, positions in enumerate(alike.values()):
        total = sum(layers[p].size for p in positions)
        expected = total if group in alone else total / shared * left
        assert math.isclose(sizes[group], expected, abs_tol=1)
    assert budget - len(sizes) <= sum(sizes) <= budget


def test_a_layer_that_is_alone_owns_its_weight() -> None:
    layers = [linear(0, "a", 4, 3), linear(0, "b", 5, 4), linear(0, "c", 5, 4)]
    found = bank(layers, [0, 1, 1], 100)
    assert [len(b) for b in found.banks_P] == [12, 88]
    assert torch.equal(found.compose()[0].flatten(), found.banks_P[0])
    assert found.num_vectors == 2


def test_members_have_coefficients_of_their_own_with_orthogonal_rows() -> None:
    layers = [linear(member, name, 4, 3) for member in (0, 1) for name in "ab"]
    found = bank(layers, [0] * 4, 48)
    assert [m.shape for m in found.coefficients_RK] == [(2, 4), (2, 4)]
    for matrix in found.coefficients_RK:
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(2))
    weights = found.compose()
    with torch.no_grad():
        found.coefficients_RK[1].zero_()
    changed = [not torch.equal(a, b) for a, b in zip(weights, found.compose(), strict=True)]
    assert changed == [False, False, True, True]


def test_weights_start_at_the_scale_of_their_fan_in() -> None:
    layers = [linear(0, "a", 100, 80), linear(0, "b", 100, 80), linear(0, "c", 60, 20)]
    found = bank(layers, [0, 0, 0], 8000)
    assert found.compose()[0].detach().std() == pytest.approx(math.sqrt(2 / 80), rel=0.05)


@pytest.mark.parametrize(("labels", "budget"), [([0, 1, 1], 12), ([0, 1, 1], 10), ([0, 0, 0], 2)])
def test_a_budget_without_room_is_refused(labels: list[int], budget: int) -> None:
    layers = [linear(0, "a", 4, 3), linear(0, "b", 50, 40), linear(0, "c", 50, 40)]
    with pytest.raises(ConfigError, match="Raise"):
        bank(layers, labels, budget)
