import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tuneparts.hypers.affine import exponential

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
    found = exponential(torch.from_numpy(generators)).numpy()
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
    found = exponential(torch.from_numpy(generator)[None])[0].numpy()
    wanted = reference(generator)
    assert np.abs(found - wanted).max() <= 2e-14 * max(1.0, np.abs(wanted).max())


def test_zero_is_exactly_the_identity():
    assert torch.equal(exponential(torch.zeros(1, 2, 3))[0], torch.eye(2, 3))


def test_gradient_agrees_with_finite_differences():
    draws = torch.Generator().manual_seed(0)
    generator = torch.randn(5, 2, 3, dtype=torch.float64, generator=draws)
    generator[0] = 0  # the gradient exists at the identity too
    assert torch.autograd.gradcheck(exponential, generator.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_with_and_without_gradients_it_is_the_same(dtype):
    generators = torch.randn(50, 2, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    plain = exponential(generators)
    learnt = exponential(generators.clone().requires_grad_())
    assert learnt.requires_grad
    assert not plain.requires_grad
    assert plain.dtype == dtype
    assert torch.allclose(plain, learnt.detach(), rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_fewer_terms_are_enough_for_float32():
    generators = 2 * torch.rand(200, 2, 3, generator=torch.Generator().manual_seed(0)) - 1
    wanted = exponential(generators.double())
    assert (exponential(generators) - wanted).abs().max() <= 1e-6
