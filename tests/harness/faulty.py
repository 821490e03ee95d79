"""A learner that fails on purpose: the null learner of the benches, with a fault to choose."""

import math
import os
import signal
import time
from collections.abc import Mapping
from typing import Literal

from tuneparts.testing.null import NullConfig, NullLearner
from tuneparts.training.learner import Context, Learner

_broken: list[int] = []
"""This process, once `context` has broken it."""


class FaultyConfig(NullConfig):
    """The null method, with something that goes wrong in the second interval."""

    method: Literal["tests.harness.faulty:FaultyConfig"] = "tests.harness.faulty:FaultyConfig"  # type: ignore[assignment]
    fault: Literal[
        "", "raise", "once", "nan", "score", "exit", "often", "context", "hang", "memory", "killed"
    ] = ""
    """`once` raises and `exit` kills the process, both once per folder; `often` kills it after
    every interval; `killed` kills it every time, as the kernel does when memory is out; `score`
    reports NaN; `context` breaks the process, as an error in CUDA does, for all trials in it."""
    fault_folder: str = ""
    """Where `exit`, `once` and `often` leave their marks, so that the next try goes well."""

    def build(self, context: Context) -> Learner:
        return FaultyLearner(self, context)


class FaultyLearner(NullLearner):
    """Counts steps until its fault strikes."""

    config: FaultyConfig

    def advance(self) -> Mapping[str, float]:
        if _broken:
            raise RuntimeError("an earlier error has left this process broken")
        if self.steps >= self.config.interval:
            self._fail()
        metrics = super().advance()
        return {**metrics, "val/accuracy": math.nan} if self.config.fault == "score" else metrics

    def _fail(self) -> None:
        often = self.steps if self.config.fault == "often" else ""
        mark = os.path.join(self.config.fault_folder, f"died{often}")
        if self.config.fault == "context":
            _broken.append(os.getpid())
            raise RuntimeError("an illegal access, as a device reports it")
        if self.config.fault == "once" and not os.path.exists(mark):
            open(mark, "w").close()
            raise ValueError("asked to fail once")
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
        if self.config.fault in {"exit", "often"} and not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(1)
