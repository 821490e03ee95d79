"""The tables of a report: scores and costs, hyperparameters, schedules, those of methods."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from tuneparts.core import schema
from tuneparts.core.glossary import GLOSSARY, STEP_IN_SHORT
from tuneparts.results.rendering import NOTHING, Table, _Bold, _Column
from tuneparts.results.select import OUTCOMES, SCORED, _own_tables
from tuneparts.search.card import RunCard

if TYPE_CHECKING:
    from tuneparts.results.run_data import RunData

_ARROWS = {schema.Direction.UP: " ↑", schema.Direction.DOWN: " ↓", schema.Direction.NONE: ""}
_JUDGED = ("test/", "corrupted/")
"""Families in which the winner is bold, if the verdict names one."""


def _build(data: "RunData") -> tuple[Table, ...]:
    summary, metadata = data.summary, data.metadata
    tables = [_scores_and_costs(data)]
    if hypers := [name for name in _metrics(summary) if name.startswith("hyper/")]:
        tables.append(_hypers(summary, hypers))
    tables += [_own(table, summary) for table in _own_tables(summary)]
    chosen = data.schedules[data.schedules["trial"].isin(data.selected.get("trial", []))]
    arms = [str(arm) for arm in summary["arm"] if arm in set(chosen["arm"])]
    tables += [_schedule(arm, chosen[chosen["arm"] == arm]) for arm in arms]
    parts = {"run": metadata.parent_run_id, "digest": metadata.digest, "commit": metadata.commit}
    origin = " · ".join(f"{name} {value or 'unknown'}" for name, value in parts.items())
    closing = (*filter(None, [metadata.replication]), origin)
    return tuple(
        replace(one, subject=metadata.name, notes=(*one.notes, *closing)) for one in tables
    )


def label(name: str, *, arrow: bool = False) -> str:
    """Return the name of a metric for people: `test accuracy ↑`, `rotation (rad)`."""
    metric = schema.lookup(name)
    family, quantity = name.split("/", 1)
    words = quantity if family in {"hyper", "cost"} else f"{family} {quantity}"
    unit = f" ({metric.unit})" if metric.unit and metric.unit != quantity else ""
    return words.replace("_", " ") + unit + (_ARROWS[metric.direction] if arrow else "")


def number(value: float, decimals: int) -> str:
    """Write a number with thousands separators; a dash for NaN."""
    return NOTHING if math.isnan(value) else f"{value:,.{decimals}f}"


def _spread(mean: float, se: float, decimals: int) -> str:
    """Write `mean ± se`; the mean alone where the error is NaN, as for one seed."""
    text = number(mean, decimals)
    return text if math.isnan(se) else f"{text} ± {number(se, decimals)}"


def _to_csv(summary: pd.DataFrame, metadata: RunCard) -> str:
    """Write the whole summary at full precision, with provenance in each row."""
    columns = ("parent_run_id", "digest", "commit")
    whole = summary.assign(**{name: getattr(metadata, name) for name in columns})
    return whole.to_csv(index=False, lineterminator="\n")


def _metrics(summary: pd.DataFrame) -> list[str]:
    return [str(name).removesuffix(":se") for name in summary if str(name).endswith(":se")]


def _arms(summary: pd.DataFrame) -> _Column:
    return _Column("arm", tuple(map(str, summary["arm"])), is_number=False, tip=GLOSSARY["arm"])


def _scores_and_costs(data: "RunData") -> Table:
    summary, metadata = data.summary, data.metadata
    rows = summary.to_dict("records")
    scores = []
    for position, name in enumerate(n for n in _metrics(summary) if n.startswith(SCORED)):
        winner = data.verdict(name).winner if name.startswith(_JUDGED) else None
        scores.append(_scores(summary, name, detail=2 * position, winner=winner))
    if scores:  # the first column says why an arm has no score
        cells = [
            cell if row["seeds"] else _state(row, of=f"/{row['expected']}")
            for cell, row in zip(scores[0].cells, rows, strict=True)
        ]
        scores[0] = replace(scores[0], cells=tuple(cells))
    if metadata.metric:
        scores.append(_scores(summary, metadata.metric, detail=3))
    seeds = tuple(f"{row['seeds']}/{row['seeds_expected']}" for row in rows)
    trials = []
    for row in rows:
        kinds = (*OUTCOMES[1:], "unfinished", "missing", "not_started", "unscored")
        rest = [f"{row[kind]} {kind.replace('_', ' ')}" for kind in kinds if row[kind]]
        text = f"{row['finished']}/{row['expected']}"
        trials.append(f"{text} ({', '.join(rest)})" if rest else text)
    counts = [
        _Column("seeds", seeds, tip=GLOSSARY["seed"]),
        # Wide enough for the longest reason, such as `1 unfinished,`.
        _Column("trials finished", tuple(trials), wraps_at=12),
    ]
    columns = (_arms(summary), *scores, *counts, *_costs(summary))
    return Table("Scores and costs", columns, tuple(_notes(summary, metadata)))


def _hypers(summary: pd.DataFrame, names: list[str]) -> Table:
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(schema.lookup(name).name, []).append(name)
    note = "Hyperparameters of the selected trials: mean ± standard error over seeds."
    columns = [_arms(summary)]
    for family, members in families.items():
        if not family.endswith(".*"):
            columns.append(_scores(summary, members[0]))
            continue
        metric, cells = schema.lookup(family), []
        for row in summary.to_dict("records"):
            means = [row[name] for name in members if not math.isnan(row[name])] or [math.nan]
            ends = dict.fromkeys(number(end, metric.decimals) for end in (min(means), max(means)))
            cells.append(" to ".join(ends))
        header = f"{label(family)}, {len(members)} values"
        columns.append(_Column(header, tuple(cells), tip=metric.meaning))
    if any(family.endswith(".*") for family in families):
        note += " Of a family, such as one value per class, the smallest and the largest mean are "
        note += "shown; each value is in the CSV file."
    return Table("Hyperparameters", tuple(columns), (note,))


def _schedule(arm: str, rows: pd.DataFrame) -> Table:
    """What a population found: the values over the steps of its selected trials."""
    paths = list(dict.fromkeys(rows["path"]))
    cells = []
    for (seed, steps, source), own in rows.groupby(["seed", "steps", "trained_as"], sort=False):
        values = dict(zip(own["path"], own["value"], strict=True))
        found = [values.get(path) for path in paths]
        shown = [f"{value:.4g}" if isinstance(value, float) else value for value in found]
        texts = (NOTHING if value is None else value for value in shown)
        cells.append([seed, f"{steps:,}", source, *texts])
    note = (
        "The values under which the weights of each seed's selected trial were trained, back "
        "through the trials that it copied."
    )
    return Table.of_rows(
        ["seed", "from steps", "as trial", *paths], cells, heading=f"Schedule of {arm}",
        numbers=["seed", "from steps", *paths], details={"as trial": 1}, notes=[note],
    )  # fmt: skip


def _scores(
    summary: pd.DataFrame, name: str, *, detail: int = 0, winner: str | None = None
) -> _Column:
    metric = schema.lookup(name)
    cells = []
    for row in summary.to_dict("records"):
        text, num = _spread(row[name], row[f"{name}:se"], metric.decimals), row[f"{name}:n"]
        text += f" (n={num})" if 0 < num < row["seeds"] else ""
        cells.append(_Bold(text) if row["arm"] == winner else text)
    return _Column(label(name, arrow=True), tuple(cells), detail=detail, tip=metric.meaning)


def _state(row: Mapping[Hashable, object], of: str = "") -> str:
    kinds = ["failed", "missing", "unfinished", "not_started", "stopped", "unscored"]
    parts = [f"{kind.replace('_', ' ')}: {row[kind]}{of}" for kind in kinds if row[kind]]
    return ", ".join(parts) or "no finished trial"


def _costs(summary: pd.DataFrame) -> list[_Column]:
    steps = summary["updates"].replace(0.0, float("nan"))
    shown = {"steps": 0, "updates": 0, "seconds": 1}
    if steps.isna().all() or steps.equals(summary["steps"]):
        del shown["updates"]
    columns = []
    for name, decimals in shown.items():
        values = steps if name == "updates" else summary[name]
        cells = tuple(number(value, decimals) for value in values)
        tip, detail = (GLOSSARY["step"] if name == "steps" else ""), 5 * (name == "seconds")
        header = f"{name.replace('_', ' ')} per seed"
        columns.append(_Column(header, cells, detail=min(detail, 1), tip=tip))
        if name != "updates" and summary["source"].astype(bool).any():
            cells = tuple(number(v, decimals) for v in summary[f"total_{name}"])
            source = GLOSSARY["source arm"]
            columns.append(_Column(f"total {name}", cells, detail=detail, tip=source))
    return columns


def _own(table: schema.MethodTable, summary: pd.DataFrame) -> Table:
    if table.own_arms:
        summary = summary[summary[table.own_arms].notna()].reset_index(drop=True)
    shown, notes = table.columns(summary)
    columns = [_arms(summary)]
    for one in shown:
        if one.unit is None:
            columns.append(replace(_scores(summary, one.name), header=one.header))
        else:
            values = map(float, summary[one.name] / one.unit)
            cells = tuple(number(value, one.decimals) for value in values)
            columns.append(_Column(one.header, cells))
    return Table(table.heading, tuple(columns), tuple(notes))


def _stop_notes(metadata: RunCard) -> list[str]:
    """Say what was stopped, and why; one sentence for the seeds of an arm that share a reason."""
    notes = [f"The search was stopped: {s.message}." for s in metadata.stops if s.is_all][:1]
    reasons: dict[tuple[str, str], list[int]] = {}
    for stop in metadata.stops:
        if not stop.is_all:
            reasons.setdefault((stop.arm, stop.message), []).append(stop.seed)
    for (arm, message), seeds in reasons.items():
        words = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"
        notes.append(f"{arm} was stopped under {words}: {message}.")
    return notes


def _notes(summary: pd.DataFrame, metadata: RunCard) -> list[str]:
    rule = metadata.rule.words(metadata.weighed) if metadata.metric else ""
    notes = [
        f"Mean ± standard error over seeds{rule and f' of {rule} within each seed'}; steps and "
        f"seconds are what all trials of a seed cost ({STEP_IN_SHORT}).",
        *(f"Extended {step}." for step in metadata.history),
        *_stop_notes(metadata),
    ]
    for arm, row in zip(metadata.arms, summary.to_dict("records"), strict=True):
        if row["failed"] or row["missing"] or row["unfinished"] or row["unscored"]:
            error = f"; first error: {row['first_error']}" if row["first_error"] else ""
            notes.append(f"{arm.name}: {_state(row)} of {row['expected']} trials{error}.")
        if arm.budget_note:
            notes.append(f"{arm.name}: {arm.budget_note}.")
        if arm.is_asynchronous:
            why = "so its trials depend on which of them ended first, and a rerun may differ"
            notes.append(f"{arm.name}: asynchronous, {why}.")
    if "cost/seconds" in metadata.objectives and any(arm.is_adaptive for arm in metadata.arms):
        notes.append("Seconds are an objective: what was tried depends on the machine's speed.")
    if len({arm.judged_on for arm in metadata.arms}) > 1:
        notes.append("Arms that are judged on other examples are not compared with each other.")
    if machine := metadata.environment.get("machine", ""):
        notes.append(f"Seconds are those of {machine}.")
    return notes
