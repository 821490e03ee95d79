"""What clustering sees in place of learnt deviations, to test whether their places matter.

If position-specific deviations are what makes the method work, permuting them among the free
weights (the same histogram at other places), or giving all of them one value, must cost accuracy.

Shapes: N all weights of a net.
"""

from typing import Literal

import torch
from torch import Tensor

Control = Literal["learnt", "permuted", "constant"]
"""`learnt` as they are; `permuted` among the free weights; `constant` at the free ones' median."""


def controlled(
    sigma_N: Tensor, fixed_N: Tensor, control: Control, generator: torch.Generator
) -> Tensor:
    """The deviations that clustering is shown; fixed ones are never changed."""
    free = (~fixed_N).nonzero().squeeze(1)
    if control == "learnt" or not len(free):
        return sigma_N
    shown_N = sigma_N.clone()
    if control == "constant":
        shown_N[free] = sigma_N[free].median()
    else:
        order = torch.randperm(len(free), generator=generator, device=generator.device)
        shown_N[free] = sigma_N[free[order.to(free.device)]]
    return shown_N
