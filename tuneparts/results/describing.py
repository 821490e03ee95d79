"""What is told of a run besides its numbers: the metadata of its report, and its card in MLflow."""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tuneparts.core import redaction, schema
from tuneparts.results.metadata import ArmMetadata, ReportMetadata, StopMetadata
from tuneparts.search import data_record, in_words, runs
from tuneparts.search.declared import declared_metrics
from tuneparts.search.journal import TrialId, stops

if TYPE_CHECKING:  # slow to import, and not every reader needs them
    from tuneparts.data.config import DataConfig
    from tuneparts.search.spec import Search
    from tuneparts.tracking.card import DataFacts, SearchCard

FEWEST_TRIALS = 4
"""Trials of a replicate from which on figures of the space say something."""


def metadata(run: runs.Run, parent_run_id: str = "") -> ReportMetadata:
    """What a report says of a run besides its numbers."""
    facts, search, redactor = run.card, run.search, redaction.of_process()
    return ReportMetadata(
        name=search.name,
        question=redactor.text(search.question),
        notes=redactor.text(search.notes),
        scale=str(search.scale),
        metric=search.metric,
        objectives=search.objectives,
        selection=_rule(search),
        quantity="accuracy" if search.data is None else search.data.target.metrics[0].name,
        data_draws=_data_draws(search, run.folder),
        environment={
            name: redactor.text(str(facts[name])) for name in ("machine",) if facts.get(name)
        },
        compare=search.compare,
        references=search.references,
        answer=search.answer,
        within=search.within,
        found=search.found,
        figures=_figures(search),
        truth={} if search.data is None else search.data.truth,
        facts={name: redactor.text(text) for name, text in _facts(run).items() if text},
        digest=facts["digest"],
        commit=facts["commit"],
        command=facts["command"],
        versions=facts["versions"],
        stops=tuple(
            StopMetadata(arm, seed, stop.message, stop.is_all)
            for (arm, seed), stop in sorted(stops(run.folder / "journal.jsonl").items())
        ),
        history=tuple(_told(step) for step in facts.get("history", [])),
        parent_run_id=parent_run_id,
        metrics=tuple(
            dict.fromkeys(
                metric for metric in declared_metrics(search) if metric.name not in schema.BUILT_IN
            )
        ),
        arms=tuple(
            ArmMetadata(
                name=arm.name,
                method=arm.config.model_dump()["method"],
                trials_per_seed=arm.trials_per_seed,
                seeds=search.seeds_of(arm),
                follows=arm.follows,
                is_adaptive=arm.algorithm.is_adaptive,
                is_free=arm.algorithm.is_free,
                passes=arm.config.passes,
                budget_note=redactor.text(arm.budget_note),
                judged_on=redactor.text(arm.judged_on),
                is_tuning=any(
                    other.follows == arm.name and other.adopts == "config" for other in search.arms
                ),
                what=redactor.text(in_words.arm(search, arm.name)),
                space=redactor.text(in_words.space(arm.space)),
            )
            for arm in search.arms
        ),
    )


def _data_draws(search: "Search", folder: Path) -> Literal["", "fixed", "drawn"]:
    """Whether replicates differ in their data; draws of a whole official set are all the same."""
    from tuneparts.search import data_record

    if search.data is None:
        return ""
    known = (data_record.read(folder) or {}).get("draws", {})
    digests = {json.dumps(draw, sort_keys=True) for draw in known.values()}
    is_same = len(known) > 1 and len(digests) == 1
    return "drawn" if search.draws_data and not is_same else "fixed"


def _facts(run: runs.Run) -> dict[str, str]:
    """What a reader asks for besides numbers, in words; empty where it is not known."""
    replicates = {len(run.search.seeds_of(arm)) for arm in run.search.arms}
    return {
        "data": in_words.data(run.search, data_record.read(run.folder)),
        "net": in_words.net(run.search),
        "replicates": " or ".join(map(str, sorted(replicates))),
        "started": time.strftime("%d %B %Y, %H:%M UTC", time.gmtime(run.created)).lstrip("0"),
        "machine": str(run.card.get("machine", "")),
    }


def _figures(search: "Search") -> tuple[str, ...]:
    """What a search asks for, what its methods declare, what its space and objectives ask for."""
    found = [*search.figures, *(name for arm in search.arms for name in arm.config.figures)]
    if any(arm.trials_per_seed >= FEWEST_TRIALS and arm.space for arm in search.arms):
        found += ["parallel", "importance", "slices"]
    if search.objectives:
        found.append("pareto")
    return tuple(dict.fromkeys(found))


def _rule(search: "Search") -> dict[str, Any]:
    """The selection of a search as JSON; nothing where it is the usual one."""
    found = search.selection.model_dump(mode="json")
    return {} if found == {"kind": "best"} else found


def tracking_card(run: runs.Run) -> "SearchCard":
    """What the parent run in MLflow shows."""
    from tuneparts.results.figures.style import arm_styles
    from tuneparts.tracking.card import SearchCard

    facts, search, told = run.card, run.search, metadata(run)
    return SearchCard(
        name=search.name,
        scale=str(search.scale),
        digest=facts["digest"],
        commit=facts["commit"],
        resolved=json.dumps(redaction.of_process().tree(facts["search"]), indent=2),
        versions=facts["versions"],
        question=search.question,
        metadata=told.to_json(),
        colours={arm: style.colour for arm, style in arm_styles(told).items()},
        data=None if search.data is None else _data_facts(search.data, run.folder),
        metric=schema.lookup(search.metric),
        params=_parent_params(search),
        user=facts.get("user", ""),
        source=facts["command"],
        extended="; ".join(told.history),
    )


def _told(step: Mapping[str, Any]) -> str:
    """One extension of a run in a line."""
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(step["time"]))
    return f"{when}: {'; '.join(step['news'])} ({step['command']}, commit {step['commit']})"


def _parent_params(search: "Search") -> dict[str, Any]:
    """What the parent run shows as params: enough to tell two searches of one name apart."""
    return {
        "scale": str(search.scale),
        "metric": search.metric,
        "passes": search.passes,
        "seeds": list(search.seeds),
        "arms": [arm.name for arm in search.arms],
        "data": "" if search.data is None else search.data.name,
        "arm": {
            arm.name: {
                "method": arm.config.model_dump()["method"],
                "algorithm": arm.algorithm.kind,
                "trials_per_seed": arm.trials_per_seed,
            }
            for arm in search.arms
        },
    }


def log_reader(run: runs.Run) -> Callable[[TrialId], str]:
    """Read the last lines of a trial's log, its traceback included, from the run's storage."""
    from tuneparts.executors import logs
    from tuneparts.search.storage import Folder

    return lambda trial: "\n".join(logs.read(Folder(run.storage), trial))


def _data_facts(data: "DataConfig", folder: Path) -> "DataFacts":
    from tuneparts.search import data_record
    from tuneparts.tracking.card import DataFacts

    config = data.model_dump_json()

    def digest() -> str:
        known = data_record.read(folder)
        if known is not None:
            return str(known["digest"])
        return hashlib.sha256(config.encode()).hexdigest()[:12]  # data.json cannot be read

    name = f"rotated_{data.name}" if data.rotated else data.name
    return DataFacts(name=name, digest=digest, config=config)
