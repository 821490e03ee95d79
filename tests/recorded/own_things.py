"""The objective, net and data of recorded runs: plain arithmetic, the same on every machine."""

import os
import time
from pathlib import Path

import numpy as np
from torch import nn


class Climb:
    """Ten steps towards a height that depends on `x`; its state is one number."""

    def __init__(self, config):
        self.x, self.seed, self.level = config["x"], config["seed"], 0.0

    def advance(self):
        time.sleep(0.1 if "SLOW" in os.environ else 0)
        self.level += (1.0 - (self.x - 0.25 * self.seed) ** 2 - self.level) / 4
        return {"val/accuracy": self.level, "test/accuracy": self.level - 0.03125}

    def state_dict(self):
        return {"level": self.level}

    def load_state_dict(self, state):
        self.level = state["level"]


class FailsAtFirst(Climb):
    """Fails where `x` is large, unless the file `mended` of the working directory is there."""

    def advance(self):
        if self.x > 0.5 and not Path("mended").exists():
            raise RuntimeError("not mended yet")
        return super().advance()


def own_net(in_shape, num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(in_shape)), num_classes))


def own_data():
    """Sixty points of three classes."""
    labels = np.arange(60) % 3
    inputs = np.stack([labels, labels * labels, np.arange(60) / 60], axis=1)
    return inputs.astype(np.float32), labels
