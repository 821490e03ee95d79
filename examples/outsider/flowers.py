"""Do gentle steps and a learnt offset of the classes help to tell flowers apart?

A project that has nothing but the installed package: its method, net, data and hyperparameter are
all in this file. Run it with `tuneparts search flowers.py --scale smoke`.
"""

from typing import Annotated

import numpy as np
import torch
from sklearn.datasets import load_iris
from torch import Tensor, nn

import tuneparts as tp


def flowers() -> tuple[np.ndarray, np.ndarray]:
    """Data: four lengths of 150 flowers, and their kind."""
    return load_iris(return_X_y=True)


def net(in_shape: tuple[int, ...], num_classes: int, width: int = 16) -> nn.Module:
    """Net: one hidden layer."""
    return nn.Sequential(nn.Linear(in_shape[0], width), nn.Tanh(), nn.Linear(width, num_classes))


class Offset(tp.hypers.Hyper):
    """Hyperparameter: a number that is added to the logit of each class."""

    size: Annotated[
        float | tuple[float, ...],
        tp.hypers.Number(tp.hypers.REAL, "added to a logit", identity=0.0, each="output"),
    ] = 0.1

    def on_outputs(self, outputs_BK: Tensor, now: tp.hypers.Call) -> Tensor:
        """Acts after the net."""
        return outputs_BK + now["size"]


class Gentle(tp.Standard):
    """Method: standard training whose weights shrink a little after each step."""

    shrink: float = 0.001

    def build(self, context: tp.methods.Context) -> tp.methods.Learner:
        """A learner at its start."""
        return GentleLearner(self, context)


class GentleLearner(tp.methods.StandardLearner):
    """Has no state of its own, so that there is nothing more to save."""

    config: Gentle

    def step(self) -> tp.methods.Step:
        """One step of the base, then the shrinking."""
        step = super().step()
        with torch.no_grad():
            for weight in self.net.parameters():
                weight.mul_(1 - self.config.shrink)
        return step


def search(scale: tp.Scale) -> tp.Search:
    """The method at random strengths, and the hyperparameter learnt in one run."""
    random = tp.RandomSearch(scale.pick(smoke=3, cpu=8, paper=32))
    return tp.Search(
        data=tp.data.Data(name=flowers, num_val=30, num_test=30, standardise=True),
        net=net,
        batch_size=15,
        steps=scale.pick(smoke=60, cpu=600, paper=6000),
        seeds=2,
        arms={
            "gentle": Gentle().searched_by(random, shrink=tp.Uniform(1e-4, 1e-1, log=True)),
            "offset": tp.Partitioned(hypers=Offset()),
        },
    )
