"""Several nets of one architecture as one: from the inputs of all lanes to their outputs.

Legend: P lanes, N inputs of each, K outputs.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from tuneparts.errors import ConfigError
from tuneparts.training.packed.forms import Act, LaneConv2d, Mapped, form
from tuneparts.training.packed.layout import wide
from tuneparts.training.packed.stack import Forward, Stack


class LaneNet:
    """The lane form of a net.

    Args:
        nets: of one architecture; their weights become views of `stack`.
        x: a few inputs (N, ...), on which the lane form must agree with the nets.
        holders: modules whose tensors become views, where they hold more than their nets.

    Raises:
        ConfigError: The net has no lane form.

    Example:
        >>> nets = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(5)]
        >>> packed = LaneNet(nets, torch.randn(2, 3))
        >>> packed(torch.randn(7, 3)).shape
        torch.Size([5, 7, 2])
    """

    def __init__(
        self, nets: Sequence[nn.Module], x: Tensor, holders: Sequence[nn.Module] | None = None
    ) -> None:
        self._nets = nets
        self.stack = Stack(holders or nets)
        named = (*nets[0].named_parameters(), *nets[0].named_buffers())
        self._ids = {name: id(tensor) for name, tensor in named}
        self._acts: list[Act] = []
        # Sequences of vectors have no layout of their own; such nets are mapped as a whole.
        self._is_known = x.dim() in (2, 4)
        try:
            self._form = (
                form(nets[0], self.stack, self._acts)
                if self._is_known
                else Mapped(nets[0], self.stack, is_net=True)
            )
            self._check(x)
        except ConfigError:
            raise
        except Exception as error:  # whatever vmap cannot map
            raise ConfigError(
                f"a net in a pack is computed for all lanes at once, but that fails for "
                f"{type(nets[0]).__name__}: {type(error).__name__}: {error}. Use `packed=1`."
            ) from error

    def train(self, is_training: bool = True) -> None:
        """Set the mode of all lanes."""
        self._nets[0].train(is_training)

    def __call__(
        self,
        x: Tensor,
        acts: Sequence[Act] = (),
        *,
        is_shared: bool = True,
        tensors: Mapping[str, Tensor] | None = None,
        instead: Mapping[int, Forward] | None = None,
    ) -> Tensor:
        """Outputs (P, N, K).

        Args:
            x: what all lanes see (N, ...), or wide images, or stacked vectors.
            acts: what each lane does at dropout slots; empty for nothing.
            is_shared: whether `x` is what all lanes see.
            tensors: (P, ...) by name, in place of parameters and buffers of the nets.
            instead: what to do in place of lane forms, by id of the first net's layer.
        """
        self._acts[:] = acts
        lent = {self._ids[name]: tensor for name, tensor in (tensors or {}).items()}
        try:
            with self.stack.lending(lent, instead or {}):
                found: Tensor = self._of_shared(x, instead) if is_shared else self._form(x)
        finally:
            self._acts.clear()
        return found

    def _of_shared(self, x: Tensor, instead: Mapping[int, Forward] | None) -> Tensor:
        layers = list(self._form._modules.values())
        first = layers[0] if layers and type(self._form) is nn.Sequential else None
        if isinstance(first, LaneConv2d) and first.layer.groups == 1 and not instead:
            h = first.of_shared(x.contiguous(memory_format=torch.channels_last))
            for layer in filter(None, layers[1:]):
                h = layer(h)
            return h
        lanes = x.expand(self.stack.lanes, *x.shape)
        found: Tensor = self._form(wide(lanes) if self._is_known and x.dim() == 4 else lanes)
        return found

    @torch.no_grad()
    def _check(self, x: Tensor) -> None:
        """Compare with what the nets say themselves: a form that is wrong must not train."""
        was_training = [net.training for net in self._nets]
        for net in self._nets:
            net.eval()
        found = self(x)
        wanted = torch.stack([net(x) for net in self._nets])
        # In training some modules do what cannot be mapped: they write statistics, or draw.
        kept = [buffer.clone() for buffer in self.stack.buffers]
        self.train()
        self(x)
        for buffer, value in zip(self.stack.buffers, kept, strict=True):
            buffer.copy_(value)
        for net, mode in zip(self._nets, was_training, strict=True):
            net.train(mode)
        if found.shape != wanted.shape or not torch.allclose(
            found, wanted, rtol=1e-3, atol=1e-4, equal_nan=True
        ):
            raise ConfigError(
                "a net in a pack must give what it gives alone, but "
                f"{type(self._nets[0]).__name__} does not. Use `packed=1`."
            )
