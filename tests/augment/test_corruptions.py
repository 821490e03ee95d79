import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.augment.corruptions import KINDS, SEVERITIES, corrupt
from tuneparts.errors import ConfigError


def images(num: int = 16, channels: int = 3, side: int = 32) -> torch.Tensor:
    """Blobs over the whole of [0, 1], on a grid that no pixelation is aligned with."""
    coarse = torch.rand(num, channels, 13, 13, generator=torch.Generator().manual_seed(0))
    return torch.nn.functional.interpolate(coarse, (side, side), mode="bilinear")


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_severity_changes_more_than_the_one_before(kind) -> None:
    x = images()
    distances = []
    for severity in SEVERITIES:
        bad = corrupt(x, kind, severity, generator())
        assert bad.shape == x.shape
        assert bad.dtype == x.dtype
        assert 0 <= float(bad.min()) <= float(bad.max()) <= 1
        distances.append(float((bad - x).abs().mean()))
    assert distances[0] > 0
    assert distances == sorted(distances)
    assert len(set(distances)) == 5


@pytest.mark.parametrize("kind", KINDS)
def test_draws_come_from_the_generator_alone(kind) -> None:
    x = images(4)
    before = torch.get_rng_state()
    kept = x.clone()
    one, again, other = (corrupt(x, kind, 3, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    is_random = kind in {"gaussian_noise", "shot_noise", "impulse_noise", "motion_blur", "fog"}
    assert torch.equal(one, other) != is_random
    assert torch.equal(x, kept)
    assert torch.equal(torch.get_rng_state(), before)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 4), st.sampled_from([1, 3]), st.integers(8, 20))
def test_any_shape_works(kind, num, channels, side) -> None:
    x = torch.rand(num, channels, side, side, generator=generator())
    assert corrupt(x, kind, 5, generator()).shape == x.shape


def test_noise_has_the_strength_it_says() -> None:
    grey = torch.full((8, 1, 32, 32), 0.5)
    assert float(corrupt(grey, "gaussian_noise", 1, generator()).std()) == pytest.approx(
        0.04, rel=0.05
    )
    shot = corrupt(grey, "shot_noise", 3, generator())
    assert float(shot.var()) == pytest.approx(0.5 / 100, rel=0.1)
    struck = corrupt(grey, "impulse_noise", 5, generator())
    assert float((struck == 0).float().mean()) == pytest.approx(0.035, rel=0.2)
    assert float((struck == 1).float().mean()) == pytest.approx(0.035, rel=0.2)


@pytest.mark.parametrize("kind", ["gaussian_blur", "motion_blur", "contrast", "pixelate"])
def test_what_only_moves_light_leaves_a_flat_image(kind) -> None:
    grey = torch.full((2, 3, 16, 16), 0.3)
    torch.testing.assert_close(corrupt(grey, kind, 5, generator()), grey)


def test_blur_equals_a_naive_sum_over_neighbours() -> None:
    x = images(1, 1, 8).double()
    sigma = 0.047 * 8
    out = corrupt(x, "gaussian_blur", 5, generator())
    radius = 2
    total, weight = 0.0, 0.0
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            w = torch.exp(torch.tensor(-(dy**2 + dx**2) / (2 * sigma**2), dtype=torch.float64))
            total += w * x[0, 0, 4 + dy, 3 + dx]
            weight += w
    assert float(out[0, 0, 4, 3]) == pytest.approx(float(total / weight))


def test_an_unknown_severity_is_refused() -> None:
    with pytest.raises(ConfigError, match="severity"):
        corrupt(images(1), "fog", 6, generator())
