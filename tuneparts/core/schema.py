"""Metric names: direction, unit, decimals and meaning; the only list.

A name is `family/quantity`; one that ends in `.*` is a numbered or named family (`lml/term.2`).
Learners may report nothing that is not listed here. A method that reports more declares it in
`Method.metrics`; a config of it adds that to the list of the process that it is made in.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from tuneparts.core.errors import ConfigError, UnknownNameError

if TYPE_CHECKING:
    import pandas as pd


class Direction(Enum):
    """Which way a metric improves."""

    UP = "larger is better"
    DOWN = "smaller is better"
    NONE = "a description, neither good nor bad"


@dataclass(frozen=True)
class Metric:
    """One quantity that a learner may report."""

    name: str
    direction: Direction
    unit: str
    decimals: int
    meaning: str
    low: float | None = field(default=None, compare=False)
    """The least that it can be; None where there is no bound."""
    high: float | None = field(default=None, compare=False)

    def bounded(self, low: float, high: float) -> tuple[float, float]:
        """An interval of values without what the metric cannot be."""
        bottom, top = self._ends
        return min(max(low, bottom), top), max(min(high, top), bottom)

    def bounded_gap(self, low: float, high: float) -> tuple[float, float]:
        """The same for a difference of two values."""
        bottom, top = self._ends
        return max(low, bottom - top), min(high, top - bottom)

    @property
    def _ends(self) -> tuple[float, float]:
        low, high = self.low, self.high
        return -math.inf if low is None else float(low), math.inf if high is None else float(high)

    @property
    def selectable(self) -> bool:
        """Whether a search may select on it: never on test data, never on a description."""
        return self.direction is not Direction.NONE and self.name.split("/")[0] in {"val", "lml"}

    @property
    def reads_test(self) -> bool:
        """Whether it is computed from test data, on which nothing may be decided."""
        return self.name.split("/")[0] in {"test", "corrupted", "anytime", "interpolation"}

    def better(self, a: float, b: float) -> bool:
        return a > b if self.direction is Direction.UP else a < b


_UP, _DOWN, _NONE = Direction


def _scores(split: str, where: str) -> list[Metric]:
    return [
        Metric(f"{split}/accuracy", _UP, "", 4, f"fraction classified right, {where}", 0, 1),
        Metric(f"{split}/nll", _DOWN, "nats", 4, f"mean negative log-likelihood, {where}", 0),
        Metric(f"{split}/ece", _DOWN, "", 4, f"calibration error, 15 bins, {where}", 0, 1),
        Metric(f"{split}/brier", _DOWN, "", 4, f"Brier score over all classes, {where}", 0, 2),
    ]


def _members(split: str, where: str) -> list[Metric]:
    return [
        Metric(f"{split}/member_accuracy", _UP, "", 4, f"mean over members, {where}"),
        Metric(f"{split}/disagreement", _NONE, "", 4, f"of pairs of members, {where}"),
        Metric(f"{split}/diversity", _NONE, "", 3, f"disagreement over error, {where}"),
    ]


def _hyper(name: str, unit: str, meaning: str) -> Metric:
    low = 0 if meaning.startswith(("largest", "dropout", "standard")) else None
    return Metric(f"hyper/{name}", _NONE, unit, 3, meaning, low)


_METRICS = [
    Metric("train/loss", _DOWN, "nats", 4, "mean training loss over the interval"),
    Metric("train/hyper_loss", _DOWN, "nats", 4, "mean loss of hyperparameter steps"),
    Metric("train/lr", _NONE, "", 6, "learning rate at the end of the interval"),
    *_scores("val", "held-out validation data"),
    *_scores("test", "test data"),
    *_members("val", "held-out validation data"),
    *_members("test", "test data"),
    *_scores("corrupted", "corrupted test data, mean over kinds and severities"),
    Metric("anytime/accuracy.*", _UP, "", 4, "test accuracy of a subset of members"),
    Metric("anytime/nll.*", _DOWN, "nats", 4, "test nll of a subset of members"),
    Metric("anytime/val_nll.*", _DOWN, "nats", 4, "validation nll of a subset of members"),
    Metric("anytime/flops.*", _DOWN, "FLOPs", 0, "an example through a subset of members"),
    Metric("interpolation/accuracy.*", _NONE, "", 4, "test accuracy between two members"),
    Metric("lml/total", _UP, "nats", 1, "L_ML over chunks 2..C, or Laplace's log p(D)"),
    Metric("lml/per_example", _UP, "nats", 4, "L_ML divided by its examples"),
    Metric("lml/term.*", _UP, "nats", 4, "mean log-likelihood of chunk k, subnet k-1"),
    _hyper("rotation", "rad", "largest rotation"),
    _hyper("translate_x", "half widths", "largest horizontal shift"),
    _hyper("translate_y", "half heights", "largest vertical shift"),
    _hyper("scale_x", "log", "largest horizontal log-scale"),
    _hyper("scale_y", "log", "largest vertical log-scale"),
    _hyper("shear", "", "largest shear"),
    _hyper("scale", "log", "largest isotropic log-scale (Benton et al. 2020)"),
    _hyper("stretch", "log", "largest area-preserving stretch (Benton et al. 2020)"),
    _hyper("theta_min.*", "", "lower end of an affine component (Schwoebel et al. 2021)"),
    _hyper("theta_max.*", "", "upper end of an affine component (Schwoebel et al. 2021)"),
    _hyper("dropout.*", "", "dropout rate of a layer"),
    _hyper("keep.*", "", "probability that an input feature is kept"),
    _hyper("num_kept", "inputs", "input features with a keep probability above one half"),
    _hyper("temperature", "", "softmax temperature"),
    _hyper("noise", "", "standard deviation of input noise"),
    _hyper("brightness", "", "largest change of brightness"),
    _hyper("contrast", "log", "largest log-change of contrast"),
    Metric("communication/up", _DOWN, "bytes", 0, "weights sent by clients so far"),
    Metric("communication/down", _DOWN, "bytes", 0, "weights sent to clients so far"),
    Metric("communication/hypers", _DOWN, "bytes", 0, "hyperparameters and their gradients"),
    Metric("communication/total", _DOWN, "bytes", 0, "all that was sent so far"),
    Metric("communication/up_per_round", _DOWN, "bytes", 0, "`up`, mean of the interval"),
    Metric("communication/down_per_round", _DOWN, "bytes", 0, "`down`, likewise"),
    Metric("federated/rounds", _NONE, "rounds", 0, "exchanges with clients so far"),
    Metric("federated/clients", _NONE, "answers", 0, "answers of clients so far"),
    Metric("federated/dropped", _DOWN, "clients", 0, "failed or late clients so far"),
    Metric("partition/steps.*", _NONE, "steps", 0, "updates of a partition"),
    Metric("size/parameters", _DOWN, "weights", 0, "trainable parameters"),
    Metric("size/templates", _DOWN, "weights", 0, "weights of all templates"),
    Metric("size/flops", _DOWN, "FLOPs", 0, "one example through all members"),
    Metric("superweights/clusters", _NONE, "clusters", 0, "sets of shared templates"),
    Metric("superweights/bins", _NONE, "clusters", 0, "clusters before any is split"),
    Metric("superweights/vectors", _NONE, "vectors", 0, "distinct coefficient vectors"),
    Metric("superweights/templates", _NONE, "templates", 2, "mean number per slot"),
    Metric("superweights/tau_asked", _NONE, "", 2, "threshold that the config asks for"),
    Metric("superweights/tau", _NONE, "", 2, "threshold at which clusters fitted"),
    Metric("superweights/trained", _NONE, "steps", 0, "steps that trained the weights"),
    Metric("superweights/similarity", _NONE, "", 3, "mean gradient cosine of a cluster"),
    Metric("superweights/split_half", _NONE, "", 3, "correlation of two halves of it"),
    Metric("superweights/cluster.*", _NONE, "", 0, "cluster of a layer, by member_layer"),
    Metric("size/unique_weights", _DOWN, "values", 0, "distinct weights, zero included"),
    Metric("size/entropy", _DOWN, "bits", 3, "entropy of a weight's value"),
    Metric("size/entropy_nonzero", _DOWN, "bits", 3, "the same over weights but zeros"),
    Metric("size/sparsity", _UP, "", 4, "share of weights that are zero"),
    Metric("size/coded_bytes", _DOWN, "bytes", 0, "the net as an entropy-coded file"),
    Metric("fixing/rounds", _NONE, "rounds", 0, "rounds of fixing so far"),
    Metric("fixing/fraction", _NONE, "", 4, "share of weights that are fixed"),
    Metric("fixing/accuracy_before", _UP, "", 4, "validation accuracy before a fixing"),
    Metric("fixing/accuracy_after", _UP, "", 4, "validation accuracy after it"),
    Metric("fixing/sigma.*", _NONE, "", 5, "percentile of free deviations before it"),
    Metric("fixing/spread", _NONE, "", 2, "90th over 10th percentile of free deviations"),
    Metric("fixing/exposure", _NONE, "", 4, "time constants of the pull on deviations"),
    Metric("test/ensemble_accuracy", _UP, "", 4, "accuracy averaged over weight draws"),
    Metric("test/ensemble_ece", _DOWN, "", 4, "ece averaged over weight draws"),
    Metric("test/ensemble_nll", _DOWN, "nats", 4, "nll averaged over weight draws"),
    Metric("system/cpu", _NONE, "cores", 2, "cores that the worker kept busy, mean"),
    Metric("system/memory", _NONE, "MB", 0, "memory of the worker, its peak so far"),
    Metric("system/gpu_memory", _NONE, "MB", 0, "GPU memory of the worker, its peak"),
    Metric("cost/steps", _DOWN, "steps", 0, "forward-backwards over one batch so far"),
    Metric("cost/updates", _NONE, "steps", 0, "updates of weights so far"),
    Metric("cost/seconds", _DOWN, "s", 1, "seconds spent in the learner so far"),
    Metric("config/*", _NONE, "", 4, "value of the config that a population changed"),
]
METRICS = {metric.name: metric for metric in _METRICS}
"""Name -> metric: the built-in ones, then what methods have declared in this process."""
BUILT_IN = frozenset(METRICS)
_AT_HAND: ContextVar[Mapping[str, Metric]] = ContextVar("metrics of the search at hand")
_NAME = re.compile(r"[a-z][a-z0-9_]*/[A-Za-z0-9_]+(\.\*|\.[A-Za-z0-9_]+)?")


def declare(*metrics: Metric) -> None:
    """Add metrics to the list of this process; of a name the newest counts, unless `using`."""
    for metric in metrics:
        if not _NAME.fullmatch(metric.name):
            raise ConfigError(f"metric `{metric.name}`: a name reads `family/quantity`.")
        if metric.decimals < 0 or not metric.meaning:
            raise ConfigError(f"metric `{metric.name}`: needs a meaning and `decimals >= 0`.")
        known = find(metric.name)
        if known is not None and known.name in BUILT_IN:
            _refuse_another(known, metric)
        METRICS[metric.name] = metric


@contextmanager
def using(*metrics: Metric) -> Iterator[None]:
    """Let these metrics of a search go before others of the same names, in this thread."""
    found: dict[str, Metric] = {}
    for metric in metrics:
        _refuse_another(found.setdefault(metric.name, metric), metric)
    before = _AT_HAND.set(found)
    try:
        yield
    finally:
        _AT_HAND.reset(before)


def _refuse_another(known: Metric, metric: Metric) -> None:
    if known != metric:
        raise ConfigError(
            f"`{metric.name}` is {known.meaning} ({known.direction.value}), but is also declared "
            f"as {metric.meaning} ({metric.direction.value}). Give one of them another name."
        )


def find(name: str) -> Metric | None:
    """The metric behind a reported name, or None; families match by their stem."""
    stems = name, name.rpartition(".")[0] + ".*", name.partition("/")[0] + "/*"
    tables = _AT_HAND.get({}), METRICS
    return next((table[stem] for table in tables for stem in stems if stem in table), None)


def lookup(name: str) -> Metric:
    """The metric behind a reported name; an unknown one is refused."""
    if metric := find(name):
        return metric
    raise UnknownNameError("metric", name, METRICS)


def selection_metric(name: str) -> Metric:
    """The metric a search selects by; refuses test data and descriptions."""
    metric = lookup(name)
    if not metric.selectable:
        usable = ", ".join(m.name for m in METRICS.values() if m.selectable)
        law = "selection uses held-out validation data or L_ML only"
        raise ConfigError(f"`{name}`: {law}. Use one of: {usable}.")
    return metric


def objective_metric(name: str) -> Metric:
    """A metric by which trials may be weighed; refuses test data and descriptions."""
    metric = lookup(name)
    if metric.reads_test:
        raise ConfigError(f"`{name}` reads test data: nothing is decided on test data.")
    if metric.direction is Direction.NONE:
        raise ConfigError(f"objective `{name}` is a description ({metric.meaning}).")
    return metric


def best_index(scores: Mapping[int, float | None], metric: Metric) -> int | None:
    """The trial with the best finite score, or the only one; ties go to the smaller index."""
    if len(scores) == 1:
        return next(iter(scores))
    known = {i: s for i, s in sorted(scores.items()) if s is not None and math.isfinite(s)}
    best = max if metric.direction is Direction.UP else min
    return best(known, key=known.__getitem__, default=None)


@dataclass(frozen=True)
class Shown:
    """A column of a `MethodTable`: a metric of the selected trials, or one of its `costs`."""

    name: str
    header: str
    unit: float | None = None
    """What the mean is divided by; None shows it with its standard error, as scores are."""
    decimals: int = 0
    """Where a unit is given."""


@dataclass(frozen=True)
class MethodTable:
    """A table of a report that a method declares; `methods.catalog.TABLES` has when it is shown."""

    heading: str
    metrics: tuple[str, ...]
    """What is averaged over seeds: names in their order, or families ending in `/`."""
    columns: "Callable[[pd.DataFrame], tuple[Sequence[Shown], Sequence[str]]]"
    """The columns and the notes, given the summary of the arms."""
    costs: Mapping[str, str] = field(default_factory=dict)
    """Columns of the summary with the sum of a metric over a seed, source arms included."""
    own_arms: str = ""
    """Only arms that have this metric are shown; all where it is empty."""
