"""How much each dimension of a space matters for the score (fANOVA, Hutter et al. 2014)."""

import math

import pandas as pd

from tuneparts.core import schema
from tuneparts.results.figures.drawing import Drawing, Note, by_arm, canvas
from tuneparts.results.run_data import RunData
from tuneparts.results.select import column
from tuneparts.results.tables import label

FEWEST = 8
"""Finished trials of an arm from which on shares are computed."""
MOST = 512
"""Trials of an arm that the forest is fitted to, the first ones; it takes long for more."""
NUM_TREES = 32


def importance(run_data: RunData, metric: str = "") -> Drawing | Note:
    """Draw the share of the variance of a metric that each dimension explains, a bar per arm."""
    metric = metric or run_data.metadata.metric
    title = f"What matters for {label(metric)}"
    rows = [
        (arm.name, name, share, num)
        for arm in run_data.metadata.arms
        for name, share, num in shares(run_data, arm.name, metric)
    ]
    if not rows:
        return Note(
            title,
            f"No arm has {FEWEST} finished trials with {metric}, which varies, and two dimensions.",
        )
    data = pd.DataFrame(rows, columns=["arm", "dimension", "share", "trials"])
    names = data.groupby("dimension")["share"].max().sort_values().index.tolist()
    figure = canvas()
    for _, style, own in by_arm(run_data.metadata, data):
        figure.add_bar(
            x=own["share"].tolist(),
            y=own["dimension"].tolist(),
            orientation="h",
            name=style.name,
            marker={"color": style.colour},
            hovertemplate="%{y}: %{x:.2f}<extra></extra>",
        )
    figure.update_layout(
        barmode="group", height=max(240, 130 + 30 * len(names) * data["arm"].nunique())
    )
    figure.update_xaxes(title_text="share of the variance explained", rangemode="tozero")
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names)
    caption = (
        f"Share of the variance of {label(metric)} over the space that each dimension explains by "
        "itself, by a random forest fitted to all finished trials of an arm (fANOVA, Hutter et al. "
        "2014, as Optuna computes it). Dimensions that exist under one option only are left out. "
        "Trials of an adaptive arm crowd where it looked, which its shares feel."
    )
    return Drawing(title, figure, caption, data)


def shares(run_data: RunData, arm: str, metric: str) -> list[tuple[str, float, int]]:
    """Name, share and number of trials for each dimension that all trials of an arm have."""
    trials = run_data.trials
    own = trials[(trials["arm"] == arm) & (trials["outcome"] == "finished")]
    scores = dict(zip(own["trial"], column(own, metric), strict=True))
    scores = {trial: score for trial, score in scores.items() if math.isfinite(score)}
    drawn = run_data.drawn[run_data.drawn["trial"].isin(scores)]
    if len(scores) < FEWEST or len(set(scores.values())) < 2 or drawn.empty:
        return []
    table = drawn.pivot_table(index="trial", columns="name", values="value", aggfunc="first")
    table = table.dropna(axis=1).head(MOST)
    table = table[[name for name in table if table[name].nunique() > 1]]
    if table.shape[1] < 2:
        return []
    is_log = dict(zip(drawn["name"], drawn["is_log"], strict=True))
    found = _fanova(table, scores, {str(n): bool(is_log[n]) for n in table}, metric)
    return [(name, share, len(table)) for name, share in found.items()]


def _fanova(
    table: pd.DataFrame, scores: dict[str, float], is_log: dict[str, bool], metric: str
) -> dict[str, float]:
    import optuna
    from optuna import distributions as kinds
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions: dict[str, kinds.BaseDistribution] = {}
    for name, may_be_log in is_log.items():
        values = table[name].tolist()
        if all(isinstance(value, int | float) for value in values):
            low, high = float(min(values)), float(max(values))
            distributions[name] = kinds.FloatDistribution(low, high, log=may_be_log and low > 0)
        else:
            table[name] = [str(value) for value in values]
            distributions[name] = kinds.CategoricalDistribution(sorted(set(table[name])))
    is_up = schema.lookup(metric).direction is schema.Direction.UP
    study = optuna.create_study(direction="maximize" if is_up else "minimize")
    for trial, params in table.iterrows():
        drawn = {"params": params.to_dict(), "distributions": distributions}
        study.add_trial(optuna.create_trial(value=scores[str(trial)], **drawn))
    forest = FanovaImportanceEvaluator(n_trees=NUM_TREES, seed=0)
    found = get_param_importances(study, evaluator=forest)
    return {str(name): float(share) for name, share in found.items()}
