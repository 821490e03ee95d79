"""Does an evolution strategy of your own find a better rotation than its first draws?

A search algorithm is one class: its fields are its settings, and `proposals` is a generator that
yields batches of trials and receives how they ended. Nothing is registered anywhere.

    tuneparts search examples/own_algorithm.py --scale smoke
"""

import math

import numpy as np

import tuneparts as tp


class Evolution(tp.Algorithm):
    """A (1 + n) evolution strategy: each generation varies the best trial so far."""

    is_adaptive = True

    num_trials: int = 12
    children: int = 4
    """Trials of a generation; they run side by side."""

    def proposals(self, arm, seed, metric):
        """Generations one after another."""
        parent, best = None, math.nan
        for start in range(0, self.num_trials, self.children):
            generation = {}
            for index in range(start, min(start + self.children, self.num_trials)):
                rng = np.random.default_rng([seed, index])
                near = parent or tp.draw(arm, seed, index)
                generation[index] = {p: dim.perturb(near[p], rng) for p, dim in arm.space.items()}
            trials = {
                index: tp.whole_trial(arm, seed=seed, index=index, values=values)
                for index, values in generation.items()
            }
            results = yield tp.Batch(tuple(trials.values()))
            for index, trial in trials.items():
                score = results[trial.trial].score(metric)  # NaN if it failed
                if metric.better(score, best) or (parent is None and not math.isnan(score)):
                    parent, best = generation[index], score


def search(scale: tp.Scale) -> tp.Search:
    """The strategy over the range of rotations."""
    evolution = Evolution(num_trials=scale.pick(smoke=4, cpu=12, paper=60), children=2)
    return tp.Search(
        data=tp.data.Digits(rotated=True, num_val=300),
        hypers=tp.Affine(rotation=0.0),
        steps=scale.pick(smoke=20, cpu=400, paper=4_000),
        seeds=scale.pick(smoke=1, cpu=3, paper=3),
        arms={
            "evolution": tp.Standard().searched_by(evolution, rotation=tp.Uniform(0.01, math.pi))
        },
    )
