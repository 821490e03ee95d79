"""Does an evolution strategy of one's own find a better rotation than its first draws?

A search algorithm is one class: its fields are its settings, and `proposals` is a generator that
yields batches of trials and receives how they ended. Nothing is registered anywhere.

    tuneparts search examples/own_algorithm.py --scale smoke
"""

import math

from pydantic import Field

from tuneparts.core.schema import Metric
from tuneparts.core.seeding import numpy_generator
from tuneparts.data.config import Data
from tuneparts.methods.baselines.config import Standard
from tuneparts.search.algorithms.base import Algorithm, Proposals, draw, whole_trial
from tuneparts.search.arm import Arm
from tuneparts.search.segment import Batch
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Scale, Search


class Evolution(Algorithm):
    """A (1 + n) evolution strategy: each generation varies the best trial so far."""

    is_adaptive = True

    num_trials: int = Field(default=12, gt=0)
    children: int = Field(default=4, gt=0)
    """Trials of a generation; they run side by side."""

    def proposals(self, arm: Arm, seed: int, metric: Metric) -> Proposals:
        parent, best = None, math.nan
        for start in range(0, self.num_trials, self.children):
            generation = {}
            for index in range(start, min(start + self.children, self.num_trials)):
                rng = numpy_generator(seed, "evolution", arm.name, index)
                near = parent or draw(arm, seed, index)
                generation[index] = {p: dim.perturb(near[p], rng) for p, dim in arm.space.items()}
            trials = {
                index: whole_trial(arm, seed=seed, index=index, values=values)
                for index, values in generation.items()
            }
            results = yield Batch(tuple(trials.values()))
            for index, trial in trials.items():
                score = results[trial.trial].score(metric)  # NaN if it failed
                if metric.better(score, best) or (parent is None and not math.isnan(score)):
                    parent, best = generation[index], score


def search(scale: Scale) -> Search:
    """The question at one scale."""
    steps = scale.pick(smoke=20, cpu=400, paper=4_000)
    return Search(
        name="own_algorithm",
        question="Does an evolution strategy find a better rotation than its first draws?",
        scale=scale,
        data=Data(name="digits", rotated=True, num_val=300),
        metric="val/accuracy",
        steps=steps,
        seeds=scale.pick(smoke=(0,), cpu=(0, 1, 2), paper=(0, 1, 2)),
        arms=(
            Arm(
                name="evolution",
                config=Standard(
                    steps=steps, interval=steps // 2, hypers={"affine": {"rotation": 0.0}}
                ),
                algorithm=Evolution(num_trials=scale.pick(smoke=4, cpu=12, paper=60), children=2),
                space={"hypers.affine.rotation": Uniform(low=0.01, high=math.pi)},
            ),
        ),
    )
