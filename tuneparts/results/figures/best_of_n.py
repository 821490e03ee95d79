"""Expected test score of the best of n trials, and how many of them one run is worth.

The curve is that of Dodge et al. (2019) without replacement (Tang et al. 2020), computed within
each seed and averaged over seeds, so that its end is the table's mean wherever all seeds finished
equally many trials. What an arm is worth, with its interval, is told by `equivalents`.
"""

from collections.abc import Hashable, Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from tuneparts.core import schema, seeding
from tuneparts.results.compare import equivalent_trials
from tuneparts.results.figures.drawing import Drawing, Note, add_band, canvas, place
from tuneparts.results.figures.style import arm_styles, focus_note, in_focus, visible
from tuneparts.results.run_data import RunData
from tuneparts.results.select import column, seed_cost
from tuneparts.results.statistics import expected_best_interval
from tuneparts.results.tables import label

TITLE = "Expected best of n trials"


def best_of_n(run_data: RunData, metric: str = "test/accuracy") -> Drawing | Note:
    """Draw the expected score of the best of n trials, and mark the arms with one trial per seed.

    A mark stands at the n at which the curve reaches the score of that arm.
    """
    curves = curve(run_data, metric)
    if curves.empty:
        return Note(TITLE, f"No arm has several finished trials per seed with {metric}.")
    equals = equivalents(run_data, metric, curves)
    known, arms = arm_styles(run_data.metadata), list(dict.fromkeys(curves["arm"]))
    figure = canvas(len(arms), [f"best of n: {known[arm].name}" for arm in arms])
    named: set[str] = set()
    for panel, arm in enumerate(arms):
        where, own = place(panel, len(arms)), curves[curves["arm"] == arm]
        x, high, low, mean = (own[name].tolist() for name in ("n", "high", "low", "mean"))
        add_band(figure, known[arm], x, high, low, **where)
        look = {"name": known[arm].name, "mode": "lines", "line": known[arm].line(2.5)}
        figure.add_scatter(x=x, y=mean, showlegend=False, **look, **where)
        for row in equals[equals["against"] == arm].to_dict("records"):
            style, is_reached = known[row["arm"]], not np.isnan(row["trials"])
            figure.add_scatter(
                x=[row["trials"] if is_reached else len(own)],
                y=[row["score"]],
                name=f"{style.name}: {_count(row)}" if len(arms) == 1 else style.name,
                legendgroup=row["arm"],
                showlegend=row["arm"] not in named,
                visible=visible(row["arm"], run_data.metadata),
                mode="markers",
                marker={
                    **style.marker(12, line={"width": 2, "color": style.colour}),
                    "symbol": style.symbol if is_reached else f"{style.symbol}-open",
                },
                hovertemplate=f"{style.name}: {_count(row)}<extra></extra>",
                **where,
            )
            named.add(row["arm"])
        last = int(own["n"].max())
        figure.update_xaxes(title_text="n (trials)", range=[1 - last / 40, last * 1.04], **where)
        if last <= 12:
            figure.update_xaxes(dtick=1, **where)
        figure.update_yaxes(title_text=label(metric, arrow=True), **where)
    caption = (
        f"Lines: expected {label(metric)} of the best of n trials by {run_data.metadata.metric}, "
        "over all subsets of the finished trials of a seed, averaged over seeds, for the arms "
        "whose trials do not depend on each other; band: bootstrap interval over trials, nominally "
        "95 %, in simulations 85 to 95 % on the left and 67 to 78 % at the right end. Marks: arms "
        "with one trial per seed, at the n where the line first reaches them over the seeds that "
        "both have; open at the right edge where it never does. Intervals of n are over seeds, "
        "trials included."
    )
    shown = in_focus(run_data.metadata)
    worth = "; ".join(
        f"{known[str(arm)].name} is worth {', '.join(map(_count, own.to_dict('records')))}"
        for arm, own in equals.groupby("arm", sort=False)
        if arm in shown
    )
    data = pd.concat([curves.assign(kind="curve"), equals.assign(kind="equivalent")])
    wide = 560 if len(arms) > 1 else 0
    caption += f" {worth}." if worth else ""
    caption += focus_note(run_data.metadata)
    return Drawing(TITLE, figure, caption, data.reset_index(drop=True), min_width=wide)


def _count(row: Mapping[Hashable, Any]) -> str:
    bounds = f" ({row['interval']})" if row["interval"] else ""
    plural = "s" if row["trials"] != 1 else ""
    return f"{row['says']} {escape(row['against'])} trial{plural}{bounds}"


def curve(run_data: RunData, metric: str) -> pd.DataFrame:
    """Return the expected score of the best of n trials for each arm that draws independently.

    Columns: arm, n, passes (what n trials cost on average), mean, low, high.
    """
    rows = []
    for arm in run_data.metadata.arms:
        if arm.trials_per_seed == 1 or arm.is_adaptive:
            continue
        rule = schema.selection_metric(run_data.metadata.metric)
        own = run_data.trials[run_data.trials["arm"] == arm.name].sort_values("index")
        scored = own[own["outcome"] == "finished"]
        scored = scored[column(scored, rule.name).notna() & column(scored, metric).notna()]
        seeds = [
            (column(part, rule.name).to_numpy(), column(part, metric).to_numpy())
            for _, part in scored.groupby("seed")
        ]
        if not seeds:
            continue
        mean, low, high = expected_best_interval(
            seeds,
            seeding.numpy_generator(0, "reports", "best_of_n", arm.name),
            larger_is_better=rule.direction is schema.Direction.UP,
        )
        # Failed and stopped trials are part of what a usable trial costs.
        each = column(own, "cost/passes").sum() / len(scored)
        for n, values in enumerate(zip(mean, low, high, strict=True), start=1):
            rows.append((arm.name, n, n * each, *map(float, values)))
    return pd.DataFrame(rows, columns=["arm", "n", "passes", "mean", "low", "high"])


def equivalents(run_data: RunData, metric: str, curves: pd.DataFrame) -> pd.DataFrame:
    """Return how many trials of each selecting arm match each arm with one trial per seed.

    Arms that follow a selecting one are left out: their bill holds all of its trials. `curves`
    are those of `curve`.

    Columns arm, score, own_passes (leaders included), against, trials (NaN when never reached),
    passes (of that many trials), says ("at most 1", "5", "more than 8"), interval ("95 % interval 2
    to 9", empty below three replicates).
    """
    rows, metadata = [], run_data.metadata
    several = {arm.name for arm in metadata.arms if arm.trials_per_seed > 1}
    scores = dict(zip(run_data.summary["arm"], column(run_data.summary, metric), strict=True))
    for against, own in curves.groupby("arm", sort=False):
        for arm in metadata.arms:
            score, billed = scores[arm.name], [arm.name, *metadata.leaders(arm.name)]
            if several.intersection(billed) or np.isnan(score):
                continue
            worth = equivalent_trials(
                run_data.trials, run_data.selected, metadata,
                arm=arm.name, against=str(against), metric=metric,
            )  # fmt: skip
            if worth is None:
                continue
            bill = seed_cost(run_data.trials, billed, "cost/passes")
            trials = float("nan") if worth.trials is None else float(worth.trials)
            passes = trials * float(own["passes"].iloc[0])
            said = (worth.says, worth.interval)
            rows.append((arm.name, score, bill, against, trials, passes, *said))
    names = ["arm", "score", "own_passes", "against", "trials", "passes", "says", "interval"]
    return pd.DataFrame(rows, columns=names)
