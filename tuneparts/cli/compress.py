"""`tuneparts compress`: a trained net in, a small file out."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tuneparts
from tuneparts.cli.output import Form, records, terminal, write
from tuneparts.cli.training import split_changes
from tuneparts.core import redaction
from tuneparts.core.errors import ConfigError
from tuneparts.results.rendering import Table, show

if TYPE_CHECKING:
    from torch import nn

    from tuneparts.data.task import Task


def compress(
    source: str, *, out: Path, arm: str | None, data: str | None, seed: int,
    changes: Sequence[str], form: Form = Form.TABLE,
) -> None:  # fmt: skip
    """Compress a net, with a progress bar, and print what it cost."""
    from tuneparts.data.config import DataConfig
    from tuneparts.methods import pwfn
    from tuneparts.methods.pwfn.codefile import TORCHVISION, torchvision_net
    from tuneparts.methods.pwfn.config import PwfnConfig
    from tuneparts.training.learner import available_device
    from tuneparts.training.process import keep_freed_memory

    own, of_data = split_changes(changes, "pwfn")
    console = terminal(form)
    if not Path(source).is_file() and not source.startswith(TORCHVISION):
        if data is not None or of_data:
            raise ConfigError(f"`{source}`: a run brings its own data. Leave other data out.")
        net, task, note = _of_run(source, arm, own)
        console.print(note, highlight=False)
    elif arm is not None:
        raise ConfigError(f"--arm {arm}: only a run has arms, but `{source}` is none.")
    else:
        config = DataConfig(name=data or "digits", num_val=0 if "num_val" in of_data else 100)
        task = config.replaced(of_data).load()
        if source.startswith(TORCHVISION):
            net = torchvision_net(source)
        else:
            of_net = {key: own.pop(key) for key in list(own) if key.partition(".")[0] == "net"}
            net = PwfnConfig().replaced(of_net).net.build(task.in_shape, task.num_outputs)
            pwfn.load(source, net)
    keep_freed_memory()
    small = pwfn.compress(net, task, file=out, seed=seed, device=available_device(), **own)
    on = f"on {'test' if len(task.test) else 'validation'} data"
    scores = small.before.items()
    rows: list[tuple[object, ...]] = [
        *((f"{name} {on}", f"{value:.4f}", f"{small.after[name]:.4f}") for name, value in scores),
        ("bytes", small.num_float_bytes, small.num_bytes),
        ("distinct values", "", small.num_values),
        ("bits per covered weight", 32, f"{small.entropy:.2f}"),
        ("share of weights covered", "", f"{small.covered:.4f}"),
    ]
    made = Table.of_rows(["what", "before", "after"], rows, numbers=["before", "after"])
    if form is not Form.TABLE:
        write(form, "rows", records(made), file=str(out), left_out=small.left_out)
        return
    show(console, made)
    for name, reason in small.left_out.items():
        console.print(f"in float: {name} {reason}", highlight=False)
    console.print(f'load it: tuneparts.methods.pwfn.load("{out}", net)', highlight=False)


def _of_run(name: str, arm: str | None, own: dict[str, Any]) -> "tuple[nn.Module, Task, str]":
    """The net of a run's best trial, with a line on which it is; `own` gets its batch size."""
    from tuneparts.training.supervised import SupervisedLearner

    results = tuneparts.load(name)
    trial = results.selected_trial(results.best_arm() if arm is None else arm)
    learner = results.learner(trial)
    if not isinstance(learner, SupervisedLearner):
        raise ConfigError(f"{trial}: has no single net. Take another arm by `--arm`.")
    note = f"the net of {redaction.redact(str(trial))}"
    if learner.config.hypers != type(learner.config.hypers)():
        note += "; its hypers act around it and are not part of the file"
    own.setdefault("batch_size", learner.config.batch_size)
    return learner.trained_net(), learner.context.task, note
