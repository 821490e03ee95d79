"""Partitioned training of one's own net on one's own arrays, without a search around it."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuneparts import schema
from tuneparts.augment.dropout_slot import DropoutSlot
from tuneparts.data.arrays import plain
from tuneparts.data.given import Arrays, given_examples, given_inputs, given_task
from tuneparts.data.target import from_anything as target_from
from tuneparts.data.task import Task
from tuneparts.errors import ConfigError
from tuneparts.models import surgery
from tuneparts.models.given import GivenNet, given_config, modes_kept
from tuneparts.models.survey import PROBE, copied
from tuneparts.partition.dry_pass import check_arrays, check_net, check_scaled
from tuneparts.partition.forms import Form, read_hypers, settings_of, why_not_mixed
from tuneparts.partition.learner import PartitionedConfig, PartitionedLearner
from tuneparts.partition.released import ReleasedConfig
from tuneparts.training.hyper import Hypers
from tuneparts.training.learner import Context
from tuneparts.training.progress import Report, run_through
from tuneparts.training.scores import EVAL_BATCH
from tuneparts.training.threads import threads_for

if TYPE_CHECKING:
    import plotly.graph_objects as go


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
        check_scaled(plain(inputs), takes_tokens=learner.context.task.has_tokens)
        x = torch.as_tensor(given_inputs(inputs))
        with modes_kept(learner.net):
            learner.net.eval()
            batches = torch.split(x, batch_size or max(1, EVAL_BATCH // samples))
            return torch.cat([learner.predict(part.to(device), generator) for part in batches])

    def plot(self) -> "go.Figure":
        """The hypers, and the loss, along the passes: a figure that notebooks show."""
        from tuneparts.partition.picture import picture

        return picture(self.history, list(self.hypers))

    def __repr__(self) -> str:
        facts = [f"{name} {value}" for name, value in self._facts()]
        return f"Fitted({', '.join(facts)})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(value)}</td></tr>"
            for name, value in self._facts()
        )
        return f"<table>{rows}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        """What is worth a line: hypers with units, L_ML and how it was trained."""
        facts = []
        for name, value in self.hypers.items():
            unit = schema.lookup(f"hyper/{name}").unit
            facts.append((name, f"{value:.3g} {unit}".rstrip()))
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
    chosen = read_hypers(hypers)
    check_arrays(inputs, labels, aim, chosen)
    task = given_task(given_examples(inputs, labels, aim), target=aim)
    config, note = _configured(net, task, form, {**fields, "hypers": chosen}, seed=seed)
    check_net(net, task, num_held=config.num_extractor_layers)
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


def _configured(
    net: nn.Module, task: Task, form: Form, fields: Mapping[str, Any], *, seed: int
) -> tuple[PartitionedConfig, dict[str, str]]:
    """The config of the first run, and a note where the net decided on it."""
    kind = ReleasedConfig if form == "released" else PartitionedConfig
    chosen = {"train_on": "train", **settings_of(form, len(task.train), fields)}
    given = GivenNet(partial(_itself, net))
    config = given_config(kind, chosen, net=given)
    if config.defaults == "seed":
        raise ConfigError(
            "a net that was built elsewhere cannot be drawn again from the seed, but `defaults` is "
            "`seed`. Use `initial`."
        )
    if form == "published" or {"scheme", "mixed", "defaults"} & set(fields):
        return config, {}
    reason = _why_not_mixed(net, task, config, seed=seed)
    if reason is not None:
        return config, {"note": f"single weights are dealt out: {reason}"}
    return given_config(kind, {**chosen, "scheme": "node", "mixed": True}, net=given), {}


def _itself(net: nn.Module) -> nn.Module:
    """The net, by a function that can be pickled."""
    return net


def _why_not_mixed(
    net: nn.Module, task: Task, config: PartitionedConfig, *, seed: int
) -> str | None:
    try:
        return why_not_mixed(
            copied(net).cpu(),
            torch.as_tensor(task.train.inputs[:PROBE]),
            proportions=config.parameter_proportions or config.proportions,
            seed=seed,
            num_held=config.num_extractor_layers,
        )
    except Exception as error:  # whatever somebody else's forward raises; `check_net` refuses it
        return str(error)


def _check_retrainable(config: PartitionedConfig, net: nn.Module, task: Task) -> None:
    """Refuse hypers that a second run could not take over, before the first one."""
    hypers = config.hypers.build(
        learnable=False, net=copied(net), in_shape=task.in_shape, num_outputs=task.num_outputs
    )
    try:
        config.hypers.at(_values(hypers))
    except ConfigError as error:
        raise ConfigError(
            "a net is trained once more at the values that were found, but these hypers cannot be "
            f"taken over by value: {error} Leave `retrain` out."
        ) from error


def _values(hypers: Hypers) -> dict[str, float]:
    return {name.removeprefix("hyper/"): value for name, value in hypers.values().items()}


def _ordinary(
    config: PartitionedConfig, net: nn.Module, found: Mapping[str, float]
) -> PartitionedConfig:
    """Standard training at the hypers found: partitioned training with one chunk."""
    fields = {
        name: getattr(config, name)
        for name in ("passes", "interval", "batch_size", "runtime", "train_on")
    }
    fields["optimiser"] = config.optimiser.replaced({"schedule": "cosine"})
    hypers = config.hypers.at(found)
    given = {**fields, "hypers": hypers, "proportions": (1.0,)}
    return given_config(PartitionedConfig, given, net=GivenNet(partial(_itself, net)))


def _used(config: PartitionedConfig) -> dict[str, Any]:
    left_out = {"net", "method", "train_on"}
    return {
        name: getattr(config, name) for name in type(config).model_fields if name not in left_out
    }


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
