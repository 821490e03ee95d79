"""Options that several verbs share."""

from typing import Annotated, Optional

import typer

from tuneparts.glossary import define

ScaleOption = Annotated[str, typer.Option(help="Size of the question: smoke, cpu or paper.")]
TrialsOption = Annotated[
    Optional[int],  # noqa: UP045 - typer reads it at run time
    typer.Option(help="Trials per searching arm; a population or a grid stays as it is."),
]
SeedsOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Replicates, as in 0,1,2."),
]
ArmsOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Run these only, as in none,oracle; an arm brings the one it follows."),
]
SetOption = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set",
        help="Change a field, as in tpe.algorithm.sampler=gp, asha.resources.gpus=0.5, "
        "random.stop.patience=8, none.optimiser.lr=0.1, data.num_train=500 or stop.hours=2; may be "
        "repeated.",
        metavar="ARM.FIELD=VALUE",
    ),
]
StorageOption = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(help="Where checkpoints lie: a path or URI that all nodes reach."),
]

ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Continue the newest run of this very search, if there is one."),
]
RetryOption = Annotated[
    bool, typer.Option("--retry-failed", help="Try trials that failed again, where that is fair.")
]


def words(*used: str) -> str:
    """Return the definitions of words that a help text uses, to stand below it."""
    return "\n\n".join(map(define, used))
