"""How good predictions are: the numbers behind the scores of each target.

Legend: N examples, K classes or outputs.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_NUM_BINS = 15
"""Of the calibration error."""


def class_scores(logits_NK: Tensor, labels_N: Tensor) -> dict[str, float]:
    """Accuracy, nll, ece and brier of logits (N, K) against labels (N,).

    The Brier score is the squared distance to the one-hot label, summed over classes
    (Brier 1950); the calibration error is the expected one over 15 equal bins (Guo et al. 2017).
    """
    log_probs_NK = F.log_softmax(logits_NK.double(), dim=1)
    probs_NK = log_probs_NK.exp()
    one_hot_NK = F.one_hot(labels_N, logits_NK.shape[1])
    confidence_N, predicted_N = probs_NK.max(dim=1)
    right_N = (predicted_N == labels_N).double()
    # Over bins of (0, 1]: distances of confidence and accuracy, weighted by count.
    bins_N = (confidence_N * _NUM_BINS).ceil().long().clamp(1, _NUM_BINS) - 1
    gaps = torch.zeros(_NUM_BINS, dtype=confidence_N.dtype, device=confidence_N.device)
    gaps = gaps.index_add(0, bins_N, confidence_N - right_N)
    found = {
        "accuracy": right_N.mean(),
        "nll": F.nll_loss(log_probs_NK, labels_N),
        "ece": gaps.abs().sum() / len(confidence_N),
        "brier": (probs_NK - one_hot_NK).square().sum(dim=1).mean(),
    }
    return _numbers(found)


def binary_scores(logits_N: Tensor, labels_N: Tensor) -> dict[str, float]:
    """Accuracy, nll, ece and brier of logits (N,) of class 1, as of two classes; and auc.

    The area under the ROC curve is left out where only one class occurs.
    """
    found = class_scores(torch.stack([torch.zeros_like(logits_N), logits_N], dim=1), labels_N)
    area = area_under_curve(logits_N, labels_N)
    return found if area is None else found | {"auc": area}


def area_under_curve(scores_N: Tensor, labels_N: Tensor) -> float | None:
    """How often an example of class 1 scores above one of class 0; a tie counts half.

    Example:
        >>> area_under_curve(torch.tensor([0.1, 0.4, 0.4, 0.9]), torch.tensor([0, 0, 1, 1]))
        0.875
    """
    num_ones = int(labels_N.sum())
    num_pairs = num_ones * (len(labels_N) - num_ones)
    if not num_pairs:
        return None
    _, place_N, count_P = torch.unique(scores_N, return_inverse=True, return_counts=True)
    last_P = count_P.cumsum(0)
    rank_P = last_P - (count_P - 1) / 2  # the mean rank of equal scores, from 1 on
    ranks = float(rank_P.double()[place_N][labels_N == 1].sum())
    return (ranks - num_ones * (num_ones + 1) / 2) / num_pairs


def value_scores(values_NK: Tensor, y_NK: Tensor) -> dict[str, float]:
    """Mean squared error, its root, and the share of variance explained (r2).

    All are means over outputs. r2 is left out where an output does not vary.
    """
    values_NK, y_NK = values_NK.double(), y_NK.double()
    mse_K = (values_NK - y_NK).square().mean(dim=0)
    mse = mse_K.mean()
    found = {"mse": mse, "rmse": mse.sqrt()}
    variance_K = y_NK.var(dim=0, correction=0)
    if bool((variance_K > 0).all()):
        found["r2"] = (1 - mse_K / variance_K).mean()
    return _numbers(found)


def _numbers(values: dict[str, Tensor]) -> dict[str, float]:
    """Plain numbers, read from the device at once."""
    return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))
