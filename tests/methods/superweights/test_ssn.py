from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tuneparts.core.config import parse
from tuneparts.data.config import DataConfig
from tuneparts.data.task import Task
from tuneparts.methods.superweights.config import SsnConfig
from tuneparts.methods.superweights.ssn import SsnLearner
from tuneparts.models.reweighted import standalone
from tuneparts.training.learner import Context

WRN_10 = {"name": "wide_resnet", "depth": 10, "width": 0.5}
WRN_16 = {"name": "wide_resnet", "depth": 16, "width": 0.5}


@pytest.fixture(scope="module")
def toy() -> Task:
    return DataConfig(name="stripes", num_train=96, num_val=32, num_test=32).load()


def build(toy: Task, **changes: Any) -> SsnLearner:
    fields = {"passes": 4, "interval": 2, "batch_size": 8, "members": (WRN_16, WRN_10), **changes}
    learner = parse(SsnConfig, fields).build(Context(toy, 0, torch.device("cpu")))
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
