"""Learn how far training images are turned, and a net's weights, in one run without validation.

Run it by `python examples/partitioned_fit.py`; about a minute. It finds that digits were turned,
and neither moved, scaled nor sheared, and writes how the ranges grew and shrank to
`partitioned_fit.html`.
"""

from pathlib import Path

import torch
from torch import nn

import tuneparts as tp


def main(steps: int | None = None, folder: Path = Path()) -> tp.PartitionedClassifier:
    """Fit a net and the ranges of its motions, print both, and draw the run."""
    digits = tp.data.Digits(rotated=True).load()  # turned over the full circle
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    found = tp.PartitionedClassifier(net, hypers=tp.Affine(), steps=steps)
    found.fit(digits.train.inputs / 255, digits.train.labels)
    print(found)
    print(f"accuracy {found.score(digits.test.inputs / 255, digits.test.labels):.3f}")
    found.plot().write_html(folder / "partitioned_fit.html", include_plotlyjs="cdn")
    return found


if __name__ == "__main__":
    main()
