import math

import pytest
import scipy.stats
import torch

from tuneparts.core import schema
from tuneparts.hypers import ColourConfig, InputNoise, Shapes
from tuneparts.hypers.parts import Part
from tuneparts.hypers.pixels import Colour


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(std: float, *, learnable: bool) -> Part:
    return InputNoise(std=std).part(Shapes(), name="noise", learnable=learnable)


def test_noise_has_its_standard_deviation():
    noisy = noise(0.3, learnable=True)(torch.zeros(4000), stream()).detach()
    assert scipy.stats.kstest(noisy.numpy() / 0.3, "norm").pvalue > 0.01


def test_noise_carries_a_gradient_to_its_standard_deviation():
    module = noise(0.3, learnable=True)
    module(torch.zeros(2, 3), stream()).sum().backward()
    draws = torch.randn(2, 3, generator=stream())
    slope = torch.sigmoid(module.std.raw.detach())  # of the softplus
    torch.testing.assert_close(module.std.raw.grad, draws.sum() * slope)


def test_no_noise_is_the_identity():
    x = torch.rand(2, 3)
    module = noise(0.0, learnable=False)
    assert module.is_identity
    assert torch.equal(module(x, stream()), x)
    assert not noise(0.1, learnable=False).is_identity


def test_colour_changes_each_image_by_its_own_draw():
    images = torch.rand(3, 2, 4, 4, generator=stream(1), dtype=torch.float64)
    found = Colour(0.3, 0.6, learnable=False).double()(images, stream())
    draws = torch.empty(3, 2, dtype=torch.float64).uniform_(-1, 1, generator=stream())
    for image, (u_b, u_c), out in zip(images, draws.tolist(), found, strict=True):
        mean = image.mean()
        wanted = mean + math.exp(0.6 * u_c) * (image - mean) + 0.3 * u_b
        torch.testing.assert_close(out, wanted, rtol=0, atol=1e-7)


def test_brightness_moves_the_mean_and_contrast_does_not():
    images = torch.rand(500, 1, 3, 3, generator=stream(1))
    brighter = Colour(0.5, 0.0, learnable=False)(images, stream())
    shift = (brighter - images).mean(dim=(1, 2, 3))
    assert scipy.stats.kstest(shift.numpy(), scipy.stats.uniform(-0.5, 1.0).cdf).pvalue > 0.01
    sharper = Colour(0.0, 0.5, learnable=False)(images, stream())
    torch.testing.assert_close(sharper.mean(dim=(1, 2, 3)), images.mean(dim=(1, 2, 3)))
    ratio = (sharper.std(dim=(1, 2, 3)) / images.std(dim=(1, 2, 3))).log()
    assert 0.4 < ratio.abs().max() <= 0.5 + 1e-5


def test_gradients_reach_both_maxima():
    module = ColourConfig().part(Shapes(), name="one", learnable=True)
    module(torch.rand(4, 1, 3, 3, generator=stream(1)), stream()).square().sum().backward()
    assert (module.maxima.raw.grad.abs() > 0).all()


def test_zero_colour_is_the_identity():
    assert (
        ColourConfig(brightness=0.0, contrast=0.0)
        .part(Shapes(), name="one", learnable=False)
        .is_identity
    )
    assert not ColourConfig(brightness=0.0).part(Shapes(), name="one", learnable=False).is_identity


def test_values_are_metrics():
    values = (
        noise(0.1, learnable=False).values()
        | ColourConfig(brightness=0.2).part(Shapes(), name="one", learnable=False).values()
    )
    assert values == {"noise": 0.1, "brightness": 0.2, "contrast": 0.05}
    assert [schema.lookup(f"hyper/{name}") for name in values]


def test_maxima_beyond_one_are_refused():
    with pytest.raises(ValueError, match="less than or equal to 1"):
        ColourConfig(brightness=1.5)
