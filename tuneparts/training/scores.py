"""How good predicted probabilities are: accuracy, NLL, calibration error, Brier score."""

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics.functional.classification import multiclass_calibration_error

NUM_BINS = 15


def scores(logits_NK: Tensor, labels_N: Tensor) -> dict[str, float]:
    """Accuracy, nll, ece and brier of logits (N, K) against labels (N,).

    The Brier score is the squared distance to the one-hot label, summed over classes
    (Brier 1950); the calibration error is the expected one over 15 equal bins (Guo et al. 2017).
    """
    log_probs_NK = F.log_softmax(logits_NK.double(), dim=1)
    probs_NK = log_probs_NK.exp()
    num_classes = logits_NK.shape[1]
    one_hot_NK = F.one_hot(labels_N, num_classes)
    ece = multiclass_calibration_error(probs_NK, labels_N, num_classes, n_bins=NUM_BINS, norm="l1")
    values = {
        "accuracy": (probs_NK.argmax(dim=1) == labels_N).double().mean(),
        "nll": F.nll_loss(log_probs_NK, labels_N),
        "ece": ece,
        "brier": (probs_NK - one_hot_NK).square().sum(dim=1).mean(),
    }
    return dict(zip(values, torch.stack([v.double() for v in values.values()]).tolist(), strict=True))
