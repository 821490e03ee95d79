import os

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import hypothesis
import pytest
import torch

# The same examples in every run: a failure is never a matter of luck.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Tiny tensors are far faster on one thread."""
    torch.set_num_threads(1)
