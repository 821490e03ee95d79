import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.methods.pwfn.literal import literal_candidates
from tuneparts.methods.pwfn._centres import grid_integers, kmeans, rounding_grid

LARGEST = st.one_of(
    st.floats(0, 4, allow_subnormal=False), st.integers(-9, 2).map(lambda power: 2.0**power)
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.integers(0, 7), st.integers(1, 4), LARGEST)
def test_the_closed_form_is_all_sums_with_replacement(
    bits: int, order: int, largest: float
) -> None:
    expected = literal_candidates(bits, order, largest)
    np.testing.assert_array_equal(grid_integers(bits, order, largest).numpy() / 2**bits, expected)


@pytest.mark.parametrize("largest", [0.0, 0.003, 2.0**-7, 0.3, 0.5, 1.2])
def test_the_rounding_grid_reaches_over_the_largest(largest: float) -> None:
    for order in (1, 4):
        grid = rounding_grid(7, order, largest)
        assert torch.equal(grid, -grid.flip(0))
        assert torch.equal(grid, torch.unique(grid))
        assert largest <= grid[-1] <= max(2 * largest, 2.0**-7)
        assert all(int(n).bit_count() <= order for n in (grid.abs() * 128).tolist())


@settings(max_examples=50, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.integers(1, 200), st.integers(1, 12))
def test_a_fixed_point_of_lloyds_steps(seed: int, num: int, num_centres: int) -> None:
    values = np.random.default_rng(seed).normal(size=num)
    centres = kmeans(torch.from_numpy(values), num_centres).numpy()
    assert len(centres) <= num_centres
    assert (np.diff(centres) > 0).all()
    choice = np.abs(values[:, None] - centres).argmin(axis=1)
    means = np.array([values[choice == k].mean() for k in range(len(centres))])
    np.testing.assert_allclose(centres, means, rtol=1e-9, atol=1e-12)


def test_separate_groups_are_found() -> None:
    values = torch.tensor([0.0, 0.1, 5.0, 5.1, 9.0])
    torch.testing.assert_close(kmeans(values, 3), torch.tensor([0.05, 5.05, 9.0]).double())
    assert kmeans(torch.full((5,), 0.3), 4).tolist() == pytest.approx([0.3])
