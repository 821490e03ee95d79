import pytest

from tuneparts.core.errors import ConfigError
from tuneparts.methods.ensembles.deep import narrowed, thinned
from tuneparts.models import DigitsCnn, Mlp, MnistCnn, MobileNetV2, NetConfig, WideResNet
from tuneparts.models.sizes import count_parameters


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


def test_nets_that_fit_stay_as_they_are() -> None:
    nets = [DigitsCnn(), Mlp()]
    assert thinned(nets, size(nets), in_shape=(1, 8, 8), num_classes=10) == nets


def test_a_budget_below_the_narrowest_nets_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least"):
        thinned([DigitsCnn()] * 2, 10, in_shape=(1, 8, 8), num_classes=10)


def test_widths_are_multiplied_and_nets_without_one_refused() -> None:
    assert narrowed(Mlp(widths=(10, 1)), 0.5) == Mlp(widths=(5, 1))
    assert narrowed(MobileNetV2(width=0.5), 0.5) == MobileNetV2(width=0.25)
    with pytest.raises(ConfigError, match="mnist_cnn"):
        narrowed(MnistCnn(), 0.5)
