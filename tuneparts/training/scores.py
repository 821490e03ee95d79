"""How good predicted probabilities are: accuracy, NLL, calibration error, Brier score.

Legend: N examples, K classes.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from tuneparts.data.device_examples import DeviceExamples

NUM_BINS = 15
"""Of the calibration error."""
EVAL_BATCH = 500
"""Examples at a time, unless they are averaged over several samples each."""


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


@torch.no_grad()
def logits_of(
    predict: Callable[[Tensor], Tensor], examples: DeviceExamples, *, batch_size: int = EVAL_BATCH
) -> tuple[Tensor, Tensor]:
    """Logits (N, K) and labels (N,) of all examples, in order."""
    parts = [(predict(x), y) for x, y in examples.iterate(batch_size)]
    return torch.cat([logits for logits, _ in parts]), torch.cat([y for _, y in parts])


def evaluate(
    predict: Callable[[Tensor], Tensor],
    examples: DeviceExamples,
    split: str,
    *,
    batch_size: int = EVAL_BATCH,
) -> dict[str, float]:
    """All scores of a split under their schema names (`val/nll`, ...)."""
    logits_NK, labels_N = logits_of(predict, examples, batch_size=batch_size)
    return {f"{split}/{name}": value for name, value in scores(logits_NK, labels_N).items()}
