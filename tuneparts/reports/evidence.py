"""The verdicts on the report page: the contrast of the search, and all other arms."""

import dataclasses

from tuneparts import schema
from tuneparts.reports import compare
from tuneparts.reports.rendering import Table
from tuneparts.reports.run_data import RunData


def build(run_data: RunData) -> tuple[Table, ...]:
    """Tables of comparisons.

    The declared contrast is a family of its own. All other arms are compared with its second arm,
    or where none is declared with the arm that validation finds best, and adjusted for each other.
    """
    metadata, metric = run_data.metadata, run_data.answer_metric
    with schema.using(*metadata.metrics):
        if schema.lookup(metric).direction is schema.Direction.NONE:
            return ()
        families = _families(run_data, metric)
        within = metadata.within
        tables = []
        for heading, pairs in families.items():
            found = compare.compare(
                run_data.selected, metadata, pairs, metric=metric, within=within
            )
            decisions = compare.decided(
                run_data.selected, metadata, pairs, metric=metric, within=within
            )
            table = compare.table(
                found, metadata, metric=metric, within=within, decisions=decisions
            )
            tables.append(dataclasses.replace(table, heading=heading))
    return tuple(tables)


def _families(run_data: RunData, metric: str) -> dict[str, list[tuple[str, str]]]:
    """Heading -> pairs that are adjusted for each other."""
    metadata = run_data.metadata
    scored = list(run_data.verdict(metric).ranked)
    place = {arm.name: arm.judged_on for arm in metadata.arms}
    declared = metadata.compare if set(metadata.compare) <= set(scored) else ()
    if declared:
        base = declared[1]
    else:
        ranked = run_data.verdict(metadata.metric).ranked if metadata.metric else ()
        usable = [name for name in ranked if name in scored]
        if not usable:
            return {}
        base = usable[0]
    rest = [
        (arm.name, base)
        for arm in metadata.arms
        if arm.competes
        and arm.name in scored
        and arm.name not in {base, *declared}
        and place[arm.name] == place[base]
    ]
    found = {}
    if declared:
        found["The comparison that answers the question"] = [(declared[0], base)]
    if rest:
        found[f"All other arms beside {base}" if declared else f"All arms beside {base}"] = rest
    return found
