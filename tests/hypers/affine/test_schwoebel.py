import math

import numpy as np
import pytest
import scipy.stats
import torch

from tuneparts.core import schema
from tuneparts.hypers import SchwoebelConfig, Shapes, Theta
from tuneparts.hypers.affine import Schwoebel


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


LOW = (-0.5, 0.7, 0.8, -0.3, -0.2, -0.4, -0.1)
HIGH = (1.5, 1.2, 1.1, 0.1, 0.4, 0.2, 0.3)


def test_samples_are_the_product_of_their_factors():
    module = Schwoebel(LOW, HIGH, learnable=True).double()
    low = module.theta_min.tensor().detach().numpy()
    high = module.theta_max.tensor().detach().numpy()
    eps = torch.empty(10, 7, dtype=torch.float64).uniform_(0, 1, generator=stream()).numpy()
    for A_23, e in zip(module.sample(10, stream()).detach().numpy(), eps, strict=True):
        alpha, sx, sy, tx, ty, px, py = low + (high - low) * e
        turn = np.array([[math.cos(alpha), -math.sin(alpha)], [math.sin(alpha), math.cos(alpha)]])
        linear = (
            turn @ np.array([[1, 0], [ty, 1]]) @ np.array([[1, tx], [0, 1]]) @ np.diag([sx, sy])
        )
        np.testing.assert_allclose(A_23[:, :2], linear, atol=1e-13)
        np.testing.assert_allclose(A_23[:, 2], -linear @ [px, py], atol=1e-13)


def test_identity_ends_are_the_identity():
    images = torch.rand(2, 1, 8, 8, generator=stream())
    module = Schwoebel(Theta().components(), Theta().components(), learnable=False)
    assert module.is_identity
    assert torch.equal(module(images, 2, stream()), images.repeat_interleave(2, 0))
    torch.testing.assert_close(module.sample(3, stream()), torch.eye(2, 3).expand(3, 2, 3))


def test_ends_may_cross():
    ahead = Schwoebel(LOW, HIGH, learnable=False).sample(4000, stream(1))
    crossed = Schwoebel(HIGH, LOW, learnable=False).sample(4000, stream(2))
    assert scipy.stats.ks_2samp(ahead[:, 0, 0], crossed[:, 0, 0]).pvalue > 0.01


def test_gradient_reaches_both_ends_of_every_component():
    module = SchwoebelConfig().part(Shapes(), name="one", learnable=True)
    module(torch.rand(3, 1, 8, 8, generator=stream()), 4, stream()).square().sum().backward()
    for end in (module.theta_min, module.theta_max):
        assert (end.raw.grad.abs() > 0).all()


def test_gradient_agrees_with_finite_differences():
    module = Schwoebel(LOW, HIGH, learnable=True).double()

    def matrices(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
        parameters = {"theta_min.raw": low, "theta_max.raw": high}
        return torch.func.functional_call(
            Sampler(module), {f"of.{k}": v for k, v in parameters.items()}, ()
        )

    class Sampler(torch.nn.Module):
        def __init__(self, of: Schwoebel) -> None:
            super().__init__()
            self.of = of

        def forward(self) -> torch.Tensor:
            return self.of.sample(4, stream())

    ends = [
        end.raw.detach().clone().requires_grad_() for end in (module.theta_min, module.theta_max)
    ]
    assert torch.autograd.gradcheck(matrices, ends)


def test_values_name_both_ends():
    values = (
        SchwoebelConfig(theta_min=Theta(rotation=-3.0))
        .part(Shapes(), name="one", learnable=False)
        .values()
    )
    assert len(values) == 14
    assert values["theta_min.rotation"] == -3.0
    assert values["theta_min.scale_x"] == 1.0
    assert values["theta_max.scale_x"] == pytest.approx(1.02)
    assert {name.split(".")[1] for name in values} == set(SchwoebelConfig.NAMES)
    assert [schema.lookup(f"hyper/{name}") for name in values]
