import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.linalg
import scipy.ndimage
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.nn import functional

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.hypers import Affine, BentonAffine, SchwoebelAffine, Shapes, Theta
from tuneparts.hypers.affine import _Benton, _exponential, _Lila, _Schwoebel, resample
from tuneparts.hypers.parts import _ConstrainedParameter

ONE = 1 << 200


def reference(generator_23: np.ndarray) -> np.ndarray:
    """The power series in fixed point with 200 binary places.

    scipy.linalg.expm is no reference at this precision: version 1.17 gives the exponential of
    diag(-4, 4) with a relative error of 5e-13.
    """
    rows = np.vstack([generator_23, np.zeros(3)])
    M = np.array([[int(Fraction(v) * ONE) for v in row] for row in rows.tolist()], dtype=object)
    term = total = ONE * np.eye(3, dtype=int).astype(object)
    for k in range(1, 100):
        term = term @ M // (k * ONE)
        total = total + term
    return np.array([[float(Fraction(v, ONE)) for v in row] for row in total[:2]])


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, (4, 2, 3), elements=st.floats(-3, 3, allow_subnormal=False)))
def test_equals_the_matrix_exponential_in_float64(generators):
    found = _exponential(torch.from_numpy(generators)).numpy()
    for mine, generator in zip(found, generators, strict=True):
        wanted = reference(generator)
        assert np.abs(mine - wanted).max() <= 2e-14 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize(
    "linear",
    [
        [[0.0, 0.0], [0.0, 0.0]],  # nothing
        [[0.0, 1.0], [0.0, 0.0]],  # nilpotent: both eigenvalues zero, not diagonalisable
        [[0.7, 0.0], [0.0, 0.7]],  # no trace-free part
        [[0.0, -math.pi], [math.pi, 0.0]],  # half a turn
        [[1e-9, -1e-9], [1e-9, 0.0]],  # next to nothing
        [[-4.0, 0.0], [0.0, 4.0]],  # strong stretch
    ],
)
def test_special_generators(linear):
    generator = np.concatenate([np.array(linear), [[0.3], [-1.2]]], axis=1)
    found = _exponential(torch.from_numpy(generator)[None])[0].numpy()
    wanted = reference(generator)
    assert np.abs(found - wanted).max() <= 2e-14 * max(1.0, np.abs(wanted).max())


def test_zero_is_exactly_the_identity():
    assert torch.equal(_exponential(torch.zeros(1, 2, 3))[0], torch.eye(2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_with_and_without_gradients_it_is_the_same(dtype):
    generators = torch.randn(50, 2, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    plain = _exponential(generators)
    learnt = _exponential(generators.clone().requires_grad_())
    assert learnt.requires_grad
    assert not plain.requires_grad
    assert plain.dtype == dtype
    assert torch.allclose(plain, learnt.detach(), rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_fewer_terms_are_enough_for_float32():
    generators = 2 * torch.rand(200, 2, 3, generator=torch.Generator().manual_seed(0)) - 1
    wanted = _exponential(generators.double())
    assert (_exponential(generators) - wanted).abs().max() <= 1e-6


def reference_of_resampling(image_HW: np.ndarray, A_23: np.ndarray) -> np.ndarray:
    """One channel read pixel by pixel, positions written out."""
    H, W = image_HW.shape
    rows, columns = np.empty((H, W)), np.empty((H, W))
    for i in range(H):
        for j in range(W):
            x, y = A_23 @ [-1 + 2 * j / (W - 1), -1 + 2 * i / (H - 1), 1]
            rows[i, j], columns[i, j] = (y + 1) / 2 * (H - 1), (x + 1) / 2 * (W - 1)
    return scipy.ndimage.map_coordinates(
        image_HW, [rows, columns], order=1, mode="grid-constant", cval=0
    )


@pytest.fixture
def images() -> torch.Tensor:
    return torch.rand(3, 2, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def matrices() -> torch.Tensor:
    noise = torch.randn(12, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return torch.eye(2, 3, dtype=torch.float64) + 0.4 * noise


def test_equals_map_coordinates(images, matrices):
    moved = resample(images, matrices)
    assert moved.shape == (12, 2, 5, 7)
    for n in range(12):
        for c in range(2):
            wanted = reference_of_resampling(images[n // 4, c].numpy(), matrices[n].numpy())
            np.testing.assert_allclose(moved[n, c].numpy(), wanted, atol=1e-12)


def test_equals_repeating_the_images(images, matrices):
    grid = functional.affine_grid(matrices, [12, 2, 5, 7], align_corners=True)
    wanted = functional.grid_sample(images.repeat_interleave(4, 0), grid, align_corners=True)
    torch.testing.assert_close(resample(images, matrices), wanted, rtol=0, atol=1e-13)


def test_identity_reads_the_image(images):
    identity = torch.eye(2, 3, dtype=torch.float64).expand(3, 2, 3)
    torch.testing.assert_close(resample(images, identity), images, rtol=0, atol=1e-13)


def test_samples_of_one_image_stay_together():
    brightness = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1, 1).expand(3, 1, 3, 3)
    left_half_gone = torch.tensor([[1.0, 0, -1], [0, 1, 0]])
    matrices = torch.stack([torch.eye(2, 3), left_half_gone] * 3)
    moved = resample(brightness, matrices)
    centre, corner = moved[:, 0, 1, 1], moved[:, 0, 0, 0]
    assert centre.tolist() == [1, 1, 2, 2, 3, 3]
    assert corner.tolist() == [1, 0, 2, 0, 3, 0]


def test_one_pixel_sits_in_the_middle():
    pixel = torch.ones(1, 1, 1, 1)
    turned = torch.tensor([[[0.0, -1, 0], [1, 0, 0]]])
    assert resample(pixel, turned).item() == 1


def test_matrices_of_another_precision_keep_the_images_dtype(images, matrices):
    assert resample(images.float(), matrices).dtype == torch.float32


def test_the_memory_layout_of_the_images_does_not_matter(images, matrices):
    other = images.contiguous(memory_format=torch.channels_last)
    assert not other.is_contiguous()
    torch.testing.assert_close(resample(other, matrices), resample(images, matrices))


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


def only(**maxima: float) -> _Lila:
    return _Lila(Affine(**dict.fromkeys(Affine.NAMES, 0.0) | maxima), learnable=False)


def test_samples_are_matrix_exponentials_of_the_generators():
    module = _Lila(Affine(**ETA), learnable=True).double()
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
        M = sum(u[k] * values[name] * generators[name] for k, name in enumerate(Affine.NAMES))
        np.testing.assert_allclose(A_23, scipy.linalg.expm(M)[:2], atol=1e-13)


def test_zero_ranges_are_the_identity():
    images = torch.rand(2, 3, 8, 8, generator=stream())
    module = only()
    assert module.is_identity
    assert torch.equal(module(images, 1, stream()), images)
    assert torch.equal(module(images, 3, stream()), images.repeat_interleave(3, 0))
    assert torch.equal(module.sample(4, stream()), torch.eye(2, 3).expand(4, 2, 3))


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


def learnt_at(rotation: float) -> _Lila:
    """A learnable one whose steps have brought rotation to a value."""
    module = _Lila(Affine(**dict.fromkeys(Affine.NAMES, 0.3)), learnable=True).double()
    with torch.no_grad():
        module.maxima.raw[Affine.NAMES.index("rotation")] = rotation + math.log(
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
        module.maxima.raw[Affine.NAMES.index("rotation")] += 0.9
    for _ in range(200):
        optimiser.zero_grad()
        (module.ranges()[Affine.NAMES.index("rotation")] - 2.5).square().backward()
        optimiser.step()
    assert module.values()["rotation"] == pytest.approx(2.5, abs=1e-3)


def test_below_pi_nothing_is_changed():
    module = learnt_at(3.0)
    assert torch.equal(module.ranges(), module.maxima.tensor())


def test_rotation_beyond_pi_acts_and_is_reported_as_pi():
    wide, half_turn = only(rotation=5.0), only(rotation=math.pi)
    assert torch.equal(wide.sample(20, stream()), half_turn.sample(20, stream()))
    assert wide.values()["rotation"] == math.pi


@pytest.mark.parametrize("name", Affine.NAMES)
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


def test_samples_are_ordered_by_image_then_sample():
    images = torch.rand(3, 1, 8, 8, generator=stream(1))
    module = only(translate_x=0.5)
    moved = module(images, 4, stream())
    matrices = module.sample(12, stream())
    for n in range(12):
        grid = torch.nn.functional.affine_grid(matrices[n : n + 1], [1, 1, 8, 8], True)
        wanted = torch.nn.functional.grid_sample(images[n // 4, None], grid, align_corners=True)
        torch.testing.assert_close(moved[n, None], wanted, rtol=0, atol=1e-5)


def test_learnable_ranges_cannot_all_start_at_zero():
    with pytest.raises(ConfigError, match="a learnable `translate_x` must start strictly between"):
        Affine(**dict.fromkeys(Affine.NAMES, 0.0)).part(Shapes(), name="one", learnable=True)


def test_a_range_at_zero_is_held_out_and_the_others_are_learnt():
    module = Affine(rotation=0.3, shear=0.0).part(Shapes(), name="one", learnable=True)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        module(
            torch.rand(4, 1, 8, 8), 2, torch.Generator().manual_seed(0)
        ).square().sum().backward()
        assert module.maxima.raw.grad[Affine.NAMES.index("shear")] == 0
        optimiser.step()
    assert module.values()["shear"] == 0.0
    assert module.values()["rotation"] != pytest.approx(0.3)


def benton_only(**maxima: float) -> _Benton:
    return _Benton(BentonAffine(**dict.fromkeys(BentonAffine.NAMES, 0.0) | maxima), learnable=False)


def test_samples_follow_the_formula_of_widths():
    maxima = dict(zip(BentonAffine.NAMES, (0.1, 0.2, 0.9, 0.3, 0.2, 0.4), strict=True))
    module = _Benton(BentonAffine(**maxima), learnable=True).double()
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
    module = benton_only(rotation=0.7, translate_x=0.3)
    widths = dict(zip(BentonAffine.NAMES, module.widths.numbers(), strict=True))
    assert widths["rotation"] == pytest.approx(1.4)
    assert widths["translate_x"] == pytest.approx(6.0)


def test_translation_alone_moves_at_most_its_maximum():
    shifts = benton_only(translate_x=0.3).sample(3000, stream())[:, 0, 2]
    uniform = scipy.stats.uniform(-0.3, 0.6)
    assert scipy.stats.kstest(shifts.numpy(), uniform.cdf).pvalue > 0.01


def test_twice_the_lila_maximum_is_the_same_distribution_of_angles():
    eta = 1.3
    benton = benton_only()
    benton.widths = _ConstrainedParameter(
        [0, 0, 2 * eta, 0, 0, 0], link=benton.widths.link, learnable=False, names=BentonAffine.NAMES
    )
    lila = only(rotation=eta)

    def angles(module: _Benton | _Lila, seed: int) -> np.ndarray:
        A = module.sample(3000, stream(seed))
        return torch.atan2(A[:, 1, 0], A[:, 0, 0]).numpy()

    found = angles(benton, 1)
    assert scipy.stats.ks_2samp(found, angles(lila, 2)).pvalue > 0.01
    # The test can tell conventions apart: half the width is another distribution.
    assert scipy.stats.ks_2samp(found / 2, angles(lila, 2)).pvalue < 1e-6


def test_stretch_keeps_areas_and_scale_keeps_angles():
    stretched = benton_only(stretch=0.8).double().sample(20, stream())[:, :, :2]
    torch.testing.assert_close(
        torch.linalg.det(stretched), torch.ones(20, dtype=torch.float64), rtol=0, atol=1e-12
    )
    scaled = benton_only(scale=0.8).sample(20, stream())[:, :, :2]
    assert torch.equal(scaled, scaled[:, :1, :1] * torch.eye(2))


def test_values_are_maxima_named_as_metrics():
    module = BentonAffine(rotation=math.pi / 2).part(Shapes(), name="one", learnable=True)
    values = module.values()
    assert values == pytest.approx(
        dict.fromkeys(BentonAffine.NAMES, 0.05) | {"rotation": math.pi / 2}
    )
    assert [schema.lookup(f"hyper/{name}") for name in values]


def schwoebel(low: tuple[float, ...], high: tuple[float, ...], *, learnable: bool) -> _Schwoebel:
    ends = (Theta(**dict(zip(Theta.model_fields, end, strict=True))) for end in (low, high))
    config = SchwoebelAffine(**dict(zip(("theta_min", "theta_max"), ends, strict=True)))
    return _Schwoebel(config, learnable=learnable)


LOW = (-0.5, 0.7, 0.8, -0.3, -0.2, -0.4, -0.1)
HIGH = (1.5, 1.2, 1.1, 0.1, 0.4, 0.2, 0.3)


def test_samples_are_the_product_of_their_factors():
    module = schwoebel(LOW, HIGH, learnable=True).double()
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


def test_ends_may_cross():
    ahead = schwoebel(LOW, HIGH, learnable=False).sample(4000, stream(1))
    crossed = schwoebel(HIGH, LOW, learnable=False).sample(4000, stream(2))
    assert scipy.stats.ks_2samp(ahead[:, 0, 0], crossed[:, 0, 0]).pvalue > 0.01


def test_values_name_both_ends():
    values = (
        SchwoebelAffine(theta_min=Theta(rotation=-3.0))
        .part(Shapes(), name="one", learnable=False)
        .values()
    )
    assert len(values) == 14
    assert values["theta_min.rotation"] == -3.0
    assert values["theta_min.scale_x"] == 1.0
    assert values["theta_max.scale_x"] == pytest.approx(1.02)
    assert {name.split(".")[1] for name in values} == set(SchwoebelAffine.NAMES)
    assert [schema.lookup(f"hyper/{name}") for name in values]
