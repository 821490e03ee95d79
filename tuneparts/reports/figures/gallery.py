"""The figures that a search can ask for, by name.

Arguments stand after a colon: `accuracy`, `accuracy:test/nll`, `sweep:param.lr,test/accuracy`.
Two figures are not made from one run and are not listed here: `tasks` draws several runs
(`tuneparts ranks --plot`), and `complexity` draws a bench (`tuneparts bench complexity --plot`).
"""

import inspect
from collections.abc import Callable
from typing import TypeAlias

from tuneparts import schema
from tuneparts.errors import ConfigError, UnknownNameError
from tuneparts.reports.figures.accuracy import accuracy
from tuneparts.reports.figures.best_of_n import best_of_n
from tuneparts.reports.figures.communication import communication
from tuneparts.reports.figures.drawing import Drawing, Note
from tuneparts.reports.figures.fixing import deviations, rounds
from tuneparts.reports.figures.hypers import hypers, projections
from tuneparts.reports.figures.members import anytime, interpolation, membership
from tuneparts.reports.figures.samples import samples
from tuneparts.reports.figures.scores import calibration, scores
from tuneparts.reports.figures.sweeps import heat_map, sweep
from tuneparts.reports.figures.trials import trials
from tuneparts.reports.run_data import RunData

Figure: TypeAlias = Callable[..., Drawing | Note]
FIGURES: dict[str, Figure] = {
    "accuracy": accuracy,
    "scores": scores,
    "hypers": hypers,
    "projections": projections,
    "best_of_n": best_of_n,
    "sweep": sweep,
    "heat_map": heat_map,
    "anytime": anytime,
    "interpolation": interpolation,
    "membership": membership,
    "samples": samples,
    "communication": communication,
    "calibration": calibration,
    "trials": trials,
    "deviations": deviations,
    "rounds": rounds,
}


def parse(request: str) -> tuple[Figure, list[str]]:
    """Return the function and the arguments of a request; refuse unknown names and wrong counts.

    It needs no data, so that a mistake is found before a search runs and not after.
    """
    name, _, rest = request.partition(":")
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
        >>> from tuneparts.reports.metadata import ReportMetadata
        >>> nothing = RunData(ReportMetadata("digits", "?", ()), pd.DataFrame(), pd.DataFrame())
        >>> draw("accuracy:test/nll", nothing).text
        'No selected trial has reported test/nll yet.'
    """
    figure, arguments = parse(request)
    return figure(run_data, *arguments)
