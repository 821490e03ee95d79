"""Figures of final scores: by arm, by setting, at equal size, and over several runs."""

import math
import re
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import pandas as pd

from tuneparts.core import schema
from tuneparts.results.figures import drawing
from tuneparts.results.figures._style import COLOURS
from tuneparts.results.figures.drawing import Drawing, Look, Note, _Canvas, means
from tuneparts.results.run_data import RunData
from tuneparts.results.select import column
from tuneparts.results.statistics import FEWEST, _estimate
from tuneparts.results.tables import label

CALIBRATION_METRICS = ("test/ece", "test/nll", "test/brier")
_SIZE = re.compile(r"(_(alpha|bits|delta|cutoff|exposure))?_m?\d+(_\d+)?$")


def scores(run_data: RunData, metric: str = "test/accuracy") -> Drawing | Note:
    """Draw a metric of every arm: mean over seeds with Student's interval, seeds as faint marks."""
    title, known = f"{label(metric).capitalize()} by arm", schema.lookup(metric)
    seeds = {
        str(arm): column(own, metric).dropna().tolist()
        for arm, own in run_data.selected.groupby("arm")
    }
    rows = []
    for arm in (arm.name for arm in run_data.metadata.arms if seeds.get(arm.name)):
        found = _estimate(seeds[arm]).interval() if len(seeds[arm]) >= FEWEST else None
        ends = (math.nan, math.nan) if found is None else known.bounded(found.low, found.high)
        rows.append((arm, _estimate(seeds[arm]).mean, *ends, len(seeds[arm])))
    data = pd.DataFrame(rows, columns=["arm", "mean", "low", "high", "seeds"])
    if data.empty:
        return Note(title, f"No selected trial has reported {metric} yet.")
    canvas, seen = _Canvas(run_data.metadata), list[float]()
    is_up = known.direction is schema.Direction.UP
    for row in data.sort_values("mean", ascending=is_up, kind="stable").to_dict("records"):
        ends = row["high"] - row["mean"], row["mean"] - row["low"]
        seen += seeds[row["arm"]]
        ends = (0, 0) if pd.isna(row["low"]) else ends
        _marks(canvas, row["arm"], seeds[row["arm"]], row["mean"], ends)
    # Two seeds may have an interval that is wider than all scores together; it leaves the axis,
    # and the marks stay apart.
    low, high, reach = min(seen), max(seen), max(seen) - min(seen)
    if reach > 0:
        seen += [*data[["low", "high"]].stack().dropna().clip(low - reach, high + reach)]
    canvas.figure.update_layout(height=26 * len(data) + 90)
    canvas.bounded_axis(label(metric, arrow=True), metric, seen)
    canvas.y_axis(type="category")
    caption = (
        f"{label(metric).capitalize()} of the trial selected by validation in each seed: mean, "
        "95 % interval (Student's t over seeds; none below three), and the seeds as faint marks. "
        "Arms share seeds, so overlapping intervals do not mean equal arms."
    )
    return Drawing(title, canvas.figure, caption, data)


def _marks(
    canvas: _Canvas, arm: str, seeds: Sequence[float], mean: float, ends: tuple[float, float],
    panel: int = 0,
) -> None:  # fmt: skip
    """Draw seeds as faint marks and their mean, with an error that goes `ends` above and below."""
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
    title, chosen = "Calibration", run_data.selected
    scored = chosen.assign(**{metric: column(chosen, metric) for metric in CALIBRATION_METRICS})
    data = scored.melt(["arm", "seed"], CALIBRATION_METRICS, var_name="metric").dropna()
    if data.empty:
        return Note(title, f"No selected trial has reported {', '.join(CALIBRATION_METRICS)}.")
    shown = [metric for metric in CALIBRATION_METRICS if metric in set(data["metric"])]
    canvas = _Canvas(run_data.metadata, [label(metric, arrow=True) for metric in shown])
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
    """Draw a metric against `param.<path>`, `seed` or `hyper/<name>`, a line per arm."""
    title = f"{label(metric).capitalize()} against {_name(setting)}"
    trials = _finished(run_data, [setting, metric])
    if trials.empty:
        return Note(title, f"No finished trial has both {setting} and {metric}.")
    data = means(trials, ["arm", setting], metric).rename(columns={"seeds": "trials"})
    is_number = pd.api.types.is_numeric_dtype(data[setting])
    caption = (
        f"{drawing._spelled(metric)} of the finished trials at each value of {_name(setting)}: "
        "mean and one standard error, without error where a value has one trial."
    )
    look: Look = {"x": setting, "type": "linear" if is_number else "category"}
    look |= {"x_title": escape(_name(setting), quote=False), "y_title": label(metric, arrow=True)}
    return drawing._line_chart(run_data.metadata, title, data, caption, **look)


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
    canvas, known = _Canvas(run_data.metadata), schema.lookup(metric)
    canvas.heat_map(
        grid.rename(index=_tick, columns=_tick),
        reversescale=known.direction is schema.Direction.DOWN,
        texttemplate=f"%{{z:.{min(known.decimals, 3)}f}}",
        hoverongaps=False,
        colorbar={"title": {"text": label(metric)}, "thickness": 14},
    )
    canvas.x_axis(escape(_name(across), quote=False), type="category")
    canvas.y_axis(escape(_name(up), quote=False), type="category")
    caption = (
        f"{drawing._spelled(metric)}: mean of the finished trials at each pair of {_name(across)} "
        f"and {_name(up)}."
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
        trials[name] = numbers if numbers.notna().all() else trials[name].map(_listed)
    return trials


def _listed(value: object) -> object:
    if not isinstance(value, list):
        return value
    return ", ".join(f"{v:.2g}" if isinstance(v, float) else str(v) for v in value)


def _tick(value: object) -> str:
    return escape(f"{value:g}" if isinstance(value, float) else str(value), quote=False)


def _name(setting: str) -> str:
    return label(setting) if "/" in setting else setting.removeprefix("param.")


def tasks(runs: Mapping[str | float, RunData], setting: str, metric: str) -> Drawing:
    """Draw a metric over several runs, by their value of `setting`, a line per arm."""
    parts = [run.summary.assign(**{setting: value}) for value, run in runs.items()]
    data = pd.concat([part for part in parts if metric in part], ignore_index=True)
    data = data.rename(columns={metric: "mean", f"{metric}:se": "se"}).dropna(subset=["mean"])
    data = data[["arm", setting, "mean", "se"]]
    is_number = all(isinstance(value, int | float) for value in runs)
    if is_number:
        data = data.sort_values(setting, kind="stable")
    caption = (
        f"{label(metric).capitalize()} of the trial selected by validation: mean and one standard "
        "error over seeds, a run at each place."
    )
    title = f"{label(metric).capitalize()} against {setting}"
    metadata = next(iter(runs.values())).metadata
    look: Look = {"x": setting, "is_count": is_number, "type": "category"}
    look |= {"x_title": escape(setting, quote=False), "y_title": label(metric, arrow=True)}
    return drawing._line_chart(metadata, title, data, caption, **look)


def matched(
    run_data: RunData, size: str = "size/entropy", metric: str = "test/accuracy"
) -> Drawing | Note:
    """Draw what the first family of arms gains over each other one at equal size.

    Arms of one method at several sizes form a family. Where the first has an arm, the other's score
    at that size is interpolated on its own curve of the same seed. Nothing is extrapolated.
    """
    title, trials = f"{label(metric).capitalize()} at equal {label(size)}", run_data.selected
    if size not in trials or metric not in trials:
        return Note(title, f"No finished trial has both {size} and {metric}.")
    points = trials[["arm", "seed"]].assign(family=trials["arm"].map(_family))
    points = points.assign(size=column(trials, size), score=column(trials, metric)).dropna()
    first = _family(run_data.metadata.arms[0].name)
    data = _gains(points, first)
    if data.empty:
        return Note(title, f"No other family of arms has sizes around those of {first}.")
    canvas = _Canvas(run_data.metadata)
    for number, (name, own) in enumerate(data.groupby("family", sort=False)):
        up, down = own["high"] - own["gain"], own["gain"] - own["low"]
        marker = {"color": COLOURS[number % len(COLOURS)], "size": 8}
        look = {"name": escape(str(name), quote=False), "mode": "markers", "marker": marker}
        error = {"type": "data", "array": up.tolist(), "arrayminus": down.tolist()}
        places = {"x": own["at"].tolist(), "y": own["gain"].tolist()}
        canvas.figure.add_scatter(**places, error_y=error, **look)
    canvas.figure.add_hline(y=0, line_width=1)
    canvas.x_axis(label(size))
    canvas.y_axis(f"{escape(first, quote=False)} minus the other")
    caption = (
        f"At the {label(size)} of each arm of {first}, its {label(metric)} minus that of the other "
        "family, interpolated between its arms of the same seed: mean and 95 % interval, paired "
        "over seeds. Sizes beyond a family's arms are left out."
    )
    return Drawing(title, canvas.figure, caption, data)


def _family(arm: str) -> str:
    return _SIZE.sub("", arm)


def _gains(points: pd.DataFrame, first: str) -> pd.DataFrame:
    """What the arms of one family gain over each other family at their sizes, a row per pair."""
    rows = []
    for other in (name for name in points["family"].unique() if name != first):
        curves = dict(list(points[points["family"] == other].sort_values("size").groupby("seed")))
        for _, arm in points[points["family"] == first].groupby("arm", sort=False):
            found: list[tuple[float, float]] = []
            for seed, size, score in zip(arm["seed"], arm["size"], arm["score"], strict=True):
                curve = curves.get(seed)
                if curve is not None and curve["size"].min() <= size <= curve["size"].max():
                    there = np.interp(size, curve["size"], curve["score"])
                    found.append((float(size), float(score - there)))
            interval = _estimate([gain for _, gain in found]).interval()
            if interval is not None:
                means = np.mean(found, axis=0)
                rows.append((other, *means, interval.low, interval.high, len(found)))
    return pd.DataFrame(rows, columns=["family", "at", "gain", "low", "high", "seeds"])
