"""`tuneparts compress`: a trained net in, a small file out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuneparts import api, redaction
from tuneparts.cli.fit import split_changes
from tuneparts.cli.output import Form, records, terminal, write
from tuneparts.errors import ConfigError
from tuneparts.reports.rendering import Table, show

if TYPE_CHECKING:
    from torch import nn

    from tuneparts.data.task import Task
    from tuneparts.pwfn import Compressed


@dataclass(frozen=True)
class _Source:
    """A net, the data that it is compressed on, and what to say about it."""

    net: "nn.Module"
    task: "Task"
    fields: dict[str, Any]
    note: str = ""


def compress(
    source: str,
    *,
    out: Path,
    arm: str | None,
    data: str | None,
    seed: int,
    changes: Sequence[str],
    form: Form = Form.TABLE,
) -> None:
    """Compress a net, with a progress bar, and print what it cost."""
    from tuneparts.pwfn.compressed import compress_on
    from tuneparts.training.allocator import keep_freed_memory
    from tuneparts.training.learner import available_device

    found = _found(source, arm=arm, data=data, changes=changes)
    console = terminal(form)
    if found.note:
        console.print(found.note, highlight=False)
    keep_freed_memory()
    small = compress_on(
        found.task, found.net, file=out, seed=seed, device=available_device(), **found.fields
    )
    made = table(small, on="test" if len(found.task.test) else "validation")
    if form is not Form.TABLE:
        write(form, "rows", records(made), file=str(out), left_out=small.left_out)
        return
    show(console, made)
    for name, reason in small.left_out.items():
        console.print(f"in float: {name} {reason}", highlight=False)
    console.print(f'load it: tuneparts.pwfn.load("{out}", net)', highlight=False)


def table(small: "Compressed", *, on: str) -> Table:
    """What the net was, and what it is now."""
    rows = [
        [f"{name} on {on} data", f"{value:.4f}", f"{small.after[name]:.4f}"]
        for name, value in small.before.items()
    ]
    rows += [
        ["bytes", f"{small.num_float_bytes}", f"{small.num_bytes}"],
        ["distinct values", "", f"{small.num_values}"],
        ["bits per covered weight", "32", f"{small.entropy:.2f}"],
        ["share of weights covered", "", f"{small.covered:.4f}"],
    ]
    return Table.of_rows(["what", "before", "after"], rows, numbers=["before", "after"])


def _found(source: str, *, arm: str | None, data: str | None, changes: Sequence[str]) -> _Source:
    from tuneparts.pwfn.pretrained import TORCHVISION, load_into, torchvision_net

    own, of_data = split_changes(changes, "pwfn")
    is_file = Path(source).is_file()
    if not is_file and not source.startswith(TORCHVISION):
        if data is not None or of_data:
            raise ConfigError(
                f"a run brings its own data, but got other data for `{source}`. Leave them out, or "
                "give a checkpoint file."
            )
        return _of_run(source, arm, own)
    if arm is not None:
        raise ConfigError(f"only a run has arms, but `{source}` is a file or a net. Leave it out.")
    task = _loaded(data or "digits", of_data)
    if not is_file:
        return _Source(torchvision_net(source), task, own)
    from tuneparts.pwfn.config import PwfnConfig

    of_net = {name: own.pop(name) for name in list(own) if name.partition(".")[0] == "net"}
    net = PwfnConfig().replaced(of_net).net.build(task.in_shape, task.num_outputs)
    load_into(net, source)
    return _Source(net, task, own)


def _of_run(name: str, arm: str | None, own: dict[str, Any]) -> _Source:
    from tuneparts.training.supervised import SupervisedLearner

    results = api.load(name)
    trial = results.selected_trial(results.best_arm() if arm is None else arm)
    learner = results.learner(trial)
    if not isinstance(learner, SupervisedLearner):
        raise ConfigError(
            f"one net is compressed, but {trial} has none or several. Take another arm by `--arm`."
        )
    note = f"the net of {redaction.redact(str(trial))}"
    if learner.config.hypers != type(learner.config.hypers)():
        note += "; its hypers act around it and are not part of the file"
    fields: dict[str, Any] = {"batch_size": learner.config.batch_size} | own
    return _Source(learner.trained_net(), learner.context.task, fields, note)


def _loaded(data: str, changes: dict[str, Any]) -> "Task":
    from tuneparts.data.config import DataConfig

    config = DataConfig(name=data, num_val=0 if "num_val" in changes else 100)
    return config.replaced(changes).load()
