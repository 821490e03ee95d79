"""Expected test score of the best of n trials, and how many of them one run is worth.

The curve (Dodge et al. 2019) is computed within each seed and averaged over seeds, so that its
end is the table's mean wherever all seeds finished equally many trials.
"""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from tuneparts import schema, seeding
from tuneparts.reports.evidence import Evidence
from tuneparts.reports.figures.drawing import Drawing, Note, canvas
from tuneparts.reports.figures.looks import looks
from tuneparts.reports.select import column, seed_cost
from tuneparts.reports.statistics import equivalent_trials, expected_best_interval
from tuneparts.reports.tables import label, number

TITLE = "Expected best of n trials"


def best_of_n(evidence: Evidence, metric: str = "test/accuracy") -> Drawing | Note:
    """Curves of the arms that select, levels of those that do not, and where they meet."""
    curves = curve(evidence, metric)
    if curves.empty:
        return Note(TITLE, f"No arm has several finished trials per seed with {metric}.")
    equals = equivalents(evidence, metric, curves)
    figure, known = canvas(), looks(evidence.outline)
    for arm, own in curves.groupby("arm", sort=False):
        look = known[str(arm)]
        for edge, fill in (("high", None), ("low", "tonexty")):
            figure.add_trace(
                go.Scatter(
                    x=own["n"].tolist(),
                    y=own[edge].tolist(),
                    mode="lines",
                    line={"width": 0},
                    fill=fill,
                    fillcolor=look.wash,
                    legendgroup=str(arm),
                    showlegend=False,
                    hoverinfo="skip",
                )
            )
        figure.add_trace(
            go.Scatter(
                x=own["n"].tolist(),
                y=own["mean"].tolist(),
                name=f"best of n: {look.name}",
                legendgroup=str(arm),
                mode="lines+markers",
                line={"color": look.colour, "dash": look.dash, "width": 2.5},
                marker={"color": look.colour, "symbol": look.symbol, "size": 7},
            )
        )
    last = int(curves["n"].max())
    for row in equals.to_dict("records"):
        look, rival = known[row["arm"]], known[row["against"]]
        ending = "s" if row["trials"] != 1 else ""
        count = f"{row['says']} {rival.name} trial{ending}"
        mark = [row["trials"]] if not np.isnan(row["trials"]) else []
        figure.add_trace(
            go.Scatter(
                x=[1, last],
                y=[row["score"]] * 2,
                mode="lines",
                name=f"{look.name}: {count}",
                legendgroup=f"{row['arm']} {row['against']}",
                line={"color": look.colour, "dash": "dash", "width": 2},
            )
        )
        figure.add_trace(
            go.Scatter(
                x=mark,
                y=[row["score"]] * len(mark),
                mode="markers",
                legendgroup=f"{row['arm']} {row['against']}",
                showlegend=False,
                marker={"color": look.colour, "symbol": look.symbol, "size": 14},
                hovertemplate=f"{look.name}: {count}<extra></extra>",
            )
        )
    figure.update_xaxes(title_text="n (trials)", range=[0.6, last + 0.4])
    if last <= 12:
        figure.update_xaxes(dtick=1)
    figure.update_yaxes(title_text=label(metric, arrow=True))
    caption = (
        f"Expected {label(metric)} of the best of n trials by {evidence.outline.metric}, over all "
        "subsets of the finished trials of a seed, averaged over seeds; band: bootstrap interval "
        "over trials, nominally 95 %, in simulations 85 to 95 % on the left and 67 to 78 % at the "
        "right end. Dashed: arms "
        "with one trial per seed, marked where the curve first reaches them."
    )
    data = pd.concat([curves.assign(kind="curve"), equals.assign(kind="equivalent")])
    return Drawing(TITLE, figure, caption, data.reset_index(drop=True))


def curve(evidence: Evidence, metric: str) -> pd.DataFrame:
    """Columns arm, n, passes (what n trials cost on average), mean, low, high."""
    rows = []
    for arm in evidence.outline.arms:
        if arm.trials_per_seed == 1:
            continue
        rule = schema.selection_metric(evidence.outline.metric)
        own = evidence.trials[evidence.trials["arm"] == arm.name].sort_values("index")
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


def equivalents(evidence: Evidence, metric: str, curves: pd.DataFrame) -> pd.DataFrame:
    """How many trials of each selecting arm match each arm with one trial per seed.

    `curves` are those of `curve`.

    Columns arm, score, own_passes (leaders included), against, trials (NaN when never reached),
    passes (of that many trials), says ("5", "more than 8").
    """
    rows = []
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    scores = dict(zip(evidence.summary["arm"], column(evidence.summary, metric), strict=True))
    for against, own in curves.groupby("arm", sort=False):
        for arm in evidence.outline.arms:
            score = scores[arm.name]
            if arm.trials_per_seed > 1 or np.isnan(score):
                continue
            n = equivalent_trials(own["mean"].to_numpy(), score, larger_is_better=is_up)
            bill = seed_cost(
                evidence.trials,
                [arm.name, *evidence.outline.leaders(arm.name)],
                "cost/passes",
            )
            passes = float("nan") if n is None else float(own["passes"].iloc[n - 1])
            trials = float("nan") if n is None else float(n)
            says = f"more than {len(own)}" if n is None else number(trials, 0)
            rows.append((arm.name, score, bill, against, trials, passes, says))
    names = ["arm", "score", "own_passes", "against", "trials", "passes", "says"]
    return pd.DataFrame(rows, columns=names)
