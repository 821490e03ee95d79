"""Do gentle steps and a learnt offset of the classes help to tell flowers apart?

A project of its own, with nothing but the wheel of tuneparts: its method, net, data and hyper all
stand in this file. Run it with `tuneparts search flowers.py --scale smoke`.
"""

from typing import Annotated

import numpy as np
import torch
from sklearn.datasets import load_iris
from torch import Tensor, nn

from tuneparts import (
    Arm,
    Context,
    Data,
    Learner,
    Partitioned,
    RandomSearch,
    Scale,
    Search,
    Standard,
    Uniform,
)
from tuneparts.hypers import REAL, Call, Hyper, Number
from tuneparts.methods.baselines.standard import StandardLearner
from tuneparts.training.loop import Step


def flowers() -> tuple[np.ndarray, np.ndarray]:
    """Data: four lengths of 150 flowers, and their kind."""
    return load_iris(return_X_y=True)


def net(in_shape: tuple[int, ...], num_classes: int, width: int = 16) -> nn.Module:
    """Net: one hidden layer."""
    return nn.Sequential(nn.Linear(in_shape[0], width), nn.Tanh(), nn.Linear(width, num_classes))


class Offset(Hyper):
    """Hyper: a number that is added to the logit of each class."""

    size: Annotated[
        float | tuple[float, ...], Number(REAL, "added to a logit", identity=0.0, each="output")
    ] = 0.1

    def on_outputs(self, outputs_BK: Tensor, now: Call) -> Tensor:
        """Acts after the net."""
        return outputs_BK + now["size"]


class GentleConfig(Standard):
    """Method: standard training whose weights shrink a little after each step."""

    shrink: float = 0.001

    def build(self, context: Context) -> Learner:
        """A learner at its start."""
        return GentleLearner(self, context)


class GentleLearner(StandardLearner):
    """Has no state of its own, so that there is nothing more to save."""

    config: GentleConfig

    def step(self) -> Step:
        """One step of the base, then the shrinking."""
        step = super().step()
        with torch.no_grad():
            for weight in self.net.parameters():
                weight.mul_(1 - self.config.shrink)
        return step


def search(scale: Scale) -> Search:
    """The method at random strengths, and the hyper learnt in one run."""
    steps = scale.pick(smoke=60, cpu=600, paper=6000)
    shared = {"steps": steps, "interval": steps // 6, "net": net, "batch_size": 15}
    return Search(
        name="flowers",
        question="Do gentle steps or a learnt offset help to tell flowers apart?",
        scale=scale,
        data=Data(name=flowers, num_val=30, num_test=30, standardise=True),
        metric="val/accuracy",
        steps=steps,
        seeds=(0, 1),
        arms=(
            Arm(
                name="gentle",
                config=GentleConfig(**shared),
                algorithm=RandomSearch(num_trials=scale.pick(smoke=3, cpu=8, paper=32)),
                space={"shrink": Uniform(low=1e-4, high=1e-1, log=True)},
            ),
            Arm(name="offset", config=Partitioned(**shared, hypers={"offset": Offset()})),
        ),
    )
