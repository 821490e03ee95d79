"""tuneparts inside your own Ray Tune: methods as trainables, results, and MLflow logging.

`trainable` makes an ordinary `tune.Trainable` of methods, for any `tune.Tuner` with any scheduler
and searcher. `results` reads what such a Tuner found as the results of a search. `MLflowObserver`
is a callback that logs any Tune experiment to MLflow.
"""

from tuneparts.ray._learner_trainable import trainable
from tuneparts.ray._mlflow_observer import MLflowObserver
from tuneparts.ray._tune_results import results

__all__ = ["MLflowObserver", "results", "trainable"]
