"""The exponential of planar affine generators without a matrix exponential.

Every power series of a 2x2 matrix L = m I + D with trace-free D is a combination a I + b D,
because D D = q I. The series therefore runs on two numbers per matrix: for 2000 matrices
forward and backward take about a fifth of `torch.matrix_exp`.

Legend: N matrices.
"""

import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# With these, truncation stays under one unit in the last place for generators of norm up to
# 2**NUM_SQUARINGS (a half turn has norm pi), and grows smoothly beyond.
NUM_TERMS = {torch.float64: 18, torch.float32: 11}
NUM_SQUARINGS = 3

Array = TypeVar("Array", Tensor, npt.NDArray[np.floating])


def exponential(generator_N23: Tensor) -> Tensor:
    """First two rows of exp([[L, t], [0, 0]]).

    Args:
        generator_N23: first two rows [L, t] of the generators.

    Returns:
        A_N23 = [exp(L), phi(L) t] with phi(z) = (exp(z) - 1) / z.
    """
    num_terms = NUM_TERMS.get(generator_N23.dtype, max(NUM_TERMS.values()))
    rows_N6 = generator_N23.flatten(1)
    if rows_N6.device.type == "cpu" and not rows_N6.requires_grad:
        # A hundred operations on a few numbers: numpy starts each in a third of torch's time.
        columns = np.ascontiguousarray(rows_N6.numpy().T)
        found = np.stack(_columns(*columns, num_terms=num_terms), axis=1)
        return torch.from_numpy(found).view(-1, 2, 3)
    return torch.stack(_columns(*rows_N6.unbind(1), num_terms=num_terms), dim=1).view(-1, 2, 3)


def _columns(
    l11: Array, l12: Array, t1: Array, l21: Array, l22: Array, t2: Array, *, num_terms: int
) -> list[Array]:
    """The six entries of the exponentials, (N,) each, from those of the generators."""
    mean = (l11 + l22) / 2
    half = (l11 - l22) / 2
    square = half * half + l12 * l21

    # phi of the generator divided by 2**NUM_SQUARINGS, by Horner's rule.
    m = mean / 2**NUM_SQUARINGS
    q = square / 4**NUM_SQUARINGS
    a, b = m * 0 + 1 / math.factorial(num_terms), m * 0
    for k in range(num_terms - 1, 0, -1):
        a, b = q * b + m * a + 1 / math.factorial(k), a + m * b
    # phi(2 L) = phi(L) (exp(L) + I) / 2; the basis D doubles each time, so b halves.
    for _ in range(NUM_SQUARINGS):
        plus = 2 + (m * a + q * b)
        e = a + m * b
        a, b = (a * plus + q * b * e) / 2, (a * e + b * plus) / 4
        m, q = 2 * m, 4 * q
    c = 1 + (m * a + q * b)
    e = a + m * b
    return [
        c + e * half,
        e * l12,
        a * t1 + b * (half * t1 + l12 * t2),
        e * l21,
        c - e * half,
        a * t2 + b * (l21 * t1 - half * t2),
    ]
