import copy
import inspect

import pytest
import torch
from torch import Tensor, nn

from tuneparts.errors import ConfigError
from tuneparts.models import NETS
from tuneparts.pwfn import sigma
from tuneparts.pwfn.gaussian import (
    FLOOR,
    GaussianConv2d,
    GaussianLinear,
    GaussianTensor,
    ensemble_logits,
    layers,
    sampled,
    tensors,
    to_gaussian,
    to_plain,
)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def gaussian(net: nn.Sequential) -> nn.Sequential:
    to_gaussian(net)
    sigma.initialise(net, 0.1)
    return net


def test_draws_have_the_mean_and_deviation(gaussian: nn.Sequential) -> None:
    layer = gaussian[6]
    assert isinstance(layer, GaussianLinear)
    with torch.no_grad():
        layer.weight.sigma[0] = 0.3
        layer.weight.sigma[1] = 0.0
    with sampled(gaussian, generator()), torch.no_grad():
        draws = torch.stack([layer.weight() for _ in range(4000)]).double()
    deviation = layer.weight.sigma.detach().clamp(min=FLOOR).double()
    # Five standard errors of a mean, and of a standard deviation, over 4000 draws.
    assert ((draws.mean(0) - layer.weight.mu).abs() <= 5 * deviation / 4000**0.5 + 1e-7).all()
    assert ((draws.std(0) / deviation - 1).abs()[[0, 2, 3, 4]] < 5 / 8000**0.5).all()
    assert (draws[:, 1] - layer.weight.mu[1]).abs().max() < 1e-7


def test_the_seed_decides_and_passes_differ(gaussian: nn.Sequential, x_BCHW: Tensor) -> None:
    def twice(seed: int) -> tuple[Tensor, Tensor]:
        with sampled(gaussian, generator(seed)):
            return gaussian(x_BCHW), gaussian(x_BCHW)

    first, second = twice(0)
    again, _ = twice(0)
    other, _ = twice(1)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert not torch.equal(first, other)


def test_means_return_after_the_block_even_after_an_error(
    gaussian: nn.Sequential, x_BCHW: Tensor
) -> None:
    gaussian.eval()
    before = gaussian(x_BCHW)
    with pytest.raises(RuntimeError), sampled(gaussian, generator()):
        gaussian(torch.zeros(1))
    assert torch.equal(gaussian(x_BCHW), before)


def test_global_generator_is_untouched(gaussian: nn.Sequential, x_BCHW: Tensor) -> None:
    before = torch.get_rng_state()
    with sampled(gaussian, generator()):
        gaussian(x_BCHW)
    assert torch.equal(torch.get_rng_state(), before)


def test_gradients_of_deviations_are_draws_times_those_of_means(
    gaussian: nn.Sequential, x_BCHW: Tensor
) -> None:
    with torch.no_grad():
        gaussian[6].weight.sigma[0, 0] = FLOOR / 2
    with sampled(gaussian, generator()):
        gaussian(x_BCHW).square().sum().backward()
    for name, tensor in tensors(gaussian).items():
        assert tensor.eps is not None
        assert tensor.mu.grad is not None
        expected = tensor.eps * tensor.mu.grad * (tensor.sigma >= FLOOR)
        assert torch.equal(tensor.sigma.grad, expected), name
    assert gaussian[6].weight.sigma.grad[0, 0] == 0


def test_one_draw_serves_the_whole_batch(gaussian: nn.Sequential) -> None:
    layer = gaussian[6]
    x_BD = torch.ones(3, 64)
    with sampled(layer, generator()):
        y = layer(x_BD)
    assert torch.equal(y[0], y[1])
    assert torch.equal(y[0], y[2])


def test_state_holds_means_deviations_and_what_is_fixed(gaussian: nn.Sequential) -> None:
    other = copy.deepcopy(gaussian)
    with torch.no_grad():
        for tensor in tensors(other).values():
            tensor.fixed.fill_(True)
            tensor.mu.zero_()
            tensor.sigma.zero_()
    other.load_state_dict(gaussian.state_dict())
    for name, tensor in tensors(gaussian).items():
        loaded = tensors(other)[name]
        assert torch.equal(loaded.mu, tensor.mu)
        assert torch.equal(loaded.sigma, tensor.sigma)
        assert torch.equal(loaded.fixed, tensor.fixed)


def test_frozen_weights_stay_frozen() -> None:
    tensor = GaussianTensor(nn.Parameter(torch.ones(3), requires_grad=False))
    assert not tensor.mu.requires_grad
    assert not tensor.sigma.requires_grad


def test_means_give_the_logits_of_the_plain_net(net: nn.Sequential, x_BCHW: Tensor) -> None:
    expected = copy.deepcopy(net)(x_BCHW)
    assert sorted(to_gaussian(net)) == ["0", "3", "4", "6"]
    assert torch.equal(net(x_BCHW), expected)
    assert [type(layer) for layer in layers(net).values()] == [GaussianConv2d] * 3 + [
        GaussianLinear
    ]


def test_export_gives_plain_layers_with_the_same_logits(net: nn.Sequential, x_BCHW: Tensor) -> None:
    names = {name: value.shape for name, value in net.state_dict().items()}
    types = [type(module) for module in net]
    to_gaussian(net)
    sigma.initialise(net)
    with torch.no_grad():
        for tensor in tensors(net).values():
            tensor.mu.mul_(1.5)
    net.eval()
    plain = to_plain(net)
    assert torch.equal(plain(x_BCHW), net(x_BCHW))
    assert {name: value.shape for name, value in plain.state_dict().items()} == names
    assert [type(module) for module in plain] == types
    assert not plain.training
    with torch.no_grad():
        plain[6].weight.zero_()
    assert tensors(net)["6.weight"].mu.abs().sum() > 0


@pytest.mark.parametrize("name", ["mnist_cnn", "resnet18", "mobilenet_v2", "fixup_resnet8"])
def test_every_kind_of_net_converts(name: str) -> None:
    known = {"fixup_resnet8": ("fixup_resnet", {"depth": 8})}
    net_name, sizes = known.get(name, (name, {}))
    if net_name == "resnet18":
        sizes = {"width": 4}
    plain = NETS[net_name](name=net_name, **sizes).build((3, 32, 32), 10).eval()
    gaussian = copy.deepcopy(plain)
    to_gaussian(gaussian)
    assert not any(type(module) in {nn.Linear, nn.Conv2d} for module in gaussian.modules())
    x_BCHW = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(gaussian(x_BCHW), plain(x_BCHW))


def test_a_layer_under_two_names_is_converted_once(x_BCHW: Tensor) -> None:
    linear = nn.Linear(4, 4)
    net = nn.Sequential(linear, nn.ReLU(), linear)
    to_gaussian(net)
    assert net[0] is net[2]
    assert len(tensors(net)) == 2


def test_what_cannot_be_converted_is_refused() -> None:
    class Odd(nn.Linear):
        pass

    with pytest.raises(ConfigError, match="at least one Linear or Conv2d"):
        to_gaussian(nn.Sequential(nn.ReLU()))
    net = nn.Sequential(nn.Linear(2, 2), Odd(2, 2))
    with pytest.raises(ConfigError, match="subclasses"):
        to_gaussian(net)
    assert type(net[0]) is nn.Linear
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    with pytest.raises(ConfigError, match="share one"):
        to_gaussian(tied)
    embedded = nn.Sequential(nn.Embedding(5, 2), nn.Linear(2, 5, bias=False))
    embedded[1].weight = embedded[0].weight
    with pytest.raises(ConfigError, match="`0` and `1` share one"):
        to_gaussian(embedded)


def test_named_layers_alone_are_converted() -> None:
    net = nn.Sequential(nn.Linear(2, 2), nn.Conv2d(1, 1, 1), nn.Linear(2, 2))
    assert to_gaussian(net, ["2"]) == ["2"]
    assert [type(layer) for layer in net] == [nn.Linear, nn.Conv2d, GaussianLinear]
    with pytest.raises(ConfigError, match="at least one"):
        to_gaussian(net, ["7"])


def test_log_of_the_mean_probability(net: nn.Sequential, x_BCHW: Tensor) -> None:
    to_gaussian(net)
    sigma.initialise(net, 0.1)
    net.eval()
    result = ensemble_logits(
        net, lambda: net(x_BCHW), num_samples=3, generator=torch.Generator().manual_seed(0)
    )
    with sampled(net, torch.Generator().manual_seed(0)):
        probabilities = [net(x_BCHW).double().softmax(1) for _ in range(3)]
    torch.testing.assert_close(result.exp(), torch.stack(probabilities).mean(0))


def test_without_deviations_it_is_the_single_prediction(net: nn.Sequential, x_BCHW: Tensor) -> None:
    to_gaussian(net)
    sigma.initialise(net, 0.0)
    net.eval()
    result = ensemble_logits(
        net, lambda: net(x_BCHW), num_samples=5, generator=torch.Generator().manual_seed(0)
    )
    single = torch.log_softmax(net(x_BCHW).double(), dim=1)
    torch.testing.assert_close(result, single, rtol=0, atol=1e-6)


def test_it_takes_no_labels() -> None:
    assert set(inspect.signature(ensemble_logits).parameters) == {
        "net",
        "predict",
        "num_samples",
        "generator",
    }
