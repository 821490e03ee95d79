"""The prediction of an ensemble, and how much its members differ.

Legend: M members, N examples, K classes.
"""

import math

import torch
from torch import Tensor


def mean_log_probs(logits_MNK: Tensor) -> Tensor:
    """Log of the mean of the members' probabilities (N, K), in double precision."""
    log_probs_MNK = logits_MNK.double().log_softmax(dim=2)
    return log_probs_MNK.logsumexp(dim=0) - math.log(len(logits_MNK))


def differences(logits_MNK: Tensor, labels_N: Tensor) -> dict[str, float]:
    """Mean accuracy of single members, and disagreement and diversity over pairs of them.

    Disagreement is the fraction of examples with different predictions. Diversity divides it by
    the error of one of the two, over both choices (Fort et al. 2019); it is left out where no
    member errs, and so are both for a single member.
    """
    predicted_MN = logits_MNK.argmax(dim=2)
    error_M = (predicted_MN != labels_N).double().mean(dim=1)
    values = {"member_accuracy": 1 - float(error_M.mean())}
    num = len(logits_MNK)
    if num == 1:
        return values
    differ_MM = (predicted_MN[:, None] != predicted_MN[None]).double().mean(dim=2)
    is_pair_MM = ~torch.eye(num, dtype=torch.bool, device=logits_MNK.device)
    values["disagreement"] = float(differ_MM[is_pair_MM].mean())
    usable_MM = is_pair_MM & (error_M > 0)[:, None]
    if usable_MM.any():
        ratios_MM = differ_MM / error_M.clamp_min(torch.finfo(torch.float64).tiny)[:, None]
        values["diversity"] = float(ratios_MM[usable_MM].mean())
    return values
