"""An ensemble of your own nets from one budget of weights, compared with the nets alone.

Run it by `python examples/shared_weights.py`. Two architectures share templates; each member is an
ordinary net in the end.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import tuneparts as tp

superweights = tp.methods.superweights


def net(width: int) -> nn.Module:
    """A convolutional net from images (B, 1, 8, 8) to logits (B, 10)."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, stride=2), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(4 * width, 10),
    )  # fmt: skip


def main(steps: int = 600) -> tp.methods.superweights.FittedEnsemble:
    """Train the ensemble and print what its members and their mean achieve."""
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)
    torch.manual_seed(0)
    ensemble = superweights.fit(
        [net(16), net(16), net(12)], x[:1400], y[:1400], budget=4000, steps=steps
    )
    sizes = ensemble.sizes
    print(f"{sizes.shared} shared and {sizes.private} private weights instead of {sizes.plain}")
    for number, member in enumerate(ensemble.members):
        right = member(x[1400:]).argmax(dim=1) == y[1400:]
        print(f"member {number}: accuracy {right.double().mean():.3f}")
    right = ensemble.predict(x[1400:]).argmax(dim=1) == y[1400:]
    print(f"all: accuracy {right.double().mean():.3f}")
    return ensemble


if __name__ == "__main__":
    main()
