"""The tables of a report: scores and costs, hypers, schedules, and those that methods declare.

`RunData.tables` builds them once for a run; `rendering` turns them into text.
"""

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace

import pandas as pd

from tuneparts.core import schema
from tuneparts.core.glossary import GLOSSARY, PASS_IN_SHORT
from tuneparts.results.compare import Verdict
from tuneparts.results.rendering import NOTHING, Cell, Column, Table
from tuneparts.results.select import OUTCOMES, SCORED, own_tables
from tuneparts.search.card import RunCard

_ARROWS = {schema.Direction.UP: " ↑", schema.Direction.DOWN: " ↓", schema.Direction.NONE: ""}
_JUDGED = ("test/", "corrupted/")
"""Families in which the winner is bold, if the verdict names one."""


def build(
    summary: pd.DataFrame,
    metadata: RunCard,
    verdict: Callable[[str], Verdict],
    schedules: pd.DataFrame | None = None,
) -> tuple[Table, ...]:
    """Build the table of scores and costs, and those of hypers and of methods if there are any.

    `summary` has one row per arm (`select.summarise`). The arm that a `verdict` by a metric names
    as winner is bold. `schedules` are those of the selected trials (`frames.schedules`).
    """
    tables = [_scores_and_costs(summary, metadata, verdict)]
    hypers = [name for name in _metrics(summary) if name.startswith("hyper/")]
    if hypers:
        tables.append(_hypers(summary, hypers))
    tables += [_own(table, summary) for table in own_tables(summary)]
    if schedules is not None:
        arms = [name for name in summary["arm"] if name in set(schedules["arm"])]
        tables += [_schedule(str(arm), schedules[schedules["arm"] == arm]) for arm in arms]
    machine = metadata.environment.get("machine", "")
    if machine:
        notes = (*tables[0].notes, f"Seconds are those of {machine}.")
        tables[0] = replace(tables[0], notes=notes)
    closing = (*filter(None, [metadata.replication]), provenance(metadata))
    return tuple(
        replace(table, subject=metadata.name, notes=(*table.notes, *closing)) for table in tables
    )


def provenance(metadata: RunCard) -> str:
    """Where the numbers come from: parent run, digest of the search, commit of the code."""
    parts = {"run": metadata.parent_run_id, "digest": metadata.digest, "commit": metadata.commit}
    return " · ".join(f"{name} {value or 'unknown'}" for name, value in parts.items())


def label(name: str, *, arrow: bool = False) -> str:
    """Return the name of a metric for people.

    Example:
        >>> label("test/accuracy", arrow=True), label("hyper/rotation")
        ('test accuracy ↑', 'rotation (rad)')
    """
    metric = schema.lookup(name)
    family, quantity = name.split("/", 1)
    words = quantity if family in {"hyper", "cost"} else f"{family} {quantity}"
    unit = f" ({metric.unit})" if metric.unit and metric.unit != quantity else ""
    return words.replace("_", " ") + unit + (_ARROWS[metric.direction] if arrow else "")


def number(value: float, decimals: int) -> str:
    """Write a number with thousands separators; a dash for NaN."""
    return NOTHING if math.isnan(value) else f"{value:,.{decimals}f}"


def spread(mean: float, se: float, decimals: int) -> str:
    """Write `mean ± se`; the mean alone where the error is NaN, as for one seed."""
    text = number(mean, decimals)
    return text if math.isnan(se) else f"{text} ± {number(se, decimals)}"


def to_csv(summary: pd.DataFrame, metadata: RunCard) -> str:
    """Write the whole summary at full precision, with provenance in each row."""
    return summary.assign(
        parent_run_id=metadata.parent_run_id, digest=metadata.digest, commit=metadata.commit
    ).to_csv(index=False, lineterminator="\n")


def _metrics(summary: pd.DataFrame) -> list[str]:
    return [str(name).removesuffix(":se") for name in summary if str(name).endswith(":se")]


def _arms(summary: pd.DataFrame) -> Column:
    cells = tuple(Cell(str(name)) for name in summary["arm"])
    return Column("arm", cells, is_number=False, tip=GLOSSARY["arm"])


def _scores_and_costs(
    summary: pd.DataFrame, metadata: RunCard, verdict: Callable[[str], Verdict]
) -> Table:
    names = [name for name in _metrics(summary) if name.startswith(SCORED)]
    scores = [
        _scores(
            summary,
            name,
            detail=2 * position,
            winner=verdict(name).winner if name.startswith(_JUDGED) else None,
        )
        for position, name in enumerate(names)
    ]
    if scores:
        scores[0] = _with_failures(scores[0], summary)
    if metadata.metric:
        scores.append(_scores(summary, metadata.metric, detail=3))
    columns = (_arms(summary), *scores, *_counts(summary), *_costs(summary))
    return Table("Scores and costs", columns, tuple(_notes(summary, metadata)))


def _hypers(summary: pd.DataFrame, names: list[str]) -> Table:
    families: dict[str, list[str]] = {}
    for name in names:
        families.setdefault(schema.lookup(name).name, []).append(name)
    note = "Hypers of the selected trials: mean ± standard error over seeds."
    if any(name.endswith(".*") for name in families):
        note += " Of a family, such as one value per class, the smallest and the largest mean are "
        note += "shown; each value is in the CSV file."
    columns = [
        _range(summary, family, members) if family.endswith(".*") else _scores(summary, members[0])
        for family, members in families.items()
    ]
    return Table("Hypers", (_arms(summary), *columns), (note,))


def _range(summary: pd.DataFrame, family: str, members: list[str]) -> Column:
    """The smallest and the largest mean of a family of hypers, for each arm that has it."""
    metric = schema.lookup(family)
    cells = []
    for row in summary.to_dict("records"):
        means = [row[name] for name in members if not math.isnan(row[name])]
        ends = (min(means), max(means)) if means else (math.nan,)
        texts = dict.fromkeys(number(end, metric.decimals) for end in ends)
        cells.append(Cell(" to ".join(texts)))
    header = f"{label(family)}, {len(members)} values"
    return Column(header, tuple(cells), tip=metric.meaning)


def _schedule(arm: str, rows: pd.DataFrame) -> Table:
    """What a population found: the values over the passes of its selected trials."""
    paths = list(dict.fromkeys(rows["path"]))
    stretches = rows.groupby(["seed", "passes", "trained_as"], sort=False)
    cells = []
    for (seed, passes, source), stretch in stretches:
        values = dict(zip(stretch["path"], stretch["value"], strict=True))
        cells.append([seed, f"{passes:,}", source, *(_value(values.get(path)) for path in paths)])
    return Table.of_rows(
        ["seed", "from passes", "as trial", *paths],
        cells,
        heading=f"Schedule of {arm}",
        numbers=["seed", "from passes", *paths],
        details={"as trial": 1},
        notes=(
            "The values under which the weights of each seed's selected trial were trained, back "
            "through the trials that it copied.",
        ),
    )


def _value(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else NOTHING if value is None else str(value)


def _scores(
    summary: pd.DataFrame, name: str, *, detail: int = 0, winner: str | None = None
) -> Column:
    metric = schema.lookup(name)
    cells = []
    for row in summary.to_dict("records"):
        text = spread(row[name], row[f"{name}:se"], metric.decimals)
        is_partial = 0 < row[f"{name}:n"] < row["seeds"]
        text += f" (n={row[f'{name}:n']})" if is_partial else ""
        cells.append(Cell(text, is_bold=row["arm"] == winner))
    return Column(label(name, arrow=True), tuple(cells), detail=detail, tip=metric.meaning)


def _with_failures(column: Column, summary: pd.DataFrame) -> Column:
    """Write into the first column of scores why an arm has no score."""
    cells = []
    for cell, row in zip(column.cells, summary.to_dict("records"), strict=True):
        is_empty = row["seeds"] == 0
        cells.append(Cell(_state(row, of=f"/{row['expected']}")) if is_empty else cell)
    return replace(column, cells=tuple(cells))


def _state(row: Mapping[Hashable, object], of: str = "") -> str:
    kinds = ["failed", "missing", "unfinished", "not_started", "stopped", "unscored"]
    parts = [f"{kind.replace('_', ' ')}: {row[kind]}{of}" for kind in kinds if row[kind]]
    return ", ".join(parts) or "no finished trial"


def _counts(summary: pd.DataFrame) -> list[Column]:
    seeds, trials = [], []
    for row in summary.to_dict("records"):
        seeds.append(Cell(f"{row['seeds']}/{row['seeds_expected']}"))
        rest = [
            f"{row[kind]} {kind.replace('_', ' ')}"
            for kind in (*OUTCOMES[1:], "unfinished", "missing", "not_started", "unscored")
            if row[kind]
        ]
        text = f"{row['finished']}/{row['expected']}"
        trials.append(Cell(f"{text} ({', '.join(rest)})" if rest else text))
    return [
        Column("seeds", tuple(seeds), tip=GLOSSARY["replicate"]),
        # Wide enough for the longest reason, such as `1 unfinished,`.
        Column("trials finished", tuple(trials), wraps_at=12, tip=GLOSSARY["trial"]),
    ]


def _costs(summary: pd.DataFrame) -> list[Column]:
    columns = []
    shown = [("passes", 0), ("weight_steps", 0), ("seconds", 1)]
    summary = summary.assign(weight_steps=summary["weight_steps"].replace(0.0, float("nan")))
    steps = summary["weight_steps"]
    if steps.isna().all() or steps.equals(summary["passes"]):
        shown = [(name, decimals) for name, decimals in shown if name != "weight_steps"]
    for name, decimals in shown:
        cells = (Cell(number(value, decimals)) for value in summary[name])
        tip = GLOSSARY["pass"] if name == "passes" else ""
        detail = 5 if name == "seconds" else 0
        words = name.replace("_", " ")
        columns.append(Column(f"{words} per seed", tuple(cells), detail=min(detail, 1), tip=tip))
        if name != "weight_steps" and summary["follows"].astype(bool).any():
            total = (Cell(number(value, decimals)) for value in summary[f"{name}_with_leader"])
            header = f"{name} incl. leader"
            columns.append(Column(header, tuple(total), detail=detail, tip=GLOSSARY["leader"]))
    return columns


def _own(table: schema.MethodTable, summary: pd.DataFrame) -> Table:
    """A table that a method declares."""
    if table.own_arms:
        summary = summary[summary[table.own_arms].notna()].reset_index(drop=True)
    shown, notes = table.columns(summary)
    columns = [_arms(summary)]
    for one in shown:
        if one.unit is None:
            columns.append(replace(_scores(summary, one.name), header=one.header))
        else:
            values = (float(value) for value in summary[one.name] / one.unit)
            cells = tuple(Cell(number(value, one.decimals)) for value in values)
            columns.append(Column(one.header, cells))
    return Table(table.heading, tuple(columns), tuple(notes))


def stop_notes(metadata: RunCard) -> list[str]:
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
    chosen = (
        f"of {metadata.rule.words(metadata.weighed)} within each seed" if metadata.metric else ""
    )
    notes = [
        f"Mean ± standard error over seeds {chosen}".rstrip()
        + f"; passes and seconds are what all trials of a seed cost ({PASS_IN_SHORT})."
    ]
    notes += [f"Extended {told}." for told in metadata.history]
    notes += stop_notes(metadata)
    for arm, row in zip(metadata.arms, summary.to_dict("records"), strict=True):
        if row["failed"] or row["missing"] or row["unfinished"] or row["unscored"]:
            error = f"; first error: {row['first_error']}" if row["first_error"] else ""
            notes.append(f"{arm.name}: {_state(row)} of {row['expected']} trials{error}.")
        if arm.budget_note:
            notes.append(f"{arm.name}: {arm.budget_note}.")
        if arm.is_free:
            notes.append(
                f"{arm.name}: its timing was free, so it went by which trials ended first, and a "
                "rerun may differ."
            )
    if "cost/seconds" in metadata.objectives and any(arm.is_adaptive for arm in metadata.arms):
        notes.append("Seconds are an objective: what was tried depends on the machine's speed.")
    if len({arm.judged_on for arm in metadata.arms}) > 1:
        notes.append("Arms that are judged on other examples are not compared with each other.")
    return notes
