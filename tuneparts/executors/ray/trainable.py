"""The Ray Tune trainable: any learner, one interval per step. No training code."""

from dataclasses import asdict
from typing import Any

from ray import tune

from tuneparts.executors.ray.tasks import RayTasks
from tuneparts.executors.worker import SegmentExecution, TrialSetting
from tuneparts.search.segment import Segment
from tuneparts.training.allocator import keep_freed_memory


class LearnerTrainable(tune.Trainable):  # type: ignore[misc]
    """Executes one segment; a worker process is reused for many.

    State is kept in our own checkpoint store and not in Ray's checkpoints, so that a segment finds
    its newest state however it was interrupted: worker, node or driver. Ray only has to start it
    again.
    """

    def setup(self, config: dict[str, Any], *, setting: TrialSetting) -> None:
        self._setting = setting
        keep_freed_memory()
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._execution = SegmentExecution(
            Segment.from_json(new_config["segment"]),
            self._setting,
            threads=max(1, int(new_config["cpus"])),
            tasks=RayTasks(self._setting.code),
        )
        return True

    def step(self) -> dict[str, Any]:
        return asdict(self._execution.step())

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Save nothing: the checkpoint store has it."""

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Load nothing: a segment asks the checkpoint store."""
