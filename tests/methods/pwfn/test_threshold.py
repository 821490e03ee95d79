from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.methods.pwfn.literal import literal_cluster
from tuneparts.core.errors import ConfigError
from tuneparts.methods.pwfn import _threshold
from tuneparts.methods.pwfn._threshold import Clustering, cluster

Floats = npt.NDArray[np.float32]


@st.composite
def weights(draw: st.DrawFn) -> tuple[Floats, Floats]:
    """Means and deviations that lie on the grid, between it, or together in one place."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num = draw(st.integers(1, 120))
    mu = rng.normal(size=num) * draw(st.sampled_from([1e-3, 0.02, 0.3, 1.5]))
    on_grid = rng.random(num) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    mu = np.where(on_grid, np.round(mu * 128) / 128, mu)
    if draw(st.booleans()):
        mu = mu[rng.integers(0, max(1, num // 10), size=num)]
    sigma = rng.random(num) * draw(st.sampled_from([0.0, 1e-6, 0.002, 0.05]))
    if draw(st.booleans()):
        sigma = np.round(sigma * 1024) / 1024  # distances that are exactly the threshold
    return mu.astype(np.float32), sigma.astype(np.float32)


FRACTIONS = st.sampled_from([0.0, 0.2, 0.6, 0.95, 1.0])
CASES = st.tuples(weights(), FRACTIONS)


def quota(mu: Floats, fraction: float) -> int:
    return int(np.ceil(len(mu) * fraction))


def run(mu: Floats, sigma: Floats, num: int, **settings_: Any) -> Clustering:
    return cluster(torch.from_numpy(mu), torch.from_numpy(sigma), num, **settings_)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    CASES,
    st.fixed_dictionaries(
        {},
        optional={
            "bits": st.integers(3, 8),
            "max_order": st.integers(1, 4),
            "delta": st.sampled_from([0.25, 1.0, 3.0]),
            "growth": st.sampled_from([1.5, 2.0, 10.0]),
            "zero_rule": st.booleans(),
        },
    ),
)
def test_equal_to_the_literal_form(
    case: tuple[tuple[Floats, Floats], float], chosen: Mapping[str, Any]
) -> None:
    (mu, sigma), fraction = case
    ours = run(mu, sigma, quota(mu, fraction), **chosen)
    out_mu, out_sigma, fixed, stages = literal_cluster(
        mu.astype(float), sigma.astype(float), quota(mu, fraction), **chosen
    )
    np.testing.assert_array_equal(ours.mu_N.double().numpy(), out_mu)
    np.testing.assert_array_equal(ours.fixed_N.numpy(), fixed)
    np.testing.assert_allclose(ours.sigma_N.numpy(), out_sigma, rtol=1e-6, atol=1e-12)
    assert [(stage.order, stage.delta, stage.num_fixed) for stage in ours.stages] == stages


@settings(max_examples=25, deadline=None, derandomize=True)
@given(CASES)
def test_equal_to_the_literal_form_without_a_table_and_in_small_chunks(
    case: tuple[tuple[Floats, Floats], float],
) -> None:
    (mu, sigma), fraction = case
    expected = run(mu, sigma, quota(mu, fraction))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_threshold, "_CHUNK", 7)
        patch.setattr(_threshold, "_MAX_TABLE", 1600)  # grid points fit, pairs of centres do not
        ours = run(mu, sigma, quota(mu, fraction))
    assert torch.equal(ours.mu_N, expected.mu_N)
    assert torch.equal(ours.fixed_N, expected.fixed_N)


@pytest.mark.parametrize(
    "mu", [[0.0] * 5, [2.0**-9] * 5, [2.0**-7], [0.3] * 5, [1.0, -1.0], [1e-30, 0.7]]
)
@pytest.mark.parametrize("zero_rule", [True, False])
def test_it_ends_for_every_kind_of_weight(mu: list[float], zero_rule: bool) -> None:
    result = run(np.float32(mu), np.zeros(len(mu), np.float32), len(mu), zero_rule=zero_rule)
    assert result.fixed_N.all()


def test_inputs_are_not_changed_and_may_be_empty() -> None:
    mu, sigma = torch.tensor([0.3, 0.1]), torch.tensor([0.0, 0.02])
    cluster(mu, sigma, 2)
    assert torch.equal(mu, torch.tensor([0.3, 0.1]))
    assert torch.equal(sigma, torch.tensor([0.0, 0.02]))
    assert not len(cluster(torch.zeros(0), torch.zeros(0), 0).mu_N)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mu_N": torch.tensor([0.3, float("nan")])}, "finite"),
        ({"sigma_N": torch.tensor([0.3, float("inf")])}, "finite"),
        ({"mu_N": torch.tensor([0.3, 1e6])}, "diverged"),
    ],
)
def test_what_would_not_end_or_mean_anything_is_refused(
    change: dict[str, Any], message: str
) -> None:
    given_ = {"mu_N": torch.tensor([0.3, 0.1]), "sigma_N": torch.tensor([0.1, 0.1])}
    with pytest.raises(ConfigError, match=message):
        cluster(**(given_ | {"num_to_fix": 2} | change))


class _LargestTensor(TorchDispatchMode):
    """Remembers the most bytes that any one operation returned."""

    num_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self.num_bytes = max(self.num_bytes, leaf.numel() * leaf.element_size())
        return result


def test_memory_is_linear_in_the_number_of_weights() -> None:
    num = 2**17
    mu = 0.2 * torch.randn(num, generator=torch.Generator().manual_seed(0))
    sigma = torch.full((num,), 0.002)
    with _LargestTensor() as largest:
        result = cluster(mu, sigma, num)
    assert len(torch.unique(result.mu_N)) > 20
    assert largest.num_bytes <= 8 * num  # one number a weight, never one a weight and centre


def test_more_pairs_of_centres_than_int32_can_hold() -> None:
    mu = torch.linspace(-1.2, 1.2, 500)
    found = cluster(mu, torch.full((500,), 1e-4), 500, bits=16, max_order=7)
    assert found.fixed_N.all()
    assert (found.mu_N - mu).abs().max() < 0.01
    integers = found.mu_N.double() * 2**16
    assert torch.equal(integers, integers.round())
