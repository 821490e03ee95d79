import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tuneparts.pwfn import attraction as room
from tuneparts.pwfn.attraction import attraction

CENTRES = [-0.5, -0.0625, 0.0, 0.03125, 0.25, 0.75]


def naive(weights: list[float], centres: list[float], temperature: float, zero: float) -> float:
    """Weight by weight and centre by centre, as the formula is printed."""
    total = 0.0
    for weight in weights:
        if abs(weight) < zero:
            continue
        distances = [abs(weight - centre) / abs(weight) for centre in centres]
        shares = [math.exp(-distance / temperature) for distance in distances]
        total += sum(s * d for s, d in zip(shares, distances, strict=True)) / sum(shares)
    return total / len(weights)


weights_lists = st.lists(st.floats(-1, 1, allow_subnormal=False), min_size=1, max_size=12)


@settings(max_examples=50, deadline=None, derandomize=True)
@given(weights_lists, st.sampled_from([0.05, 0.2, 1.0]), st.sampled_from([2.0**-7, 0.1]))
def test_the_term_is_the_printed_one(weights: list[float], temperature: float, zero: float) -> None:
    got, _ = attraction(
        torch.tensor(weights, dtype=torch.float64),
        torch.tensor(CENTRES, dtype=torch.float64),
        temperature=temperature,
        zero_below=zero,
    )
    assert got.item() == pytest.approx(naive(weights, CENTRES, temperature, zero), abs=1e-12)


def some_weights() -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(40, generator=generator, dtype=torch.float64) * 0.3


def test_the_gradient_is_that_of_finite_differences() -> None:
    weights = some_weights().tolist()
    centres = torch.tensor(CENTRES, dtype=torch.float64)
    _, slope = attraction(
        torch.tensor(weights, dtype=torch.float64), centres, temperature=0.05, zero_below=2.0**-7
    )
    step = 1e-6
    for place in range(len(weights)):
        up, down = list(weights), list(weights)
        up[place] += step
        down[place] -= step
        difference = naive(up, CENTRES, 0.05, 2.0**-7) - naive(down, CENTRES, 0.05, 2.0**-7)
        assert slope[place].item() == pytest.approx(difference / (2 * step), rel=1e-4, abs=1e-7)


def test_small_weights_are_not_drawn_and_large_ones_come_closer() -> None:
    weights = torch.tensor([0.0, 1e-30, -0.007, 0.27, 0.23, -0.47])
    _, slope = attraction(weights, torch.tensor(CENTRES), temperature=0.05, zero_below=2.0**-7)
    assert not slope[:3].any()
    # Downhill is towards 0.25 from both sides, and towards -0.5.
    assert slope[3] > 0 > slope[4]
    assert slope[5] > 0


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    centres = torch.tensor(CENTRES, dtype=torch.float64)
    whole = attraction(some_weights(), centres, temperature=0.05, zero_below=2.0**-7)
    monkeypatch.setattr(room, "BLOCK", 3 * len(CENTRES))
    cut = attraction(some_weights(), centres, temperature=0.05, zero_below=2.0**-7)
    torch.testing.assert_close(cut[0], whole[0])
    assert torch.equal(cut[1], whole[1])
