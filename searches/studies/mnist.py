"""The setting of the searches on rotated MNIST: net, data and augmentation samples at each scale.

`paper` is the CNN of Mlodozeniec et al. (2023, Table 9) on all images, with 20 samples. Smaller
scales have images of 14 x 14 pixels, and `cpu` a net of 15,114 weights.
"""

from typing import Any

from tuneparts.core.errors import ConfigError
from tuneparts.data.config import Data
from tuneparts.nets import MnistCnn
from tuneparts.search.spec import Scale, Search

PHOTOGRAPHS = ("cifar10", "cifar100", "tinyimagenet")


def net(scale: Scale) -> MnistCnn:
    """The net of all arms."""
    return scale.pick(
        smoke=MnistCnn(channels=(4, 8), hidden=(16, 16)),
        cpu=MnistCnn(channels=(8, 16), hidden=(64, 32)),
        paper=MnistCnn(),
    )


def samples(scale: Scale, *, cpu: int = 4) -> dict[str, int]:
    """Augmentation samples in training and in scoring.

    Args:
        scale: size of the search.
        cpu: samples in training at that scale.
    """
    return scale.pick(
        smoke={"samples": 2, "eval_samples": 2},
        cpu={"samples": cpu, "eval_samples": 8},
        paper={"samples": 20, "eval_samples": 20},
    )


def rotated(scale: Scale, **fields: Any) -> Data:
    """Images that are each turned by an angle of their own.

    Args:
        scale: size of the search.
        fields: sizes that the search sets itself.
    """
    sizes = {
        "num_train": scale.pick(smoke=200, cpu=5000, paper=None),
        "num_val": scale.pick(smoke=100, cpu=1000, paper=10_000),
        "num_test": scale.pick(smoke=100, cpu=2000, paper=None),
    }
    pool = scale.pick(smoke=2, cpu=2, paper=1)
    return Data(name="mnist", rotated=True, pool=pool, **{**sizes, **fields})


def check(search: Search) -> None:
    """Refuse photographs, for which net, optimiser and sizes here are not meant.

    Raises:
        ConfigError: The data was changed to such a set.
    """
    if search.data is not None and search.data.name in PHOTOGRAPHS:
        raise ConfigError(
            f"`{search.name}` trains a net for digits, but `data.name` is `{search.data.name}`. "
            "Use `invariances_cifar` or `invariances_tiny`, which have nets and schedules for "
            "photographs."
        )
