"""Input noise, brightness and contrast, with learnable or fixed ranges.

They act on normalised inputs, and so are measured in standard deviations of the data.

Legend: N inputs, C channels, H height, W width.
"""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from tuneparts.hypers.constrained import POSITIVE, UNIT, ConstrainedParameter
from tuneparts.hypers.hyper import Call, Hyper, Number, Part, Shapes


class InputNoise(Hyper):
    """Adds Gaussian noise of one standard deviation to every input feature."""

    is_random = True

    std: Annotated[float, Number(POSITIVE, identity=0.0, metric="noise")] = 0.1
    """Standard deviation of the noise."""

    def on_inputs(self, x: Tensor, now: Call) -> Tensor:
        """Noisy inputs of the same shape, any shape."""
        noise = torch.randn(x.shape, generator=now.generator, device=x.device, dtype=x.dtype)
        return x + now["std"].to(x.dtype) * noise


class ColourConfig(Hyper):
    """Largest changes of brightness and contrast; each draw is uniform in plus-minus that."""

    acts_on = "inputs"
    needs_images = True

    brightness: Annotated[
        float, Field(ge=0, le=1), Number(UNIT, identity=0.0, metric="brightness")
    ] = 0.05
    """Added to all pixels."""
    contrast: Annotated[float, Field(ge=0, le=1), Number(UNIT, identity=0.0, metric="contrast")] = (
        0.05
    )
    """Log-factor of the distance to the image's mean."""

    def build(self, *, learnable: bool) -> "Colour":
        """The augmentation at these maxima."""
        return Colour(self.brightness, self.contrast, learnable=learnable)

    def part(self, shapes: Shapes, *, name: str, learnable: bool) -> "Colour":  # noqa: ARG002
        return self.build(learnable=learnable)


class Colour(Part):
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

    def forward(
        self,
        x_NCHW: Tensor,
        generator: torch.Generator,
        *,
        training: bool = True,  # noqa: ARG002
    ) -> Tensor:
        """Images with m + exp(u_2 contrast) (x - m) + u_1 brightness, m their mean."""
        maxima = self.maxima.tensor().to(x_NCHW.dtype)
        u_N2 = x_NCHW.new_empty(len(x_NCHW), 2).uniform_(-1, 1, generator=generator)
        shift, log_factor = (u_N2 * maxima).view(-1, 2, 1, 1, 1).unbind(1)
        mean = x_NCHW.mean(dim=(1, 2, 3), keepdim=True)
        return mean + shift + log_factor.exp() * (x_NCHW - mean)

    def draws(self, *, training: bool) -> bool:  # noqa: ARG002
        return not self.is_identity

    def values(self) -> dict[str, float]:
        """The two maxima."""
        brightness, contrast = self.maxima.numbers()
        return {"brightness": brightness, "contrast": contrast}
