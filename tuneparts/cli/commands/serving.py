"""The verbs that serve pages: ui, dashboard."""

from typing import Annotated

import typer

from tuneparts.cli import options

app = typer.Typer()
VerboseOption = Annotated[bool, typer.Option("--verbose", help="Log every request.")]


@app.command()
def ui(
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 5000,
    host: Annotated[str, typer.Option(help="Address to bind to.")] = "127.0.0.1",
    without_authentication: Annotated[
        bool, typer.Option("--without-authentication", help="Let everybody in.")
    ] = False,
    open_page: options.Open = False,
    verbose: VerboseOption = False,
) -> None:
    """Serve the MLflow UI on the store: on this machine, or wider with a login."""
    from tuneparts.cli import ui as verb

    verb.ui(
        host=host,
        port=port,
        forced=without_authentication,
        open_page=open_page,
        is_verbose=verbose,
    )


@app.command()
def dashboard(
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 8501,
    open_page: options.Open = False,
) -> None:
    """Watch searches run and compare them in a browser, on this machine only."""
    from tuneparts.cli import dashboard as verb

    verb.dashboard(port, open_page=open_page)
