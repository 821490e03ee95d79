"""Partitioned training: weights and hypers in one run (Mlodozeniec et al. 2023, appendix I.1).

A weight step draws a partition k and moves its weights by a batch of chunks 1..k under subnetwork
k. A hyper step draws a later chunk k and moves the hypers by a batch of it under subnetwork k - 1,
which never saw that chunk. No other path may lead from chunk k into subnetwork k - 1.

A joint step (ours) makes both in one pass: a share of the batch are examples of later chunks, which
move the hypers, and the rest move the weights. Both gradients are taken at the same weights and
hypers by one backward pass over two graphs that share no leaf.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.schema import Direction, Metric
from tuneparts.data.chunks import Chunks
from tuneparts.hypers import HyperGradient
from tuneparts.methods.partitioned.assign import check_division
from tuneparts.methods.partitioned.isolation import check_buffers, check_mixable
from tuneparts.methods.partitioned.node import MixedBatch
from tuneparts.methods.partitioned.objective import Evidence, evidence
from tuneparts.methods.partitioned.optimisers import (
    DecayScaling,
    PartitionedOptimiser,
    decay_factors,
)
from tuneparts.methods.partitioned.streams import alike, hyper_stream, mixed, weight_stream
from tuneparts.methods.partitioned.subnetwork import Partitioned, Scheme, View
from tuneparts.models.survey import PROBE, is_known
from tuneparts.training.config import SupervisedConfig
from tuneparts.training.learner import Context, Learner
from tuneparts.training.loop import Step
from tuneparts.training.scores import EVAL_BATCH, outputs_of
from tuneparts.training.state import copied
from tuneparts.training.step import adam, gradients, loss_on
from tuneparts.training.supervised import SupervisedLearner

NUM_CALIBRATION = 1000
"""Examples at most that give norms their statistics before scores."""


class PartitionedConfig(SupervisedConfig):
    """Weights and hypers in one run, without validation data.

    One chunk is standard training; parameter proportions (1, 0) optimise the hypers on the second
    chunk as a validation set.
    """

    method: Literal["partitioned"] = "partitioned"
    train_on: Literal["train", "all"] = "all"
    """No validation split is needed to learn hypers; `train` keeps it for selection."""
    proportions: tuple[float, ...] = (0.8, 0.1, 0.1)
    """Share of the training data per chunk."""
    parameter_proportions: tuple[float, ...] | None = None
    """Share of the weights per partition; as `proportions` if None."""
    scheme: Scheme = "random"
    """Deal out single weights, or hidden units."""
    mixed: bool = False
    """Node scheme only: each weight step updates all partitions by one pass over a mixed batch."""
    defaults: Literal["zero", "initial", "seed"] = "zero"
    """What a subnetwork reads for later partitions: zeros; the initial weights, as deep nets
    without norms need, from a copy; or the same drawn again from the seed at each step."""
    hyper_lr: float = Field(default=1e-3, gt=0)
    """Adam's constant rate for the hypers. A range moves by about this much a step."""
    hyper_every: int = Field(default=1, gt=0)
    """Weight steps per hyper step."""
    hyper_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of each batch that moves the hypers in the pass that moves the weights: joint steps.
    0 has hyper steps of their own."""
    weight_decay_scaling: DecayScaling = "reciprocal"
    """How weight decay grows for partitions that are trained on less data."""
    num_extractor_layers: int = Field(default=0, ge=0)
    """Leading layers that are learnt as a hyper: by hyper steps only, shared by all subnetworks."""
    lml_every: int = Field(default=1, gt=0)
    """Intervals between two evaluations of L_ML; the last interval always has one."""
    select_by_lml: bool = False
    """End with the state of the interval that had the largest L_ML."""
    metrics = (
        Metric("subnetwork/accuracy.*", Direction.UP, "", 4, "test accuracy of subnetwork k"),
        Metric("subnetwork/nll.*", Direction.DOWN, "nats", 4, "test nll of subnetwork k"),
    )

    @model_validator(mode="after")
    def _check_fields_agree(self) -> Self:
        check_division(self.proportions, self.parameter_proportions or self.proportions)
        if self.mixed and self.scheme != "node":
            raise ValueError(
                "one pass updates several partitions in the node scheme only, but got `mixed` with "
                f"scheme `{self.scheme}`. Set `scheme` to `node`."
            )
        if self.scheme == "node" and self.defaults != "zero":
            raise ValueError(
                "a masked unit contributes nothing, so the node scheme has zero defaults, but got "
                f"`{self.defaults}`. Set `defaults` to `zero`, or `scheme` to `random`."
            )
        if self.hyper_share and self.hyper_every > 1:
            raise ValueError(
                "joint steps move the hypers in every pass, but got `hyper_share` with "
                f"`hyper_every` {self.hyper_every}. Leave one of them out."
            )
        if self.hyper_share and self.batch_size < 2:
            raise ValueError(
                "a joint step has an example for the weights and one for the hypers, but "
                f"`batch_size` is {self.batch_size}. Set it to 2 or more."
            )
        return self

    @property
    def hyper_gradient(self) -> HyperGradient:
        return "fixed weights" if len(self.proportions) > 1 else "none"

    def build(self, context: Context) -> Learner:
        return PartitionedLearner(self, context)


class SubnetworkLearner(SupervisedLearner, parts=("parts",)):
    """A learner whose weights are dealt out to partitions; it predicts with all of them."""

    parts: Partitioned

    def subnetwork(self, level: int) -> Callable[[Tensor], Tensor]:
        """Subnetwork `level` as a function of inputs; it differentiates by held layers only."""
        view = self.parts.view(level)
        return lambda x: self.parts.run(view, x)

    def scored_subnetwork(self, level: int) -> Callable[[Tensor], Tensor]:
        """Subnetwork `level` as it is scored."""
        return self.subnetwork(level)

    def predict(self, x: Tensor, generator: torch.Generator) -> Tensor:
        net = self.scored_subnetwork(self.parts.num_partitions)
        return self.hypers.predict(net, x, generator=generator, training=False)

    def trained_net(self) -> nn.Module:
        # Norm scales and shifts of the net itself stay initial; those that train are in `parts`.
        return self.parts.merged(into=copy.deepcopy(self.net))


@dataclass(frozen=True)
class _Move:
    """The loss of a batch, and what its gradient will move."""

    objective: Tensor
    leaves: Sequence[Tensor]
    loss: Tensor
    apply: Callable[[], None]
    """Steps by the gradients in the leaves' `grad`."""


def _make(*moves: _Move) -> list[Tensor]:
    """Differentiate all objectives at once, then step; returns the losses."""
    objective = moves[0].objective
    for move in moves[1:]:
        objective = objective + move.objective
    gradients(objective, [leaf for move in moves for leaf in move.leaves])
    for move in moves:
        move.apply()
    return [move.loss.detach() for move in moves]


class PartitionedLearner(
    SubnetworkLearner,
    parts=(
        "optimiser",
        "_hyper_optimiser",
        "_weight_stream",
        "_hyper_stream",
        "_weight_augmentation",
        "_hyper_augmentation",
    ),
    values=("_num_weight_steps", "_num_reports", "_best"),
):
    """Alternates weight steps and hyper steps; predicts with all partitions."""

    config: PartitionedConfig

    def __init__(self, config: PartitionedConfig, context: Context) -> None:
        super().__init__(config, context, learns_hypers=len(config.proportions) > 1)
        self.chunks = Chunks(len(self.train_data), config.proportions, seed=context.seed)
        self.parts = Partitioned(
            self.net,
            proportions=config.parameter_proportions or config.proportions,
            seed=context.seed,
            scheme=config.scheme,
            defaults="zero" if config.defaults == "zero" else "initial",
            rebuild=self._rebuild if config.defaults == "seed" else None,
            num_held=config.num_extractor_layers,
            example=self._first(1) if config.scheme == "node" else None,
        )
        self.optimiser = PartitionedOptimiser(
            self.parts,
            config.optimiser,
            decay_factors=decay_factors(self.chunks.sizes, config.weight_decay_scaling),
        )
        self._psi: list[nn.Parameter] = [*self.hypers.learnable(), *self.parts.held()]
        self._hyper_optimiser = adam(self._psi, lr=config.hyper_lr) if self._psi else None
        num_joint = self._num_joint()
        self._weight_stream = weight_stream(
            self.chunks,
            self.parts.filled,
            batch_size=config.batch_size - num_joint,
            seed=context.seed,
        )
        self._hyper_stream = hyper_stream(
            self.chunks, batch_size=num_joint or config.batch_size, seed=context.seed
        )
        self._weight_augmentation = self.generator("augment weight steps")
        self._hyper_augmentation = self.generator("augment hyper steps")
        self._num_weight_steps = 0
        self._num_reports = 0
        self._best: dict[str, Any] | None = None
        self._calibrated: dict[int, View] = {}
        check_buffers(self.net, self._first(2))
        if config.mixed and not is_known(self.net):
            check_mixable(self.parts, self._first(PROBE))

    def _first(self, num: int) -> Tensor:
        """Inputs of the first examples."""
        return self.train_data.take(torch.arange(min(num, len(self.train_data))))[0]

    @property
    def learns_hypers(self) -> bool:
        """Whether there are hypers to move, and data that judges them."""
        return bool(self._psi) and len(self.chunks) > 1 and any(self.chunks.sizes[1:])

    def _num_joint(self) -> int:
        """Examples of each batch that move hypers in the same pass as weights."""
        share, size = self.config.hyper_share, self.config.batch_size
        return min(size - 1, max(1, round(share * size))) if share and self.learns_hypers else 0

    def step(self) -> Step:
        self._calibrated.clear()
        if self._num_joint():
            return Step(passes=1, losses=self.joint_step())
        losses = {"train/loss": self.weight_step()}
        if self.is_hyper_step_due:
            losses["train/hyper_loss"] = self.hyper_step()
        return Step(passes=len(losses), losses=losses)

    @property
    def is_hyper_step_due(self) -> bool:
        """Whether a hyper step follows the weight step that was just made."""
        is_due = self._num_weight_steps % self.config.hyper_every == 0
        has_pass_left = self.passes + 1 < self.config.passes
        return is_due and has_pass_left and self.learns_hypers

    def weight_step(self) -> Tensor:
        """Move one partition by one batch, or several by a mixed one; returns the loss."""
        return _make(self._weight_move())[0]

    def hyper_step(self) -> Tensor:
        """Move the hypers by one batch of a chunk that the subnetwork never saw."""
        return _make(self._hyper_move())[0]

    def joint_step(self) -> dict[str, Tensor]:
        """Move weights and hypers by the two shares of one batch; returns both losses."""
        losses = _make(self._weight_move(), self._hyper_move())
        return dict(zip(("train/loss", "train/hyper_loss"), losses, strict=True))

    def _weight_move(self) -> _Move:
        self._num_weight_steps += 1
        lr = self.config.optimiser.lr_at(self.progress)
        if self.config.mixed:
            return self._mixed_move(lr)
        k, indices_B = self._weight_stream.next()
        view = self.parts.view(k, trainable=True)
        with self.hypers.detached():
            loss = loss_on(
                self.train_data.take(indices_B, of=self._weight_stream, draw=alike),
                net=lambda inputs: self.parts.run(view, inputs, learns_statistics=True),
                hypers=self.hypers,
                target=self.target,
                generator=self._weight_augmentation,
            )

        def apply() -> None:
            self.optimiser.step(k, [leaf.grad for leaf in view.leaves], lr=lr)

        return _Move(loss, view.leaves, loss, apply)

    def _mixed_move(self, lr: float) -> _Move:
        """Each example draws its own partition; every partition takes a step of its mean loss."""
        levels_B, indices_B = self._weight_stream.next_mixed()
        levels_B = levels_B.to(self.context.device)
        num_samples = self.hypers.num_samples(training=True)
        batch = MixedBatch(self.parts, levels_B.repeat_interleave(num_samples))
        with self.hypers.detached():
            losses_B = loss_on(
                self.train_data.take(indices_B, of=self._weight_stream, draw=mixed),
                net=batch,
                hypers=self.hypers,
                target=self.target,
                generator=self._weight_augmentation,
                reduction="none",
            )
        counts_B = torch.bincount(levels_B)[levels_B]

        def apply() -> None:
            for k, grads in batch.grads().items():
                self.optimiser.step(k, grads, lr=lr)

        return _Move((losses_B / counts_B).sum(), batch.leaves, losses_B.mean(), apply)

    def _hyper_move(self) -> _Move:
        assert self._hyper_stream is not None
        assert self._hyper_optimiser is not None
        if self.config.mixed and self._num_joint():
            # Each example of chunk k draws subnetwork k - 1 in the same call of the net.
            numbers_B, indices_B = self._hyper_stream.next_mixed()
            draw = mixed
            num_samples = self.hypers.num_samples(training=True)
            levels_N = (numbers_B.to(self.context.device) - 1).repeat_interleave(num_samples)
            net: Callable[[Tensor], Tensor] = MixedBatch(self.parts, levels_N, trainable=False)
        else:
            k, indices_B = self._hyper_stream.next()
            draw = alike
            net = self.subnetwork(k - 1)
        loss = loss_on(
            self.train_data.take(indices_B, of=self._hyper_stream, draw=draw),
            net=net,
            hypers=self.hypers,
            target=self.target,
            generator=self._hyper_augmentation,
            held_out=True,
        )
        return _Move(loss, self._psi, loss, self._hyper_optimiser.step)

    def scored_subnetwork(self, level: int) -> Callable[[Tensor], Tensor]:
        """Subnetwork `level`, its norms with statistics of the chunks that it was trained on."""
        if not (self.parts.has_statistics and level):
            return self.subnetwork(level)
        if level not in self._calibrated:
            self._calibrated[level] = self._recalibrated(level)
        view = self._calibrated[level]
        return lambda x: self.parts.run(view, x)

    def _recalibrated(self, level: int) -> View:
        generator = self.generator("recalibrate")
        # Chunks are drawn at random, so that the first examples are a sample of all.
        indices_N = torch.from_numpy(self.chunks.cumulative(level)[:NUM_CALIBRATION].copy())
        num_samples = self.hypers.num_samples(training=False)

        def predict(net: Callable[[Tensor], Any]) -> None:
            for indices_B in torch.split(indices_N, max(2, EVAL_BATCH // num_samples)):
                if len(indices_B) * num_samples > 1:  # of one row there is no variance
                    x, _ = self.train_data.take(indices_B)
                    self.hypers.predict(net, x, generator=generator, training=False)

        return self.parts.recalibrated(self.parts.view(level), predict)

    def merged(self, into: nn.Module | None = None) -> nn.Module:
        """All that scores are of, in an ordinary net; in the learner's own if None."""
        level = self.parts.num_partitions
        self.scored_subnetwork(level)
        net = self.parts.merged(into)
        if level in self._calibrated:
            net.load_state_dict(self._calibrated[level].tensors, strict=False)
        return net

    def finish(self) -> nn.Module:
        """The learner's own net as an ordinary one, once training is over."""
        return self.merged()

    def trained_net(self) -> nn.Module:
        return self.merged(into=copy.deepcopy(self.net))

    def evidence(self) -> Evidence:
        """L_ML of the present weights and hypers, sampled as hyper steps sample it.

        Masks, dropout and augmentation are drawn, alike in every call. Norms are as in scores.
        """
        generator = self.generator("evaluate lml")
        return evidence(
            lambda level, x: self.hypers.predict(
                self.scored_subnetwork(level), x, generator=generator, training=True
            ),
            self.train_data,
            self.chunks,
            loss=partial(self.hypers.loss, loss=self.target.loss, held_out=True),
            batch_size=max(1, EVAL_BATCH // self.hypers.num_samples(training=True)),
            num_draws=self.hypers.num_draws(),
        )

    def evaluate(self) -> dict[str, float]:
        self._num_reports += 1
        metrics = self.select(self.evidence()) if self.is_evidence_due else {}
        return {
            **super().evaluate(),
            **metrics,
            **self.subnetwork_scores(),
            **self.step_counts(),
        }

    @property
    def is_evidence_due(self) -> bool:
        """Whether the present report has L_ML."""
        is_due = self.finished or self._num_reports % self.config.lml_every == 0
        return self._hyper_stream is not None and is_due

    def step_counts(self) -> dict[str, float]:
        """Weight steps of each partition so far, by metric name."""
        steps = self.optimiser.num_steps.items()
        return {f"partition/steps.{k}": float(count) for k, count in steps}

    @torch.no_grad()
    def subnetwork_scores(self) -> dict[str, float]:
        """Test scores of every subnetwork by its number, and of their mean prediction, at the end.

        Early subnetworks that score better than late ones say that late partitions subtract.
        """
        if not (self.finished and len(self._test)):
            return {}
        was_training = self.net.training
        self.net.eval()
        batch_size = max(1, EVAL_BATCH // self.hypers.num_samples(training=False))
        outputs: dict[str, Tensor] = {}
        for level in range(1, self.parts.num_partitions + 1):
            predict = partial(
                self.hypers.predict,
                self.scored_subnetwork(level),
                generator=self.generator("evaluate test"),
                training=False,
            )
            outputs[str(level)], y = outputs_of(predict, self._test, batch_size=batch_size)
        self.net.train(was_training)
        return self.scores_of_levels(outputs, y)

    def scores_of_levels(self, outputs: Mapping[str, Tensor], y: Tensor) -> dict[str, float]:
        """Scores of subnetworks by their numbers, and of their mean prediction."""
        mean = self.target.combined(torch.stack(list(outputs.values())))
        return {
            f"subnetwork/{name}.{which}": value
            for which, found in {**outputs, "mean": mean}.items()
            for name, value in self.target.scores(found, y).items()
            if name in ("accuracy", "nll")
        }

    def select(self, found: Evidence) -> dict[str, float]:
        """Remember the best state, and end with it if the config says so."""
        metrics = found.metrics()
        if not self.config.select_by_lml:
            return metrics
        if self._best is None or found.total > self._best["metrics"]["lml/total"]:
            model = copied(self._model_state(), Tensor.clone)
            self._best = {"metrics": metrics, "model": model}
        if self.finished:
            self._load_model_state(self._best["model"])
            metrics = dict(self._best["metrics"])
        return metrics

    def _model_state(self) -> dict[str, Any]:
        return {"parts": self.parts.state_dict(), "hypers": self.hypers.state_dict()}

    def _load_model_state(self, state: Mapping[str, Any]) -> None:
        self._calibrated.clear()
        self.parts.load_state_dict(state["parts"])
        self.hypers.load_state_dict(state["hypers"])

    def restore(self, state: Mapping[str, Any]) -> None:
        self._calibrated.clear()
        super().restore(state)

    def _rebuild(self) -> nn.Module:
        task = self.context.task
        with seeding.isolated(self.context.seed, "init"):
            return self.config.net.build(task.in_shape, task.num_outputs)
