import pytest
import torch

from tuneparts import nets
from tuneparts.data.config import Data
from tuneparts.data.task import Task
from tuneparts.training.learner import Context


@pytest.fixture(scope="session")
def stripes() -> Task:
    return Data(name="stripes", num_train=60, num_val=20, num_test=20).load()


@pytest.fixture
def context(stripes) -> Context:
    return Context(task=stripes, seed=0, device=torch.device("cpu"))


@pytest.fixture
def small() -> dict:
    """Fields of a small image classifier."""
    net = nets.DigitsCnn(channels=(4, 6), hidden=10)
    return {"net": net, "batch_size": 8, "interval": 10, "steps": 40}
