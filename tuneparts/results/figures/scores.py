"""Figures of final scores: by arm, by setting, at equal size, and over several runs."""

import re
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import pandas as pd

from tuneparts.core import schema
from tuneparts.results.figures.drawing import Canvas, Drawing, Look, Note, bounds, means
from tuneparts.results.figures.style import COLOURS
from tuneparts.results.run_data import RunData
from tuneparts.results.select import column
from tuneparts.results.statistics import FEWEST, estimate
from tuneparts.results.tables import label

CALIBRATION_METRICS = ("test/ece", "test/nll", "test/brier")
_SIZE = re.compile(r"(_(alpha|bits|delta|cutoff|exposure))?_m?\d+(_\d+)?$")


def scores(run_data: RunData, metric: str = "test/accuracy") -> Drawing | Note:
    """Draw a metric of every arm: mean over seeds with Student's interval, seeds as faint marks."""
    title = f"{label(metric).capitalize()} by arm"
    rows = []
    for arm in run_data.metadata.arms:
        if values := _seeds(run_data, arm.name, metric):
            found = estimate(values).interval() if len(values) >= FEWEST else None
            ends = (float("nan"), float("nan"))
            if found is not None:
                ends = schema.lookup(metric).bounded(found.low, found.high)
            rows.append((arm.name, estimate(values).mean, *ends, len(values)))
    data = pd.DataFrame(rows, columns=["arm", "mean", "low", "high", "seeds"])
    if data.empty:
        return Note(title, f"No selected trial has reported {metric} yet.")
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    least, most = bounds(metric)
    canvas, seen = Canvas(run_data.metadata), list[float]()
    for row in data.sort_values("mean", ascending=is_up, kind="stable").to_dict("records"):
        seeds, mean = _seeds(run_data, row["arm"], metric), row["mean"]
        seen += seeds
        ends = min(row["high"], most) - mean, mean - max(row["low"], least)
        _marks(canvas, row["arm"], seeds, mean, (0, 0) if pd.isna(row["low"]) else ends)
    # Two seeds may have an interval that is wider than all scores together; it leaves the axis,
    # and the marks stay apart.
    reach = max(seen) - min(seen)
    near = (min(seen) - reach, max(seen) + reach)
    if reach > 0:
        limits = [*data["low"].dropna(), *data["high"].dropna()]
        seen += [min(max(end, near[0]), near[1]) for end in limits]
    canvas.figure.update_layout(height=26 * len(data) + 90)
    canvas.bounded_axis(label(metric, arrow=True), metric, seen)
    canvas.y_axis(type="category")
    caption = (
        f"{label(metric).capitalize()} of the trial selected by validation in each seed: mean, "
        "95 % interval (Student's t over seeds; none below three), and the seeds as faint marks. "
        "Arms share seeds, so overlapping intervals do not mean equal arms."
    )
    return Drawing(title, canvas.figure, caption, data)


def _seeds(run_data: RunData, arm: str, metric: str) -> list[float]:
    own = run_data.selected[run_data.selected["arm"] == arm]
    return [float(value) for value in column(own, metric).dropna()]


def _marks(
    canvas: Canvas,
    arm: str,
    seeds: Sequence[float],
    mean: float,
    ends: tuple[float, float],
    panel: int = 0,
) -> None:
    """Draw the seeds of an arm as faint marks and their mean with its error, in a row of its own.

    `ends` are the lengths of the error above and below the mean.
    """
    style = canvas.styles[arm]
    shared: Look = {"panel": panel, "mode": "markers", "in_legend": False, "visible": True}
    faint: Look = {"marker": {"color": style.wash}, "hover": "one seed: %{x:.4f}"}
    canvas.add(arm, seeds, [style.name] * len(seeds), **faint, **shared)
    error = {"type": "data", "symmetric": False, "array": [ends[0]], "arrayminus": [ends[1]]}
    hover = f"mean %{{x:.4f}}, +{ends[0]:.4f} -{ends[1]:.4f}"
    look: Look = {"error_x": {**error, "thickness": 2}, "hover": hover, **shared}
    canvas.add(arm, [mean], [style.name], size=10, **look)


def calibration(run_data: RunData) -> Drawing | Note:
    """Draw calibration error, likelihood and Brier score: seeds, mean and one standard error."""
    title = "Calibration"
    parts = [
        run_data.selected[["arm", "seed"]].assign(metric=m, value=column(run_data.selected, m))
        for m in CALIBRATION_METRICS
    ]
    data = pd.concat(parts, ignore_index=True).dropna(subset=["value"])
    if data.empty:
        return Note(title, f"No selected trial has reported {', '.join(CALIBRATION_METRICS)}.")
    shown = [metric for metric in CALIBRATION_METRICS if metric in set(data["metric"])]
    canvas = Canvas(run_data.metadata, [label(metric, arrow=True) for metric in shown])
    summary = run_data.summary.set_index("arm")
    for panel, metric in enumerate(shown):
        seen: list[float] = []
        for arm, own in canvas.arms(data[data["metric"] == metric]):
            mean, se = summary[metric][arm], summary[f"{metric}:se"][arm]
            _marks(canvas, arm, own["value"].tolist(), mean, (se, se), panel)
            seen += [*own["value"], mean - se, mean + se]
        # Panels share their arms, so names are at the left ones only.
        is_left = canvas.where(panel)["col"] == 1
        canvas.y_axis(panel=panel, autorange="reversed", showticklabels=is_left)
        canvas.bounded_axis(label(metric), metric, seen, panel=panel, nticks=5)
    meanings = ", ".join(f"{label(m)}: {schema.lookup(m).meaning}" for m in shown)
    caption = (
        "Scores of the predicted probabilities of the selected trials, smaller is better: faint "
        f"marks are seeds, full ones the mean with one standard error. {meanings}."
    )
    return Drawing(title, canvas.figure, caption, data, min_width=620 if len(shown) > 1 else 0)


def sweep(run_data: RunData, setting: str, metric: str = "test/accuracy") -> Drawing | Note:
    """Draw a metric against a setting (`param.<path>`, `seed` or a hyper), a line per arm."""
    title = f"{label(metric).capitalize()} against {_name(setting)}"
    trials = _finished(run_data, [setting, metric])
    if trials.empty:
        return Note(title, f"No finished trial has both {setting} and {metric}.")
    data = means(trials, ["arm", setting], metric).rename(columns={"seeds": "trials"})
    canvas = Canvas(run_data.metadata)
    canvas.lines(data, x=setting)
    is_number = pd.api.types.is_numeric_dtype(data[setting])
    canvas.x_axis(escape(_name(setting), quote=False), type="linear" if is_number else "category")
    canvas.y_axis(label(metric, arrow=True))
    caption = (
        f"{label(metric).capitalize()} ({schema.lookup(metric).meaning}) of the finished trials at "
        f"each value of {_name(setting)}: mean and one standard error, without error where a value "
        "has one trial."
    )
    return Drawing(title, canvas.figure, caption, data)


def heat_map(
    run_data: RunData, across: str, up: str, metric: str = "test/accuracy", arm: str = ""
) -> Drawing | Note:
    """Draw the mean of a metric over two settings, from finished trials of one arm or of all."""
    title = f"{label(metric).capitalize()} over {_name(across)} and {_name(up)}"
    trials = _finished(run_data, [across, up, metric])
    if arm:
        title, trials = f"{title}: {arm}", trials[trials["arm"] == arm]
    if trials.empty:
        return Note(title, f"No finished trial has {across}, {up} and {metric}.")
    data = trials.groupby([across, up])[metric].agg(["mean", "count"]).reset_index()
    grid = data.pivot_table(index=up, columns=across, values="mean")
    canvas = Canvas(run_data.metadata)
    canvas.figure.add_heatmap(
        x=[_tick(value) for value in grid.columns],
        y=[_tick(value) for value in grid.index],
        z=grid.to_numpy().tolist(),
        colorscale="Cividis",
        reversescale=schema.lookup(metric).direction is schema.Direction.DOWN,
        texttemplate=f"%{{z:.{min(schema.lookup(metric).decimals, 3)}f}}",
        hoverongaps=False,
        colorbar={"title": {"text": label(metric)}, "thickness": 14},
    )
    canvas.x_axis(escape(_name(across), quote=False), type="category")
    canvas.y_axis(escape(_name(up), quote=False), type="category")
    caption = (
        f"{label(metric).capitalize()} ({schema.lookup(metric).meaning}): mean of the finished "
        f"trials at each pair of {_name(across)} and {_name(up)}."
    )
    return Drawing(title, canvas.figure, caption, data)


def _finished(run_data: RunData, names: list[str]) -> pd.DataFrame:
    """Return finished trials that have all of these columns, with texts of numbers as numbers."""
    trials = run_data.trials[run_data.trials["outcome"] == "finished"].copy()
    if any(name not in trials for name in names):
        return trials.iloc[:0]
    trials = trials.dropna(subset=names)
    for name in names:
        numbers = column(trials, name)
        if numbers.notna().all():
            trials[name] = numbers
        else:
            trials[name] = [_listed(v) if isinstance(v, list) else v for v in trials[name]]
    return trials


def _listed(values: list[object]) -> str:
    """Return a list as a label; two significant digits are enough for shares."""
    return ", ".join(f"{v:.2g}" if isinstance(v, float) else str(v) for v in values)


def _tick(value: object) -> str:
    return escape(f"{value:g}" if isinstance(value, float) else str(value), quote=False)


def _name(setting: str) -> str:
    return label(setting) if "/" in setting else setting.removeprefix("param.")


def tasks(runs: Mapping[str | float, RunData], setting: str, metric: str) -> Drawing:
    """Draw a metric over several runs, a line per arm through the runs that have it.

    The key of a run is the value of `setting` that tells it from the others.
    """
    rows = [
        (row["arm"], value, row[metric], row[f"{metric}:se"])
        for value, run_data in runs.items()
        for row in run_data.summary.to_dict("records")
        if pd.notna(row.get(metric))
    ]
    data = pd.DataFrame(rows, columns=["arm", setting, "mean", "se"])
    is_number = all(isinstance(value, int | float) for value in runs)
    if is_number:
        data = data.sort_values(setting, kind="stable")
    canvas = Canvas(next(iter(runs.values())).metadata)
    canvas.lines(data, x=setting)
    if is_number:
        canvas.counts_axis(escape(setting, quote=False), data[setting])
    else:
        canvas.x_axis(escape(setting, quote=False), type="category")
    canvas.y_axis(label(metric, arrow=True))
    caption = (
        f"{label(metric).capitalize()} of the trial selected by validation: mean and one standard "
        "error over seeds, a run at each place."
    )
    return Drawing(f"{label(metric).capitalize()} against {setting}", canvas.figure, caption, data)


def matched(
    run_data: RunData, size: str = "size/entropy", metric: str = "test/accuracy"
) -> Drawing | Note:
    """Draw what the first family of arms gains over each other one at equal size.

    Arms of one method at several sizes form a family, with a curve of score against size. Two
    families are compared where the first has an arm: the other's score at that size is
    interpolated on its own curve of the same seed. Nothing is extrapolated.
    """
    title = f"{label(metric).capitalize()} at equal {label(size)}"
    trials = run_data.selected
    if size not in trials or metric not in trials:
        return Note(title, f"No finished trial has both {size} and {metric}.")
    points = trials[["arm", "seed"]].assign(family=trials["arm"].map(family))
    points = points.assign(size=column(trials, size), score=column(trials, metric)).dropna()
    first = family(run_data.metadata.arms[0].name)
    data = gains(points, first)
    if data.empty:
        return Note(title, f"No other family of arms has sizes around those of {first}.")
    canvas = Canvas(run_data.metadata)
    for number, (name, own) in enumerate(data.groupby("family", sort=False)):
        canvas.figure.add_scatter(
            x=own["at"].tolist(),
            y=own["gain"].tolist(),
            name=escape(str(name), quote=False),
            mode="markers",
            marker={"color": COLOURS[number % len(COLOURS)], "size": 8},
            error_y={
                "type": "data",
                "array": (own["high"] - own["gain"]).tolist(),
                "arrayminus": (own["gain"] - own["low"]).tolist(),
            },
        )
    canvas.figure.add_hline(y=0, line_width=1)
    canvas.x_axis(label(size))
    canvas.y_axis(f"{escape(first, quote=False)} minus the other")
    caption = (
        f"At the {label(size)} of each arm of {first}, its {label(metric)} minus that of the other "
        "family, interpolated between its arms of the same seed: mean and 95 % interval, paired "
        "over seeds. Sizes beyond a family's arms are left out."
    )
    return Drawing(title, canvas.figure, caption, data)


def family(arm: str) -> str:
    """Name an arm without its size.

    Example:
        >>> [family(arm) for arm in ("pwfn_learnt_alpha_m3", "once_kmeans_16", "nearest_bits_4")]
        ['pwfn_learnt', 'once_kmeans', 'nearest']
    """
    return _SIZE.sub("", arm)


def gains(points: pd.DataFrame, first: str) -> pd.DataFrame:
    """Compute what the arms of one family gain over each other family at their sizes.

    `points` has one row per trial: family, arm, seed, size, score. The result has one per other
    family and arm: family, mean size and gain, its interval, and the seeds compared, two at least.
    """
    rows = []
    own = points[points["family"] == first]
    for other in (name for name in points["family"].unique() if name != first):
        curves = {
            seed: curve.sort_values("size")
            for seed, curve in points[points["family"] == other].groupby("seed")
        }
        for _, arm in own.groupby("arm", sort=False):
            found: list[tuple[float, float]] = []
            for seed, own_size, score in zip(arm["seed"], arm["size"], arm["score"], strict=True):
                curve = curves.get(seed)
                if curve is None or not curve["size"].min() <= own_size <= curve["size"].max():
                    continue
                there = float(np.interp(own_size, curve["size"], curve["score"]))
                found.append((float(own_size), float(score) - there))
            interval = estimate([gain for _, gain in found]).interval()
            if interval is not None:
                size, gain = np.mean(found, axis=0)
                rows.append((other, size, gain, interval.low, interval.high, len(found)))
    return pd.DataFrame(rows, columns=["family", "at", "gain", "low", "high", "seeds"])
