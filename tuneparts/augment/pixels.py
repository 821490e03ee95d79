"""Input noise, brightness and contrast, with learnable or fixed ranges.

They act on normalised inputs, and so are measured in standard deviations of the data.

Legend: N inputs, C channels, H height, W width.
"""

import torch
from pydantic import Field
from torch import Tensor, nn

from tuneparts.augment.constrained import POSITIVE, UNIT, ConstrainedParameter
from tuneparts.config import Config


class InputNoise(nn.Module):
    """Adds Gaussian noise of one standard deviation to every input feature."""

    def __init__(self, std: float, *, learnable: bool) -> None:
        super().__init__()
        self.std = ConstrainedParameter([std], link=POSITIVE, learnable=learnable, names=["noise"])
        self.is_identity = not learnable and std == 0

    def forward(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Noisy inputs of the same shape, any shape."""
        noise = torch.randn(x.shape, generator=generator, device=x.device, dtype=x.dtype)
        return x + self.std.tensor().to(x.dtype) * noise

    def values(self) -> dict[str, float]:
        """The standard deviation."""
        return {"noise": self.std.numbers()[0]}


class ColourConfig(Config):
    """Largest changes of brightness and contrast; each draw is uniform in plus-minus that."""

    brightness: float = Field(0.05, ge=0, le=1)
    """Added to all pixels."""
    contrast: float = Field(0.05, ge=0, le=1)
    """Log-factor of the distance to the image's mean."""

    def build(self, *, learnable: bool) -> "Colour":
        """The augmentation at these maxima."""
        return Colour(self.brightness, self.contrast, learnable=learnable)


class Colour(nn.Module):
    """Random brightness and contrast of each image; learnable maxima stay below 1 by a sigmoid.

    Args:
        brightness: largest shift.
        contrast: largest log-factor.
        learnable: whether gradient steps move them.
    """

    def __init__(self, brightness: float, contrast: float, *, learnable: bool) -> None:
        super().__init__()
        self.maxima = ConstrainedParameter(
            [brightness, contrast], link=UNIT, learnable=learnable, names=["brightness", "contrast"]
        )
        self.is_identity = not learnable and brightness == contrast == 0

    def forward(self, x_NCHW: Tensor, generator: torch.Generator) -> Tensor:
        """Images with m + exp(u_2 contrast) (x - m) + u_1 brightness, m their mean."""
        maxima = self.maxima.tensor().to(x_NCHW.dtype)
        u_N2 = x_NCHW.new_empty(len(x_NCHW), 2).uniform_(-1, 1, generator=generator)
        shift, log_factor = (u_N2 * maxima).view(-1, 2, 1, 1, 1).unbind(1)
        mean = x_NCHW.mean(dim=(1, 2, 3), keepdim=True)
        return mean + shift + log_factor.exp() * (x_NCHW - mean)

    def values(self) -> dict[str, float]:
        """The two maxima."""
        brightness, contrast = self.maxima.numbers()
        return {"brightness": brightness, "contrast": contrast}
