import copy

import pytest
import torch
from torch import Tensor, nn

from tuneparts.pwfn import sigma
from tuneparts.pwfn.conversion import tensors, to_gaussian
from tuneparts.pwfn.gaussian import FLOOR, GaussianLinear, GaussianTensor, sampled


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
