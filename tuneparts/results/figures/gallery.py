"""The figures that a search can ask for, by name.

Arguments stand after a colon: `accuracy`, `accuracy:test/nll`, `sweep:param.lr,test/accuracy`.
`tasks` draws several runs (`tuneparts ranks --plot`) and is not listed here.

A figure of one's own is asked for by the import path of its function, `package.module:function`. It
takes the `RunData` and returns a `Drawing`, or a `Note` where its data is missing.
"""

import dataclasses
import inspect
from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from tuneparts.core import schema
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.results.figures.accuracy import accuracy
from tuneparts.results.figures.best_of_n import best_of_n
from tuneparts.results.figures.communication import communication
from tuneparts.results.figures.drawing import PANEL_HEIGHT, Drawing, Note
from tuneparts.results.figures.fixing import deviations, rounds
from tuneparts.results.figures.fronts import pareto
from tuneparts.results.figures.hypers import hypers, projections
from tuneparts.results.figures.importance import importance
from tuneparts.results.figures.matched import matched
from tuneparts.results.figures.members import anytime, interpolation, membership
from tuneparts.results.figures.partitions import subnetworks
from tuneparts.results.figures.samples import samples
from tuneparts.results.figures.schedule import schedule
from tuneparts.results.figures.scores import calibration, scores
from tuneparts.results.figures.spaces import parallel, slices
from tuneparts.results.figures.sweeps import heat_map, sweep
from tuneparts.results.figures.trials import trials
from tuneparts.results.run_data import RunData

Figure: TypeAlias = Callable[..., Drawing | Note]
FIGURES: dict[str, Figure] = {
    "accuracy": accuracy,
    "scores": scores,
    "hypers": hypers,
    "projections": projections,
    "best_of_n": best_of_n,
    "sweep": sweep,
    "heat_map": heat_map,
    "matched": matched,
    "anytime": anytime,
    "interpolation": interpolation,
    "membership": membership,
    "subnetworks": subnetworks,
    "samples": samples,
    "communication": communication,
    "schedule": schedule,
    "calibration": calibration,
    "trials": trials,
    "deviations": deviations,
    "rounds": rounds,
    "parallel": parallel,
    "slices": slices,
    "importance": importance,
    "pareto": pareto,
}


def parse(request: str) -> tuple[Figure, list[str]]:
    """Return the function and the arguments of a request; refuse unknown names and wrong counts.

    It needs no data, so that a mistake is found before a search runs and not after.
    """
    name, _, rest = request.partition(":")
    if _is_own(request):
        return _imported(request), []
    if name not in FIGURES:
        raise UnknownNameError("figure", name, FIGURES)
    arguments = [part.strip() for part in rest.split(",")] if rest else []
    parameters = list(inspect.signature(FIGURES[name]).parameters.values())[1:]
    needed = [p.name for p in parameters if p.default is inspect.Parameter.empty]
    if not len(needed) <= len(arguments) <= len(parameters):
        names = ", ".join(p.name for p in parameters) or "no arguments"
        raise ConfigError(
            f"figure `{name}` takes {names}, but got `{request}`. "
            f"Write `{':'.join([name, ','.join(needed)]) if needed else name}`."
        )
    for parameter, argument in zip(parameters, arguments, strict=False):
        if parameter.name == "metric" or "/" in argument:
            schema.lookup(argument)
    return FIGURES[name], arguments


def draw(request: str, run_data: RunData) -> Drawing | Note:
    """Draw what a request asks for; where its data is missing, return a note that says so.

    Example:
        >>> import pandas as pd
        >>> from tuneparts.search.card import RunCard
        >>> nothing = RunData(RunCard("digits", "?", ()), pd.DataFrame(), pd.DataFrame())
        >>> draw("accuracy:test/nll", nothing).text
        'No selected trial has reported test/nll yet.'
    """
    with schema.using(*run_data.metadata.metrics):
        if _is_own(request):
            return _draw_own(request, run_data)
        figure, arguments = parse(request)
        absent = _absent_arm(figure, arguments, run_data)
        if absent is not None:
            return Note(request, f"It is about the arm `{absent}`, which this run does not have.")
        usual = _usual(figure, arguments, run_data.metadata.quantity)
        drawing = figure(run_data, *arguments, **usual)
    said = run_data.metadata.replication
    if isinstance(drawing, Note) or not said or "seeds" not in drawing.caption:
        return drawing
    return dataclasses.replace(drawing, caption=f"{drawing.caption} {said}")


def _absent_arm(figure: Figure, arguments: list[str], run_data: RunData) -> str | None:
    """The arm that a request names and the run lacks, as after `tuneparts search --arms`."""
    known = {arm.name for arm in run_data.metadata.arms}
    names = list(inspect.signature(figure).parameters)[1:]
    asked = [value for name, value in zip(names, arguments, strict=False) if name == "arm"]
    return next((arm for arm in asked if arm and arm not in known), None)


def _usual(figure: Figure, arguments: list[str], quantity: str) -> dict[str, str]:
    """The metric of a request that names none: what the search is about, not always accuracy."""
    parameters = list(inspect.signature(figure).parameters.values())[1 + len(arguments) :]
    return {
        one.name: f"{one.default.partition('/')[0]}/{quantity}"
        for one in parameters
        if one.name == "metric" and str(one.default).endswith("/accuracy")
    }


def _is_own(request: str) -> bool:
    """Whether it reads `package.module:function`; no argument of our own figures is one word."""
    name, _, rest = request.partition(":")
    return name not in FIGURES and rest.isidentifier()


def _imported(request: str) -> Figure:
    module, _, name = request.partition(":")
    try:
        figure: Figure = getattr(import_module(module), name)
        inspect.signature(figure).bind(None)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ConfigError(
            "a figure is one of ours or `package.module:function`, which can be imported here and "
            f"is called with the run's data, but `{request}` is not: {error}. Ours: "
            f"{', '.join(sorted(FIGURES))}."
        ) from error
    return figure


def _draw_own(request: str, run_data: RunData) -> Drawing | Note:
    """Draw a figure of somebody else's; what goes wrong in it must not cost the report."""
    try:
        drawing = parse(request)[0](run_data)
    except Exception as error:
        return Note(request, f"It cannot be drawn here: {type(error).__name__}: {error}")
    if not isinstance(drawing, Drawing | Note):
        text = f"A figure returns a Drawing or a Note, but this returned {drawing!r:.100}."
        return Note(request, text)
    if isinstance(drawing, Drawing) and drawing.figure.layout.height is None:
        drawing.figure.update_layout(height=PANEL_HEIGHT)
    return drawing
