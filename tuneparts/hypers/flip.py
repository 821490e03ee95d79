"""Mirrored images, with a probability that can be learnt.

A learnt probability is reached through the concrete relaxation of the coin (Maddison et al. 2016),
as dropout rates and masks are: a training draw blends an image with its mirror image, and few
blends are far from one of the two. Scores, and nets at a fixed probability, see whole images only.

Legend: N images, C channels, H height, W width.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from tuneparts.hypers.concrete import relaxed_bernoulli
from tuneparts.hypers.constrained import UNIT
from tuneparts.hypers.hyper import Call, Hyper, Number

_EDGE = 1e-6
"""Probabilities closer to 0 or 1 than this have no gradient: their logits overflow."""


class Flip(Hyper):
    """Mirrors each image left and right with some probability.

    At one half an image and its mirror image are seen equally often. A probability p above it
    does what 1 - p does to mirrored data.

    Example:
        >>> from tuneparts.hypers import HypersConfig
        >>> HypersConfig(flip=Flip(probability=0.5)).model_dump()["flip"]
        {'kind': 'flip', 'probability': 0.5, 'tau': 0.1}
    """

    is_random = True
    needs_images = True

    probability: Annotated[float, Number(UNIT, "probability of a mirrored image", identity=0.0)] = (
        0.1
    )
    tau: float = Field(0.1, gt=0)
    """Temperature of the relaxation; not used at a fixed probability."""

    def on_inputs(self, x: Tensor, now: Call) -> Tensor:
        """Images x (N, C, H, W), some of them mirrored."""
        probability, shape = now["probability"], torch.Size((len(x), 1, 1, 1))
        if now.training and now.learns("probability"):
            mirrored = relaxed_bernoulli(
                torch.logit(probability, eps=_EDGE), shape, tau=self.tau, generator=now.generator
            )
        else:
            u = torch.rand(shape, generator=now.generator, device=x.device)
            mirrored = u < probability
        return torch.lerp(x, x.flip(3), mirrored.to(x.dtype))
