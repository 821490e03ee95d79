"""Partitioned training of one's own net on one's own arrays, without a search around it."""

import copy
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tuneparts import schema, seeding
from tuneparts.augment.dropout_slot import DropoutSlot
from tuneparts.data.arrays import plain
from tuneparts.data.given import Arrays, given_examples, given_inputs, given_task
from tuneparts.data.target import from_anything as target_from
from tuneparts.data.task import Task
from tuneparts.errors import ConfigError
from tuneparts.models import surgery
from tuneparts.models.given import GivenNet, given_config, modes_kept
from tuneparts.models.survey import PROBE, check_logits, copied
from tuneparts.partition.assign import roles_of
from tuneparts.partition.forms import Form, read_hypers, settings_of
from tuneparts.partition.isolation import check_lent, check_mixable
from tuneparts.partition.learner import PartitionedConfig, PartitionedLearner
from tuneparts.partition.released import ReleasedConfig
from tuneparts.partition.subnetwork import Partitioned
from tuneparts.training.hyper import Hypers
from tuneparts.training.learner import Context
from tuneparts.training.progress import Report, run_through
from tuneparts.training.scores import EVAL_BATCH
from tuneparts.training.threads import threads_for

if TYPE_CHECKING:
    import plotly.graph_objects as go

_LARGEST = 100.0
"""Pixels of images that are brighter than this were hardly scaled."""


@dataclass(frozen=True, repr=False)
class Fitted:
    """A trained net with what was learnt besides its weights."""

    net: nn.Module
    """The net that was given, trained; an ordinary net again, its layers in the modes in which they
    were given. Its dropout layers drop out in training as before, at learnt rates where rates were
    learnt."""
    hypers: Mapping[str, float]
    """Values at the end by name, `rotation`, `dropout.0`, ...: all that the run's hypers have, so
    that `HypersConfig.at` can take them over. Those that were not learnt are as they were given:
    motions that were not named at 0, and the net's own dropout rates."""
    lml: float
    """L_ML in nats where it was last known; NaN with a single chunk."""
    history: list[Mapping[str, float]]
    """What each interval reported; a retrained net goes on after the first run."""
    learner: PartitionedLearner
    """What `predict` predicts with."""
    settings: Mapping[str, Any]
    """The fields that were used, those chosen from the size of the data included; those of a second
    run under `retrained`."""

    @torch.no_grad()
    def predict(self, inputs: Arrays, *, batch_size: int | None = None) -> Tensor:
        """Outputs (B, K) for inputs like those of training, averaged over augmentation samples.

        Args:
            inputs: as in training.
            batch_size: inputs that go through the net at once; by the number of samples if None.
        """
        learner = self.learner
        device = learner.context.device
        generator = learner.generator("predict")
        samples = learner.hypers.num_samples(training=False)
        _check_scaled(plain(inputs), takes_tokens=learner.context.task.has_tokens)
        x = torch.as_tensor(given_inputs(inputs))
        with modes_kept(learner.net):
            learner.net.eval()
            batches = torch.split(x, batch_size or max(1, EVAL_BATCH // samples))
            return torch.cat([learner.predict(part.to(device), generator) for part in batches])

    def plot(self) -> "go.Figure":
        """The hypers, and the loss, along the passes of the first run."""
        from plotly.subplots import make_subplots

        figure = make_subplots(1, 2, subplot_titles=("what was learnt", "loss"))
        # A retrained net counts from 0 again.
        ends = [row["cost/passes"] for row in self.history]
        first = next((i for i in range(1, len(ends)) if ends[i] <= ends[i - 1]), len(ends))
        lines = [(f"hyper/{name}", _with_unit(name, name, " ({})"), 1) for name in self.hypers]
        lines += [("train/loss", "loss of weights", 2)]
        lines += [("train/hyper_loss", "loss of hypers, unseen data", 2)]
        for metric, words, panel in lines:
            rows = [row for row in self.history[:first] if metric in row]
            x, y = ([row[name] for row in rows] for name in ("cost/passes", metric))
            if rows:
                figure.add_scatter(x=x, y=y, name=words, mode="lines+markers", row=1, col=panel)
        figure.update_xaxes(title_text="passes")
        figure.update_yaxes(title_text="value", col=1)
        figure.update_yaxes(title_text="nats", col=2)
        return figure.update_layout(template="plotly_white", legend={"orientation": "h"})

    def __repr__(self) -> str:
        return f"Fitted({', '.join(f'{name} {value}' for name, value in self._facts())})"

    def _repr_html_(self) -> str:
        rows = (f"<th>{escape(name)}</th><td>{escape(value)}</td>" for name, value in self._facts())
        return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        """What is worth a line: hypers with units, L_ML and how it was trained."""
        facts = [(n, _with_unit(n, f"{value:.3g}", " {}")) for n, value in self.hypers.items()]
        if not math.isnan(self.lml):
            facts.append(("L_ML", f"{self.lml:,.1f} nats"))
        facts.append(("passes", f"{self.history[-1]['cost/passes']:,.0f}" if self.history else "0"))
        for name in ("form", "hyper_lr", "batch_size"):
            value = self.settings[name]
            facts.append((name, f"{value:.3g}" if isinstance(value, float) else str(value)))
        return facts


def fit(
    net: nn.Module,
    inputs: Arrays,
    labels: Arrays,
    *,
    hypers: Any = (),
    form: Form = "released",
    retrain: bool = False,
    target: Any = "classes",
    seed: int = 0,
    device: torch.device | str | None = None,
    report: Report | None = None,
    **fields: Any,
) -> Fitted:
    """Train a net and learn its hypers in one run, on all the data.

    Settings that are not given are chosen from the size of the data, and stand in `settings`. A net
    whose passes are small trains on one thread (see `training.threads`).

    Args:
        net: any module from inputs (B, ...) to logits (B, K); trained in place, in training mode
            whatever mode its layers are in, which they have again afterwards.
        inputs: float images (N, C, H, W) or vectors (N, D), scaled as the net wants them; whole
            numbers, such as tokens, stay whole.
        labels: whole numbers (N,), 0 to K - 1; for other targets what these predict.
        hypers: what to learn: `"rotation"` or several such names, starting values by name as in
            `{"rotation": 0.1}`, or fields of `HypersConfig`, where `affine` learns all six motions.
        form: `released`, `joint`, `mixed` or `published`, see `tuneparts.partition.forms`. A net
            that cannot run a mixed batch has its single weights dealt out instead of its units.
        retrain: train the net once more from its start, as an ordinary one at the hypers found,
            for the same passes again, its learning rate falling along a cosine.
        target: `classes`, `binary`, `values`, a loss function, or a `Target`.
        seed: of the chunks, the assignment, the batches and the augmentation.
        device: where to train; the net's own if None.
        report: called with the metrics of each interval; a terminal shows a bar if None.
        fields: of `PartitionedConfig` or `ReleasedConfig`: `passes`, `proportions`, `release`...
    """
    aim = target_from(target)
    x = plain(inputs)
    _check_scaled(x, takes_tokens=True)
    if x.ndim == 4 and x.dtype.kind == "f" and x.size and np.nanmax(x) > _LARGEST:
        warnings.warn(
            f"images are scaled as the net wants them, mostly to about 1, but these go up to "
            f"{np.nanmax(x):.4g}. Use `images / {np.nanmax(x):.4g}` unless the net scales them.",
            stacklevel=2,
        )
    task = given_task(given_examples(inputs, labels, aim), target=aim)
    config, note = _configured(net, task, form, {**fields, "hypers": read_hypers(hypers)}, seed)
    if retrain:
        _check_retrainable(config, net, task)
    start = copy.deepcopy(net) if retrain else None
    at = device or next(iter(net.parameters())).device
    context = Context(task=task, seed=seed, device=torch.device(at))
    settings = {"form": form, "retrain": retrain, **_used(config), **note}
    num = config.batch_size * config.hypers.samples
    with modes_kept(net), threads_for([net], task.in_shape, num, context.device):
        learner: PartitionedLearner = config.build(context)  # type: ignore[assignment]
        history = run_through(learner, what=form, passes=config.passes, report=report)
        found = _values(learner.hypers)
        learner.finish()
        if start is not None:
            again = _ordinary(config, start, found)
            settings["retrained"] = _used(again)
            learner = PartitionedLearner(again, context)
            history += run_through(learner, what="retrained", passes=again.passes, report=report)
            net.load_state_dict(learner.merged().state_dict())
        _restore_dropout(net, learner, found)
    known = [row["lml/total"] for row in history if "lml/total" in row]
    return Fitted(net, found, known[-1] if known else math.nan, history, learner, settings)


def _check_scaled(x: npt.NDArray[Any], *, takes_tokens: bool) -> None:
    """Refuse bytes, and images of other whole numbers where the net takes real ones."""
    name = "images" if x.ndim > 2 else "inputs"
    is_unscaled = x.dtype.kind in "iu" and name == "images" and not takes_tokens
    if x.dtype == np.uint8 or is_unscaled:
        raise ConfigError(
            f"inputs {x.shape} of type {x.dtype}: the net takes them scaled as it wants them. Use "
            f"`{name} / 255`, or, where they are tokens in training too, `{name}.astype(int)`."
        )


def _configured(
    net: nn.Module, task: Task, form: Form, fields: Mapping[str, Any], seed: int
) -> tuple[PartitionedConfig, dict[str, str]]:
    """The config of the first run, for a net that fits; a note where the net decided on it."""
    kind = ReleasedConfig if form == "released" else PartitionedConfig
    chosen = {"train_on": "train", **settings_of(form, len(task.train), fields)}
    given = GivenNet(partial(_itself, net))
    config = given_config(kind, chosen, net=given)
    if config.defaults == "seed":
        raise ConfigError(
            "`defaults` = `seed`: a net that was built elsewhere cannot be drawn again from the "
            "seed. Use `initial`."
        )
    x = torch.as_tensor(task.train.inputs[:PROBE])
    _check_net(net, x, task, num_held=config.num_extractor_layers)
    if form == "published" or {"scheme", "mixed", "defaults"} & set(fields):
        return config, {}
    try:
        parts = Partitioned(
            copied(net).cpu(),
            proportions=config.parameter_proportions or config.proportions,
            seed=seed,
            scheme="node",
            num_held=config.num_extractor_layers,
            example=x[:1],
        )
        check_mixable(parts, x)
    except Exception as error:  # whatever somebody else's forward raises
        return config, {"note": f"single weights are dealt out: {error}"}
    return given_config(kind, {**chosen, "scheme": "node", "mixed": True}, net=given), {}


def _check_net(net: nn.Module, x: Tensor, task: Task, *, num_held: int) -> None:
    """Run and differentiate a copy on a few examples: refuse a net that cannot be partitioned."""
    if isinstance(net, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise ConfigError(f"{type(net).__name__}: `fit` trains in one process. Use `net.module`.")
    trial = copied(net).cpu()
    try:
        check_logits(trial, x, task.num_outputs, are_classes=task.num_classes > 0)
        check_lent(trial, x, list(roles_of(trial, num_held=num_held)))
        with seeding.isolated(0, "probe"):
            trial.train()(x).sum().backward()
    except ConfigError:
        raise
    except Exception as error:
        raise ConfigError(
            f"{type(net).__name__} cannot be trained on inputs {tuple(x.shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _itself(net: nn.Module) -> nn.Module:
    """The net, by a function that can be pickled."""
    return net


def _check_retrainable(config: PartitionedConfig, net: nn.Module, task: Task) -> None:
    """Refuse hypers that a second run could not take over, before the first one."""
    hypers = config.hypers.build(
        learnable=False, net=copied(net), in_shape=task.in_shape, num_outputs=task.num_outputs
    )
    try:
        config.hypers.at(_values(hypers))
    except ConfigError as error:
        raise ConfigError(f"{error} Leave `retrain` out, which takes hypers over.") from error


def _values(hypers: Hypers) -> dict[str, float]:
    return {name.removeprefix("hyper/"): value for name, value in hypers.values().items()}


def _with_unit(hyper: str, text: str, place: str) -> str:
    unit = schema.lookup(f"hyper/{hyper}").unit
    return text + place.format(unit) if unit else text


def _ordinary(
    config: PartitionedConfig, net: nn.Module, found: Mapping[str, float]
) -> PartitionedConfig:
    """Standard training at the hypers found: partitioned training with one chunk."""
    same = ("passes", "interval", "batch_size", "runtime", "train_on")
    fields = {name: getattr(config, name) for name in same} | {
        "optimiser": config.optimiser.replaced({"schedule": "cosine"}),
        "hypers": config.hypers.at(found),
        "proportions": (1.0,),
    }
    return given_config(PartitionedConfig, fields, net=GivenNet(partial(_itself, net)))


def _used(config: PartitionedConfig) -> dict[str, Any]:
    names = type(config).model_fields.keys() - {"net", "method", "train_on"}
    return {name: getattr(config, name) for name in type(config).model_fields if name in names}


def _restore_dropout(
    net: nn.Module, learner: PartitionedLearner, found: Mapping[str, float]
) -> None:
    """Put ordinary dropout layers where slots took their places."""
    slots = surgery.find(net, DropoutSlot)
    if not slots or learner.hypers.acts_at_slots():
        return

    def dropout(_: str, slot: DropoutSlot) -> nn.Module:
        return nn.Dropout(found.get(f"dropout.{slot.slot}", slot.p))

    surgery.replace(net, DropoutSlot, dropout, expected=len(slots))
