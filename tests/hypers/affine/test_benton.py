import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch

from tuneparts.core import schema
from tuneparts.hypers import BentonConfig, LilaConfig, Shapes
from tuneparts.hypers.affine import Benton, Lila
from tuneparts.hypers.parts import ConstrainedParameter


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def only(**maxima: float) -> Benton:
    return Benton(dict.fromkeys(BentonConfig.NAMES, 0.0) | maxima, learnable=False)


def test_samples_follow_the_formula_of_widths():
    module = Benton(
        dict(zip(BentonConfig.NAMES, (0.1, 0.2, 0.9, 0.3, 0.2, 0.4), strict=True)), learnable=True
    ).double()
    found = module.sample(10, stream()).detach().numpy()
    widths = module.widths.tensor().detach().numpy()
    z = torch.empty(10, 6, dtype=torch.float64).uniform_(-0.5, 0.5, generator=stream()).numpy()
    for row, A_23 in zip(z * widths, found, strict=True):
        tx, ty, rotation, scale, stretch, shear = row
        M = np.array(
            [
                [scale + stretch, shear - rotation, 0.1 * tx],
                [shear + rotation, scale - stretch, 0.1 * ty],
                [0, 0, 0],
            ]
        )
        np.testing.assert_allclose(A_23, scipy.linalg.expm(M)[:2], atol=1e-13)


def test_width_is_twice_the_maximum_and_translations_a_twentieth():
    module = only(rotation=0.7, translate_x=0.3)
    widths = dict(zip(BentonConfig.NAMES, module.widths.numbers(), strict=True))
    assert widths["rotation"] == pytest.approx(1.4)
    assert widths["translate_x"] == pytest.approx(6.0)


def test_translation_alone_moves_at_most_its_maximum():
    shifts = only(translate_x=0.3).sample(3000, stream())[:, 0, 2]
    uniform = scipy.stats.uniform(-0.3, 0.6)
    assert scipy.stats.kstest(shifts.numpy(), uniform.cdf).pvalue > 0.01


def test_twice_the_lila_maximum_is_the_same_distribution_of_angles():
    eta = 1.3
    benton = only()
    benton.widths = ConstrainedParameter(
        [0, 0, 2 * eta, 0, 0, 0], link=benton.widths.link, learnable=False, names=BentonConfig.NAMES
    )
    lila = Lila(dict.fromkeys(LilaConfig.NAMES, 0.0) | {"rotation": eta}, learnable=False)

    def angles(module: Benton | Lila, seed: int) -> np.ndarray:
        A = module.sample(3000, stream(seed))
        return torch.atan2(A[:, 1, 0], A[:, 0, 0]).numpy()

    found = angles(benton, 1)
    assert scipy.stats.ks_2samp(found, angles(lila, 2)).pvalue > 0.01
    # The test can tell conventions apart: half the width is another distribution.
    assert scipy.stats.ks_2samp(found / 2, angles(lila, 2)).pvalue < 1e-6


def test_stretch_keeps_areas_and_scale_keeps_angles():
    stretched = only(stretch=0.8).double().sample(20, stream())[:, :, :2]
    torch.testing.assert_close(
        torch.linalg.det(stretched), torch.ones(20, dtype=torch.float64), rtol=0, atol=1e-12
    )
    scaled = only(scale=0.8).sample(20, stream())[:, :, :2]
    assert torch.equal(scaled, scaled[:, :1, :1] * torch.eye(2))


def test_zero_widths_are_the_identity():
    images = torch.rand(2, 1, 8, 8, generator=stream())
    assert only().is_identity
    assert torch.equal(only()(images, 2, stream()), images.repeat_interleave(2, 0))
    assert torch.equal(only().sample(3, stream()), torch.eye(2, 3).expand(3, 2, 3))


def test_gradient_reaches_each_width():
    module = BentonConfig().part(Shapes(), name="one", learnable=True)
    module(torch.rand(3, 1, 8, 8, generator=stream()), 4, stream()).square().sum().backward()
    gradient = module.widths.raw.grad
    assert (gradient.abs() > 0).all()


def test_values_are_maxima_named_as_metrics():
    module = BentonConfig(rotation=math.pi / 2).part(Shapes(), name="one", learnable=True)
    values = module.values()
    assert values == pytest.approx(
        dict.fromkeys(BentonConfig.NAMES, 0.05) | {"rotation": math.pi / 2}
    )
    assert [schema.lookup(f"hyper/{name}") for name in values]
