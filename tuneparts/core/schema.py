"""Metric names: direction, unit, decimals and meaning; the only list.

A name is `family/quantity`. A name that ends in `.*` stands for a numbered or named family
(`lml/term.2`, `hyper/keep.0`). Learners may report nothing that is not listed here. A method that
reports more declares it beside itself, in `MethodConfig.metrics`; a config of it adds that to the
list of the process that it is made in.
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
        """An interval of values without what the metric cannot be.

        Example:
            >>> lookup("test/accuracy").bounded(0.9, 1.2)
            (0.9, 1.0)
        """
        bottom, top = self._ends
        return min(max(low, bottom), top), max(min(high, top), bottom)

    def bounded_gap(self, low: float, high: float) -> tuple[float, float]:
        """The same for a difference of two values.

        Example:
            >>> lookup("test/accuracy").bounded_gap(-4.0, 0.2)
            (-1.0, 0.2)
        """
        bottom, top = self._ends
        return max(low, bottom - top), min(high, top - bottom)

    @property
    def _ends(self) -> tuple[float, float]:
        return (
            -math.inf if self.low is None else float(self.low),
            math.inf if self.high is None else float(self.high),
        )

    @property
    def selectable(self) -> bool:
        """Whether a search may select on it: never on test data, never on a description."""
        return self.direction is not Direction.NONE and self.name.split("/")[0] in {"val", "lml"}

    @property
    def reads_test(self) -> bool:
        """Whether it is computed from test data, on which nothing may be decided."""
        return self.name.split("/")[0] in {"test", "corrupted", "anytime", "interpolation"}

    def better(self, a: float, b: float) -> bool:
        """Whether `a` is strictly better than `b`."""
        return a > b if self.direction is Direction.UP else a < b


def _scores(split: str, where: str) -> list[Metric]:
    return [
        Metric(
            f"{split}/accuracy", Direction.UP, "", 4, f"fraction classified right, {where}", 0, 1
        ),
        Metric(
            f"{split}/nll", Direction.DOWN, "nats", 4, f"mean negative log-likelihood, {where}", 0
        ),
        Metric(f"{split}/ece", Direction.DOWN, "", 4, f"calibration error, 15 bins, {where}", 0, 1),
        Metric(
            f"{split}/brier", Direction.DOWN, "", 4, f"Brier score over all classes, {where}", 0, 2
        ),
    ]


def _members(split: str, where: str) -> list[Metric]:
    return [
        Metric(f"{split}/member_accuracy", Direction.UP, "", 4, f"mean over members, {where}"),
        Metric(f"{split}/disagreement", Direction.NONE, "", 4, f"of pairs of members, {where}"),
        Metric(f"{split}/diversity", Direction.NONE, "", 3, f"disagreement over error, {where}"),
    ]


def _hyper(name: str, unit: str, meaning: str) -> Metric:
    low = 0 if meaning.startswith(("largest", "dropout", "standard")) else None
    return Metric(f"hyper/{name}", Direction.NONE, unit, 3, meaning, low)


_METRICS = [
    Metric("train/loss", Direction.DOWN, "nats", 4, "mean training loss over the interval"),
    Metric("train/hyper_loss", Direction.DOWN, "nats", 4, "mean loss of the hyper steps"),
    Metric("train/lr", Direction.NONE, "", 6, "learning rate at the end of the interval"),
    *_scores("val", "held-out validation data"),
    *_scores("test", "test data"),
    *_members("val", "held-out validation data"),
    *_members("test", "test data"),
    *_scores("corrupted", "corrupted test data, mean over kinds and severities"),
    Metric("anytime/accuracy.*", Direction.UP, "", 4, "test accuracy of a subset of members"),
    Metric("anytime/nll.*", Direction.DOWN, "nats", 4, "test nll of a subset of members"),
    Metric("anytime/val_nll.*", Direction.DOWN, "nats", 4, "validation nll of a subset of members"),
    Metric("anytime/flops.*", Direction.DOWN, "FLOPs", 0, "an example through a subset of members"),
    Metric("interpolation/accuracy.*", Direction.NONE, "", 4, "test accuracy between two members"),
    Metric("lml/total", Direction.UP, "nats", 1, "L_ML over chunks 2..C, or Laplace's log p(D)"),
    Metric("lml/per_example", Direction.UP, "nats", 4, "L_ML divided by its examples"),
    Metric("lml/term.*", Direction.UP, "nats", 4, "mean log-likelihood of chunk k, subnet k-1"),
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
    Metric("communication/up", Direction.DOWN, "bytes", 0, "weights sent by clients so far"),
    Metric("communication/down", Direction.DOWN, "bytes", 0, "weights sent to clients so far"),
    Metric("communication/hypers", Direction.DOWN, "bytes", 0, "hypers and their gradients so far"),
    Metric("communication/total", Direction.DOWN, "bytes", 0, "all that was sent so far"),
    Metric("communication/up_per_round", Direction.DOWN, "bytes", 0, "`up`, mean of the interval"),
    Metric("communication/down_per_round", Direction.DOWN, "bytes", 0, "`down`, likewise"),
    Metric("federated/rounds", Direction.NONE, "rounds", 0, "exchanges with clients so far"),
    Metric("federated/clients", Direction.NONE, "answers", 0, "answers of clients so far"),
    Metric("federated/dropped", Direction.DOWN, "clients", 0, "failed or late clients so far"),
    Metric("partition/steps.*", Direction.NONE, "steps", 0, "weight steps of a partition"),
    Metric("size/parameters", Direction.DOWN, "weights", 0, "trainable parameters"),
    Metric("size/templates", Direction.DOWN, "weights", 0, "weights of all templates"),
    Metric("size/flops", Direction.DOWN, "FLOPs", 0, "one example through all members"),
    Metric("superweights/clusters", Direction.NONE, "clusters", 0, "sets of shared templates"),
    Metric("superweights/bins", Direction.NONE, "clusters", 0, "clusters before any is split"),
    Metric("superweights/vectors", Direction.NONE, "vectors", 0, "distinct coefficient vectors"),
    Metric("superweights/templates", Direction.NONE, "templates", 2, "mean number per slot"),
    Metric("superweights/tau_asked", Direction.NONE, "", 2, "threshold that the config asks for"),
    Metric("superweights/tau", Direction.NONE, "", 2, "threshold at which clusters fitted"),
    Metric("superweights/trained", Direction.NONE, "passes", 0, "passes that trained the weights"),
    Metric("superweights/similarity", Direction.NONE, "", 3, "mean gradient cosine of a cluster"),
    Metric("superweights/split_half", Direction.NONE, "", 3, "correlation of two halves of it"),
    Metric("superweights/cluster.*", Direction.NONE, "", 0, "cluster of a layer, by member_layer"),
    Metric("size/unique_weights", Direction.DOWN, "values", 0, "distinct weights, zero included"),
    Metric("size/entropy", Direction.DOWN, "bits", 3, "entropy of a weight's value"),
    Metric("size/entropy_nonzero", Direction.DOWN, "bits", 3, "the same over weights but zeros"),
    Metric("size/sparsity", Direction.UP, "", 4, "share of weights that are zero"),
    Metric("size/coded_bytes", Direction.DOWN, "bytes", 0, "the net as an entropy-coded file"),
    Metric("fixing/rounds", Direction.NONE, "rounds", 0, "rounds of fixing so far"),
    Metric("fixing/fraction", Direction.NONE, "", 4, "share of weights that are fixed"),
    Metric("fixing/accuracy_before", Direction.UP, "", 4, "validation accuracy before a fixing"),
    Metric("fixing/accuracy_after", Direction.UP, "", 4, "validation accuracy after it"),
    Metric("fixing/sigma.*", Direction.NONE, "", 5, "percentile of free deviations before it"),
    Metric("fixing/spread", Direction.NONE, "", 2, "90th over 10th percentile of free deviations"),
    Metric("fixing/exposure", Direction.NONE, "", 4, "time constants of the pull on deviations"),
    Metric("test/ensemble_accuracy", Direction.UP, "", 4, "accuracy averaged over weight draws"),
    Metric("test/ensemble_ece", Direction.DOWN, "", 4, "ece averaged over weight draws"),
    Metric("test/ensemble_nll", Direction.DOWN, "nats", 4, "nll averaged over weight draws"),
    Metric("system/cpu", Direction.NONE, "cores", 2, "cores that the worker kept busy, mean"),
    Metric("system/memory", Direction.NONE, "MB", 0, "memory of the worker, its peak so far"),
    Metric("system/gpu_memory", Direction.NONE, "MB", 0, "GPU memory of the worker, its peak"),
    Metric("cost/passes", Direction.DOWN, "passes", 0, "forward-backwards over one batch so far"),
    Metric("cost/weight_steps", Direction.NONE, "steps", 0, "updates of weights so far"),
    Metric("cost/seconds", Direction.DOWN, "s", 1, "seconds spent in the learner so far"),
    Metric("config/*", Direction.NONE, "", 4, "value of the config that a population changed"),
]
METRICS = {metric.name: metric for metric in _METRICS}
"""Name -> metric: the built-in ones, then what methods have declared in this process."""
BUILT_IN = frozenset(METRICS)
_AT_HAND: ContextVar[Mapping[str, Metric]] = ContextVar("metrics of the search at hand")
_NAME = re.compile(r"[a-z][a-z0-9_]*/[A-Za-z0-9_]+(\.\*|\.[A-Za-z0-9_]+)?")


def declare(*metrics: Metric) -> None:
    """Add metrics to the list of this process; the newest declaration of a name counts.

    Two searches of one process may give one name two meanings: `using` brings those of the search
    at hand to the front.

    Raises:
        ConfigError: A name is no `family/quantity`, or that of another metric of ours.

    Example:
        >>> declare(Metric("val/excess", Direction.DOWN, "", 4, "distance to the optimum"))
        >>> lookup("val/excess").selectable
        True
    """
    for metric in metrics:
        if not _NAME.fullmatch(metric.name):
            raise ConfigError(
                f"a metric's name reads `family/quantity`, such as `val/loss`, but got "
                f"`{metric.name}`."
            )
        if metric.decimals < 0 or not metric.meaning:
            raise ConfigError(
                f"a metric has a meaning and `decimals >= 0`, but `{metric.name}` has "
                f"{metric.meaning!r} and {metric.decimals}."
            )
        known = find(metric.name)
        if known is not None and known.name in BUILT_IN:
            _refuse_another(known, metric)
        METRICS[metric.name] = metric


@contextmanager
def using(*metrics: Metric) -> Iterator[None]:
    """Let these metrics of a search go before others of the same names, in this thread.

    Raises:
        ConfigError: Two of them have one name.
    """
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
            f"a metric is declared in one way only, but `{metric.name}` is {_words(known)} and "
            f"also {_words(metric)}. Choose another name."
        )


def _words(metric: Metric) -> str:
    facts = (metric.direction.value, metric.unit, f"{metric.decimals} decimals", metric.meaning)
    return f"({'; '.join(fact for fact in facts if fact)})"


def find(name: str) -> Metric | None:
    """The metric behind a reported name, or None; families match by their stem."""
    stems = name, name.rpartition(".")[0] + ".*", name.partition("/")[0] + "/*"
    tables = _AT_HAND.get({}), METRICS
    return next((table[stem] for table in tables for stem in stems if stem in table), None)


def lookup(name: str) -> Metric:
    """The metric behind a reported name; an unknown one is refused."""
    metric = find(name)
    if metric is None:
        raise UnknownNameError("metric", name, METRICS)
    return metric


def selection_metric(name: str) -> Metric:
    """The metric a search selects by; refuses test data and descriptions."""
    metric = lookup(name)
    if not metric.selectable:
        usable = ", ".join(m.name for m in METRICS.values() if m.selectable)
        raise ConfigError(
            f"selection uses held-out validation data or L_ML only, but got `{name}`. "
            f"Use one of: {usable}."
        )
    return metric


def objective_metric(name: str) -> Metric:
    """A metric by which trials may be weighed; refuses test data and descriptions."""
    metric = lookup(name)
    if metric.reads_test:
        raise ConfigError(
            f"nothing is decided on test data, but `{name}` is computed from it. Take the same of "
            "validation data, such as val/accuracy, a size or a cost."
        )
    if metric.direction is Direction.NONE:
        raise ConfigError(
            f"an objective says which way it improves, but `{name}` is a description "
            f"({metric.meaning})."
        )
    return metric


def best_index(scores: Mapping[int, float | None], metric: Metric) -> int | None:
    """Select the trial with the best score: the one rule, for followers and for reports.

    Ties go to the smaller index. A single candidate needs no score, because there is nothing to
    choose; among several, those without a finite score are out.

    Args:
        scores: index of each trial -> its score.
        metric: what the score is of.

    Example:
        >>> best_index({0: 0.7, 1: 0.9, 2: None}, lookup("val/accuracy"))
        1
    """
    if len(scores) == 1:
        return next(iter(scores))
    best: int | None = None
    best_score = math.nan
    for index in sorted(scores):
        score = scores[index]
        if score is None or not math.isfinite(score):
            continue
        if best is None or metric.better(score, best_score):
            best, best_score = index, score
    return best


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
    """Columns of the summary with the sum of a metric over all trials of a seed, with leaders."""
    own_arms: str = ""
    """Only arms that have this metric are shown; all where it is empty."""
