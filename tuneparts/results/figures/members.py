"""Figures of methods with several members, such as ensembles and SuperWeight networks.

`anytime` draws accuracy against operations, `interpolation` accuracy between two members, and
`membership` which layers share templates.
"""

import pandas as pd

from tuneparts.results.figures.drawing import Drawing, Note, add_lines, by_arm, canvas, place
from tuneparts.results.figures.style import arm_styles
from tuneparts.results.run_data import RunData
from tuneparts.results.statistics import estimate

OPERATIONS = "Accuracy against operations"
_ACCURACY, _FLOPS = "anytime/accuracy.", "anytime/flops."
_VAL_NLL = "anytime/val_nll."
BETWEEN = "Accuracy between two members"
_INTERPOLATED = "interpolation/accuracy."
CLUSTERS = "Clusters of layers"
_CLUSTER = "superweights/cluster."


def anytime(run_data: RunData) -> Drawing | Note:
    """Draw test accuracy of every subset of members against its operations, mean over seeds.

    Lines join the subsets of an arm that no cheaper subset matches on validation data (the Pareto
    frontier); without validation data there is none to choose by, and no line.
    """
    data = points(run_data)
    if data.empty:
        return Note(OPERATIONS, "No selected trial has operating points.")
    figure = canvas()
    for arm, style, own in by_arm(run_data.metadata, data):
        best = own[own["is_best"]]
        figure.add_scatter(
            x=best["flops"].tolist(),
            y=best["accuracy"].tolist(),
            error_y={"type": "data", "array": best["se"].tolist()},
            name=style.name,
            legendgroup=arm,
            mode="lines+markers",
            line=style.line(2.5),
            marker=style.marker(9),
            text=best["members"].tolist(),
            hovertemplate="members %{text}: %{y:.4f} at %{x:.3s} FLOPs<extra></extra>",
        )
        others = own[~own["is_best"]]
        figure.add_scatter(
            x=others["flops"].tolist(),
            y=others["accuracy"].tolist(),
            name=style.name,
            legendgroup=arm,
            showlegend=False,
            mode="markers",
            marker=style.marker(6, opacity=0.45),
            text=others["members"].tolist(),
            hovertemplate="members %{text}: %{y:.4f} at %{x:.3s} FLOPs<extra></extra>",
        )
    figure.update_xaxes(title_text="FLOPs for one example", type="log")
    figure.update_yaxes(title_text="test accuracy")
    caption = (
        "Test accuracy against operations wherever a prediction may stop: after any subset of "
        "members, the first ones of a tree, or an exit; mean and one standard error over seeds. "
        "Lines join the points of an arm that none of its cheaper points matches in validation "
        "likelihood; faint points are the rest, and all points of arms that held out no validation "
        "data."
    )
    return Drawing(OPERATIONS, figure, caption, data)


def points(run_data: RunData) -> pd.DataFrame:
    """Return operations, mean accuracy and membership of the frontier by arm and subset."""
    rows = []
    for arm, trials in run_data.selected.groupby("arm", sort=False):
        found = []
        for name in trials.columns:
            subset = str(name).removeprefix(_ACCURACY)
            if subset == name:
                continue
            known = trials.dropna(subset=[name])
            if known.empty:
                continue
            point = estimate(known[name].to_numpy(dtype=float))
            flops = float(known[_FLOPS + subset].mean())
            judged = _VAL_NLL + subset
            loss = float(known[judged].mean()) if judged in known else float("nan")
            found.append((flops, loss, subset.replace("_", " + "), point.mean, point.se))
        least = float("inf")
        for flops, loss, members, mean, se in sorted(found):
            rows.append((arm, members, flops, mean, se, loss < least))
            least = min(least, loss)
    return pd.DataFrame(rows, columns=["arm", "members", "flops", "accuracy", "se", "is_best"])


def interpolation(run_data: RunData) -> Drawing | Note:
    """Draw test accuracy on the straight line between the weights of two members, mean over seeds.

    A dip in the middle says that the members found different solutions.
    """
    data = lines(run_data)
    if data.empty:
        return Note(BETWEEN, "No selected trial has interpolated between members.")
    figure = canvas()
    add_lines(figure, run_data.metadata, data, x="place", y="accuracy")
    figure.update_xaxes(title_text="place between first and second member")
    figure.update_yaxes(title_text="test accuracy")
    caption = (
        "Test accuracy of nets whose weights lie between those of the first two members, norms "
        "using the statistics of the batch; mean and one standard error over seeds."
    )
    return Drawing(BETWEEN, figure, caption, data)


def lines(run_data: RunData) -> pd.DataFrame:
    """Return one row per arm and place on the line: mean accuracy over seeds."""
    rows = []
    for arm, trials in run_data.selected.groupby("arm", sort=False):
        columns = [name for name in trials.columns if str(name).startswith(_INTERPOLATED)]
        known = trials[columns].dropna(axis="columns", how="all")
        numbers = sorted(int(name.removeprefix(_INTERPOLATED)) for name in known.columns)
        for number in numbers:
            point = estimate(known[f"{_INTERPOLATED}{number}"].dropna().to_numpy(dtype=float))
            rows.append((arm, number / numbers[-1], point.mean, point.se))
    return pd.DataFrame(rows, columns=["arm", "place", "accuracy", "se"])


def membership(run_data: RunData) -> Drawing | Note:
    """Draw a panel per arm: members down, layers across, the cluster as number and shade."""
    data = memberships(run_data)
    if data.empty:
        return Note(CLUSTERS, "No selected trial has clusters of layers.")
    shown = data[data["seed"] == data["seed"].iloc[0]]
    arms = list(dict.fromkeys(shown["arm"]))
    names = arm_styles(run_data.metadata)
    figure = canvas(len(arms), [names[arm].name for arm in arms])
    for panel, arm in enumerate(arms):
        own = shown[shown["arm"] == arm]
        grid = own.pivot_table(index="member", columns="layer", values="cluster")
        figure.add_heatmap(
            x=[int(layer) for layer in grid.columns],
            y=[f"member {int(member)}" for member in grid.index],
            z=grid.to_numpy().tolist(),
            texttemplate="%{z}",
            colorscale="Cividis",
            showscale=False,
            hovertemplate="%{y}, layer %{x}: cluster %{z}<extra></extra>",
            **place(panel, len(arms)),
        )
        figure.update_xaxes(title_text="layer, in forward order", **place(panel, len(arms)))
        figure.update_yaxes(autorange="reversed", **place(panel, len(arms)))
    caption = (
        f"The cluster of each shared layer of each member, for seed {shown['seed'].iloc[0]}: "
        "layers with one number draw from the same templates. Other seeds are in the data file."
    )
    return Drawing(CLUSTERS, figure, caption, data, min_width=560)


def memberships(run_data: RunData) -> pd.DataFrame:
    """Return the cluster of each layer: one row per arm, seed, member and layer."""
    selected = run_data.selected
    rows = [
        (trial["arm"], trial["seed"], *map(int, str(name).removeprefix(_CLUSTER).split("_")), value)
        for _, trial in selected.iterrows()
        for name, value in trial.items()
        if str(name).startswith(_CLUSTER) and pd.notna(value)
    ]
    data = pd.DataFrame(rows, columns=["arm", "seed", "member", "layer", "cluster"])
    return data.sort_values(["arm", "seed", "member", "layer"], kind="stable", ignore_index=True)
