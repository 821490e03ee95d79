"""What a stock `tune.Tuner` over our trainables left behind, as a run of ours."""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ray import tune

from tuneparts.core import provenance, schema, settings
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, DataMissingError
from tuneparts.core.redaction import redact
from tuneparts.executors.place import Place
from tuneparts.ray._learner_trainable import FACTS, FINISHED, configured
from tuneparts.results.results import Results
from tuneparts.results.running import execute
from tuneparts.search import events, runs
from tuneparts.search.algorithms.base import Algorithm, Fixed, Proposals
from tuneparts.search.arm import Arm, is_read
from tuneparts.search.events import TrialId
from tuneparts.search.journal import Journal
from tuneparts.search.locks import lock
from tuneparts.search.space import Choice, Dimension, Int, Uniform
from tuneparts.search.spec import Search


class ByTuner(Algorithm):
    """Trials of a `tune.Tuner`, by its own searcher and scheduler."""

    is_adaptive = True

    num_trials: int

    def proposals(self, arm: Arm, seed: int, metric: schema.Metric) -> Proposals:  # noqa: ARG002
        yield from ()  # Tune runs them


class FixedByTuner(Fixed):
    """Trials of a `tune.Tuner` that all have one config."""

    def proposals(self, arm: Arm, seed: int, metric: schema.Metric) -> Proposals:  # noqa: ARG002
        yield from ()


def results(source: tune.ResultGrid | Path | str, **fields: Any) -> Results:
    """Read what a `tune.Tuner` over a `trainable` found, as the results of a search.

    It becomes a run in the results folder and in MLflow, which `tuneparts.load` finds by its name:
    each method is an arm, and a trial that failed counts as failed. Reading the same experiment
    again adds what is new.

    Args:
        source: What `Tuner.fit` returned, or the path or URI of its experiment. Ray reads it, and
            unpickles what it finds: only give it experiments that you trust.
        fields: Of the `Search`: `metric="val/nll"` selects a trial for each method and seed, the
            first validation metric unless given; `name` is that of the experiment unless given;
            `compare=("partitioned", "standard")`.

    Raises:
        ConfigError: It has no result of a trainable of `tuneparts.ray.trainable`.
    """
    if isinstance(source, tune.ResultGrid):
        path, files = source.experiment_path, source.filesystem
    else:
        path, files = str(source if "://" in str(source) else Path(source).absolute()), None
    try:
        found = tune.ExperimentAnalysis(path, storage_filesystem=files)
    except (OSError, ValueError) as error:
        raise DataMissingError(f"{path}: no experiment of Ray Tune can be read: {error}") from None
    rows = {one: frame.to_dict("records") for one, frame in found.trial_dataframes.items()}
    told = [row[FACTS] for own in rows.values() for row in own[:1] if FACTS in row]
    if not told:
        raise ConfigError(
            f"{path}: no trial has a result of a trainable that `tuneparts.ray.trainable` made. "
            "Use it, or log other trainables to MLflow by `tuneparts.ray.MLflowObserver`."
        )
    before = is_read.set(True)  # the trials have run: no draw need be tried
    try:
        search, happened = _read(Path(path).name, json.loads(told[0]), found.trials, rows)
        made = parse(Search, search | fields)
    finally:
        is_read.reset(before)
    run = runs.newest_of(settings.current().results_dir, made)
    if run is None or run.card.get("tune") != path:
        origin = {
            word: getattr(provenance, word)() for word in ("commit", "versions", "user", "machine")
        }
        origin |= {"tune": path, "command": redact(sys.argv[0] or "python"), "storage": None}
        run = runs.create(settings.current().results_dir, made, **origin)
    with lock(run.folder):
        journal = Journal(run.folder / "journal.jsonl")
        for event in happened:
            journal.append(event)
        journal.close()
    return execute(run, Place("local", workers=1))


def _read(
    title: str, facts: Mapping[str, Any], trials: Sequence[Any], rows: Mapping[str, Any]
) -> tuple[dict[str, Any], list[events.TrialEvent]]:
    """The fields of a search with the trials of Tune, and what happened to them."""
    arms = {key: parse(Arm, arm) for key, arm in facts["arms"].items()}
    values: dict[str, dict[TrialId, dict[str, Any]]] = {}
    happened: list[events.TrialEvent] = []
    for one in trials:
        arm, _, seed, changes = configured(arms, one.config, facts["seed"])
        own = values.setdefault(arm, {})
        trial = TrialId(arm, seed, sum(seed == known.seed for known in own))
        own[trial] = changes
        happened += _events(trial, one, rows[one.trial_id], arms, facts["seed"])
    return {
        "name": re.sub("^(?![a-z])", "tune_", re.sub(r"\W", "_", title.lower())),
        "question": f"Ray Tune experiment `{title}`.",
        # One draw of the data for all seeds, as `trainable` loads it.
        "data": facts["data"] and {**facts["data"], "seed": facts["data"]["seed"] or 0},
        "seeds": sorted({trial.seed for own in values.values() for trial in own}),
        "arms": [_arm(a, values[a.name]) for a in arms.values() if a.name in values],
    }, happened


def _events(
    known: TrialId, trial: Any, rows: list[dict[str, Any]], arms: Mapping[str, Arm], seed: int
) -> Iterator[events.TrialEvent]:
    """What happened to a trial; rows that Tune got twice, after a restart, count once."""
    now = float(trial.run_metadata.start_time or 0.0)
    if rows:
        now = rows[0]["timestamp"] - rows[0]["time_total_s"]
    step, before = 0, None
    for row in rows or [{}]:
        # A population changes configs on the way, so every row has its own.
        given = {key[7:].replace("/", "."): at for key, at in row.items() if key[:7] == "config/"}
        if before is None or given != before:
            _, config, _, _ = configured(arms, given or trial.config, seed)
            yield events.TrialStarted(known, config.model_dump(mode="json"), now, steps=step)
            yield events.TrialRunning(known, now)
        before = given
        if row:
            step, now = int(row["cost/steps"]), float(row["timestamp"])
            metrics = {name: float(at) for name, at in row.items() if _is_metric(name, at)}
            yield events.Row(known, step, metrics, now)
    if trial.status == trial.ERROR:
        said = str(trial.get_error() or "").strip().splitlines()
        message = redact(said[-1]) if said else "Tune gave no reason"
        yield events.TrialEnded(known, "failed", now, message)
    elif trial.status == trial.TERMINATED:
        is_whole = bool(rows and rows[-1].get(FINISHED))
        yield events.TrialEnded(known, "finished" if is_whole else "stopped", now)


def _is_metric(name: str, value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_ours = not name.startswith("config/") and schema.find(name) is not None
    return is_ours and is_number and not math.isnan(value)


def _arm(arm: Arm, trials: Mapping[TrialId, Mapping[str, Any]]) -> dict[str, Any]:
    """An arm of these trials; its space is the range that was tried of what differed."""
    space: dict[str, Dimension] = {}
    for path in dict.fromkeys(path for values in trials.values() for path in values):
        tried = {json.dumps(values.get(path)): values.get(path) for values in trials.values()}
        if len(tried) > 1:
            space[path] = _dimension(list(tried.values()))
    counts = Counter(trial.seed for trial in trials)
    algorithm = ByTuner(num_trials=max(counts.values())) if space else FixedByTuner()
    return {**dict(arm), "algorithm": algorithm, "space": space, "seeds": sorted(counts)}


def _dimension(values: Sequence[Any]) -> Dimension:
    if not all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
        return Choice(values)
    low, high = min(values), max(values)
    if all(isinstance(one, int) for one in values):
        return Int(low, high)
    return Uniform(low, high, log=0 < 100 * low <= high)
