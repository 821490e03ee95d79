"""Partitioned training of your own net on your own arrays, as an estimator of scikit-learn."""

import math
import warnings
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from tuneparts.core import schema, seeding
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.own import Arrays, given_inputs, given_task, plain
from tuneparts.data.task import Task
from tuneparts.hypers import Affine
from tuneparts.hypers.hypers import HyperModule
from tuneparts.hypers.parts import DropoutSlot
from tuneparts.methods.partitioned._assign import roles_of
from tuneparts.methods.partitioned._isolation import check_lent
from tuneparts.methods.partitioned.config import PUBLISHED, Partitioned
from tuneparts.methods.partitioned.learner import PartitionedLearner
from tuneparts.nets import GivenNet, surgery
from tuneparts.nets.survey import PROBE, check_logits, copied, outputs
from tuneparts.training.learner import Context
from tuneparts.training.process import threads_for
from tuneparts.training.progress import run_through

if TYPE_CHECKING:
    import plotly.graph_objects as go

_FORM: dict[str, Any] = {**PUBLISHED, "finetune": {}}
"""The default: as published, then fine-tuned. Joint steps find less (docs/log.md)."""
_TRAVEL = 27.0
"""Hyper learning rate times hyper steps: how far an unconstrained hyper can travel in a run."""
_STARTS = {**dict.fromkeys(Affine.NAMES, 0.3), "rotation": math.pi / 2}
"""Motions that are given no value; rotation in the middle: a small one hardly has a gradient."""


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What the classifier and the regressor share."""

    def __init__(
        self,
        net: Any,
        hypers: Any = (),
        *,
        steps: int | None = None,
        method: Any = None,
        target: Any = None,
        retrain: bool = False,
        seed: int = 0,
        device: torch.device | str | None = None,
    ) -> None:
        self.net, self.hypers, self.steps, self.method = net, hypers, steps, method
        self.target, self.retrain, self.seed, self.device = target, retrain, seed, device

    def plot(self) -> "go.Figure":
        """The hyperparameters, and the loss, along the steps of the first run."""
        from plotly.subplots import make_subplots

        check_is_fitted(self)
        figure = make_subplots(1, 2, subplot_titles=("what was learnt", "loss"))
        lines = [(f"hyper/{name}", _with_unit(name, name, " ({})"), 1) for name in self.hypers_]
        lines += [("train/loss", "loss of weights", 2), ("train/hyper_loss", "on unseen data", 2)]
        first = math.ceil(self.method_.steps / self.method_.interval)
        for metric, words, panel in lines:
            rows = [row for row in self.history_[:first] if metric in row]
            if rows:
                x, y = ([row[name] for row in rows] for name in ("cost/steps", metric))
                figure.add_scatter(x=x, y=y, name=words, mode="lines+markers", row=1, col=panel)
        figure.update_xaxes(title_text="steps")
        return figure.update_layout(template="plotly_white", legend={"orientation": "h"})

    def _train(self, x: npt.NDArray[Any], labels: npt.NDArray[Any], target: Any) -> Self:
        """Train a copy of the net; what was found is set at the very end."""
        task = given_task((x, labels), target=target)
        net = self._copied_net(task)
        if task.has_tokens and _width(net, task) is None:  # whole numbers, for a net of real ones
            _check_scaled(x, takes_tokens=False)
            task = given_task((x.astype(np.float32), labels), target=target)
        if task.num_classes == 2 and _width(net, task) == 1:
            task = given_task((plain(task.train.inputs), labels), target="binary")
        config = self._configured(net, task)
        start = copied(net) if self.retrain else None
        if start is not None:  # refuses what cannot be taken over, before anything is trained
            shapes: dict[str, Any] = {"in_shape": task.in_shape, "num_outputs": task.num_outputs}
            tried = config.hypers.build(learnable=False, net=copied(net), **shapes)
            config.hypers.at(_values(tried))
        device = torch.device(self.device or next(net.parameters()).device)
        context = Context(task=task, seed=self.seed, device=device)
        num = config.batch_size * config.hypers.samples
        with surgery.modes_kept(net), threads_for([net], task.in_shape, num, device):
            learner: Any = config.build(context)
            history = run_through(learner, what="partitioned", steps=config.steps)
            found = _values(learner.hypers)
            learner.merged()
            if start is not None:
                # Standard training at what was found: partitioned training with one chunk.
                same = ("steps", "interval", "batch_size", "runtime")
                again = Partitioned.published(
                    **{name: getattr(config, name) for name in same},
                    optimiser=config.optimiser.replaced({"schedule": "cosine"}),
                    hypers=config.hypers.at(found),
                    proportions=(1.0,),
                    net=GivenNet(start.train),
                )
                learner = PartitionedLearner(again, context)
                history += run_through(learner, what="retrained", steps=config.steps)
                net.load_state_dict(learner.merged().state_dict())
            if surgery.find(net, DropoutSlot) and not learner.hypers.at_slots(training=False):
                surgery.replace(
                    net,
                    DropoutSlot,
                    lambda _, it: nn.Dropout(found.get(f"dropout.{it.slot}", it.p)),
                )
        known = [row["lml/total"] for row in history if "lml/total" in row]
        self.net_, self.hypers_, self.history_, self.method_ = net, found, history, config
        self.lml_, self._learner = known[-1] if known else math.nan, learner
        return self

    def _copied_net(self, task: Task) -> nn.Module:
        if isinstance(self.net, nn.DataParallel | nn.parallel.DistributedDataParallel):
            raise ConfigError("net: data-parallel, but `fit` is one process. Use `net.module`.")
        if isinstance(self.net, nn.Module):
            return copied(self.net)
        with seeding.isolated(self.seed, "init"):
            given = parse(Partitioned, {"net": self.net})
            return given.net.build(task.in_shape, task.num_outputs)

    def _configured(self, net: nn.Module, task: Task) -> Partitioned:
        """The config of the first run, tried on a copy of the net."""
        asked = self.method
        if not isinstance(asked, Partitioned):
            asked = parse(Partitioned, {**_FORM, **(asked or {})})
        given = {name: getattr(asked, name) for name in asked.model_fields_set}
        for name in {"net", "hypers"} & given.keys():
            raise ConfigError(f"method.{name}: set it as `{name}` of {type(self).__name__}.")
        given |= {"net": GivenNet(net.train), "hypers": self.hypers or ()}
        given |= {"steps": self.steps} if self.steps is not None else {}
        config = parse(Partitioned, _settings(parse(Partitioned, given), given, len(task.train)))
        if config.defaults == "seed":
            raise ConfigError("method.defaults = 'seed': this net cannot be drawn again.")
        x, trial = torch.tensor(task.train.inputs[:PROBE]), copied(net).cpu()
        try:
            check_logits(trial, x, task.num_outputs, are_classes=task.num_classes > 0)
            check_lent(trial, x, list(roles_of(trial, num_held=config.num_extractor_layers)))
            with seeding.isolated(0, "probe"):
                trial.train()(x).sum().backward()
        except ConfigError:
            raise
        except Exception as error:  # whatever somebody else's forward raises
            raise ConfigError(
                f"{type(net).__name__} cannot be trained on inputs {tuple(x.shape)}: "
                f"{type(error).__name__}: {error}"
            ) from error
        return config

    @torch.no_grad()
    def _outputs(self, inputs: Arrays) -> Tensor:
        check_is_fitted(self)
        learner, x = self._learner, validate_data(self, _array(inputs), reset=False, allow_nd=True)
        _check_scaled(x, takes_tokens=learner.context.task.has_tokens)
        x = torch.as_tensor(given_inputs(x.astype(learner.context.task.train.inputs.dtype)))
        generator, device = learner.generator("predict"), learner.context.device
        with surgery.modes_kept(learner.net):
            learner.net.eval()
            batches = [part.to(device) for part in torch.split(x, learner.scored_at_once)]
            return torch.cat([learner.predict(part, generator) for part in batches]).cpu()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "net_")

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self._facts())
        return f"{type(self).__name__}({facts})" if facts else str(super().__repr__(N_CHAR_MAX))

    def _html_repr(self) -> str:
        rows = [f"<th>{escape(name)}</th><td>{escape(value)}</td>" for name, value in self._facts()]
        table = f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
        return table if rows else str(super()._html_repr())

    def _facts(self) -> list[tuple[str, str]]:
        """What is worth a line: hyperparameters with units, L_ML and how it was trained."""
        if not hasattr(self, "net_"):
            return []
        used, unit = self.method_, " nats" if isinstance(self, PartitionedClassifier) else ""
        facts = [(n, _with_unit(n, f"{value:.3g}", " {}")) for n, value in self.hypers_.items()]
        facts += [("L_ML", f"{self.lml_:,.1f}{unit}"), ("steps", f"{used.steps:,}")]
        facts += [("batch_size", f"{used.batch_size}"), ("hyper_lr", f"{used.hyper_lr:.3g}")]
        return [("net", type(self.net_).__name__), *facts]


class PartitionedClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Trains a net and learns its hyperparameters in one run, on all the data.

    Settings that are not given are chosen from the size of the data, and stand in `method_`.

    Args:
        net: any module from inputs (B, ...) to logits (B, K), or to the log-odds (B, 1) of the
            second of two classes; or a config, `tp.nets.Mlp()`. It is never changed: each fit
            trains a copy, in training mode whatever mode its layers are in.
        hypers: what to learn, `tp.Affine()`, several in a list, or `Hypers`. Motions without a
            value start at 0.3, rotation at pi / 2; a motion at 0 is held there.
        steps: forward-backward passes over a batch; from the size of the data if None.
        method: fields of `tp.Partitioned` that change the default form, which is the published one
            with a last stage of fine-tuning; or another form, `tp.Partitioned()`, as it is.
        target: a loss function or a `Target` in place of that of the labels.
        retrain: train a copy once more from the start, as an ordinary net at the hyperparameters
            found, for the same steps again, its learning rate falling along a cosine.
        seed: of the chunks, the assignment, the batches and the augmentation.
        device: where to train; the net's own if None.

    Attributes:
        net_: the trained net; an ordinary one. Dropout layers have learnt rates where learnt.
        hypers_: values by name, `rotation`, `dropout.0`, ..., held ones too; for `Hypers.at`.
        classes_: the labels, numbers or strings, in the order of `predict_proba`.
        lml_: L_ML in nats where it was last known; NaN with a single chunk.
        history_: what each interval reported; a retrained net goes on after the first run.
        method_: the config that was used, what was chosen from the size of the data included.
    """

    def fit(self, X: Arrays, y: Arrays) -> Self:
        """Train on scaled float images (N, C, H, W) or vectors (N, D), with any labels (N,).

        Whole numbers, such as tokens, stay whole where the net takes them.
        """
        x, labels = _checked(self, X, y)
        check_classification_targets(labels)
        classes, numbers = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ConfigError(f"y: one class, {classes[0]!r}, is nothing to tell from others.")
        self._train(x, numbers, self.target or "classes")
        self.classes_ = classes
        return self

    def predict(self, X: Arrays) -> npt.NDArray[Any]:
        numbers = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[numbers])

    def predict_proba(self, X: Arrays) -> npt.NDArray[np.float64]:
        """Probabilities (N, K) in the order of `classes_`, averaged over augmentation samples."""
        outputs_NK = self._outputs(X).double()
        if outputs_NK.shape[1] == 1:
            outputs_NK = torch.cat([torch.zeros_like(outputs_NK), outputs_NK], dim=1)
        return outputs_NK[:, : len(self.classes_)].softmax(dim=1).numpy()


class PartitionedRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """As `PartitionedClassifier`, for real numbers: an output for each, mean squared error.

    `lml_` is minus the summed loss, which need not be a likelihood. Scale labels to about one.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Arrays, y: Arrays) -> Self:
        """Train on inputs as the classifier takes them, and labels (N,) or (N, K)."""
        x, labels = _checked(self, X, y, multi_output=True, y_numeric=True)
        self._train(x, labels, self.target or "values")
        self._is_flat = labels.ndim == 1
        return self

    def predict(self, X: Arrays) -> npt.NDArray[Any]:
        """The net's outputs, (N,) where labels were (N,) and there is one output."""
        outputs_NK = self._outputs(X).double().numpy()
        return outputs_NK[:, 0] if self._is_flat and outputs_NK.shape[1] == 1 else outputs_NK


def _settings(config: Partitioned, given: Mapping[str, Any], num_examples: int) -> dict[str, Any]:
    """Fields of a run on so many examples; those that are given stay as they are."""
    size = min(num_examples, 50) if num_examples < 10_000 else 128
    size = given.get("batch_size", size)
    steps = given.get("steps", min(20_000, max(2400, 20 * num_examples // size)))
    searched = steps if config.finetune is None else config.finetune.start(steps)
    every = 1 if config.hyper_share else config.hyper_every + 1
    hypers = config.hypers
    if isinstance(hypers.affine, Affine) and "affine" not in hypers.frozen:
        unset = set(Affine.NAMES) - hypers.affine.model_fields_set
        hypers = hypers.replaced({f"affine.{name}": _STARTS[name] for name in unset})
    chosen = {"batch_size": size, "steps": steps, "interval": max(1, steps // 20)}
    chosen |= {"optimiser": {"lr": 6e-3}, "hyper_lr": min(0.1, _TRAVEL * every / searched)}
    return {**chosen, **given, "hypers": hypers}


def _array(values: Any) -> Any:
    """Tensors, on any device, as arrays; all else as it is, for scikit-learn to look at."""
    return plain(values) if hasattr(values, "detach") else values


def _checked(estimator: _Estimator, X: Any, y: Any, **checks: Any) -> tuple[Any, Any]:
    """Finite arrays, as many inputs as labels; refuses bytes, warns of what was hardly scaled."""
    checks |= {"allow_nd": True, "ensure_min_samples": 2}
    x, y = validate_data(estimator, _array(X), _array(y), **checks)
    _check_scaled(x, takes_tokens=True)
    if x.ndim == 4 and x.dtype.kind == "f" and (most := x.max()) > 100:
        why = f"images are mostly scaled to about 1, but these go up to {most:.4g}"
        warnings.warn(f"{why}. Use `images / {most:.4g}` unless the net scales.", stacklevel=3)
    return x, y


def _check_scaled(x: npt.NDArray[Any], *, takes_tokens: bool) -> None:
    """Refuse bytes, and images of other whole numbers where the net takes real ones."""
    name = "images" if x.ndim > 2 else "inputs"
    is_unscaled = x.dtype.kind in "iu" and name == "images" and not takes_tokens
    if x.dtype == np.uint8 or is_unscaled:
        raise ConfigError(
            f"inputs {x.shape} of type {x.dtype}: the net takes scaled ones. Use `{name} / 255`, "
            f"or, where they are tokens in training too, `{name}.astype(int)`."
        )


def _width(net: nn.Module, task: Task) -> int | None:
    """Outputs of a net for an example; None if it does not run on such inputs."""
    try:
        x = torch.tensor(task.train.inputs[:PROBE])
        return outputs(copied(net).cpu(), x, training=False).shape[1]
    except ConfigError:
        return None


def _values(hypers: HyperModule) -> dict[str, float]:
    return {name.removeprefix("hyper/"): value for name, value in hypers.values().items()}


def _with_unit(hyper: str, text: str, place: str) -> str:
    unit = schema.lookup(f"hyper/{hyper}").unit
    return text + place.format(unit) if unit else text
