"""The verbs that train something in this process: fit, compress."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress

import tuneparts
from tuneparts.cli import _options
from tuneparts.cli._output import Form, put, terminal, write
from tuneparts.core import redaction, schema
from tuneparts.core.errors import ConfigError
from tuneparts.methods import catalog
from tuneparts.search.load import parse_change

app = typer.Typer()


@app.command(epilog=_options.words("step"))
def fit(
    method: _options.Method,
    data: Annotated[str, typer.Option(help="A set of `tuneparts data`.")] = "digits",
    seed: Annotated[int, typer.Option(help="Seed of every random stream.")] = 0,
    changes: _options.MethodSet = None,
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
) -> None:
    """Train one learner in this process, without Ray or MLflow.

    `--set` takes fields of the method (`--set standard.steps=200`, or `--set steps=200`) and of
    the data (`--set data.rotated=true`).
    """
    form = Form.of(as_json=as_json, as_csv=as_csv)
    catalog.METHODS.path_of(method)  # refuses unknown names before torch is imported
    own, of_data = split_changes(changes or [], method)
    from tuneparts.data import sets
    from tuneparts.data.config import Data

    sets.lookup(data)
    from tuneparts.training.learner import Context, available_device
    from tuneparts.training.process import keep_freed_memory, threads_for

    config: Any = catalog.config_class(method)().replaced(own)
    task = Data(name=data).replaced({"num_val": 100, **of_data}).load()
    keep_freed_memory()
    context = Context(task=task, seed=seed, device=available_device())
    with context.seeded_globals():
        learner: Any = config.build(context)
    console = terminal(form)
    rows = []
    with ExitStack() as around:
        if hasattr(learner, "net") and hasattr(config, "hypers"):  # one thread for small steps
            num = config.batch_size * config.hypers.samples
            around.enter_context(threads_for([learner.net], task.in_shape, num, context.device))
        progress = around.enter_context(Progress(console=console, transient=True))
        bar = progress.add_task(f"{method} on {data}", total=config.steps)
        while not learner.finished:
            with context.seeded_globals(learner.steps):
                rows.append(dict(learner.advance()))
            progress.update(bar, completed=learner.steps)
    if form is not Form.TABLE:
        write(form, "rows", rows, method=method, data=data, seed=seed)
        return
    lines = []
    for name in sorted({name for row in rows for name in row}):
        metric = schema.lookup(name)
        values = [f"{row[name]:.{metric.decimals}f}" for row in rows if name in row]
        first = values[0] if len(values) > 1 else ""
        row = {"metric": name, "first": first, "last": values[-1], "meaning": metric.meaning}
        lines.append(row)
    put(form, "metrics", lines, numbers=["first", "last"], prose=["meaning"])


def split_changes(changes: Sequence[str], method: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read changes as a search does, of the method, whose name may be left out, and of the data."""
    own: dict[str, Any] = {}
    of_data: dict[str, Any] = {}
    for change in changes:
        is_named = change.startswith((f"{method}.", "data."))
        owner, path, value = parse_change(change if is_named else f"{method}.{change}")
        (of_data if owner == "data" else own)[path] = value
    return own, of_data


@app.command(epilog=_options.words("arm", "step"))
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
    changes: _options.MethodSet = None,
    as_json: _options.Json = False,
    as_csv: _options.Csv = False,
) -> None:
    """Compress a trained net into a file: few distinct weights, in a NumPy archive.

    `--set` takes fields of `pwfn` (`--set steps=2000`), of the data (`--set data.pool=2`) and, for
    a file of weights, of the net that they are of (`--set net=resnet18`). Stopped, the same command
    goes on where it was.
    """
    from tuneparts.data.config import Data
    from tuneparts.methods import pwfn
    from tuneparts.methods.pwfn.codefile import TORCHVISION, torchvision_net
    from tuneparts.methods.pwfn.config import Pwfn
    from tuneparts.training.learner import available_device
    from tuneparts.training.loop import SupervisedLearner
    from tuneparts.training.process import keep_freed_memory

    form = Form.of(as_json=as_json, as_csv=as_csv)
    own, of_data = split_changes(changes or [], "pwfn")
    console = terminal(form)
    if not Path(source).is_file() and not source.startswith(TORCHVISION):
        if data is not None or of_data:
            raise ConfigError(f"`{source}`: a run brings its own data. Leave other data out.")
        results = tuneparts.load(source)
        trial = results.selected_trial(results.best_arm() if arm is None else arm)
        learner = results.learner(trial)
        if not isinstance(learner, SupervisedLearner):
            raise ConfigError(f"{trial}: has no single net. Take another arm by `--arm`.")
        note = f"the net of {redaction.redact(str(trial))}"
        if learner.config.hypers != type(learner.config.hypers)():
            note += "; its hyperparameters act around it and are not part of the file"
        console.print(note)
        own.setdefault("batch_size", learner.config.batch_size)
        net, task = learner.trained_net(), learner.context.task
    elif arm is not None:
        raise ConfigError(f"--arm {arm}: only a run has arms, but `{source}` is none.")
    else:
        task = Data(name=data or "digits").replaced({"num_val": 100, **of_data}).load()
        if source.startswith(TORCHVISION):
            net = torchvision_net(source)
        else:
            of_net = {key: own.pop(key) for key in list(own) if key.partition(".")[0] == "net"}
            net = Pwfn().replaced(of_net).net.build(task.in_shape, task.num_outputs)
            pwfn.load(source, net)
    keep_freed_memory()
    small = pwfn.compress(net, task, file=out, seed=seed, device=available_device(), **own)
    on = f"on {'test' if len(task.test) else 'validation'} data"
    values: dict[str, tuple[float | None, float]] = {
        f"{name} {on}": (round(value, 4), round(small.after[name], 4))
        for name, value in small.before.items()
    } | {
        "bytes": (small.num_float_bytes, small.num_bytes),
        "distinct values": (None, small.num_values),
        "bits per covered weight": (32, round(small.entropy, 2)),
        "share of weights covered": (None, round(small.covered, 4)),
    }
    rows = [{"what": what, "before": b, "after": a} for what, (b, a) in values.items()]
    hint = "".join(f"in float: {name} {reason}\n" for name, reason in small.left_out.items())
    hint += f'load it: tuneparts.methods.pwfn.load("{out}", net)'
    facts: dict[str, Any] = {"file": str(out), "left_out": small.left_out}
    put(form, "rows", rows, hint, numbers=["before", "after"], **facts)
