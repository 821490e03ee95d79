from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.faulty import FaultyConfig
from tuneparts.data.config import DataConfig
from tuneparts.search.space import Uniform
from tuneparts.search.spec import Arm, Scale, Search


@pytest.fixture
def null_search() -> Callable[..., Search]:
    """A search over learners that do nothing."""

    def make(*arms: Arm, **fields: Any) -> Search:
        values = {
            "name": "null",
            "question": "Does it run?",
            "scale": Scale.SMOKE,
            "data": DataConfig(name="digits", num_train=20, num_val=10, num_test=10),
            "metric": "val/accuracy",
            "passes": 8,
            "seeds": (0,),
        }
        return Search(**{**values, **fields}, arms=arms)

    return make


@pytest.fixture
def null_arm() -> Callable[..., Arm]:
    def make(name: str, **fields: Any) -> Arm:
        config = FaultyConfig(passes=8, interval=2, **fields.pop("config", {}))
        if "algorithm" in fields:
            fields.setdefault("space", {"x": Uniform(low=0.0, high=1.0)})
        return Arm(name=name, config=config, **fields)

    return make
