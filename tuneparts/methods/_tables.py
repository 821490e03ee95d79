"""Tables of reports that methods declare: what federated trials sent, what SuperWeights shared."""

import pandas as pd

from tuneparts.core.schema import MethodTable, Shown

_MEGABYTE = 1e6
_SHARED = ("tau_asked", "tau", "bins", "clusters", "templates", "vectors", "trained")


def _communication(summary: pd.DataFrame) -> tuple[list[Shown], list[str]]:
    """Costs compared with federated averaging, where an arm of it ran alone."""
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
    note += ". `sent per seed` is what all trials of a seed sent, with those of its source arms."
    return columns, [note]


COMMUNICATION = MethodTable(
    "Communication",
    metrics=("communication/", "federated/"),
    columns=_communication,
    costs={"bytes": "communication/total"},
)


def _sharing(summary: pd.DataFrame) -> tuple[list[Shown], list[str]]:
    shown = [
        Shown(f"superweights/{name}", name.replace("_", " "))
        for name in _SHARED
        if f"superweights/{name}" in summary
    ]
    notes = [
        "Mean ± standard error over seeds of the selected trials. Where `clusters` is `bins`, "
        "nothing was split; `trained` are the steps that trained the weights which were kept."
    ]
    if {"superweights/tau", "superweights/tau_asked"} <= set(summary):
        is_lower = summary["superweights/tau"] < summary["superweights/tau_asked"]
        if is_lower.any():
            notes.append(
                "The budget had no room for the clusters of the tau that was asked for, which was "
                f"lowered: {', '.join(summary.loc[is_lower, 'arm'])}."
            )
    return shown, notes


SHARING = MethodTable(
    "Sharing",
    metrics=tuple(f"superweights/{name}" for name in _SHARED),
    columns=_sharing,
    own_arms="superweights/trained",
)
