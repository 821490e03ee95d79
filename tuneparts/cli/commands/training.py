"""The verbs that train something in this process: fit, compress."""

from pathlib import Path
from typing import Annotated

import typer

from tuneparts.cli import options

app = typer.Typer()


@app.command(epilog=options.words("hyper", "pass"))
def fit(
    method: options.Method,
    data: Annotated[str, typer.Option(help="A set of `tuneparts data`.")] = "digits",
    seed: Annotated[int, typer.Option(help="Seed of every random stream.")] = 0,
    changes: options.MethodSet = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Train one learner in this process, without Ray or MLflow.

    `--set` takes fields of the method (`--set standard.passes=200`, or `--set passes=200`) and of
    the data (`--set data.rotated=true`).
    """
    from tuneparts.cli import fit as verb
    from tuneparts.cli.output import Form

    form = Form.of(as_json=as_json, as_csv=as_csv)
    verb.fit(method, data=data, seed=seed, changes=changes or [], form=form)


@app.command(epilog=options.words("arm", "pass"))
def compress(
    source: Annotated[
        str,
        typer.Argument(
            help="A run, a checkpoint or state_dict file, or torchvision:NAME.", metavar="SOURCE"
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write.", metavar="FILE")],
    arm: Annotated[str | None, typer.Option(help="Of a run: not the best arm but this.")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="A set of `tuneparts data`; a run brings its own.", metavar="NAME"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every random stream.")] = 0,
    changes: options.MethodSet = None,
    as_json: options.Json = False,
    as_csv: options.Csv = False,
) -> None:
    """Compress a trained net into a file: few distinct weights, in a NumPy archive.

    `--set` takes fields of `pwfn` (`--set passes=2000`), of the data (`--set data.pool=2`) and, for
    a file of weights, of the net that they are of (`--set net=resnet18`). Stopped, the same command
    goes on where it was.
    """
    from tuneparts.cli import compress as verb
    from tuneparts.cli.output import Form

    verb.compress(
        source,
        out=out,
        arm=arm,
        data=data,
        seed=seed,
        changes=changes or [],
        form=Form.of(as_json=as_json, as_csv=as_csv),
    )
