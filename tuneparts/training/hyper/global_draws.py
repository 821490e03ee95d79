"""Nets that draw from torch's global generator: `Dropout2d`, functional dropout, attention.

Plain `nn.Dropout` layers become slots that draw from a named stream. Other layers take no
generator. Called as they are, they give other numbers in each run and after each resume, and so
torch's generator is seeded from the stream around every call of such a net.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from tuneparts import seeding

_RANDOM = (_DropoutNd, nn.RReLU, nn.MultiheadAttention, nn.RNNBase, nn.FractionalMaxPool2d)
_KNOWN = ("torch.nn.", "tuneparts.models.", "tuneparts.augment.")


def draws_globally(net: nn.Module, x: Tensor) -> bool:
    """Whether a call of a net in training reads torch's global generator.

    Args:
        net: with slots in place of `nn.Dropout`; it is not changed.
        x: a few inputs.

    Example:
        >>> x = torch.ones(2, 3, 4, 4)
        >>> draws_globally(nn.Sequential(nn.Dropout2d(0.5)), x)
        True
        >>> draws_globally(nn.Sequential(nn.Conv2d(3, 3, 1)), x)
        False
    """
    is_plain = all(
        type(module).__module__.startswith(_KNOWN)
        and (not isinstance(module, _RANDOM) or isinstance(module, nn.Dropout))
        for module in net.modules()
    )
    if is_plain:
        return False
    called = copy.deepcopy(net).cpu().train()
    with seeding.isolated(0, "probe"), torch.no_grad():
        before = torch.get_rng_state()
        called(x.cpu())
        return not torch.equal(before, torch.get_rng_state())


def seeded(
    net: Callable[[Tensor], Tensor], generator: torch.Generator
) -> Callable[[Tensor], Tensor]:
    """The same net, its global draws determined by the next number of a generator."""

    def call(x: Tensor) -> Tensor:
        with _seeded_by(generator):
            return net(x)

    return call


@contextmanager
def _seeded_by(generator: torch.Generator) -> Iterator[None]:
    device = generator.device
    drawn = torch.randint(2**62, (), generator=generator, device=device)
    devices = [device] if device.type == "cuda" else []
    with seeding.alone(devices):
        torch.manual_seed(int(drawn))
        yield
