"""A learner that fails on purpose: the null learner of the benches, with a fault to choose."""

import math
import os
import signal
import time
from collections.abc import Mapping
from typing import Literal

from tuneparts.bench.null import NullConfig, NullLearner
from tuneparts.training.learner import Context, Learner


class FaultyConfig(NullConfig):
    """The null method, with something that goes wrong in the second interval."""

    method: Literal["tests.harness.faulty:FaultyConfig"] = "tests.harness.faulty:FaultyConfig"  # type: ignore[assignment]
    fault: Literal["", "raise", "nan", "exit", "hang", "memory", "killed"] = ""
    """`exit` kills the process, once per folder; `killed` kills it every time, as the kernel does
    when memory is out."""
    fault_folder: str = ""
    """Where `exit` leaves its mark, so that the second try goes well."""

    def build(self, context: Context) -> Learner:
        return FaultyLearner(self, context)


class FaultyLearner(NullLearner):
    """Counts passes until its fault strikes."""

    config: FaultyConfig

    def advance(self) -> Mapping[str, float]:
        if self.passes >= self.config.interval:
            self._fail()
        return super().advance()

    def _fail(self) -> None:
        mark = os.path.join(self.config.fault_folder, "died")
        if self.config.fault == "raise":
            raise ValueError("asked to fail")
        if self.config.fault == "nan":
            raise ArithmeticError(f"loss is {math.nan}")
        if self.config.fault == "hang":
            time.sleep(1e6)
        if self.config.fault == "memory":
            bytearray(1 << 62)
        if self.config.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.config.fault == "exit" and not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(1)
