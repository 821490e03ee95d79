"""The verbs that say what there is: methods, nets, searches, data, doctor; and new."""

from typing import Annotated

import typer

from tuneparts.cli import options

app = typer.Typer()


@app.command(epilog=options.words("hyper", "pass"))
def methods(
    name: options.SomeMethod = None, as_json: options.Json = False, as_csv: options.Csv = False
) -> None:
    """List the methods that a search can use; with NAME its fields, to be set by `--set`."""
    from tuneparts.cli import listings
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    listings.methods(form) if name is None else listings.method(name, form)


@app.command()
def nets(
    name: Annotated[str | None, typer.Argument(help="One net, with its fields.")] = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """List the nets that a config can name; with NAME its fields."""
    from tuneparts.cli import listings
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    listings.nets(form) if name is None else listings.net(name, form)


@app.command(epilog=options.words("search", "arm", "scale"))
def searches(
    name: options.SomeSearch = None,
    scale: options.Scale = "cpu",
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """List the search files, each a question; with NAME its arms and what they vary."""
    from tuneparts.cli import listings
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    listings.searches(form) if name is None else listings.search(name, scale, form)


@app.command()
def data(
    name: Annotated[
        str | None, typer.Argument(help="One set, with the fields that a search may set.")
    ] = None,
    download: Annotated[
        str | None, typer.Option(help="Fetch this set into the cache.", metavar="NAME")
    ] = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """List the data sets, where each was found, or how to get it; with NAME its fields."""
    from tuneparts.cli import listings
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    if download is not None:
        listings.download(download, form)
    listings.data(form) if name is None else listings.data_set(name, form)


@app.command(epilog=options.words("search", "arm"))
def new(
    name: Annotated[
        str, typer.Argument(help="Of the search: small letters, digits and underscores.")
    ],
) -> None:
    """Write a search file with comments, searches/NAME.py, that runs as it is."""
    from tuneparts.cli import new as verb

    verb.new(name)


@app.command()
def doctor(as_json: options.Json = False, as_csv: options.Csv = False) -> None:
    """Check the installation: versions, devices, Ray, store, data, disk; say what to do next."""
    from tuneparts.cli import doctor as verb
    from tuneparts.cli.output import Form

    verb.doctor(Form.of(as_json=as_json, as_csv=as_csv))
