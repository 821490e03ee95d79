"""What a population found: the values of the config over the passes of the selected trials."""

from tuneparts.results.figures.drawing import Drawing, Note, canvas, counts_axis, place
from tuneparts.results.figures.style import arm_styles
from tuneparts.results.run_data import RunData

TITLE = "Schedules that populations found"
MAX_PANELS = 8


def schedule(run_data: RunData) -> Drawing | Note:
    """Draw the values under which the weights of selected trials were trained, a panel per value.

    A line follows the weights, through the trials that were copied. Values that are no numbers are
    in the table only.
    """
    data = run_data.schedules
    if not data.empty:
        data = data[data["trial"].isin(run_data.selected["trial"])]
        data = data[[isinstance(value, int | float) for value in data["value"]]]
    if data.empty:
        return Note(TITLE, "No selected trial has a value that changed on its way.")
    paths = list(dict.fromkeys(data["path"]))[:MAX_PANELS]
    figure = canvas(len(paths), paths)
    styles, named = arm_styles(run_data.metadata), set[str]()
    for panel, path in enumerate(paths):
        where = place(panel, len(paths))
        own = data[data["path"] == path]
        for (arm, seed), line in own.groupby(["arm", "seed"], sort=False):
            style, passes = styles[str(arm)], line["passes"].tolist()
            values = [float(value) for value in line["value"]]
            figure.add_scatter(
                x=[*passes, max(run_data.metadata.arm(str(arm)).passes, passes[-1])],
                y=[*values, values[-1]],
                name=style.name,
                legendgroup=str(arm),
                showlegend=arm not in named,
                mode="lines",
                line=style.line(2, shape="hv"),
                hovertemplate=f"{style.name}, seed {seed}: %{{y:.4g}}<br>%{{x}} passes"
                "<extra></extra>",
                **where,
            )
            named.add(str(arm))
        counts_axis(figure, "passes", own["passes"].tolist(), where)
    caption = (
        "Values under which the weights of the selected trials were trained, a line per seed, back "
        "through the trials that they were copied from."
    )
    return Drawing(TITLE, figure, caption, data.reset_index(drop=True))
