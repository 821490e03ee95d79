"""Partitioned training of one's own net on one's own arrays, without a search around it.

It has four forms. `published` is that of Mlodozeniec et al. (2023): single weights, one partition a
step, every other step for the hypers. The others had better nets at the same steps on the one draw
of the data that they were compared on (`searches/partition_forms.py`): `mixed` updates all
partitions in each step and spends a fifth of the steps on hypers, `joint` moves weights and hypers
in every step, and `finetuned` ends a joint run by ordinary training of all weights on all data.
"""

import copy
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tuneparts.core import schema, seeding
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError, UnknownNameError
from tuneparts.data.own import Arrays, given_inputs, given_task, plain
from tuneparts.data.task import Task
from tuneparts.hypers import Affine, Hypers
from tuneparts.hypers.hypers import HyperModule
from tuneparts.hypers.parts import DropoutSlot
from tuneparts.methods.partitioned._assign import roles_of
from tuneparts.methods.partitioned._isolation import check_lent, check_mixable
from tuneparts.methods.partitioned.config import PUBLISHED, Partitioned
from tuneparts.methods.partitioned.learner import PartitionedLearner
from tuneparts.methods.partitioned.subnetwork import PartitionedNet
from tuneparts.nets import GivenNet, surgery
from tuneparts.nets.surgery import modes_kept
from tuneparts.nets.survey import PROBE, check_logits, copied
from tuneparts.training.config import Finetune
from tuneparts.training.learner import Context
from tuneparts.training.process import threads_for
from tuneparts.training.progress import Report, run_through

if TYPE_CHECKING:
    import plotly.graph_objects as go

Form = Literal["published", "mixed", "joint", "finetuned"]
_LARGEST = 100.0
"""Pixels of images that are brighter than this were hardly scaled."""
_TRAVEL = 18.0
"""Hyper learning rate times hyper steps: how far an unconstrained hyper can travel in a run."""
_MOTIONS = dict.fromkeys(Affine.NAMES, 0.3)
_STARTS: dict[str, Any] = {"affine": _MOTIONS, "noise": 0.1, "temperature": 1.0, **_MOTIONS}
"""Where hypers start that are named without a value."""
_STARTS |= {"flip": {"kind": "flip"}, "colour": {}, "mask": {}, "dropout": {}}


@dataclass(frozen=True, repr=False)
class Fitted:
    """A trained net with what was learnt besides its weights."""

    net: nn.Module
    """The net that was given, trained; an ordinary net again, its layers in the modes in which they
    were given. Its dropout layers drop out in training as before, at learnt rates where rates were
    learnt."""
    hypers: Mapping[str, float]
    """Values at the end by name, `rotation`, `dropout.0`, ...: all that the run's hypers have, so
    that `Hypers.at` can take them over. Those that were not learnt are as they were given:
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

        So many inputs go through the net at once; by the number of samples if None.
        """
        learner, device = self.learner, self.learner.context.device
        generator = learner.generator("predict")
        _check_scaled(plain(inputs), takes_tokens=learner.context.task.has_tokens)
        x = torch.as_tensor(given_inputs(inputs))
        with modes_kept(learner.net):
            learner.net.eval()
            batches = torch.split(x, batch_size or learner.scored_at_once)
            return torch.cat([learner.predict(part.to(device), generator) for part in batches])

    def plot(self) -> "go.Figure":
        """The hypers, and the loss, along the steps of the first run."""
        from plotly.subplots import make_subplots

        figure = make_subplots(1, 2, subplot_titles=("what was learnt", "loss"))
        # A retrained net counts from 0 again.
        ends = [row["cost/steps"] for row in self.history]
        first = next((i for i in range(1, len(ends)) if ends[i] <= ends[i - 1]), len(ends))
        lines = [(f"hyper/{name}", _with_unit(name, name, " ({})"), 1) for name in self.hypers]
        lines += [("train/loss", "loss of weights", 2)]
        lines += [("train/hyper_loss", "loss of hypers, unseen data", 2)]
        for metric, words, panel in lines:
            rows = [row for row in self.history[:first] if metric in row]
            if rows:
                x, y = ([row[name] for row in rows] for name in ("cost/steps", metric))
                figure.add_scatter(x=x, y=y, name=words, mode="lines+markers", row=1, col=panel)
        figure.update_xaxes(title_text="steps")
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
        used, steps = self.settings, self.history[-1]["cost/steps"] if self.history else 0
        facts += [("steps", f"{steps:,.0f}"), ("form", used["form"])]
        facts += [("hyper_lr", f"{used['hyper_lr']:.3g}"), ("batch_size", str(used["batch_size"]))]
        return facts


def fit(
    net: nn.Module,
    inputs: Arrays,
    labels: Arrays,
    *,
    hypers: Any = (),
    form: Form = "finetuned",
    retrain: bool = False,
    target: Any = "classes",
    seed: int = 0,
    device: torch.device | str | None = None,
    report: Report | None = None,
    **fields: Any,
) -> Fitted:
    """Train a net and learn its hypers in one run, on all the data.

    Settings that are not given are chosen from the size of the data, and stand in `settings`. A net
    whose steps are small trains on one thread (see `training.threads`).

    Args:
        net: any module from inputs (B, ...) to logits (B, K); trained in place, in training mode
            whatever mode its layers are in, which they have again afterwards.
        inputs: float images (N, C, H, W) or vectors (N, D), scaled as the net wants them; whole
            numbers, such as tokens, stay whole.
        labels: whole numbers (N,), 0 to K - 1; for other targets what these predict.
        hypers: what to learn: `"rotation"` or several such names, starting values by name as in
            `{"rotation": 0.1}`, or fields of `Hypers`, where `affine` learns all six motions.
        form: `finetuned`, `joint`, `mixed` or `published`. A net that cannot run a mixed batch has
            its single weights dealt out instead of its units.
        retrain: train the net once more from its start, as an ordinary one at the hypers found,
            for the same steps again, its learning rate falling along a cosine.
        target: `classes`, `binary`, `values`, a loss function, or a `Target`.
        seed: of the chunks, the assignment, the batches and the augmentation.
        device: where to train; the net's own if None.
        report: called with the metrics of each interval; a terminal shows a bar if None.
        fields: of `Partitioned`: `steps`, `proportions`, `finetune`...
    """
    x = plain(inputs)
    _check_scaled(x, takes_tokens=True)
    if x.ndim == 4 and x.dtype.kind == "f" and x.size and np.nanmax(x) > _LARGEST:
        warnings.warn(
            f"images are scaled as the net wants them, mostly to about 1, but these go up to "
            f"{np.nanmax(x):.4g}. Use `images / {np.nanmax(x):.4g}` unless the net scales them.",
            stacklevel=2,
        )
    task = given_task((inputs, labels), target=target)
    config, note = _configured(net, task, form, {**fields, "hypers": _read_hypers(hypers)}, seed)
    if retrain:  # before anything is trained
        shapes: dict[str, Any] = {"in_shape": task.in_shape, "num_outputs": task.num_outputs}
        try:
            tried = config.hypers.build(learnable=False, net=copied(net), **shapes)
            config.hypers.at(_values(tried))
        except ConfigError as error:
            raise ConfigError(f"{error} Leave `retrain` out, which takes hypers over.") from error
    start = copy.deepcopy(net) if retrain else None
    at = device or next(iter(net.parameters())).device
    context = Context(task=task, seed=seed, device=torch.device(at))
    settings = {"form": form, "retrain": retrain, **_used(config), **note}
    num = config.batch_size * config.hypers.samples
    with modes_kept(net), threads_for([net], task.in_shape, num, context.device):
        learner: PartitionedLearner = config.build(context)  # type: ignore[assignment]
        history = run_through(learner, what=form, steps=config.steps, report=report)
        found = _values(learner.hypers)
        learner.merged()
        if start is not None:
            # Standard training at the hypers found: partitioned training with one chunk.
            same = ("steps", "interval", "batch_size", "runtime", "train_on")
            fields = {name: getattr(config, name) for name in same} | {
                "optimiser": config.optimiser.replaced({"schedule": "cosine"}),
                "hypers": config.hypers.at(found),
                "proportions": (1.0,),
                **PUBLISHED,
                "net": GivenNet(start.train),
            }
            again = parse(Partitioned, fields)
            settings["retrained"] = _used(again)
            learner = PartitionedLearner(again, context)
            history += run_through(learner, what="retrained", steps=again.steps, report=report)
            net.load_state_dict(learner.merged().state_dict())
        if surgery.find(net, DropoutSlot) and not learner.hypers.at_slots(training=False):
            surgery.replace(
                net,
                DropoutSlot,
                lambda _, slot: nn.Dropout(found.get(f"dropout.{slot.slot}", slot.p)),
            )
    known = [row["lml/total"] for row in history if "lml/total" in row]
    return Fitted(net, found, known[-1] if known else math.nan, history, learner, settings)


def _settings_of(form: Form, num_examples: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a run on so many examples; those that are given stay as they are."""
    if form not in get_args(Form):
        raise UnknownNameError("form of partitioned training", form, get_args(Form))
    found = dict(fields)
    if form == "mixed":
        found.setdefault("hyper_every", 4)
    elif form != "published" and "hyper_every" not in fields:
        found.setdefault("hyper_share", 0.2)
    size = found.setdefault("batch_size", min(num_examples, 50) if num_examples < 10_000 else 128)
    if not all(isinstance(n, int) and n > 0 for n in (size, found.get("steps", 1))):
        return found  # the config refuses it, with the reason
    steps = found.setdefault("steps", min(20_000, max(2400, 20 * num_examples // size)))
    found.setdefault("interval", max(1, steps // 20))
    optimiser = found.setdefault("optimiser", {"lr": 3e-3})
    searched = steps
    if form == "finetuned":
        late = {"lr": 1e-3, **dict(optimiser), "schedule": "cosine"}
        late["lr"] /= 2
        stage = {"optimiser": late, **dict(found.get("finetune", {}))}
        found["finetune"] = parse(Finetune, stage)
        searched = found["finetune"].start(steps)
    every = 1 if found.get("hyper_share") else found.get("hyper_every", 1) + 1
    found.setdefault("hyper_lr", min(0.1, _TRAVEL * every / searched))
    return found


def _read_hypers(given: Any) -> dict[str, Any]:
    """Hypers in any of the ways that `fit` takes them, as fields of `Hypers`."""
    if isinstance(given, Hypers):
        return {**given.model_dump(exclude_unset=True), **given.parts}
    if not isinstance(given, Mapping):
        names = [given] if isinstance(given, str) else given or ()
        for name in names:
            if name not in _STARTS:
                raise UnknownNameError("hyper", name, list(_STARTS))
        given = {name: _STARTS[name] for name in names}
    found = {name: value for name, value in given.items() if name not in Affine.NAMES}
    motions = {name: value for name, value in given.items() if name in Affine.NAMES}
    if motions and found.get("affine") is not None:
        raise ConfigError(f"`affine` beside {', '.join(motions)}: put them inside `affine`.")
    if motions:
        found["affine"] = {**dict.fromkeys(Affine.NAMES, 0.0), **motions}
    is_random = {"affine", "colour", "flip", "noise"} & set(found)
    if is_random and not {"samples", "eval_samples"} & set(found):
        found |= {"samples": 4, "eval_samples": 8}
    return found


def _check_scaled(x: npt.NDArray[Any], *, takes_tokens: bool) -> None:
    """Refuse bytes, and images of other whole numbers where the net takes real ones."""
    name = "images" if x.ndim > 2 else "inputs"
    is_unscaled = x.dtype.kind in "iu" and name == "images" and not takes_tokens
    if x.dtype == np.uint8 or is_unscaled:
        raise ConfigError(
            f"inputs {x.shape} of type {x.dtype}: the net takes scaled ones. Use `{name} / 255`, "
            f"or, where they are tokens in training too, `{name}.astype(int)`."
        )


def _configured(
    net: nn.Module, task: Task, form: Form, fields: Mapping[str, Any], seed: int
) -> tuple[Partitioned, dict[str, str]]:
    """The config of the first run, tried on a copy of the net; a note where the net decided."""
    chosen = {**PUBLISHED, "train_on": "train", **_settings_of(form, len(task.train), fields)}
    chosen["net"] = GivenNet(net.train)
    config = parse(Partitioned, chosen)
    if config.defaults == "seed":
        raise ConfigError("`defaults` = `seed`: this net cannot be drawn again. Use `initial`.")
    if isinstance(net, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise ConfigError(f"{type(net).__name__}: `fit` trains in one process. Use `net.module`.")
    x, num_held = torch.as_tensor(task.train.inputs[:PROBE]), config.num_extractor_layers
    trial = copied(net).cpu()
    try:
        check_logits(trial, x, task.num_outputs, are_classes=task.num_classes > 0)
        check_lent(trial, x, list(roles_of(trial, num_held=num_held)))
        with seeding.isolated(0, "probe"):
            copied(trial).train()(x).sum().backward()
    except ConfigError:
        raise
    except Exception as error:  # whatever somebody else's forward raises
        raise ConfigError(
            f"{type(net).__name__} cannot be trained on inputs {tuple(x.shape)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if form == "published" or {"scheme", "mixed", "defaults"} & set(fields):
        return config, {}
    dealt: dict[str, Any] = {"scheme": "node", "num_held": num_held, "example": x[:1]}
    try:
        check_mixable(PartitionedNet(trial, proportions=config.owned, seed=seed, **dealt), x)
    except Exception as error:
        return config, {"note": f"single weights are dealt out: {error}"}
    return parse(Partitioned, {**chosen, "scheme": "node", "mixed": True}), {}


def _used(config: Partitioned) -> dict[str, Any]:
    return {name: value for name, value in config if name not in {"net", "method", "train_on"}}


def _values(hypers: HyperModule) -> dict[str, float]:
    return {name.removeprefix("hyper/"): value for name, value in hypers.values().items()}


def _with_unit(hyper: str, text: str, place: str) -> str:
    unit = schema.lookup(f"hyper/{hyper}").unit
    return text + place.format(unit) if unit else text
