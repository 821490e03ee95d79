"""The figures that a search can ask for, by name.

Arguments follow a colon: `accuracy`, `accuracy:test/nll`, `sweep:param.lr,test/accuracy`. A figure
of your own is named by the import path of its function, `package.module:function`, which takes
the `RunData` and returns a `Drawing`, or a `Note` where its data is missing.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError
from tuneparts.core.registry import Registry
from tuneparts.results.figures.drawing import PANEL_HEIGHT, Drawing, Note
from tuneparts.results.run_data import RunData

_Figure: TypeAlias = Callable[..., Drawing | Note]
_HOMES = {
    "_progress": ("accuracy", "best_of_n", "schedule", "trials"),
    "scores": ("scores", "calibration", "sweep", "heat_map", "matched"),
    "_hypers": ("hypers", "projections", "samples"),
    "_spaces": ("parallel", "slices", "importance", "pareto"),
    "_methods": (
        "subnetworks", "anytime", "interpolation", "membership", "rounds", "deviations",
        "communication",
    ),
}  # fmt: skip
FIGURES = Registry(
    "figure",
    {
        name: f"tuneparts.results.figures.{module}:{name}"
        for module, names in _HOMES.items()
        for name in names
    },
)


def _parse(request: str) -> tuple[_Figure, dict[str, str]]:
    """Return the function of a request and its arguments; refuse unknown names and wrong counts."""
    name, _, rest = request.partition(":")
    if _is_own(request):
        try:
            figure: _Figure = FIGURES.find(request)
            inspect.signature(figure).bind(None)
        except (ConfigError, TypeError, ValueError) as error:
            raise ConfigError(
                f"figure `{request}`: it is none of ours ({', '.join(sorted(FIGURES.known))}), and "
                "as `package.module:function` it cannot be imported here and called with the "
                f"run's data: {error}."
            ) from error
        return figure, {}
    figure = FIGURES.find(name)
    values = [part.strip() for part in rest.split(",")] if rest else []
    parameters = list(inspect.signature(figure).parameters.values())[1:]
    needed = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    if not len(needed) <= len(values) <= len(parameters):
        names = ", ".join(p.name for p in parameters) or "no arguments"
        raise ConfigError(
            f"figure `{name}` takes {names}, but got `{request}`. "
            f"Write `{':'.join([name, ','.join(needed)]) if needed else name}`."
        )
    arguments = {p.name: value for p, value in zip(parameters, values, strict=False)}
    for parameter, value in arguments.items():
        if parameter == "metric" or "/" in value:
            schema.lookup(value)
    return figure, arguments


def draw(request: str, run_data: RunData) -> Drawing | Note:
    """Draw what a request asks for; where its data is missing, return a note that says so."""
    metadata = run_data.metadata
    with schema.using(*metadata.metrics):
        if _is_own(request):
            return _draw_own(request, run_data)
        figure, arguments = _parse(request)
        arm = arguments.get("arm")
        if arm and arm not in {one.name for one in metadata.arms}:  # `tuneparts search --arms`
            return Note(request, f"It is about the arm `{arm}`, which this run does not have.")
        metric = inspect.signature(figure).parameters.get("metric")
        if metric is not None and str(metric.default).endswith("/accuracy"):
            # What the search is about is not always accuracy.
            split = metric.default.partition("/")[0]
            arguments.setdefault("metric", f"{split}/{metadata.quantity}")
        drawing = figure(run_data, **arguments)
    if isinstance(drawing, Drawing) and metadata.replication and "seeds" in drawing.caption:
        return replace(drawing, caption=f"{drawing.caption} {metadata.replication}")
    return drawing


def _is_own(request: str) -> bool:
    """Whether it reads `package.module:function`; no argument of our own figures is one word."""
    name, _, rest = request.partition(":")
    return name not in FIGURES.known and rest.isidentifier()


def _draw_own(request: str, run_data: RunData) -> Drawing | Note:
    """Draw a user's own figure; an error in it must not cost the report."""
    try:
        drawing = _parse(request)[0](run_data)
    except Exception as error:
        return Note(request, f"It cannot be drawn here: {type(error).__name__}: {error}")
    if not isinstance(drawing, Drawing | Note):
        text = f"A figure returns a Drawing or a Note, but this returned {drawing!r:.100}."
        return Note(request, text)
    if isinstance(drawing, Drawing) and drawing.figure.layout.height is None:
        drawing.figure.update_layout(height=PANEL_HEIGHT)
    return drawing
