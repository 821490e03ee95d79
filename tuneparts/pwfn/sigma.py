"""Where standard deviations start (Subia-Waud & Dasmahapatra 2023, appendix equations 8 and 9).

A weight that lies on a power of two need not move and starts with no noise; one at 4/3 of a power
of two is relatively furthest from both neighbours and starts with most. With the mantissa
m = |mu| / 2^floor(log2 |mu|) in [1, 2), the product of the relative distances is
r = (2 - m)(m - 1) / m^2: zero at m = 1, and at most 1/8, at m = 4/3.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from tuneparts.pwfn.conversion import tensors
from tuneparts.pwfn.gaussian import FLOOR

SCALE = 0.0025
"""What the third quartile of a tensor starts at."""
CEILING = 0.05
"""What no standard deviation starts above."""

Form = Literal["product", "upper"]
"""What the third quartile is taken of: the `product` of both relative distances, as the authors'
code has it, or the distance to the `upper` power of two, as the appendix prints it."""


def initial(mu: Tensor, form: Form = "product") -> Tensor:
    """Standard deviations of one tensor of means: the same shape, within [2^-30, 0.05].

    Zeros are on the grid already: they take the floor and do not count in the quartile.
    """
    mantissa = 2 * torch.frexp(mu.detach().abs()).mantissa
    product = (2 - mantissa) * (mantissa - 1) / mantissa.square()
    is_zero = mu == 0
    product = torch.where(is_zero, 0.0, product)
    upper = torch.where(mantissa == 1, 0.0, (2 - mantissa) / mantissa)
    quartile = _third_quartile((product if form == "product" else upper)[~is_zero])
    # A tensor that lies on powers of two almost everywhere has no scale of its own; 1/8 is the
    # most that r can be.
    spread = quartile if quartile > 0 else 1 / 8
    return (SCALE * product / spread).clamp(FLOOR, CEILING)


@torch.no_grad()
def initialise(net: nn.Module, start: Form | float = "product") -> None:
    """Set every standard deviation of a net in place, by form or all to one number."""
    for tensor in tensors(net).values():
        if isinstance(start, str):
            tensor.sigma.copy_(initial(tensor.mu, start))
        else:
            tensor.sigma.fill_(max(start, FLOOR))


def _third_quartile(values: Tensor) -> float:
    """The linearly interpolated quantile; `torch.quantile` refuses more than 2^24 elements."""
    if not values.numel():
        return 0.0
    position = 0.75 * (values.numel() - 1)
    below = int(position)
    low = values.kthvalue(below + 1).values.item()
    if position == below:
        return low
    high = values.kthvalue(below + 2).values.item()
    return low + (high - low) * (position - below)
