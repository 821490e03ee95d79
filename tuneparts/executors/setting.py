"""What the trials of a search get: their data, seed and streams, limits, and their learners."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tuneparts.core import settings
from tuneparts.core.errors import DataMissingError
from tuneparts.core.seeding import derive
from tuneparts.data.task import Task
from tuneparts.search import data_record
from tuneparts.search.arm import DATA_KEY, method_config, variant_name
from tuneparts.search.check import check_data
from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.code import Code
from tuneparts.search.events import TrialId
from tuneparts.search.spec import Search
from tuneparts.search.storage import Folder
from tuneparts.training.learner import Context, Learner


@dataclass(frozen=True)
class TrialSetting:
    """What all trials of a search share: data, the place of their files, and limits."""

    task: Task
    storage: str
    score_test_always: bool
    interval_limit: float
    code: Code = field(default_factory=Code)
    """What the search brings along; a worker imports from it."""
    system_metrics: bool = False
    """Whether rows say what the worker used of its machine."""
    variants: Mapping[str, Task] = field(default_factory=dict)
    """Data of the trials that have other data than the search: `variant_name` -> task."""
    draws: Mapping[int, tuple[Task, Mapping[str, Task]]] = field(default_factory=dict)
    """Seed -> its task and variants, where each seed draws its data."""
    fresh: frozenset[str] = frozenset()
    """Arms whose learners have another seed than those of their source arm."""
    search: str = ""

    def context(self, trial: TrialId, config: Mapping[str, Any], **options: Any) -> Context:
        """The data, seed and device that a trial of this config gets."""
        task, variants = self.draws[trial.seed] if self.draws else (self.task, self.variants)
        changes = config.get(DATA_KEY)
        return Context(
            task=variants[variant_name(changes)] if changes else task,
            seed=_seed(trial, is_fresh=trial.arm in self.fresh),
            score_test_always=self.score_test_always,
            stream=(self.search, trial.arm, trial.index),
            **options,
        )

    @classmethod
    def of(
        cls, search: Search, storage: str, code: Code | None = None, folder: Path | None = None
    ) -> "TrialSetting":
        """Load the data of a search, and read the limits from the settings of this process.

        Data that is not what the record in the run's `folder` says is refused.
        """
        code = code or Code()
        with code.importable():
            draws = {
                draw: (search.load_data(draw=draw), search.load_variants(draw))
                for draw in search.data_draws()
            }
            task, variants = next(iter(draws.values()))
            check_data(search, task, variants)
            drawn = {draw: both for draw, both in draws.items() if draw is not None}
            if folder is not None and search.data is not None:
                data_record.keep(task, folder, variants, drawn)
        return cls(
            task=task,
            storage=storage,
            score_test_always=search.score_test_always,
            interval_limit=settings.current().interval_limit,
            system_metrics=settings.current().system_metrics,
            code=code,
            variants=variants,
            draws=drawn,
            fresh=frozenset(arm.name for arm in search.arms if arm.fresh_seed),
            search=search.name,
        )


def _build_learner(config: Mapping[str, Any], context: Context) -> Learner:
    """Build the learner of a trial from its config as plain values."""
    made = method_config(config)  # its import may draw, but only the first in a process
    with context.seeded_globals():
        return made.build(context)


def _seed(trial: TrialId, *, is_fresh: bool) -> int:
    return derive(trial.seed, "fresh", trial.arm) if is_fresh else trial.seed


def restore_learner(
    search: Search, storage: str, trial: TrialId, config: Mapping[str, Any]
) -> Learner:
    """Rebuild the learner of a trial on the CPU, in the newest state that was kept."""
    state = CheckpointStore(Folder(storage)).last(trial)
    if state is None:
        raise DataMissingError(
            f"{trial}: it has no checkpoint in {storage}, from which its model would be made. The "
            "selected trial of each seed keeps its state; all do with `keep_checkpoints=True`."
        )
    task = trial_data(search, trial, config)
    seed = _seed(trial, is_fresh=search.arm(trial.arm).fresh_seed)
    stream = search.name, trial.arm, trial.index
    learner = _build_learner(config, Context(task, seed, stream=stream))
    learner.load_state_dict(state["learner"])
    return learner


def trial_data(search: Search, trial: TrialId, config: Mapping[str, Any]) -> Task:
    """Load the data that a trial of a search learns from."""
    arm = search.arm(trial.arm)
    changes = config.get(DATA_KEY, {}) if arm.has_variants else {}
    return search.load_data(changes, trial.seed if search.draws_data else None)
