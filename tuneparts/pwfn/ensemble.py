"""Predictions averaged over draws of the weights, without a look at any label.

Shapes: S draws, B batch, K classes.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tuneparts.pwfn.gaussian import sampled


def ensemble_logits(
    net: nn.Module,
    predict: Callable[[], Tensor],
    *,
    num_samples: int,
    generator: torch.Generator,
) -> Tensor:
    """Log of the mean predicted probability over draws of the weights: float64 (B, K).

    Args:
        net: whose weights are drawn.
        predict: logits (B, K) from the net.
        num_samples: draws.
        generator: source of the draws.
    """
    with sampled(net, generator):
        log_probs_SBK = torch.stack(
            [torch.log_softmax(predict().double(), dim=1) for _ in range(num_samples)]
        )
    return log_probs_SBK.logsumexp(dim=0) - math.log(num_samples)
