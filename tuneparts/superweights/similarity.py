"""How alike two layers pull at what they share: cosines of summed gradients.

Gradients are summed over an epoch first; there is one cosine per pair (Teterwak et al. 2024,
supplementary 1.1). While all layers of a cluster have the same coefficients, the cosine of the
gradients of their weights equals that of the gradients they send to the templates.

Legend: N layers, O outputs, I inputs, A kernel area, K templates, U uses.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Similarity = npt.NDArray[np.float64]


def overlap_cosines(gradients_OIA: Sequence[Tensor]) -> Similarity:
    """Cosines (N, N) of weight gradients over the top left block that both layers have.

    A layer without gradient is similar to nothing: its entries are NaN.

    Args:
        gradients_OIA: one (O, I, A) for each of N layers, of any O and I.
    """
    num = len(gradients_OIA)
    cosines = torch.full((num, num), float("nan"), dtype=torch.float64)
    for i, one in enumerate(gradients_OIA):
        for j, other in enumerate(gradients_OIA[: i + 1]):
            rows, columns = min(len(one), len(other)), min(one.shape[1], other.shape[1])
            a, b = (g[:rows, :columns].double().flatten() for g in (one, other))
            cosines[i, j] = cosines[j, i] = (a @ b / (a.norm() * b.norm())).cpu()
    return cosines.numpy()


def row_cosines(gradients_UK: Tensor) -> Similarity:
    """Cosines (U, U) of the gradients that U uses of a slot send to its coefficients."""
    unit_UK = gradients_UK.double() / gradients_UK.double().norm(dim=1, keepdim=True)
    cosines: Similarity = (unit_UK @ unit_UK.T).cpu().numpy()
    return cosines


def pairs(similarity_NN: Similarity) -> Similarity:
    """The entries of all unordered pairs."""
    return similarity_NN[np.tril_indices(len(similarity_NN), k=-1)]


def known_mean(parts: Sequence[Similarity]) -> float | None:
    """Mean of all entries that are numbers; None if there are none."""
    values = np.concatenate(parts)
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def correlation(one: Sequence[Similarity], other: Sequence[Similarity]) -> float | None:
    """Correlation of two estimates of the same entries; None where it is not defined."""
    a, b = np.concatenate(one), np.concatenate(other)
    is_known = np.isfinite(a) & np.isfinite(b)
    a, b = a[is_known], b[is_known]
    if len(a) < 3 or a.std() == 0 or b.std() == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])
