"""The searches on how data and weights are dealt out (Mlodozeniec et al. 2023, appendix F)."""

from typing import Any

import tuneparts as tp

GRIDS = {
    2: ((0.8, 0.2), (0.5, 0.5), (0.2, 0.8)),
    3: ((0.8, 0.1, 0.1), (1 / 3, 1 / 3, 1 / 3), (0.1, 0.1, 0.8)),
    4: ((0.7, 0.1, 0.1, 0.1), (0.25, 0.25, 0.25, 0.25), (0.1, 0.2, 0.3, 0.4)),
}
"""Number of chunks -> shares of data, or of weights: most at the beginning, equal ones, and most at
the end, of which the text speaks. The paper's grids are larger."""


def setting(scale: tp.Scale) -> dict[str, Any]:
    """Fields of a search: rotated digits, and rotated MNIST at `paper` scale."""
    steps = scale.pick(smoke=20, cpu=2400, paper=60_000)
    is_paper = scale is tp.Scale.PAPER
    digits = tp.data.Digits(rotated=True, num_train=scale.pick(smoke=200, cpu=None, paper=None))
    return {
        "data": tp.data.Mnist(rotated=True) if is_paper else digits,
        "net": tp.nets.MnistCnn() if is_paper else tp.nets.DigitsCnn(),
        "steps": steps,
        "interval": steps // 5,
        "batch_size": scale.pick(smoke=20, cpu=50, paper=200),
        "optimiser": tp.Adam(lr=0.001 if is_paper else 0.006),
    }


def partitioned(scale: tp.Scale, **fields: Any) -> tp.Partitioned:
    """The published form at the printed hyper rate, or one for shorter runs."""
    lr = 1e-3 if scale is tp.Scale.PAPER else 36 / setting(scale)["steps"]
    hypers = {"affine": {}, "samples": scale.pick(smoke=2, cpu=4, paper=20)}
    return tp.Partitioned.published(hyper_lr=lr, hypers=hypers, **fields)
