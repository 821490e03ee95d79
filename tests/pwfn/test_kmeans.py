import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.errors import ConfigError
from tuneparts.pwfn.kmeans import kmeans


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


def test_constant_values_have_one_centre() -> None:
    assert kmeans(torch.full((5,), 0.3), 4).tolist() == pytest.approx([0.3])


@pytest.mark.parametrize(("values", "num"), [([1.0], 0), ([], 3)])
def test_what_cannot_be_meant_is_refused(values: list[float], num: int) -> None:
    with pytest.raises(ConfigError, match="num_centres >= 1"):
        kmeans(torch.tensor(values), num)
