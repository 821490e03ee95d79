"""Parts of tuneparts inside other people's Ray Tune: any method as a trainable, and MLflow logging.

`trainable` makes an ordinary `tune.Trainable` of a method, for a `tune.Tuner` of one's own with any
scheduler and searcher. `MLflowObserver` is a callback that logs any Tune experiment to MLflow.
"""

from tuneparts.ray._learner_trainable import trainable
from tuneparts.ray._mlflow_observer import MLflowObserver

__all__ = ["MLflowObserver", "trainable"]
