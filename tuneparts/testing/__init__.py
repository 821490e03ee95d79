"""Contract tests for what one brings along: inherit a class, and pytest runs its tests.

One file per contract; our own suite uses the same classes. They need no pytest to be imported.
With `pytest.register_assert_rewrite("tuneparts.testing")` in a `conftest.py`, before the first
import, a failure shows the values that differ.
"""

from tuneparts.testing.algorithm import AlgorithmContract as AlgorithmContract
from tuneparts.testing.dataset import DatasetContract as DatasetContract
from tuneparts.testing.hyper import HyperContract as HyperContract
from tuneparts.testing.learner import LearnerContract as LearnerContract
