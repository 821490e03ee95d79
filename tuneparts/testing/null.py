"""The null method, which trains nothing: a trial of it costs only what the platform adds."""

import time
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field
from torch import nn

from tuneparts.core.errors import ConfigError
from tuneparts.core.seeding import derive
from tuneparts.hypers import Hypers
from tuneparts.training.config import Method
from tuneparts.training.learner import Columns, Context, Learner


class NullConfig(Method):
    """A method, not in the catalog, whose score depends on `x` and the seed only."""

    method: Literal["tuneparts.testing.null:NullConfig"] = "tuneparts.testing.null:NullConfig"
    steps: int = Field(default=1, gt=0)
    interval: int = Field(default=1, gt=0)
    hypers: Hypers = Hypers()
    x: float = 0.5
    """The best is 0.7."""
    seconds: float = Field(default=0.0, ge=0)
    """How long an interval sleeps."""

    def build(self, context: Context) -> Learner:
        return NullLearner(self, context)


class NullLearner:
    """Counts steps and reports a made-up score."""

    def __init__(self, config: NullConfig, context: Context) -> None:
        self.config = config
        self.steps = 0
        self._shift = (derive(context.seed, "null") % 1000) / 1e5

    @property
    def finished(self) -> bool:
        return self.steps >= self.config.steps

    def advance(self) -> Mapping[str, float]:
        time.sleep(self.config.seconds)
        self.steps = min(self.steps + self.config.interval, self.config.steps)
        score = (1 - (self.config.x - 0.7) ** 2) * self.steps / self.config.steps - self._shift
        metrics = {
            "train/loss": 1 - score,
            "val/accuracy": score,
            "hyper/rotation": self.config.x,
            "cost/steps": float(self.steps),
        }
        return metrics | ({"test/accuracy": score - 0.01} if self.finished else {})

    def final_module(self) -> nn.Module:
        raise ConfigError("a method that trains nothing has no model to keep. Keep another arm's.")

    def artifacts(self) -> Mapping[str, Columns]:
        return {}

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = int(state["steps"])
