"""The table of SuperWeight arms: what they asked for, and what their budgets left of it."""

import pandas as pd

from tuneparts.core.schema import MethodTable, Shown

_SHARED = ("tau_asked", "tau", "bins", "clusters", "templates", "vectors", "trained")


def _columns(summary: pd.DataFrame) -> tuple[list[Shown], list[str]]:
    shown = [
        Shown(f"superweights/{name}", name.replace("_", " "))
        for name in _SHARED
        if f"superweights/{name}" in summary
    ]
    notes = [
        "Mean ± standard error over seeds of the selected trials. Where `clusters` is `bins`, "
        "nothing was split; `trained` are the passes that trained the weights which were kept."
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
    columns=_columns,
    own_arms="superweights/trained",
)
