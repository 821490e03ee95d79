"""A method of tuneparts inside your own `tune.Tuner`.

The trainable is an ordinary one: Ray's own `OptunaSearch` proposes trials, Ray's own ASHA stops
them, and `Tuner.restore` continues an experiment that was cut off. Nothing of `tuneparts search`
takes part. Run it with `python examples/tune_trainable.py`; it takes about a minute.
"""

from typing import Any

from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch

import tuneparts as tp


def tuner(steps: int = 200, num_samples: int = 8, **run_config: Any) -> tune.Tuner:
    """Learning rates of a partitioned network, chosen by its lower bound without validation."""
    partitioned = tp.ray.trainable(
        tp.Partitioned.published(steps=steps, interval=steps // 8),
        data=tp.data.Digits(rotated=True, num_train=800),
    )
    return tune.Tuner(
        partitioned,
        param_space={
            "optimiser.lr": tune.loguniform(1e-4, 1e-1),
            "hyper_lr": tune.loguniform(1e-4, 1e-2),
        },
        tune_config=tune.TuneConfig(
            metric="lml/per_example",
            mode="max",
            num_samples=num_samples,
            search_alg=OptunaSearch(seed=0),
            scheduler=ASHAScheduler(max_t=8, grace_period=2, reduction_factor=2),
        ),
        run_config=tune.RunConfig(
            checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1, num_to_keep=1),
            **run_config,
        ),
    )


if __name__ == "__main__":
    best = tuner().fit().get_best_result()
    print(f"L_ML {best.metrics['lml/per_example']:.3f} nats per example at {best.config}")
