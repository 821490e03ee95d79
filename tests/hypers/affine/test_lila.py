import math

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.hypers import LilaConfig, Shapes
from tuneparts.hypers.affine import Lila

ETA = {
    "translate_x": 0.3,
    "translate_y": 0.2,
    "rotation": 1.1,
    "scale_x": 0.4,
    "scale_y": 0.15,
    "shear": 0.25,
}


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def only(**maxima: float) -> Lila:
    return Lila(dict.fromkeys(LilaConfig.NAMES, 0.0) | maxima, learnable=False)


def test_samples_are_matrix_exponentials_of_the_generators():
    module = Lila(ETA, learnable=True).double()
    found = module.sample(10, stream()).detach().numpy()
    draws = torch.empty(10, 6, dtype=torch.float64).uniform_(-1, 1, generator=stream()).numpy()
    e = np.eye(3)
    generators = {
        "translate_x": np.outer(e[0], e[2]),
        "translate_y": np.outer(e[1], e[2]),
        "rotation": np.outer(e[1], e[0]) - np.outer(e[0], e[1]),
        "scale_x": np.outer(e[0], e[0]),
        "scale_y": np.outer(e[1], e[1]),
        "shear": np.outer(e[0], e[1]) + np.outer(e[1], e[0]),
    }
    values = module.values()
    for u, A_23 in zip(draws, found, strict=True):
        M = sum(u[k] * values[name] * generators[name] for k, name in enumerate(LilaConfig.NAMES))
        np.testing.assert_allclose(A_23, scipy.linalg.expm(M)[:2], atol=1e-13)


def test_zero_ranges_are_the_identity():
    images = torch.rand(2, 3, 8, 8, generator=stream())
    module = only()
    assert module.is_identity
    assert torch.equal(module(images, 1, stream()), images)
    assert torch.equal(module(images, 3, stream()), images.repeat_interleave(3, 0))
    assert torch.equal(module.sample(4, stream()), torch.eye(2, 3).expand(4, 2, 3))


def test_zero_ranges_draw_nothing():
    draws = stream()
    before = draws.get_state()
    only()(torch.rand(2, 1, 4, 4), 3, draws)
    assert torch.equal(draws.get_state(), before)


def test_a_half_turn_covers_the_circle_and_keeps_areas():
    A = only(rotation=math.pi).double().sample(4000, stream())
    torch.testing.assert_close(
        torch.linalg.det(A[:, :, :2]), torch.ones(4000, dtype=torch.float64), rtol=0, atol=1e-12
    )
    angles = torch.atan2(A[:, 1, 0], A[:, 0, 0])
    uniform = scipy.stats.uniform(-math.pi, 2 * math.pi)
    assert scipy.stats.kstest(angles.numpy(), uniform.cdf).pvalue > 0.01
    assert angles.min() < -3.1
    assert angles.max() > 3.1


def learnt_at(rotation: float) -> Lila:
    """A learnable one whose steps have brought rotation to a value."""
    module = Lila(dict.fromkeys(LilaConfig.NAMES, 0.3), learnable=True).double()
    with torch.no_grad():
        module.maxima.raw[LilaConfig.NAMES.index("rotation")] = rotation + math.log(
            -math.expm1(-rotation)
        )
    return module


@pytest.mark.parametrize("past", [0.01, 1.0, 3.0])
def test_a_learnt_rotation_beyond_pi_is_reflected(past):
    beyond, before = learnt_at(math.pi + past), learnt_at(math.pi - past)
    torch.testing.assert_close(beyond.sample(9, stream()), before.sample(9, stream()))
    assert beyond.values()["rotation"] == pytest.approx(math.pi - past)
    assert learnt_at(2 * math.pi + past).values()["rotation"] == pytest.approx(past)


@pytest.mark.parametrize("rotation", [0.05, 1.0, 3.1, 3.2, 5.0, 6.2, 7.0])
def test_no_rotation_is_a_dead_end(rotation):
    module = learnt_at(rotation)
    (grad,) = torch.autograd.grad(module.sample(9, stream()).square().sum(), [module.maxima.raw])
    assert grad.all()


def test_a_rotation_that_overshoots_comes_back():
    """The loss wants 2.5 radians; the first steps are so long that they pass pi."""
    module = learnt_at(3.0)
    optimiser = torch.optim.SGD([module.maxima.raw], lr=0.1)
    with torch.no_grad():
        module.maxima.raw[LilaConfig.NAMES.index("rotation")] += 0.9
    for _ in range(200):
        optimiser.zero_grad()
        (module.ranges()[LilaConfig.NAMES.index("rotation")] - 2.5).square().backward()
        optimiser.step()
    assert module.values()["rotation"] == pytest.approx(2.5, abs=1e-3)


def test_below_pi_nothing_is_changed():
    module = learnt_at(3.0)
    assert torch.equal(module.ranges(), module.maxima.tensor())


def test_rotation_beyond_pi_acts_and_is_reported_as_pi():
    wide, half_turn = only(rotation=5.0), only(rotation=math.pi)
    assert torch.equal(wide.sample(20, stream()), half_turn.sample(20, stream()))
    assert wide.values()["rotation"] == math.pi


@pytest.mark.parametrize("name", LilaConfig.NAMES)
def test_each_maximum_bounds_its_own_motion(name):
    A = only(**{name: 0.5}).double().sample(2000, stream())
    logarithms = np.stack([scipy.linalg.logm(np.vstack([a, [0, 0, 1]])) for a in A[:50].numpy()])
    entry = {
        "translate_x": (0, 2),
        "translate_y": (1, 2),
        "rotation": (1, 0),
        "scale_x": (0, 0),
        "scale_y": (1, 1),
        "shear": (0, 1),
    }[name]
    found = logarithms[:, entry[0], entry[1]]
    assert np.abs(found).max() <= 0.5 + 1e-9
    assert np.abs(found).max() > 0.4


def test_gradient_reaches_each_maximum_and_agrees_with_finite_differences():
    module = Lila(ETA, learnable=True).double()
    draws = torch.Generator().manual_seed(3)
    smooth = torch.rand(2, 1, 6, 6, dtype=torch.float64, generator=draws)
    weights = torch.randn(10, 1, 6, 6, dtype=torch.float64, generator=draws)

    def loss() -> torch.Tensor:
        return (module(smooth, 5, stream()) * weights).sum()

    (gradient,) = torch.autograd.grad(loss(), module.parameters())
    raw = module.maxima.raw
    assert raw is not None
    for k in range(6):
        step = torch.zeros(6, dtype=torch.float64)
        step[k] = 1e-6
        with torch.no_grad():
            raw += step
            above = loss()
            raw -= 2 * step
            below = loss()
            raw += step
        assert gradient[k].abs() > 1e-3
        torch.testing.assert_close(gradient[k], (above - below) / 2e-6, rtol=1e-5, atol=1e-6)


def test_samples_are_ordered_by_image_then_sample():
    images = torch.rand(3, 1, 8, 8, generator=stream(1))
    module = only(translate_x=0.5)
    moved = module(images, 4, stream())
    matrices = module.sample(12, stream())
    for n in range(12):
        grid = torch.nn.functional.affine_grid(matrices[n : n + 1], [1, 1, 8, 8], True)
        wanted = torch.nn.functional.grid_sample(images[n // 4, None], grid, align_corners=True)
        torch.testing.assert_close(moved[n, None], wanted, rtol=0, atol=1e-5)


def test_learnable_values_start_where_given_and_live_in_the_state():
    module = LilaConfig(**ETA).part(Shapes(), name="one", learnable=True)
    assert module.values() == pytest.approx(ETA, abs=1e-6)
    assert list(module.state_dict()) == ["maxima.raw"]
    other = LilaConfig().part(Shapes(), name="one", learnable=True)
    other.load_state_dict(module.state_dict())
    assert other.values() == module.values()


def test_fixed_values_are_exact_and_stay_out_of_the_state():
    module = LilaConfig(**ETA).part(Shapes(), name="one", learnable=False)
    assert module.values() == ETA
    assert module.state_dict() == {}
    assert list(module.parameters()) == []


def test_names_are_metrics():
    assert [
        schema.lookup(f"hyper/{name}")
        for name in LilaConfig().part(Shapes(), name="one", learnable=False).values()
    ]


def test_learnable_ranges_cannot_all_start_at_zero():
    with pytest.raises(ConfigError, match="a learnable `translate_x` must start strictly between"):
        LilaConfig(**dict.fromkeys(LilaConfig.NAMES, 0.0)).part(
            Shapes(), name="one", learnable=True
        )


def test_a_range_at_zero_is_held_out_and_the_others_are_learnt():
    module = LilaConfig(rotation=0.3, shear=0.0).part(Shapes(), name="one", learnable=True)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        module(
            torch.rand(4, 1, 8, 8), 2, torch.Generator().manual_seed(0)
        ).square().sum().backward()
        assert module.maxima.raw.grad[LilaConfig.NAMES.index("shear")] == 0
        optimiser.step()
    assert module.values()["shear"] == 0.0
    assert module.values()["rotation"] != pytest.approx(0.3)


def test_negative_ranges_are_refused():
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        LilaConfig(shear=-0.1)
