"""The table of a federated search: what its trials sent."""

import pandas as pd

from tuneparts.core.schema import MethodTable, Shown

_MEGABYTE = 1e6


def _columns(summary: pd.DataFrame) -> tuple[list[Shown], list[str]]:
    """Costs beside federated averaging, where an arm of it ran alone."""
    columns = [
        Shown("federated/rounds", "rounds", 1.0, 0),
        Shown("communication/up", "up (MB)", _MEGABYTE, 2),
        Shown("communication/down", "down (MB)", _MEGABYTE, 2),
        Shown("communication/total", "sent (MB)", _MEGABYTE, 2),
    ]
    note = "Mean over seeds of the selected trials"
    is_plain = (summary["method"] == "fedavg") & (summary["expected"] == summary["seeds_expected"])
    if is_plain.any():
        plain = summary[is_plain].iloc[0]
        unit = float(plain["communication/total"]) / 100
        columns.append(Shown("communication/total", f"% of {plain['arm']}", unit, 1))
        note += f"; per cent of what {plain['arm']} sent in its rounds"
    columns += [
        Shown("bytes", "sent per seed (MB)", _MEGABYTE, 2),
        Shown("federated/dropped", "clients dropped", 1.0, 1),
    ]
    note += ". `sent per seed` is what all trials of a seed sent, with those of its leaders."
    return columns, [note]


COMMUNICATION = MethodTable(
    "Communication",
    metrics=("communication/", "federated/"),
    columns=_columns,
    costs={"bytes": "communication/total"},
)
