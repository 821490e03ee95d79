"""Arguments and options that several verbs share."""

from typing import Annotated

import typer

from tuneparts.core import settings
from tuneparts.core.glossary import define
from tuneparts.methods import catalog
from tuneparts.search import load, runs


def _searches() -> list[str]:
    return list(load.available())


def _methods() -> list[str]:
    return list(catalog.METHODS.names())


def _runs() -> list[str]:
    return [run.name for run in reversed(runs.listing(settings.current().results_dir))]


_RUN_HELP = "SEARCH/TIME-DIGEST, or a search's name for its newest run."
Read = Annotated[
    str | None,
    typer.Argument(help=f"{_RUN_HELP} Or a folder of released results.", autocompletion=_runs),
]
Run = Annotated[str | None, typer.Argument(help=_RUN_HELP, autocompletion=_runs)]
NeededRun = Annotated[str, typer.Argument(help=_RUN_HELP, autocompletion=_runs)]
Search = Annotated[
    str, typer.Argument(help="A file of `tuneparts searches`, or a path.", autocompletion=_searches)
]
SomeSearch = Annotated[
    str | None, typer.Argument(help="One search, with its arms.", autocompletion=_searches)
]
Method = Annotated[
    str, typer.Argument(help="A method of `tuneparts methods`.", autocompletion=_methods)
]
SomeMethod = Annotated[
    str | None, typer.Argument(help="One method, with its fields.", autocompletion=_methods)
]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster HOST:PORT; this machine when not given.")
]
Local = Annotated[
    bool, typer.Option("--local", help="Run trials in processes of this machine, without Ray.")
]
Cpus = Annotated[
    float | None,
    typer.Option(help="CPUs that trials may fill; all of them when not given.", metavar="N"),
]
Ray = Annotated[
    bool, typer.Option("--ray", help="Run trials on a Ray of this machine, also if they are few.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, nothing else.")]
Csv = Annotated[bool, typer.Option("--csv", help="Print the table as CSV, nothing else.")]
Open = Annotated[bool, typer.Option("--open", help="Open it in a browser.")]
Scale = Annotated[str, typer.Option(help="Size of the question: smoke, cpu or paper.")]
Trials = Annotated[
    int | None,
    typer.Option(help="Trials per searching arm; a population or a grid stays as it is."),
]
Seeds = Annotated[str | None, typer.Option(help="Seeds to run under, as in 0,1,2.")]
Arms = Annotated[
    str | None,
    typer.Option(help="Run these only, as in none,oracle, with their source arms."),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a field, as in tpe.algorithm.sampler=gp, asha.resources.gpus=0.5, "
        "none.optimiser.lr=0.1, data.num_train=500 or stop.hours=2; may be "
        "repeated. `tuneparts methods NAME` lists the fields.",
        metavar="ARM.FIELD=VALUE",
    ),
]
MethodSet = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a field, as in standard.optimiser.lr=0.1 (or optimiser.lr=0.1), "
        "standard.net=resnet18 or data.num_train=500; may be repeated. `tuneparts methods NAME` "
        "lists the fields.",
        metavar="METHOD.FIELD=VALUE",
    ),
]
Storage = Annotated[
    str | None, typer.Option(help="Where checkpoints are kept: a path or URI that all nodes reach.")
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Continue the newest run of this very search, if there is one."),
]
Retry = Annotated[
    bool, typer.Option("--retry-failed", help="Try trials that failed again, where that is fair.")
]


def words(*used: str) -> str:
    """The definitions of words that a help text uses, shown below it."""
    return "\n\n".join(map(define, used))
