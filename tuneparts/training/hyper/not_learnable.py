"""Which hyperparameters a gradient at fixed weights can never reach.

Hypers are learnt by the partial gradient of log p(y | x, w, psi) at fixed weights w
(Mlodozeniec et al. 2023, equation 4). What only shapes how w is reached has a gradient of
exactly zero there, and calling it learnt would be a mistake.
"""

from collections.abc import Iterable

from tuneparts.errors import ConfigError

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
