"""Learn how far training images are turned, and a net's weights, in one run without validation.

Run it by `python examples/partitioned_fit.py`; about a minute. It finds that digits were turned,
and neither moved, scaled nor sheared, and writes how the ranges grew and shrank to
`partitioned_fit.html`.
"""

from pathlib import Path

import torch
from torch import nn

from tuneparts import Data
from tuneparts.methods.partitioned import Fitted, fit


def main(steps: int = 2400, folder: Path = Path()) -> Fitted:
    """Fit a net and the ranges of its motions, print both, and draw the run."""
    digits = Data(name="digits", rotated=True).load()  # turned over the full circle
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    found = fit(net, digits.train.inputs / 255, digits.train.labels, hypers="affine", steps=steps)
    outputs = found.predict(digits.test.inputs / 255)
    right = outputs.argmax(dim=1) == torch.as_tensor(digits.test.labels)
    print(found)
    print(f"accuracy {right.double().mean():.3f}")
    found.plot().write_html(folder / "partitioned_fit.html", include_plotlyjs="cdn")
    return found


if __name__ == "__main__":
    main()
