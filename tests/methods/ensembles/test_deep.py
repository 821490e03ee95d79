import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.ensembles._deep import narrowed, thinned
from tuneparts.methods.ensembles.config import DeepEnsemble
from tuneparts.nets import DigitsCnn, Mlp, MnistCnn, MobileNetV2, NetConfig, WideResNet
from tuneparts.nets.sizes import count_parameters

Start = Callable[..., Any]
TWO: dict[str, Any] = {"members": ("digits_cnn", "digits_cnn")}


def finished(learner: Any) -> Any:
    while not learner.finished:
        learner.advance()
    return learner


def assert_alike(ours: nn.Module, theirs: nn.Module) -> None:
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_each_member_trains_as_if_it_were_alone(start: Start) -> None:
    both = start(DeepEnsemble, **TWO)
    assert not torch.equal(*(net.conv1.weight for net in both.model.nets))
    begins = [copy.deepcopy(net.state_dict()) for net in both.model.nets]
    finished(both)
    for begin, trained in zip(begins, both.model.nets, strict=True):
        single = start(Standard, net="digits_cnn")
        single.net.load_state_dict(begin)
        assert_alike(trained, finished(single).net)


def test_a_parameter_budget_makes_a_thin_ensemble(start: Start) -> None:
    thin = start(DeepEnsemble, parameter_budget=13_000)
    assert 11_000 < count_parameters(thin.model) <= 13_000
    assert len(thin.model.nets) == 4


def test_the_last_report_has_every_operating_point(start: Start) -> None:
    run = start(DeepEnsemble, members=("digits_cnn", "mlp"), interpolation_points=0)
    rows = [run.advance() for _ in range(2)]
    assert not [name for name in rows[0] if name.startswith("anytime/")]
    points = {name for name in rows[1] if name.startswith("anytime/accuracy.")}
    assert points == {f"anytime/accuracy.{name}" for name in ("0", "1", "0_1")}
    assert rows[1]["anytime/accuracy.0_1"] == rows[1]["test/accuracy"]
    assert rows[1]["anytime/flops.0_1"] == rows[1]["size/flops"]


def test_members_with_batches_of_their_own_train_as_if_they_were_alone(start: Start) -> None:
    both, again = (start(DeepEnsemble, **TWO, batches="own") for _ in range(2))
    assert not torch.equal(*(stream.next() for stream in again._own.values()))
    both.advance()
    again = start(DeepEnsemble, **TWO, batches="own")
    again.load_state_dict(both.state_dict())
    for ours, theirs in zip(
        finished(both).model.parameters(), finished(again).model.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
    # Each order is that of a stream by the member's number: another member changes nothing.
    alone = start(DeepEnsemble, members=("digits_cnn",), batches="own")
    assert_alike(both.model.nets[0], finished(alone).model.nets[0])


def size(nets: list[NetConfig]) -> int:
    return sum(count_parameters(net.build((1, 8, 8), 10)) for net in nets)


@pytest.mark.parametrize("net", [DigitsCnn(), Mlp(widths=(32, 16)), WideResNet(depth=10)])
@pytest.mark.parametrize("num_members", [2, 4])
def test_a_thin_ensemble_is_as_large_as_one_net_and_no_larger(
    net: NetConfig, num_members: int
) -> None:
    budget = size([net])
    thin = thinned([net] * num_members, budget, in_shape=(1, 8, 8), num_classes=10)
    assert len(thin) == num_members
    assert 0.85 * budget < size(thin) <= budget


def test_nets_that_fit_stay_as_they_are_and_too_small_a_budget_is_refused() -> None:
    nets = [DigitsCnn(), Mlp()]
    assert thinned(nets, size(nets), in_shape=(1, 8, 8), num_classes=10) == nets
    with pytest.raises(ConfigError, match="at least"):
        thinned([DigitsCnn()] * 2, 10, in_shape=(1, 8, 8), num_classes=10)


def test_widths_are_multiplied_and_nets_without_one_refused() -> None:
    assert narrowed(Mlp(widths=(10, 1)), 0.5) == Mlp(widths=(5, 1))
    assert narrowed(MobileNetV2(width=0.5), 0.5) == MobileNetV2(width=0.25)
    with pytest.raises(ConfigError, match="mnist_cnn"):
        narrowed(MnistCnn(), 0.5)
