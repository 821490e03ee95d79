"""Is a running mean of the weights better than the last weights?

A search with your own method. Its config class and its learner are in the search file; a module
next to it that it imports would do as well. Nothing is registered anywhere: the name of the
method is the class's import path, and the file travels to the workers. Run it with
`tuneparts search examples/own_method.py --scale smoke --local`.
"""

import copy

import torch
from torch import Tensor, nn

import tuneparts as tp


class Averaged(tp.Standard):
    """Standard training; the net that counts has a running mean of the weights."""

    decay: float = 0.9
    """Share of the mean that a step keeps."""

    def build(self, context: tp.methods.Context) -> tp.methods.Learner:
        """A learner at its start."""
        return AveragedLearner(self, context)


class AveragedLearner(tp.methods.StandardLearner, parts=("average",)):
    """`parts` names what training changes besides what `StandardLearner` has."""

    config: Averaged

    def __init__(self, config: Averaged, context: tp.methods.Context) -> None:
        super().__init__(config, context)
        self.average = copy.deepcopy(self.net).eval()

    def step(self) -> tp.methods.Step:
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


def search(scale: tp.Scale) -> tp.Search:
    """Standard training, and its running mean at random decays."""
    random = tp.RandomSearch(scale.pick(smoke=2, cpu=4, paper=16))
    return tp.Search(
        data=tp.data.Digits(num_val=300),
        net=tp.nets.DigitsCnn(),
        steps=scale.pick(smoke=20, cpu=600, paper=6000),
        seeds=scale.pick(smoke=1, cpu=3, paper=5),
        arms={
            "last": tp.Standard(),
            "mean": Averaged().searched_by(random, decay=tp.Uniform(0.5, 0.99)),
        },
    )
