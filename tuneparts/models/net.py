"""The base of all net configs: a name, a few sizes, and `build`."""

from torch import nn

from tuneparts.core.config import Config
from tuneparts.core.errors import ConfigError


class NetConfig(Config):
    """The base of all net configs.

    A subclass narrows `name` to a literal, by which a config written as data finds its class.
    """

    name: str
    """The net's name in `models.NETS`."""

    def build(self, in_shape: tuple[int, ...], num_classes: int) -> nn.Module:
        """Build an initialised net from inputs (B, *in_shape) to logits (B, num_classes).

        Initialisation draws from torch's global generator; wrap the call in `seeding.isolated`.

        Args:
            in_shape: (C, H, W) of one image, or (D,) of one vector.
            num_classes: logits per example.
        """
        raise NotImplementedError


def image_shape(config: NetConfig, in_shape: tuple[int, ...], least: int) -> tuple[int, int, int]:
    """`in_shape` as (C, H, W); refuses vectors, and sides below `least` pixels."""
    if len(in_shape) != 3:
        raise ConfigError(
            f"`{config.name}` takes images of shape (C, H, W), but got inputs of shape {in_shape}. "
            "Use `mlp` for vectors."
        )
    channels, height, width = in_shape
    if min(height, width) < least:
        raise ConfigError(
            f"`{config.name}` needs images of at least {least}x{least} pixels, but got "
            f"{height}x{width}. Use a net that pools less, such as `digits_cnn` or `mlp`."
        )
    return channels, height, width
