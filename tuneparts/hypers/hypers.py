"""One prediction from a net and its hyperparameters, the same in training and in scores.

Legend: B examples, S samples of each, N = B * S, K outputs.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.target import Reduction
from tuneparts.data.task import Examples, Task
from tuneparts.hypers.config import FIELDS, Averaging, Hypers, check_images
from tuneparts.hypers.hyper import PLACES, Place, Shapes
from tuneparts.hypers.kinds import Dropout
from tuneparts.hypers.parts import Act, DropoutSlot, _dropping, _Part
from tuneparts.nets import surgery

Net = Callable[[Tensor], Tensor]


class HyperModule(nn.Module):
    """The parts that act around a net, each learnable, fixed or absent; see `Hypers.build`."""

    affine: _Part | None
    dropout: _Part | None

    def __init__(
        self,
        config: Hypers,
        *,
        learnable: bool,
        net: nn.Module,
        in_shape: tuple[int, ...],
        num_outputs: int | None,
    ) -> None:
        super().__init__()
        layers = surgery.find(net, nn.Dropout).values()
        self._num_slots = len(layers)
        shapes = Shapes(tuple(in_shape), len(layers), num_outputs, len(list(net.parameters())))
        given = config.parts
        learnt = set(given).difference(config.frozen) if learnable else set()
        rates = tuple(layer.p for layer in layers)
        if config.dropout is None and any(rates):
            # A dropout layer of the net would draw from the global generator; driven by the
            # hyperparameters at its own rate it draws from the stream of the call.
            given = {"dropout": parse(Dropout, {"rate": rates}), **given}
        for name in FIELDS:
            self.add_module(name, None)
        self.own = nn.ModuleDict()
        names = [name for name in (*FIELDS, *config.own) if name in given]
        for name in names:
            check_images(name, given[name], in_shape)
            part = given[name].part(shapes, name=name, learnable=name in learnt)
            # Directly, because the class `ModuleDict` itself may use the name.
            (self if name in FIELDS else self.own)._modules[name] = part
        self._names: dict[Place, list[str]] = {
            place: [name for name in names if given[name].place() == place] for place in PLACES
        }
        self._outside = {name for name, hyper in given.items() if not hyper.enters_likelihood()}
        self.samples = config.samples
        self.eval_samples = config.eval_samples or config.samples
        self.averaging: Averaging = config.averaging
        self.draws_globally = False
        """Whether the nets that these are used with draw from torch's global generator."""
        self._is_plain = not any(self.acting("inputs", "activations", "outputs"))
        self.attach(net)

    def predict(self, net: Net, x: Tensor, *, generator: torch.Generator, training: bool) -> Tensor:
        """Unnormalised log-probabilities (B, K), averaged over samples with draws of their own.

        Masks and dropout are drawn in training only, augmentation and noise in scores too.
        """
        if training and self.draws_globally:
            net = partial(_seeded, net, generator)
        if self._is_plain:
            return net(x)
        x, act = self.inputs(x, generator, training=training), self.at_slots(training=training)
        if act is None:
            return self.combined(net(x), training=training)
        with _dropping(act, generator) as seen:
            logits_NK = net(x)
        if not seen.num_reads:
            raise ConfigError(
                "dropout rates act through the slots of a net, but no slot was reached in this "
                "call. Call `hypers.attach(net)` once before predicting with another net."
            )
        return self.combined(logits_NK, training=training)

    def inputs(self, x: Tensor, generator: torch.Generator, *, training: bool) -> Tensor:
        """What the net sees: (N, ...), sample s of example b at b * S + s."""
        num_samples = self.num_samples(training=training)
        for part in self.acting("inputs"):
            if part.makes_copies:
                # The affine motion multiplies the inputs by itself, and cheaply.
                x, num_samples = part(x, num_samples, generator), 1
                continue
            if part.draws(training=training):
                x, num_samples = _copies(x, num_samples), 1
            x = part(x, generator, training=training)
        return _copies(x, num_samples)

    def combined(self, outputs_NK: Tensor, *, training: bool) -> Tensor:
        """One prediction (B, K) from the net's outputs for all samples."""
        logits = _average(outputs_NK, self.num_samples(training=training), self.averaging)
        for part in self.acting("outputs"):
            logits = part(logits)
        return logits

    def at_slots(self, *, training: bool) -> Act | None:
        """What happens to activations at dropout slots; None for nothing."""
        # What is random at a slot is drawn in training only, as dropout is.
        parts = [p for p in self.acting("activations") if training or not p.draws(training=True)]
        if not parts:
            return None

        def act(h: Tensor, slot: int, generator: torch.Generator) -> Tensor:
            for part in parts:
                h = part(h, slot, generator)
            return h

        return act

    def loss(
        self,
        outputs_BK: Tensor,
        targets_B: Tensor,
        loss: Callable[..., Tensor],
        *,
        reduction: Reduction = "mean",
        held_out: bool = False,
    ) -> Tensor:
        """The loss under the parts that act on it; of held-out data, the likelihood alone."""
        named = [(name, part) for name, part in self._named("loss") if not part.is_identity]
        parts = [part for name, part in named if not (held_out and name in self._outside)]
        if not parts:
            return loss(outputs_BK, targets_B, reduction=reduction)
        losses_B = loss(outputs_BK, targets_B, reduction="none")
        for part in parts:
            losses_B = part(losses_B, outputs_BK, targets_B)
        found: Tensor = losses_B if reduction == "none" else getattr(losses_B, reduction)()
        return found

    def penalised(self, loss: Tensor, weights: Iterable[Tensor]) -> Tensor:
        """A training loss with the penalties of the parts that act on weights."""
        listed = list(weights)
        for part in self.acting("weights"):
            loss = loss + part(listed)
        return loss

    def num_samples(self, *, training: bool) -> int:
        """How many samples S are averaged for one prediction: 1 when nothing is random."""
        found = self.samples if training else self.eval_samples
        return found if self.drawn(training=training) else 1

    def num_draws(self) -> int:
        """Predictions of training that take `eval_samples` samples in all; 1 if none is random."""
        is_random = self.draws_globally or self.drawn(training=True)
        return math.ceil(self.eval_samples / self.samples) if is_random else 1

    def drawn(self, *, training: bool = False) -> list[str]:
        """Names of the parts that draw random numbers, in evaluation or in training."""
        named = self._named("inputs", "activations")
        return [n for n, part in named if not part.is_identity and part.draws(training=training)]

    def values(self) -> dict[str, float]:
        """All values by metric name (`hyper/rotation`, ...), learnable or not."""
        parts = (*(getattr(self, name) for name in FIELDS), *self.own.values())
        values = (part.values().items() for part in parts if part is not None)
        return {f"hyper/{name}": value for items in values for name, value in items}

    def learnable(self) -> list[nn.Parameter]:
        """What a hyperparameter step moves; empty when all parts are fixed."""
        return list(self.parameters())

    @contextmanager
    def detached(self) -> Iterator[None]:
        """Inside the block predictions build no graph for the hyperparameters."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        for parameter in parameters:
            parameter.requires_grad_(False)
        try:
            yield
        finally:
            for parameter in parameters:
                parameter.requires_grad_(True)

    def attach(self, net: nn.Module) -> None:
        """Replace a net's dropout layers, in place, by slots; twice does no harm."""
        if self._names["activations"]:
            numbers = iter(range(self._num_slots))

            def slot(_: str, layer: nn.Dropout) -> DropoutSlot:
                return DropoutSlot(next(numbers), layer.p)

            surgery.replace(net, nn.Dropout, slot, expected=self._num_slots)

    def _named(self, *places: Place) -> Iterator[tuple[str, Any]]:
        for place in places:
            for name in self._names[place]:
                yield name, self.own[name] if name in self.own else getattr(self, name)

    def acting(self, *places: Place) -> Iterator[Any]:
        """The parts of these places that do anything."""
        return (part for _, part in self._named(*places) if not part.is_identity)


def _copies(x: Tensor, num_samples: int) -> Tensor:
    return x if num_samples == 1 else x.repeat_interleave(num_samples, dim=0)


def _seeded(net: Net, generator: torch.Generator, x: Tensor) -> Tensor:
    """Outputs of a net whose layers (`Dropout2d`, attention) draw globally, seeded here."""
    device = generator.device
    drawn = torch.randint(2**62, (), generator=generator, device=device)
    with seeding.alone([device] if device.type == "cuda" else []):
        torch.manual_seed(int(drawn))
        return net(x)


def _average(logits_NK: Tensor, num_samples: int, rule: Averaging) -> Tensor:
    """The averaged prediction: of logits, or of probabilities (`prob`, Schwoebel et al. 2021)."""
    if num_samples == 1:
        return logits_NK
    logits_BSK = logits_NK.reshape(-1, num_samples, logits_NK.shape[1])
    if rule == "logits":
        return logits_BSK.mean(dim=1)
    return torch.logsumexp(logits_BSK.log_softmax(dim=2), dim=1) - math.log(num_samples)


def augmented_pixels(
    config: Hypers, inputs_ECHW: Any, task: Task, *, num: int, seed: int
) -> npt.NDArray[np.uint8]:
    """Draws of the augmentation of each example, images (E, D, H, W, C)."""
    examples = Examples(np.asarray(inputs_ECHW), np.zeros(len(inputs_ECHW), dtype=np.int64))
    device = torch.device("cpu")
    batch = DeviceExamples(examples, mean=task.mean, std=task.std, device=device)
    x_ECHW, _ = batch.take(torch.arange(len(inputs_ECHW)))
    many = config.replaced({"samples": num, "eval_samples": num})
    hypers = many.build(learnable=False, net=nn.Identity(), in_shape=task.in_shape)
    generator = seeding.torch_generator(seed, "report samples")
    x = hypers.inputs(x_ECHW, generator, training=True).numpy().astype(np.float64)
    shape = (1, -1, 1, 1)
    raw = x * np.asarray(task.std).reshape(shape) + np.asarray(task.mean).reshape(shape)
    pixels = np.clip(np.rint(255 * raw), 0, 255).astype(np.uint8)
    return np.moveaxis(pixels.reshape(len(inputs_ECHW), -1, *pixels.shape[1:]), 2, -1)
