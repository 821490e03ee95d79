"""Which hyperparameters a gradient at fixed weights can never reach.

Hypers are learnt by the partial gradient of log p(y | x, w, psi) at fixed weights w
(Mlodozeniec et al. 2023, equation 4). What only shapes how w is reached has a gradient of
exactly zero there, and calling it learnt would be a mistake.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from tuneparts.core.errors import ConfigError

if TYPE_CHECKING:
    from tuneparts.hypers.config import HypersConfig

_UPDATES = "it shapes the updates of the weights"
_BATCHES = "it chooses the data of an update"
_LOSS = "it changes the training loss only"
_STRUCTURE = "it is a discrete choice made before training"

OUTSIDE_LIKELIHOOD = {
    "weight_decay": _UPDATES,
    "learning_rate": _UPDATES,
    "lr": _UPDATES,
    "momentum": _UPDATES,
    "optimiser": _UPDATES,
    "schedule": _UPDATES,
    "batch_size": _BATCHES,
    "passes": _BATCHES,
    "label_smoothing": _LOSS,
    "width": _STRUCTURE,
    "depth": _STRUCTURE,
    "num_chunks": _STRUCTURE,
}
"""Names of such hyperparameters, and why they do not enter the likelihood."""


def refuse_outside_likelihood(names: Iterable[str]) -> None:
    """Raise for the first name that cannot be a hyper, with the reason."""
    for name in names:
        reason = OUTSIDE_LIKELIHOOD.get(name)
        if reason is not None:
            raise ConfigError(
                f"`{name}` cannot be learnt as a hyper: {reason} and does not enter "
                "log p(y | x, w, psi), so that its partial gradient at fixed weights is exactly "
                "zero. Set it in the config of the method, and compare its values by L_ML or by "
                "a search over runs."
            )


HyperGradient = Literal["none", "fixed weights", "through a step"]
"""What moves the hypers of a method: nothing, the partial gradient of a loss at fixed weights, or
the gradient of held-out data also through the last step of the weights."""


def check_hypers(
    config: "HypersConfig", gradient: HyperGradient, *, penalises_weights: bool
) -> None:
    """Refuse hypers that a method cannot use or learn.

    Args:
        config: The hypers; a method that learns them learns those that are not frozen.
        gradient: What moves them.
        penalises_weights: Whether the method takes the penalty of hypers that act on weights.
    """
    for name, hyper in config.parts.items():
        if hyper.place() == "weights" and not penalises_weights:
            raise ConfigError(
                f"`{name}` penalises all weights together, but this method trains them in parts, "
                "or has a rule of its own. Use `optimiser.weight_decay`, or one of the methods "
                "`standard` and `validation`."
            )
    if gradient != "none":
        refuse_learning(config, through_step=gradient == "through a step")


def refuse_learning(config: "HypersConfig", *, through_step: bool) -> None:
    """Raise for the first hyper that is to be learnt and that the gradient cannot reach.

    Args:
        config: The hypers, of which those that are not frozen are learnt.
        through_step: Whether the gradient goes through weight steps, and not only at fixed weights.
    """
    for name, hyper in config.parts.items():
        if name in config.frozen or hyper.enters_likelihood() or through_step:
            continue
        why = "it penalises the weights" if hyper.place() == "weights" else _LOSS
        raise ConfigError(
            f"`{name}` cannot be learnt here: {why} and does not enter log p(y | x, w, psi), "
            "so that its partial gradient at fixed weights is exactly zero. Hold it by "
            f"`frozen=('{name}',)`, search over it with the method `standard`, or learn it with "
            "`validation` and its `through_step`."
        )
