"""One prediction from a net and its hypers, the same in weight steps, hyper steps and scores.

Legend: B examples, S samples of each, N = B * S, K classes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tuneparts.augment.affine import Affine
from tuneparts.augment.averaging import Averaging, average
from tuneparts.augment.concrete import ConcreteDropout, InputMask
from tuneparts.augment.dropout_slot import DropoutSlot, dropping
from tuneparts.augment.pixels import Colour, InputNoise
from tuneparts.augment.temperature import Temperature
from tuneparts.data.target import Reduction
from tuneparts.errors import ConfigError
from tuneparts.models import surgery

Part = Affine | Colour | ConcreteDropout | InputMask | InputNoise | Temperature


class Hypers(nn.Module):
    """The parts that stand around a net, each learnable, fixed or absent.

    Learnable numbers are parameters of this module and never of the net. Fixed ones leave no
    trace in `state_dict`: the config determines them.

    Args:
        mask: multiplies input features.
        colour: brightness and contrast of images.
        affine: affine motions of images.
        noise: Gaussian noise on inputs.
        dropout: rates of the net's dropout slots; see `attach`.
        temperature: divides the averaged logits.
        samples: S in training, when anything is random.
        eval_samples: S in evaluation, when anything is random.
        averaging: how the S predictions become one.
    """

    def __init__(
        self,
        *,
        mask: InputMask | None = None,
        colour: Colour | None = None,
        affine: Affine | None = None,
        noise: InputNoise | None = None,
        dropout: ConcreteDropout | None = None,
        temperature: Temperature | None = None,
        samples: int = 1,
        eval_samples: int = 1,
        averaging: Averaging = "logits",
    ) -> None:
        super().__init__()
        self.mask = mask
        self.colour = colour
        self.affine = affine
        self.noise = noise
        self.dropout = dropout
        self.temperature = temperature
        self.samples = samples
        self.eval_samples = eval_samples
        self.averaging: Averaging = averaging
        self._is_plain = not any(_acts(part) for part in self._parts())

    def predict(
        self,
        net: Callable[[Tensor], Tensor],
        x: Tensor,
        *,
        generator: torch.Generator,
        training: bool,
    ) -> Tensor:
        """Unnormalised log-probabilities, to be used like any logits.

        Mask, colour, affine motion and noise act on the inputs in this order, each with a draw
        of its own per example and sample; the net runs once on all N inputs; its logits are
        averaged over samples and divided by the temperature. Without acting parts this is
        `net(x)` itself.

        Args:
            net: from inputs (N, ...) to logits (N, K); may be a subnetwork's forward.
            x: normalised images (B, C, H, W) or vectors (B, D).
            generator: source of all draws, on the device of `x`.
            training: weight and hyper steps draw masks and dropout; evaluation uses the mask's
                probabilities and no dropout. Augmentation and noise are drawn in both.

        Returns:
            logits_BK.
        """
        if self._is_plain:
            return net(x)
        num_samples = self.num_samples(training=training)
        x = self._inputs(x, num_samples, generator, training=training)
        logits = average(
            self._outputs(net, x, generator, training=training), num_samples, self.averaging
        )
        if self.temperature is not None and _acts(self.temperature):
            logits = self.temperature.forward(logits)
        return logits

    def loss(
        self,
        outputs_BK: Tensor,
        y_B: Tensor,
        loss: Callable[..., Tensor],
        *,
        reduction: Reduction = "mean",
    ) -> Tensor:
        """The training loss of predictions.

        Args:
            outputs_BK: what `predict` returned.
            y_B: labels (B, ...).
            loss: that of the target, `Target.loss`.
            reduction: mean or sum over examples, or one loss for each.
        """
        return loss(outputs_BK, y_B, reduction=reduction)

    def num_samples(self, *, training: bool) -> int:
        """How many samples S are averaged for one prediction: 1 when nothing is random."""
        if not self._is_random(training=training):
            return 1
        return self.samples if training else self.eval_samples

    def values(self) -> dict[str, float]:
        """All values by metric name (`hyper/rotation`, ...), learnable or not."""
        return {
            f"hyper/{name}": value
            for part in self._parts()
            for name, value in part.values().items()
        }

    def learnable(self) -> list[nn.Parameter]:
        """What a hyper step moves; empty when all parts are fixed."""
        return list(self.parameters())

    @contextmanager
    def detached(self) -> Iterator[None]:
        """Inside the block predictions build no graph for the hypers, as a weight step wants."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        for parameter in parameters:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in parameters:
                parameter.requires_grad_(True)

    def attach(self, net: nn.Module) -> None:
        """Replace the dropout layers of a net, in place, by slots that these hypers drive.

        Building hypers attaches the net they are built for. Copies of an attached net are
        attached; another net of the same kind needs a call of its own. Twice does no harm.
        """
        if self.dropout is None:
            return
        numbers = iter(range(len(self.dropout.rates.given)))
        surgery.replace(
            net,
            nn.Dropout,
            lambda _, layer: DropoutSlot(next(numbers), layer.p),
            expected=len(self.dropout.rates.given),
        )

    def _parts(self) -> list[Part]:
        parts = (
            self.mask,
            self.colour,
            self.affine,
            self.noise,
            self.dropout,
            self.temperature,
        )
        return [part for part in parts if part is not None]

    def _is_random(self, *, training: bool) -> bool:
        if _acts(self.colour) or _acts(self.affine) or _acts(self.noise):
            return True
        return training and (_acts(self.dropout) or self._is_mask_random())

    def _is_mask_random(self) -> bool:
        return self.mask is not None and self.mask.is_random

    def _inputs(
        self, x: Tensor, num_samples: int, generator: torch.Generator, *, training: bool
    ) -> Tensor:
        """What the net sees: (N, ...), sample s of example b at b * S + s."""
        # The affine motion multiplies the inputs by itself, and cheaply; only draws that come
        # before it need copies made first.
        if _acts(self.colour) or (training and self._is_mask_random()):
            x, num_samples = _copies(x, num_samples), 1
        if self.mask is not None and _acts(self.mask):
            x = self.mask.forward(x, generator, training=training)
        if self.colour is not None and _acts(self.colour):
            x = self.colour.forward(x, generator)
        if self.affine is not None and _acts(self.affine):
            x = self.affine.forward(x, num_samples, generator)
        else:
            x = _copies(x, num_samples)
        if self.noise is not None and _acts(self.noise):
            x = self.noise.forward(x, generator)
        return x

    def _outputs(
        self,
        net: Callable[[Tensor], Tensor],
        x: Tensor,
        generator: torch.Generator,
        *,
        training: bool,
    ) -> Tensor:
        if not training or self.dropout is None or not _acts(self.dropout):
            return net(x)
        with dropping(self.dropout, generator) as seen:
            logits_NK = net(x)
        if not seen.num_reads:
            raise ConfigError(
                "dropout rates act through the slots of a net, but no slot was reached in this "
                "call. Call `hypers.attach(net)` once before predicting with another net."
            )
        return logits_NK


def _acts(part: Part | None) -> bool:
    return part is not None and not part.is_identity


def _copies(x: Tensor, num_samples: int) -> Tensor:
    return x if num_samples == 1 else x.repeat_interleave(num_samples, dim=0)
