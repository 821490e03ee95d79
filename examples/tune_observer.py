"""Any Ray Tune experiment in MLflow: a parent run, and a nested run per trial.

The trainable is a plain function that has never heard of tuneparts or MLflow. Look at the result
with `tuneparts ui`.
"""

from typing import Any

from ray import tune

import tuneparts as tp


def train(config: dict[str, Any]) -> None:
    """Lower a height step by step, and report how far it is from the target."""
    height = 10.0
    for _ in range(5):
        height *= 1 - config["rate"]
        tune.report({"loss": abs(height - config["target"])})


def tuner(num_samples: int = 8, **run_config: Any) -> tune.Tuner:
    """An ordinary Tuner; the callback is all that is special."""
    return tune.Tuner(
        train,
        param_space={"rate": tune.uniform(0.1, 0.9), "target": 1.0},
        tune_config=tune.TuneConfig(metric="loss", mode="min", num_samples=num_samples),
        run_config=tune.RunConfig(
            callbacks=[tp.ray.MLflowObserver("heights", metric="loss", mode="min")], **run_config
        ),
    )


if __name__ == "__main__":
    print(tuner().fit().get_best_result().config)
