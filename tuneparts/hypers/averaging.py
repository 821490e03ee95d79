"""Averages the predictions of several augmentation samples of an example.

Benton et al. (2020) average network outputs, Immer et al. (2022) logits; both are `logits`
here, because averaging log-probabilities differs from it by a constant per example. Schwoebel
et al. (2021) average probabilities: `prob`.

Legend: B examples, S samples of each, N = B * S, K classes.
"""

import math
from typing import Literal

import torch
from torch import Tensor

Averaging = Literal["logits", "prob"]


def average(logits_NK: Tensor, num_samples: int, rule: Averaging) -> Tensor:
    """Unnormalised log-probabilities of the averaged prediction.

    Cross-entropy and softmax take the result like any logits. One sample comes back unchanged
    under every rule.

    Args:
        logits_NK: sample s of example b at b * S + s.
        num_samples: S.
        rule: `logits` for the mean of logits, `prob` for the log of the mean probability.

    Returns:
        logits_BK.

    Example:
        >>> import torch
        >>> average(torch.tensor([[0.0, 2.0], [0.0, 4.0]]), 2, "logits")
        tensor([[0., 3.]])
    """
    if num_samples == 1:
        return logits_NK
    logits_BSK = logits_NK.reshape(-1, num_samples, logits_NK.shape[1])
    if rule == "logits":
        return logits_BSK.mean(dim=1)
    return torch.logsumexp(logits_BSK.log_softmax(dim=2), dim=1) - math.log(num_samples)
