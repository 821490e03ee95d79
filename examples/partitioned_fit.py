"""Learn how far training images are turned, and a net's weights, in one run without validation.

Run it by `python examples/partitioned_fit.py`. Partitioned training finds a range of rotations for
one's own net on one's own arrays.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from tuneparts import partition


def main(passes: int = 4000) -> partition.Fitted:
    """Fit a net and the range of its rotations, and print both."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    found = partition.fit(
        net, x[:1400], y[:1400], passes=passes, hyper_lr=0.01,
        hypers={"affine": {"rotation": 0.05}, "samples": 4},
    )  # fmt: skip
    right = found.predict(x[1400:]).argmax(dim=1) == y[1400:]
    print(f"rotation {found.hypers['rotation']:.3f} radians, L_ML {found.lml:.0f} nats")
    print(f"accuracy {right.double().mean():.3f}")
    return found


if __name__ == "__main__":
    main()
