"""Is a running mean of the weights better than the last weights?

A search with a method of its own. Its config class and its learner stand in the search file; a
module beside it that it imports would do as well. Nothing is registered anywhere: the name of the
method is the class's import path, and the file travels to the workers. Run it with
`tuneparts search examples/own_method.py --scale smoke --local`.
"""

import copy

import torch
from pydantic import Field
from torch import Tensor, nn

from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard
from tuneparts.methods.baselines.standard import StandardLearner
from tuneparts.search.algorithms.base import RandomSearch
from tuneparts.search.arm import Arm
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step


class AveragedConfig(Standard):
    """Standard training; the net that counts has a running mean of the weights."""

    decay: float = Field(default=0.9, ge=0, lt=1)
    """Share of the mean that a step keeps."""

    def build(self, context: Context) -> Learner:
        """A learner at its start."""
        return AveragedLearner(self, context)


class AveragedLearner(StandardLearner, parts=("average",)):
    """`parts` names what training changes besides what `StandardLearner` has."""

    config: AveragedConfig

    def __init__(self, config: AveragedConfig, context: Context) -> None:
        super().__init__(config, context)
        self.average = copy.deepcopy(self.net).eval()

    def step(self) -> Step:
        """One update of the weights, and then of their mean."""
        step = super().step()
        with torch.no_grad():
            for mean, new in zip(self.average.parameters(), self.net.parameters(), strict=True):
                mean.lerp_(new, 1 - self.config.decay)
        return step

    def trained_net(self) -> nn.Module:
        """The net that is kept and served."""
        return self.average

    def predict(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Logits that are scored."""
        return self.hypers.predict(self.average, x, generator=generator, training=False)


def search(scale: Scale) -> Search:
    """Standard training, and its running mean at random decays."""
    steps = scale.pick(smoke=20, cpu=600, paper=6000)
    shared = {"steps": steps, "interval": steps // 4, "net": "digits_cnn"}
    return Search(
        name="own_method",
        question="Is a running mean of the weights better than the last weights?",
        scale=scale,
        data=Data(name="digits", num_val=300),
        metric="val/accuracy",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2, 3, 4)),
        arms=(
            Arm(name="last", config=Standard(**shared)),
            Arm(
                name="mean",
                config=AveragedConfig(**shared),
                algorithm=RandomSearch(num_trials=scale.pick(smoke=2, cpu=4, paper=16)),
                space={"decay": Uniform(low=0.5, high=0.99)},
            ),
        ),
    )
