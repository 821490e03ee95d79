"""The `tuneparts` command: its verbs, and how errors are printed."""

import errno
import io
import sys
from typing import Annotated

import typer

from tuneparts import __version__
from tuneparts.cli import _cluster, _doctor, _listing, _reading, _running, _training, serving
from tuneparts.cli._options import words
from tuneparts.core.errors import TunepartsError, printable
from tuneparts.core.redaction import redact

app = typer.Typer(
    name="tuneparts",
    epilog=words("search"),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for group in (_running, _reading, _training, _listing, _doctor, serving, _cluster):
    app.add_typer(group.app)


def _say_version(is_asked: bool) -> None:
    if is_asked:
        print(f"tuneparts {__version__}")
        raise typer.Exit


@app.callback()
def tuneparts(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_say_version, is_eager=True),
    ] = False,
) -> None:
    """Search hyperparameters on Ray, and compare with methods that learn them in one run.

    The answer is a table, a page, and a view of MLflow. Start with `tuneparts search
    rotated_digits`. `tuneparts new NAME` writes a search of your own, and `tuneparts
    --install-completion` lets the Tab key complete verbs, searches, methods and runs in your shell.
    """


def main() -> None:
    """Entry point: errors that we raise on purpose print as one sentence, not as a traceback."""
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack a sign of ours
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except TunepartsError as error:
        print(f"tuneparts: {printable(redact(str(error)))}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        known = next((text for codes, text in _SENTENCES.items() if error.errno in codes), None)
        if known is None:
            raise
        print(f"tuneparts: {known.format(printable(redact(str(error))))}", file=sys.stderr)
        raise SystemExit(2) from None


_SENTENCES = {
    (errno.ENOSPC, errno.EDQUOT): "the disk is full: {}. Make space, then run `tuneparts resume`; "
    "nothing is lost.",
    (errno.EACCES, errno.EPERM, errno.EROFS): "this user may not do that: {}. Ask who owns it, or "
    "name other folders in TUNEPARTS_RESULTS and TUNEPARTS_CACHE.",
}
"""What is said of errors of the system that no code of ours can avoid."""


if __name__ == "__main__":
    main()
