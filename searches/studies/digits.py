"""The settings of the searches on rotated digits: those of scikit-learn, and MNIST.

MNIST at `paper` scale has the CNN of Mlodozeniec et al. (2023, Table 9), all images and 20
augmentation samples; smaller scales have images of 14 x 14 pixels, `cpu` a net of 15,114 weights.
"""

from typing import Any

import tuneparts as tp

PHOTOGRAPHS = ("cifar10", "cifar100", "tinyimagenet")


def small() -> dict[str, Any]:
    """Fields of a search on scikit-learn's digits, except steps and hyperparameters."""
    return {
        "data": tp.data.Digits(rotated=True, num_val=300),
        "net": tp.nets.DigitsCnn(),
        "batch_size": 50,
        "optimiser": tp.Adam(lr=0.006),
    }


def mnist(scale: tp.Scale, **sizes: Any) -> dict[str, Any]:
    """The same on MNIST; `sizes` are fields of the data that the search sets itself."""
    usual = {
        "num_train": scale.pick(smoke=200, cpu=5000, paper=None),
        "num_val": scale.pick(smoke=100, cpu=1000, paper=10_000),
        "num_test": scale.pick(smoke=100, cpu=2000, paper=None),
        "pool": scale.pick(smoke=2, cpu=2, paper=1),
        "rotated": True,
    }
    return {
        "data": tp.data.Mnist(**{**usual, **sizes}),
        "net": scale.pick(
            smoke=tp.nets.MnistCnn(channels=(4, 8), hidden=(16, 16)),
            cpu=tp.nets.MnistCnn(channels=(8, 16), hidden=(64, 32)),
            paper=tp.nets.MnistCnn(),
        ),
        "batch_size": scale.pick(smoke=20, cpu=50, paper=200),
        "optimiser": tp.Adam(lr=1e-3 if scale is tp.Scale.PAPER else 3e-3),
    }


def tuned_mnist(scale: tp.Scale, steps: int, **sizes: Any) -> dict[str, Any]:
    """The same for a benchmark task."""
    own = {"steps": steps, "interval": steps // 4, "batch_size": 50}
    return {**mnist(scale, **sizes), **own, "optimiser": tp.Adam(lr=0.003)}


def samples(scale: tp.Scale, *, cpu: int = 4) -> dict[str, int]:
    """Augmentation samples in training and scoring on MNIST; `cpu` are those in training there."""
    num = scale.pick(smoke=2, cpu=cpu, paper=20)
    return {"samples": num, "eval_samples": scale.pick(smoke=2, cpu=8, paper=20)}


def check(search: tp.Search) -> None:
    """Refuse photographs, for which net, optimiser and sizes here are not meant."""
    if search.data is not None and search.data.name in PHOTOGRAPHS:
        raise tp.ConfigError(
            f"`data.name` = `{search.data.name}`: `{search.name}` trains a net for digits. Use "
            "`invariances_cifar` or `invariances_tiny`, which have nets and schedules for "
            "photographs."
        )
