"""The Ray Tune trainable: any learner, one interval per step. No training code."""

import os
import tempfile
from collections.abc import Iterator
from typing import Any

import ray
from ray import tune

from tuneparts.core.errors import StorageError
from tuneparts.executors.packed import GroupExecution
from tuneparts.executors.ray.tasks import RayTasks
from tuneparts.executors.worker import Report, TrialSetting, give_back_memory
from tuneparts.search.groups import Group
from tuneparts.search.segment import Segment
from tuneparts.training.process import keep_freed_memory


class LearnerTrainable(tune.Trainable):  # type: ignore[misc]
    """A worker: executes one group of segments after another, for as long as its process lives.

    State is kept in our own checkpoint store and not in Ray's checkpoints, so that a segment finds
    its newest state however it was interrupted: worker, node or driver.
    """

    def setup(self, config: dict[str, Any]) -> None:  # noqa: ARG002
        if not ray.get_gpu_ids():
            # Ray lets a worker that was given no GPU see all of them.
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        keep_freed_memory()

    def prepare(self, setting: TrialSetting) -> str:
        """Take what all trials of the search share; returns the node that this process is on."""
        self._setting = setting
        return str(ray.get_runtime_context().get_node_id())

    def run(self, config: dict[str, Any]) -> Iterator[list[Report]]:
        """Execute a group, and yield what each step reports of its segments.

        Without last reports, which are `done`, the storage did not answer; the trial's log says
        why. No exception leaves a worker, because Ray would write its text down.
        """
        self.reset_config(config)
        try:
            reports: list[Report] = []
            while not reports or not all(report.done for report in reports):
                reports = self.step()["reports"]
                yield reports
        except StorageError:
            return
        finally:
            del self._execution
            give_back_memory()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        segments = tuple(map(Segment.from_json, new_config["segments"]))
        self._execution = GroupExecution(
            Group(segments, new_config["packed"]),
            self._setting,
            threads=new_config["threads"],
            gpus=new_config["gpus"],
            tasks=RayTasks(self._setting.code),
        )
        return True

    def step(self) -> dict[str, Any]:
        return {"reports": self._execution.step()}

    def _setup_logdir(self) -> None:
        # Tune's own would make a folder of results in the home directory for each worker.
        self._logdir = tempfile.gettempdir()
