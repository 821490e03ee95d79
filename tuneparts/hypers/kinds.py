"""The hyperparameters of this package, without torch: `BUILT_IN` is the one list of them.

Those of inputs act on normalised ones, and are measured in standard deviations of the data.

Legend: B examples, N inputs, C channels, H height, W width, K outputs.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field

from tuneparts.core import schema
from tuneparts.core.config import Config
from tuneparts.core.errors import ConfigError
from tuneparts.core.registry import Registry
from tuneparts.hypers.hyper import LOG, POSITIVE, UNIT, Call, Hyper, Number, Shapes

if TYPE_CHECKING:
    from torch import Tensor

    from tuneparts.hypers.affine import AffineModule
    from tuneparts.hypers.parts import _MaskPart

COUNT = "num_kept"
"""What a mask reports besides the probabilities that it is counted from."""


class Mask(Hyper):
    """The probability of each input feature to be kept."""

    is_random = True
    is_augmentation = False
    keep: Annotated[
        float | tuple[float, ...], Number(UNIT, identity=1.0, each="input", metric="keep")
    ] = 0.5
    """Keep probability of all features, or of each; 0 and 1 make a hard mask when fixed."""
    tau: float = Field(0.1, gt=0)
    """Temperature of the relaxation; not used at fixed probabilities."""
    evaluation: Literal["probability", "rounded"] = "probability"
    """Multiply features by their keep probability, or by its rounding."""

    def on_inputs(self, x: "Tensor", now: Call) -> "Tensor":
        """Inputs times their keep variables, without rescaling; a draw of its own per example."""
        logits = now.raw("keep")
        if now.draws and logits is not None:
            logits = logits.view(x.shape[1:])
            return x * now.relaxed(logits, x.shape, tau=self.tau)
        keep = now["keep"].view(x.shape[1:])
        if now.draws:
            return x * keep.expand_as(x).bernoulli(generator=now.generator)
        return x * ((keep > 0.5) if self.evaluation == "rounded" else keep)

    def part(self, shapes: Shapes, *, name: str, learnable: bool) -> "_MaskPart":
        from tuneparts.hypers.parts import _MaskPart

        return _MaskPart(self, shapes, name=name, learnable=learnable)

    def metrics(self, name: str) -> tuple[schema.Metric, ...]:
        return (*super().metrics(name), schema.lookup(f"hyper/{COUNT}"))

    @classmethod
    def known(cls, name: str) -> list[str]:
        return [*super().known(name), COUNT]

    def at(self, found: Mapping[str, float], *, name: str) -> Self:
        keep = {metric: value for metric, value in found.items() if metric != COUNT}
        if not keep and COUNT in found:
            raise ConfigError(
                f"`{COUNT}` is counted from `keep.*`, but came without them: masks of images "
                "cannot be taken over by value."
            )
        counted = sum(value > 0.5 for value in keep.values())
        if found.get(COUNT, counted) != counted:
            raise ConfigError(
                f"`{COUNT}` = {found[COUNT]:g}: must count the `keep.*` above one half, {counted}."
            )
        return super().at(keep, name=name)


class Colour(Hyper):
    """Largest changes of brightness and contrast; each draw is uniform in plus-minus that."""

    is_random = True
    needs_images = True
    brightness: Annotated[
        float, Number(UNIT, identity=0.0, metric="brightness", held_in="maxima")
    ] = 0.05
    """Added to all pixels."""
    contrast: Annotated[float, Number(UNIT, identity=0.0, metric="contrast", held_in="maxima")] = (
        0.05
    )
    """Log-factor of the distance to the image's mean."""

    def on_inputs(self, x: "Tensor", now: Call) -> "Tensor":
        """Images with m + exp(u_2 contrast) (x - m) + u_1 brightness, m their mean."""
        u_N2 = x.new_empty(len(x), 2).uniform_(-1, 1, generator=now.generator)
        maxima = now["maxima"].to(x.dtype)
        shift, log_factor = (u_N2 * maxima).view(-1, 2, 1, 1, 1).unbind(1)
        mean = x.mean(dim=(1, 2, 3), keepdim=True)
        return mean + shift + log_factor.exp() * (x - mean)


def _motion(name: str) -> Number:
    return Number(POSITIVE, identity=0.0, metric=name)


_Generators = Mapping[str, tuple[tuple[float, float, float], ...]]
"""The first two rows of each generator, by the motion that it makes."""


class AffineConfig(Hyper):
    """The base of the configs of affine motions: where ranges start, or stay when fixed."""

    acts_on = "inputs"
    needs_images = True
    kind: str

    def part(
        self,
        shapes: Shapes,  # noqa: ARG002
        *,
        name: str,  # noqa: ARG002
        learnable: bool,
    ) -> "AffineModule":
        from tuneparts.hypers.affine import PARTS

        return PARTS[self.kind](self, learnable=learnable)


class Affine(AffineConfig):
    """The largest motion of six generators; draws are uniform in plus-minus (Immer et al. 2022).

    The common default of all image experiments: its six maxima are the axes on which Mlodozeniec
    et al. (2023, appendix G) compare learnt ranges with random search. What is not given is 0.05,
    also when fixed: hold a motion out by setting it to 0.
    """

    GENERATORS: ClassVar[_Generators] = {
        "translate_x": ((0, 0, 1), (0, 0, 0)),
        "translate_y": ((0, 0, 0), (0, 0, 1)),
        "rotation": ((0, -1, 0), (1, 0, 0)),
        "scale_x": ((1, 0, 0), (0, 0, 0)),
        "scale_y": ((0, 0, 0), (0, 1, 0)),
        "shear": ((0, 1, 0), (1, 0, 0)),
    }
    NAMES: ClassVar[tuple[str, ...]] = tuple(GENERATORS)
    kind: Literal["lila"] = "lila"
    rotation: Annotated[float, _motion("rotation")] = 0.05
    """Radians; beyond pi it acts, and is reported, as pi: the whole circle. A learnt one that
    steps pi turns back, see `Lila`."""
    translate_x: Annotated[float, _motion("translate_x")] = 0.05
    """Half image widths."""
    translate_y: Annotated[float, _motion("translate_y")] = 0.05
    """Half image heights."""
    scale_x: Annotated[float, _motion("scale_x")] = 0.05
    """Log-scale."""
    scale_y: Annotated[float, _motion("scale_y")] = 0.05
    """Log-scale."""
    shear: Annotated[float, _motion("shear")] = 0.05
    """Largest shear."""


class BentonAffine(AffineConfig):
    """Largest motion of each generator of Augerino (not its width), to compare with `lila`.

    Benton et al. (2020) have one isotropic scale with an area-preserving stretch instead of a scale
    per axis. What is not given is 0.05, also when fixed: hold a motion out by setting it to 0.
    """

    GENERATORS: ClassVar[_Generators] = {
        "translate_x": ((0, 0, 0.1), (0, 0, 0)),
        "translate_y": ((0, 0, 0), (0, 0, 0.1)),
        "rotation": ((0, -1, 0), (1, 0, 0)),
        "scale": ((1, 0, 0), (0, 1, 0)),
        "stretch": ((1, 0, 0), (0, -1, 0)),
        "shear": ((0, 1, 0), (1, 0, 0)),
    }
    NAMES: ClassVar[tuple[str, ...]] = tuple(GENERATORS)
    kind: Literal["benton"] = "benton"
    rotation: Annotated[float, _motion("rotation")] = 0.05
    """Radians."""
    translate_x: Annotated[float, _motion("translate_x")] = 0.05
    """Half image widths."""
    translate_y: Annotated[float, _motion("translate_y")] = 0.05
    """Half image heights."""
    scale: Annotated[float, _motion("scale")] = 0.05
    """Log-scale of both axes."""
    stretch: Annotated[float, _motion("stretch")] = 0.05
    """Log-scale of x, and its negative of y."""
    shear: Annotated[float, _motion("shear")] = 0.05
    """Largest shear."""


class Theta(Config):
    """One end of the range of each component; the identity unless said otherwise."""

    rotation: float = 0.0
    """Radians."""
    scale_x: float = 1.0
    """A factor, not its logarithm."""
    scale_y: float = 1.0
    shear_x: float = 0.0
    shear_y: float = 0.0
    translate_x: float = 0.0
    """Half image widths."""
    translate_y: float = 0.0
    """Half image heights."""

    @classmethod
    def near_identity(cls, offset: float) -> "Theta":
        return cls(**{name: value + offset for name, value in cls().model_dump().items()})


class SchwoebelAffine(AffineConfig):
    """Both ends of each component (Schwoebel et al. 2021); they start 0.02 around the identity."""

    NAMES: ClassVar[tuple[str, ...]] = tuple(Theta.model_fields)
    kind: Literal["schwoebel"] = "schwoebel"
    theta_min: Theta = Theta.near_identity(-0.02)
    theta_max: Theta = Theta.near_identity(0.02)

    def metrics(self, name: str) -> tuple[schema.Metric, ...]:  # noqa: ARG002
        return tuple(schema.lookup(f"hyper/{end}.*") for end in ("theta_min", "theta_max"))

    @classmethod
    def known(cls, name: str) -> list[str]:  # noqa: ARG003
        return [f"{end}.{one}" for end in ("theta_min", "theta_max") for one in cls.NAMES]

    @classmethod
    def identity(cls) -> Self:
        return cls(theta_min=Theta(), theta_max=Theta())

    def at(self, found: Mapping[str, float], *, name: str) -> Self:
        return super().at(found, name=name).replaced(found)  # reported names are paths of fields


class Noise(Hyper):
    """Adds Gaussian noise of one standard deviation to every input feature."""

    is_random = True
    std: Annotated[float, Number(POSITIVE, identity=0.0, metric="noise")] = 0.1
    """Standard deviation of the noise."""

    def on_inputs(self, x: "Tensor", now: Call) -> "Tensor":
        noise = x.new_empty(x.shape).normal_(generator=now.generator)
        return x + now["std"].to(x.dtype) * noise


_Rate = Annotated[float, Field(lt=1)]


class Dropout(Hyper):
    """The dropout rate of each dropout slot of the net."""

    is_random = True
    rate: Annotated[
        _Rate | tuple[_Rate, ...],
        Number(UNIT, identity=0.0, each="slot", metric="dropout", held_in="rates"),
    ] = 0.1
    """The same for all slots, or one each in the order of the net."""
    tau: float = Field(0.1, gt=0)
    """Temperature of the relaxation; not used at fixed rates."""

    def on_activations(self, h: "Tensor", slot: int, now: Call) -> "Tensor":
        """Drop activations of any shape, element by element, and rescale by 1 / (1 - rate)."""
        logits = now.raw("rates")
        if logits is not None:
            dropped = now.relaxed(logits[slot], h.shape, tau=self.tau)
            return h * ((1 - dropped) / (-logits[slot]).sigmoid()).to(h.dtype)
        rate = self.rate[slot] if isinstance(self.rate, tuple) else self.rate
        if rate == 0:
            return h
        u = h.new_empty(h.shape).uniform_(generator=now.generator)
        return h * (u >= rate) / (1 - rate)


class Temperature(Hyper):
    """Divides logits by a positive temperature: above 1 predictions are less certain."""

    value: Annotated[float, Field(gt=0), Number(LOG, identity=1.0, metric="temperature")] = 1.0
    """By which logits are divided."""

    def on_outputs(self, outputs_BK: "Tensor", now: Call) -> "Tensor":
        return outputs_BK / now["value"]


class Flip(Hyper):
    """Mirrors each image left and right with some probability.

    At one half an image and its mirror image are seen equally often. A probability p above it
    does what 1 - p does to mirrored data. A learnt probability is reached through the concrete
    relaxation of the coin: a training draw blends an image with its mirror image, and few blends
    are far from one of the two. Scores, and nets at a fixed probability, see whole images only.
    """

    is_random = True
    needs_images = True
    probability: Annotated[float, Number(UNIT, "probability of a mirrored image", identity=0.0)] = (
        0.1
    )
    tau: float = Field(0.1, gt=0)
    """Temperature of the relaxation; not used at a fixed probability."""

    def on_inputs(self, x: "Tensor", now: Call) -> "Tensor":
        probability, shape = now["probability"], (len(x), 1, 1, 1)
        if now.training and now.learns("probability"):
            # Nearer to 0 or 1 probabilities have no gradient: their logits overflow.
            mirrored = now.relaxed(probability.logit(eps=1e-6), shape, tau=self.tau)
        else:
            mirrored = probability.new_empty(shape).uniform_(generator=now.generator) < probability
        return x.lerp(x.flip(3), mirrored.to(x.dtype))


class LabelSmoothing(Hyper):
    """Mixes cross-entropy with that of the uniform distribution over classes (Szegedy et al. 2016).

    It changes the training loss only, and not what is predicted or scored: it can be searched,
    held, or learnt through a weight step, but not by a gradient at fixed weights.
    """

    needs_classes = True
    rate: Annotated[
        float,
        Field(lt=1),
        Number(UNIT, "share of a label that all classes have alike", identity=0.0),
    ] = 0.1

    def on_loss(
        self, losses_B: "Tensor", outputs_BK: "Tensor", targets_B: "Tensor", now: Call
    ) -> "Tensor":
        del targets_B
        uniform_B = -outputs_BK.log_softmax(dim=1).mean(dim=1)
        return losses_B + now["rate"] * (uniform_B - losses_B)


class WeightDecay(Hyper):
    """Adds strength / 2 times the squared norm of all weights to the training loss.

    The same as `optimiser.weight_decay`, but learnable: through a weight step, since a gradient at
    fixed weights cannot reach it.
    """

    strength: Annotated[float, Number(LOG, "weight decay", identity=0.0)] = 1e-4

    def on_weights(self, weights: "Sequence[Tensor]", now: Call) -> "Tensor":
        import torch

        squares = torch.stack([weight.square().sum() for weight in weights])
        return now["strength"] / 2 * squares.sum()


class WeightPrior(Hyper):
    """Adds decay / 2 times the squared norm of each parameter tensor to the training loss.

    A decay is the precision of the prior divided by the number of examples. The method `laplace`
    learns one for each tensor, in the order of the net's parameters, and arms that follow it train
    under them.
    """

    decay: Annotated[
        float | tuple[float, ...],
        Number(LOG, "prior's precision of a tensor over N", identity=0.0, each="tensor"),
    ] = 0.0

    def on_weights(self, weights: "Sequence[Tensor]", now: Call) -> "Tensor":
        import torch

        squares_T = torch.stack([weight.square().sum() for weight in weights])
        return (now["decay"] * squares_T).sum() / 2


BUILT_IN: dict[str, tuple[type[Hyper], ...]] = {
    "mask": (Mask,),
    "colour": (Colour,),
    "affine": (Affine, BentonAffine, SchwoebelAffine),
    "noise": (Noise,),
    "dropout": (Dropout,),
    "temperature": (Temperature,),
    "flip": (Flip,),
    "label_smoothing": (LabelSmoothing,),
    "weight_prior": (WeightPrior,),
    "weight_decay": (WeightDecay,),
}
"""Name -> the classes that a hyperparameter of this name can be of, in the order in which those of
one place act. The first six are fields of `Hypers`; the others, and your own, are under
a name of their own choice."""

KINDS = Registry(
    "hyperparameter",
    {
        cls.model_fields["kind"].default if "kind" in cls.model_fields else name: (
            f"{cls.__module__}:{cls.__name__}"
        )
        for name, classes in BUILT_IN.items()
        for cls in classes
    },
    group="tuneparts.hypers",
)
"""How the class is named in JSON: a `kind` of ours, of an installed package, or its path."""
