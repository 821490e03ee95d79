"""The Ray Tune trainable: any learner, one interval per step. No training code."""

import os
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import ray
from ray import tune

from tuneparts.errors import StorageError
from tuneparts.executors.packed import execution_of
from tuneparts.executors.ray.tasks import RayTasks
from tuneparts.executors.worker import TrialSetting, give_back_memory
from tuneparts.search.segment import Segment
from tuneparts.training.allocator import keep_freed_memory


class LearnerTrainable(tune.Trainable):  # type: ignore[misc]
    """A worker: executes one segment after another, for as long as its process lives.

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

    def run(self, config: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Execute a segment, and yield what each step reports.

        Without a last report, one that is `done`, the storage did not answer; the trial's log says
        why. No exception leaves a worker, because Ray would write its text down.
        """
        self.reset_config(config)
        try:
            report = self.step()
            while not report["done"]:
                yield report
                report = self.step()
            yield report
        except StorageError:
            return
        finally:
            del self._execution
            give_back_memory()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._execution = execution_of(
            Segment.from_json(new_config["segment"]),
            self._setting,
            threads=new_config["threads"],
            gpus=new_config["gpus"],
            tasks=RayTasks(self._setting.code),
        )
        return True

    def step(self) -> dict[str, Any]:
        return asdict(self._execution.step())

    def _setup_logdir(self) -> None:
        # Tune's own would make a folder of results in the home directory for each worker.
        self._logdir = tempfile.gettempdir()
