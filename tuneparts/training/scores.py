"""How good predicted probabilities are: accuracy, NLL, calibration error, Brier score."""

import torch
from torch import Tensor
from torch.nn import functional as F

NUM_BINS = 15


def scores(logits_NK: Tensor, labels_N: Tensor) -> dict[str, float]:
    """Accuracy, nll, ece and brier of logits (N, K) against labels (N,).

    The Brier score is the squared distance to the one-hot label, summed over classes
    (Brier 1950); the calibration error is the expected one over 15 equal bins (Guo et al. 2017).
    """
    log_probs_NK = F.log_softmax(logits_NK.double(), dim=1)
    probs_NK = log_probs_NK.exp()
    one_hot_NK = F.one_hot(labels_N, logits_NK.shape[1])
    confidence_N, predicted_N = probs_NK.max(dim=1)
    right_N = (predicted_N == labels_N).double()
    values = {
        "accuracy": right_N.mean(),
        "nll": F.nll_loss(log_probs_NK, labels_N),
        "ece": calibration_error(confidence_N, right_N),
        "brier": (probs_NK - one_hot_NK).square().sum(dim=1).mean(),
    }
    return dict(zip(values, torch.stack(list(values.values())).tolist(), strict=True))


def calibration_error(confidence_N: Tensor, right_N: Tensor) -> Tensor:
    """Mean distance of confidence and accuracy over equal bins of (0, 1], weighted by count."""
    bins_N = (confidence_N * NUM_BINS).ceil().long().clamp(1, NUM_BINS) - 1
    gaps = torch.zeros(NUM_BINS, dtype=confidence_N.dtype, device=confidence_N.device)
    gaps = gaps.index_add(0, bins_N, confidence_N - right_N)
    return gaps.abs().sum() / len(confidence_N)
