import pytest

from tuneparts.data.config import DataConfig
from tuneparts.data.task import Task


@pytest.fixture(scope="session")
def toy() -> Task:
    return DataConfig(name="stripes", num_train=96, num_val=32, num_test=32).load()
