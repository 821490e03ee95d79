"""Figures of what one kind of method reports: subnetworks, members, weights, communication."""

import pandas as pd

from tuneparts.core.errors import ConfigError
from tuneparts.results.figures import drawing
from tuneparts.results.figures._progress import cost_note, curves, step_shape
from tuneparts.results.figures._style import arm_styles, focus_note
from tuneparts.results.figures.drawing import Drawing, Look, Note, _Canvas, means
from tuneparts.results.run_data import RunData
from tuneparts.results.tables import label

MAX_LAYERS = 4
"""Rows of panels of `deviations`; of deeper nets the first layer, the last, and some between."""
_WIDE = 30
"""A metric whose means differ by more than this factor is drawn on a logarithmic axis."""
_ACCURACY: Look = {"y": "accuracy", "y_title": "test accuracy"}


def _reported(run_data: RunData, family: str) -> pd.DataFrame:
    """What selected trials reported of a family of metrics: columns arm, seed, key, value."""
    names = [name for name in run_data.selected if str(name).startswith(family)]
    if not names:
        return pd.DataFrame(columns=["arm", "seed", "key", "value"])
    found = run_data.selected.melt(["arm", "seed"], names, var_name="key").dropna(subset=["value"])
    return found.assign(key=found["key"].str.removeprefix(family))


def subnetworks(run_data: RunData) -> Drawing | Note:
    """Draw test accuracy against the number of partitions that are used, a line per arm."""
    title, found = "Accuracy by subnetwork", _reported(run_data, "subnetwork/accuracy.")
    found = found[found["key"].str.isdigit().astype(bool)]
    if found.empty:
        return Note(title, "No selected trial has subnetworks with test scores.")
    data = means(found.assign(level=found["key"].astype(int)), ["arm", "level"])
    data = data.rename(columns={"mean": "accuracy"})
    caption = (
        "Test accuracy at the end of training, with the weights of partitions 1 to k and default "
        "values for all others; mean and one standard error over seeds."
    )
    look = {"x": "level", "x_title": "partitions in use", "dtick": 1, **_ACCURACY}
    return drawing._line_chart(run_data.metadata, title, data, caption, **look)


def interpolation(run_data: RunData) -> Drawing | Note:
    """Draw test accuracy on the straight line between the weights of two members."""
    title, found = "Accuracy between two members", _reported(run_data, "interpolation/accuracy.")
    if found.empty:
        return Note(title, "No selected trial has interpolated between members.")
    places = found["key"].astype(int)
    found["place"] = places / places.groupby(found["arm"]).transform("max")
    data = means(found, ["arm", "place"]).rename(columns={"mean": "accuracy"})
    caption = (
        "Test accuracy of nets whose weights are between those of the first two members, norms "
        "using the statistics of the batch; mean and one standard error over seeds."
    )
    look = {"x": "place", "x_title": "place between first and second member", **_ACCURACY}
    return drawing._line_chart(run_data.metadata, title, data, caption, **look)


def anytime(run_data: RunData) -> Drawing | Note:
    """Draw test accuracy of every subset of members against its operations, mean over seeds.

    Lines join the subsets of an arm that no cheaper subset matches on validation data (the Pareto
    frontier); without validation data there is none to choose by, and no line.
    """
    title, keys = "Accuracy against operations", ["arm", "key"]
    found = _reported(run_data, "anytime/accuracy.")
    if found.empty:
        return Note(title, "No selected trial has operating points.")
    data = means(found, keys).rename(columns={"mean": "accuracy"}).set_index(keys)
    for name in ("flops", "val_nll"):
        data[name] = _reported(run_data, f"anytime/{name}.").groupby(keys)["value"].mean()
    data = data.reset_index().sort_values(["arm", "flops", "val_nll"])
    data["members"] = data["key"].str.replace("_", " + ")
    least = data.groupby("arm")["val_nll"].cummin().groupby(data["arm"]).shift(fill_value=9e99)
    data["is_best"] = data["val_nll"] < least
    data = data[["arm", "members", "flops", "accuracy", "se", "is_best"]].reset_index(drop=True)
    canvas = _Canvas(run_data.metadata)
    for arm, own in canvas.arms(data):
        for is_best in (True, False):
            part = own[own["is_best"] == is_best]
            look: Look = {"mode": "markers", "size": 6, "marker": {"opacity": 0.45}}
            look = {"size": 9, "error": part["se"]} if is_best else look
            hover = "members %{text}: %{y:.4f} at %{x:.3s} FLOPs"
            look |= {"text": part["members"].tolist(), "hover": hover, "in_legend": is_best}
            canvas.add(arm, part["flops"], part["accuracy"], **look)
    canvas.x_axis("FLOPs for one example", type="log")
    canvas.y_axis("test accuracy")
    caption = (
        "Test accuracy against operations wherever a prediction may stop (any subset of members, "
        "the first ones of a tree, or an exit); mean and one standard error over seeds. Lines join "
        "the points of an arm that none of its cheaper points matches in validation likelihood."
    )
    return Drawing(title, canvas.figure, caption + focus_note(run_data.metadata), data)


def membership(run_data: RunData) -> Drawing | Note:
    """Draw a panel per arm: members down, layers across, the cluster as number and shade."""
    title, found = "Clusters of layers", _reported(run_data, "superweights/cluster.")
    if found.empty:
        return Note(title, "No selected trial has clusters of layers.")
    numbers = found["key"].str.split("_", expand=True).astype(int)
    found = found.assign(member=numbers[0], layer=numbers[1], cluster=found["value"])
    keys = ["arm", "seed", "member", "layer"]
    data = found.sort_values(keys, kind="stable", ignore_index=True)[[*keys, "cluster"]]
    shown = data[data["seed"] == data["seed"].iloc[0]]
    styles = arm_styles(run_data.metadata)
    arms = [arm for arm in styles if arm in set(shown["arm"])]
    canvas = _Canvas(run_data.metadata, [styles[arm].name for arm in arms])
    hover = "%{y}, layer %{x}: cluster %{z}<extra></extra>"
    look: Look = {"texttemplate": "%{z}", "showscale": False, "hovertemplate": hover}
    for panel, (_, own) in enumerate(canvas.arms(shown)):
        grid = own.pivot_table(index="member", columns="layer", values="cluster")
        canvas.heat_map(grid.rename(index="member {}".format), panel=panel, **look)
        canvas.x_axis("layer, in forward order", panel=panel)
        canvas.y_axis(panel=panel, autorange="reversed")
    caption = (
        f"The cluster of each shared layer of each member, for seed {shown['seed'].iloc[0]}: "
        "layers with one number draw from the same templates. Other seeds are in the data file."
    )
    return Drawing(title, canvas.figure, caption, data, min_width=560)


def rounds(run_data: RunData, metric: str = "val/accuracy") -> Drawing | Note:
    """Draw a metric at the end of each round of fixing (Subia-Waud & Dasmahapatra 2023)."""
    title, keys = f"{label(metric).capitalize()} over rounds", ["arm", "seed", "step"]
    counts = run_data.paths("fixing/rounds")[[*keys, "value"]].rename(columns={"value": "round"})
    pairs = counts.merge(run_data.paths(metric)[[*keys, "value"]], on=keys).sort_values(keys)
    if pairs.empty:
        return Note(title, f"No selected trial has reported {metric} with rounds of fixing.")
    last = pairs.groupby(["arm", "seed", "round"], as_index=False).last()
    data = means(last.assign(round=last["round"].astype(int)), ["arm", "round"])
    caption = (
        f"{drawing._spelled(metric)} at the last report before the next round, by rounds of fixing "
        "so far: mean and one standard error over seeds. At 0 nothing is fixed."
    )
    look: Look = {"x": "round", "x_title": "rounds of fixing so far", "dtick": 1}
    look["y_title"] = label(metric, arrow=True)
    drawn = drawing._line_chart(run_data.metadata, title, data, caption, **look)
    is_wide = data["mean"].min() > 0 and data["mean"].max() > _WIDE * data["mean"].min()
    drawn.figure.update_yaxes(type="log" if is_wide else "linear")
    return drawn


def deviations(run_data: RunData, arm: str = "") -> Drawing | Note:
    """Draw means of weights against their deviations, of the first trial that left them."""
    title = f"Means against deviations: {arm}" if arm else "Means against deviations"
    data = pd.DataFrame()
    for trial in run_data.selected.to_dict("records"):
        left = run_data.artifact(str(trial["trial"]), "deviations")
        if trial["arm"] == (arm or trial["arm"]) and left is not None and len(left):
            columns = ["arm", "seed", "layer", "moment", "mu", "sigma"]
            data = left.assign(arm=trial["arm"], seed=trial["seed"])[columns]
            break
    if data.empty:
        return Note(title, "No selected trial has left its means and deviations.")
    owner, seed = str(data["arm"].iloc[0]), data["seed"].iloc[0]
    names, moments = list(dict.fromkeys(data["layer"])), list(dict.fromkeys(data["moment"]))
    num = min(len(names), MAX_LAYERS)
    layers = [names[round(i * (len(names) - 1) / max(num - 1, 1))] for i in range(num)]
    panels = [(layer, moment) for layer in layers for moment in moments]
    canvas = _Canvas(run_data.metadata, [f"{layer}, {moment}" for layer, moment in panels])
    look: Look = {"mode": "markers", "size": 4, "marker": {"symbol": "circle", "opacity": 0.5}}
    look |= {"in_legend": False, "visible": True, "hover": "mu %{x:.4f}, sigma %{y:.5f}"}
    for panel, (layer, moment) in enumerate(panels):
        own = data[(data["layer"] == layer) & (data["moment"] == moment)]
        canvas.add(owner, own["mu"], own["sigma"], panel=panel, **look)
        canvas.x_axis("mean", panel=panel)
        canvas.y_axis("deviation", panel=panel, rangemode="tozero", exponentformat="none")
    most = int(data.groupby(["layer", "moment"]).size().max())
    rest = f"; {len(names) - num} more layers are in the data file." if len(names) > num else "."
    caption = (
        f"Each point is a weight of {owner}, seed {seed}: its mean and standard deviation where "
        "training as Gaussians starts, and after the last weights were fixed. "
        f"At most {most} weights of a layer are drawn{rest}"
    )
    return Drawing(title, canvas.figure, caption, data, min_width=560)


def communication(
    run_data: RunData, metric: str = "val/accuracy", window: str = "1"
) -> Drawing | Note:
    """Draw a metric against bytes sent, after Figure 10 of Mlodozeniec et al. (2023).

    `window` counts the evaluations of a moving average; it is text, as requests give it.
    """
    title, keys = f"{label(metric).capitalize()} against communication", ["arm", "report"]
    if not window.isdigit() or int(window) < 1:
        raise ConfigError(f"`window` = {window}: it counts evaluations. Give at least 1.")
    seeds = sent(run_data, metric, int(window))
    data = means(seeds, keys).set_index(keys)
    data.insert(0, "megabytes", seeds.groupby(keys)["bytes"].mean() / 1e6)
    data = data.reset_index()
    # Only the reports that all seeds of an arm have.
    data = data[data["seeds"] == data["arm"].map(seeds.groupby("arm")["seed"].nunique())]
    if data.empty:
        return Note(title, f"No selected trial has reported {metric} and what it sent.")
    canvas = _Canvas(run_data.metadata)
    for arm, own in canvas.arms(data):
        line = {"shape": step_shape(run_data.metadata.arm(arm))}
        canvas.add(arm, own["megabytes"], own["mean"], error=own["se"], size=7, line=line)
    canvas.x_axis("sent up and down (MB)", rangemode="tozero")
    canvas.y_axis(label(metric, arrow=True))
    smooth = f", each a moving average over {window} evaluations." if window != "1" else "."
    caption = (
        f"{drawing._spelled(metric)} against all bytes that server and clients sent so far: mean "
        f"and one standard error over seeds{smooth}"
    )
    caption += cost_note(run_data, "bytes") + focus_note(run_data.metadata)
    return Drawing(title, canvas.figure, caption, data)


def sent(run_data: RunData, metric: str, window: int) -> pd.DataFrame:
    """Return the score of each seed after so many bytes: arm, seed, report, bytes and value.

    An arm with one trial per seed has the mean of its last `window` evaluations as value.
    """
    found = curves(run_data, metric, "communication/total").rename(columns={"steps": "bytes"})
    found = found[found["bytes"] > 0]
    groups = found.groupby(["arm", "seed"], sort=False)["value"]
    smooth = groups.transform(lambda own: own.rolling(window, min_periods=1).mean())
    selecting = {arm.name for arm in run_data.metadata.arms if arm.trials_per_seed > 1}
    values = found["value"].where(found["arm"].isin(selecting), smooth)
    return found.assign(value=values, report=groups.cumcount())
