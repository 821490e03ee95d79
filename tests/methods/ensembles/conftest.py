from collections.abc import Callable
from typing import Any

import pytest
import torch

from tuneparts.core.config import parse
from tuneparts.data.config import Data
from tuneparts.data.task import Task
from tuneparts.training.learner import Context


@pytest.fixture(scope="session")
def toy() -> Task:
    return Data(name="stripes", num_train=96, num_val=32, num_test=32).load()


@pytest.fixture(scope="session")
def start(toy: Task) -> Callable[..., Any]:
    """A learner of a config class at its start; fields by keyword."""

    def make(config: type, **changes: Any) -> Any:
        fields = {"steps": 4, "interval": 2, "batch_size": 8, **changes}
        return parse(config, fields).build(Context(toy, 0, torch.device("cpu")))

    return make
