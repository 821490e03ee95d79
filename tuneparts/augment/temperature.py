"""Softmax temperature, learnt through its logarithm or fixed."""

from torch import Tensor, nn

from tuneparts.augment.constrained import LOG, ConstrainedParameter


class Temperature(nn.Module):
    """Divides logits by a positive temperature: above 1 predictions are less certain."""

    def __init__(self, value: float, *, learnable: bool) -> None:
        super().__init__()
        self.value = ConstrainedParameter(
            [value], link=LOG, learnable=learnable, names=["temperature"]
        )
        self.is_identity = not learnable and value == 1

    def forward(self, logits_BK: Tensor) -> Tensor:
        """Tempered logits (B, K)."""
        return logits_BK / self.value.tensor().to(logits_BK.dtype)

    def values(self) -> dict[str, float]:
        """The temperature."""
        return {"temperature": self.value.numbers()[0]}
