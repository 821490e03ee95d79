"""Contract tests for what one brings along: inherit a class, and pytest runs its tests.

Our own suite uses the same classes. They need no pytest to be imported.
With `pytest.register_assert_rewrite("tuneparts.testing")` in a `conftest.py`, before the first
import, a failure shows the values that differ.
"""

from tuneparts.testing.algorithm import AlgorithmContract as AlgorithmContract
from tuneparts.testing.learner import LearnerContract as LearnerContract
from tuneparts.testing.parts import DatasetContract as DatasetContract
from tuneparts.testing.parts import HyperContract as HyperContract
