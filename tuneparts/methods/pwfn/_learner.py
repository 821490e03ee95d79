"""PWFN: train weights as Gaussians and fix ever more of them (Subia-Waud & Dasmahapatra 2023).

The net is an ordinary one in all stages; deviations are next to it from the first step on, so that
the state has one form. Each round trains, then fixes a share of the weights to a few values. After
the last round every covered weight is fixed and no training follows.
"""

import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn

from tuneparts.core import settings
from tuneparts.core.errors import CheckpointError
from tuneparts.data.task import digest
from tuneparts.methods.pwfn import _quantisers, codefile
from tuneparts.methods.pwfn import _sigma as deviations
from tuneparts.methods.pwfn._gaussian import FLOOR, Gaussians, Lent, cover
from tuneparts.methods.pwfn._quantisers import Channels, channels_of
from tuneparts.methods.pwfn._threshold import Clustering
from tuneparts.methods.pwfn.config import Pwfn, _Free, _Uniform, _Wfn
from tuneparts.nets.survey import PROBE
from tuneparts.training import checkpoint, forward
from tuneparts.training.learner import Columns, Context
from tuneparts.training.loop import Step, SupervisedLearner, outputs_of
from tuneparts.training.step import gradients, recalibrate, set_lr

_log = logging.getLogger(__name__)
_FORM = 1
"""Changes when the same facts would make other weights of a shared pretraining."""
_INERT = 0.01
"""An exposure below which deviations stay where they started."""


class PwfnLearner(
    SupervisedLearner,
    parts=("net", "gaussians", "optimiser", "_batches", "_augmentation", "_noise"),
    values=("_is_gaussian", "_num_rounds_done", "_last_fixing", "_start"),
):
    config: Pwfn

    def __init__(self, config: Pwfn, context: Context) -> None:
        super().__init__(config, context)
        if config.pretrained is not None:
            codefile.load(config.pretrained, self.net)
        probe, _ = self.train_data.take(torch.arange(min(PROBE, len(self.train_data))))
        names, self.left_out = cover(self.net, probe)
        self.gaussians = Gaussians(self.net, names)
        self.rounds = config.rounds()
        self._batches = self.new_batches()
        self._augmentation = self.generator("augment")
        self._noise = self.generator("weight noise")
        self._num_rounds_done = 0
        self._last_fixing: dict[str, float] = {}
        self._is_gaussian = False
        self._start: dict[str, Tensor] = {}
        self._centres_K: Tensor | None = None
        self._reach_N = self.gaussians.sigma.new_zeros(0)
        self._alpha = config.strength()
        exposure = self._exposure(self.rounds.num_fixing)
        if exposure is not None and 0 < exposure < _INERT:
            message = (
                "the pull on deviations has no effect over %d steps: its exposure is %.1g. Give "
                "`sigma.exposure`, such as 1, instead of `sigma.alpha`."
            )
            _log.warning(message, self.rounds.num_fixing, exposure)
        self.optimiser = config.optimiser.build(self.net)
        if not self.rounds.pretrain_end:
            self._end_pretraining()

    def step(self) -> Step:
        if self.config.shares_pretraining and not self._is_gaussian:
            loss = self._shared_pretraining()
            self._end_stages(self.rounds.pretrain_end)
            self._updates += self.rounds.pretrain_end - 1  # the loop counts a step as one
            return Step(cost=self.rounds.pretrain_end, losses={"train/loss": loss})
        loss = self._gaussian_step() if self._is_gaussian else self._pretraining_step(self.steps)
        self._end_stages(self.steps + 1)
        return Step(cost=1, losses={"train/loss": loss})

    def evaluate(self) -> dict[str, float]:
        size = codefile._measure(self._stored())
        metrics = super().evaluate() | {
            **{f"size/{name}": float(value) for name, value in size._asdict().items()},
            "fixing/rounds": float(self._num_rounds_done),
            "fixing/fraction": self.gaussians.fixed.double().mean().item(),
            **self._last_fixing,
        }
        exposure = self._exposure(max(0, self.steps - self.rounds.pretrain_end))
        if exposure is not None:
            metrics["fixing/exposure"] = exposure
        if self.finished:
            metrics["size/coded_bytes"] = self._num_bytes()
            if self.config.ensemble:
                metrics |= self._ensemble_scores()
        return metrics

    @cached_property
    def _channels(self) -> Channels:
        return channels_of(self.gaussians, self.net)

    def _stored(self) -> Tensor:
        """What a file holds of each weight (N,): its value, or its integer."""
        mu_N, quantiser = self.gaussians.means(), self.config.quantiser
        if isinstance(quantiser, _Uniform) and self._num_rounds_done:
            return _quantisers.codes(quantiser, mu_N, self._channels)[0]
        return mu_N

    def _num_bytes(self) -> float:
        """Bytes of the net as a file; where nothing is fixed, of its tensors as they are."""
        quantiser = self.config.quantiser
        if isinstance(quantiser, _Free):
            return float(codefile._num_plain_bytes(self.net))
        if not isinstance(quantiser, _Uniform):
            return float(len(codefile._encode(self.net, self.gaussians.names)))
        coded = deepcopy(self.net)
        same = Gaussians(coded, self.gaussians.names)
        same.write(self._stored(), same.sigma, same.fixed)
        scales = 4 * len(self._channels.is_bias_G)
        return float(len(codefile._encode(coded, self.gaussians.names)) + scales)

    def artifacts(self) -> Mapping[str, Columns]:
        if not self._start:
            return {}
        end = deviations.snapshot(self.gaussians, self.context.seed)
        return {"deviations": deviations.columns({"at the start": self._start, "at the end": end})}

    def restore(self, state: Mapping[str, Any]) -> None:
        pretrains = not state["is_gaussian"]
        self.optimiser = self.config.optimiser.build(self.net) if pretrains else self._finetuning()
        super().restore(state)
        self._after_fixing()

    def _exposure(self, steps: int) -> float | None:
        """The exposure of deviations to the pull after so many steps, where it is defined."""
        has_any = self.config.quantiser.uses_sigma and self.config.finetune.kind == "sgd"
        return self.config.exposure(alpha=self._alpha, steps=steps) if has_any else None

    def _shared_pretraining(self) -> Tensor:
        """Pretrain at once, or load what another trial of this seed pretrained."""
        context, whole = self.context, self.config.model_dump(mode="json")
        used = ("net", "hypers", "optimiser", "batch_size", "train_on", "augmentation")
        facts = {name: whole[name] for name in used} | {"steps": self.rounds.pretrain_end}
        facts |= {"runtime": whole["runtime"]} if "runtime" in whole else {}
        facts = {
            "form": _FORM, "facts": facts, "data": digest(context.task), "seed": context.seed,
            "device": context.device.type, "torch": torch.__version__,
        }  # fmt: skip
        name = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]
        path = settings.current().cache_dir / "pretrained" / f"{name}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        state: Mapping[str, Any] | None = None
        with FileLock(path.with_suffix(".lock")):
            if path.exists():
                with suppress(CheckpointError):  # a damaged one is made anew
                    state = checkpoint.load(path)
            if state is None:
                numbers = range(self.rounds.pretrain_end)
                losses = torch.stack([self._pretraining_step(number) for number in numbers])
                state = {
                    "net": self.net.state_dict(),
                    "batches": self._batches.state_dict(),
                    "augmentation": self._augmentation.get_state(),
                    "loss": losses.double().mean().item(),
                }
                checkpoint.save(path, state)
        forward.ran_elsewhere()
        self.net.load_state_dict(state["net"])
        self._batches.load_state_dict(state["batches"])
        self._augmentation.set_state(state["augmentation"])
        return torch.tensor(float(state["loss"]))

    def _pretraining_step(self, number: int) -> Tensor:
        progress = number / self.rounds.pretrain_end
        set_lr(self.optimiser, self.config.optimiser.lr_at(progress))
        loss = self._backward()
        self.optimiser.step()
        return loss

    def _gaussian_step(self) -> Tensor:
        config = self.config
        after = self.steps - self.rounds.pretrain_end
        progress = after / (config.steps - self.rounds.pretrain_end)
        set_lr(self.optimiser, config.finetune.lr_at(progress))
        if config.quantiser.uses_sigma:
            loss = self._sampled_backward()
        elif isinstance(config.quantiser, _Uniform) and config.quantiser.aware:
            loss = self._straight_through(config.quantiser)
        else:
            loss = self._backward()
            if isinstance(config.quantiser, _Wfn) and self._centres_K is not None:
                free_R = self.gaussians.means()[~self.gaussians.fixed]
                slope_R = _quantisers.pull(config.quantiser, free_R, self._centres_K, loss)
                self.gaussians.add_gradients(slope_R)
            self.gaussians.mask_gradients()
            self._clip()
        self.optimiser.step()
        if config.habits == "careful":
            self.gaussians.restore_fixed()
        else:
            self.gaussians.keep_above_floor()
        return loss

    def _sampled_backward(self) -> Tensor:
        draw = self.gaussians.draw(self._noise)
        loss = self._backward(draw.values)
        self.gaussians.take_gradients(draw)
        if self.steps < self.rounds.warmup_end:
            # Not zeros: without a gradient an optimiser skips a parameter, decay and momentum too.
            for parameter in self.net.parameters():
                parameter.grad = None
        is_careful = self.config.habits == "careful"
        # Before the pull: a strong one would otherwise shrink the gradient of the loss.
        scale = self._clip_all_but_deviations() if is_careful else 1.0
        deviations.pull(
            self.gaussians, self._reach_N, draw.eps_N,
            alpha=self._alpha, form=self.config.sigma.form, scale=scale,
        )  # fmt: skip
        if not is_careful:
            self._clip()
        return loss

    def _clip_all_but_deviations(self) -> Tensor:
        """Clip by the norm of all gradients; the pull will scale deviations by what is returned."""
        others = [p for p in self.net.parameters() if p.grad is not None]
        grads = [p.grad for p in (*others, self.gaussians.sigma) if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(grads)
        torch.nn.utils.clip_grads_with_norm_(others, self.config.clip, norm)
        return (self.config.clip / (norm + 1e-6)).clamp(max=1.0)  # as `clip_grad_norm_` has it

    def _straight_through(self, quantiser: _Uniform) -> Tensor:
        """Leave the gradients of rounded weights in those behind them (Bengio et al. 2013)."""
        rounded_N = _quantisers.rounded(quantiser, self.gaussians.means(), self._channels)
        values = {
            name: part.clone().requires_grad_(self.gaussians.mus[name].requires_grad)
            for name, part in self.gaussians.parts(rounded_N).items()
        }
        loss = self._backward(values)
        for name, value in values.items():
            self.gaussians.mus[name].grad = value.grad
        self._clip()
        return loss

    def _clip(self) -> None:
        moving = [*self.net.parameters(), self.gaussians.sigma]
        torch.nn.utils.clip_grad_norm_(moving, self.config.clip)

    def _backward(self, values: dict[str, Tensor] | None = None) -> Tensor:
        """Leave the gradients of a batch's loss in the net, and in what it is lent."""
        x, y_B = self.train_data.take(self._batches.next(), of=self._batches)
        x = self.config.augmentation(x, self._augmentation)
        lent = values or {}
        net = Lent(self.net, lent) if lent else self.net
        loss = self.batch_loss((x, y_B), self._augmentation, net=net)
        gradients(loss, [*lent.values(), *self.net.parameters()])
        return loss.detach()

    def _end_stages(self, steps: int) -> None:
        if not self._is_gaussian and steps >= self.rounds.pretrain_end:
            self._end_pretraining()
        while self._is_gaussian and self._num_rounds_done < len(self.rounds.ends):
            if steps < self.rounds.ends[self._num_rounds_done]:
                break
            self._fix()

    def _end_pretraining(self) -> None:
        if self.config.quantiser.uses_sigma:
            deviations.initialise(self.gaussians, self.config.sigma.start)
            self._start = deviations.snapshot(self.gaussians, self.context.seed)
        self._is_gaussian = True
        self._after_fixing()
        self.optimiser = self._finetuning()

    def _fix(self) -> None:
        config, number = self.config, self._num_rounds_done
        before = self._val_accuracy()
        mu_N, sigma_N = self.gaussians.means(), self.gaussians.sigma.detach().clone()
        fixed_N = self.gaussians.fixed.clone()
        free_sigma = sigma_N[~fixed_N]
        order = self.generator(f"permute sigma {number}")
        if isinstance(config.quantiser, _Uniform):
            rounded_N = _quantisers.rounded(config.quantiser, mu_N, self._channels)
            result = Clustering(rounded_N, sigma_N, torch.ones_like(fixed_N), ())
        else:
            result = _quantisers.fix(
                config.quantiser,
                mu_N,
                deviations.controlled(sigma_N, fixed_N, config.sigma.control, order),
                fixed_N,
                num_fixed=_quantisers.quota(len(mu_N), config.fractions[number]),
                rounds_left=len(config.fractions) - number - 1,
            )
        # Of the free weights the quantiser may have seen a control; they keep their own deviations.
        sigma_N = torch.where(result.fixed_N, result.sigma_N, sigma_N)
        self.gaussians.write(result.mu_N, sigma_N, result.fixed_N)
        self._num_rounds_done += 1
        self._after_fixing()
        self.optimiser = self._finetuning()
        if config.recalibrate:
            self._recalibrate()
        self._last_fixing = _sigma_quantiles(free_sigma) if config.quantiser.uses_sigma else {}
        if before is not None:
            after = self._val_accuracy()
            assert after is not None  # as it was before
            self._last_fixing |= {"fixing/accuracy_before": before, "fixing/accuracy_after": after}

    def _after_fixing(self) -> None:
        quantiser, cutoff = self.config.quantiser, self.config.sigma.cutoff
        if quantiser.uses_sigma and self._is_gaussian:
            fixed_too = self.config.habits == "released"
            self._reach_N = deviations.reach(self.gaussians, cutoff, fixed_too=fixed_too)
        if isinstance(quantiser, _Wfn) and quantiser.ratio > 0 and self._num_rounds_done:
            self._centres_K = torch.unique(self.gaussians.means()[self.gaussians.fixed])

    def _finetuning(self) -> torch.optim.Optimizer:
        moving = {"net": self.net}
        if self.config.quantiser.uses_sigma:
            moving["gaussians"] = self.gaussians
        return self.config.finetune.build(nn.ModuleDict(moving))

    def _recalibrate(self) -> None:
        """Take BatchNorm statistics anew: those so far belong to weights that have just moved."""
        stream = self.new_batches("recalibrate", self._num_rounds_done)
        augmentation = self.generator(f"recalibrate {self._num_rounds_done}")

        def predict(x: Tensor) -> Tensor:
            x = self.config.augmentation(x, augmentation)
            return self.hypers.predict(self.net, x, generator=augmentation, training=True)

        numbers = range(self.config.recalibrate)
        recalibrate(self.net, (self.train_data.take(stream.next())[0] for _ in numbers), predict)

    def _val_accuracy(self) -> float | None:
        val = self.scored().get("val")
        return None if val is None else self.score(val, "val").get("val/accuracy")

    def _ensemble_scores(self) -> dict[str, float]:
        noise, augmentation = self.generator("ensemble"), self.generator("evaluate ensemble")

        def drawn(x: Tensor) -> Any:
            return Lent(self.net, self.gaussians.draw(noise).values)(x)

        def predict(x: Tensor) -> Tensor:
            how: dict[str, Any] = {"generator": augmentation, "training": False}
            draws = range(self.config.ensemble)
            outputs = [self.hypers.predict(drawn, x, **how) for _ in draws]
            return self.target.combined(torch.stack(outputs))

        self.net.eval()
        scores = self.target.scores(*outputs_of(predict, self._test))
        self.net.train()
        return {f"test/ensemble_{name}": scores[name] for name in ("accuracy", "nll", "ece")}


def _sigma_quantiles(sigma: Tensor) -> dict[str, float]:
    if not len(sigma):
        return {}
    places = [round(percent / 100 * (len(sigma) - 1)) for percent in (10, 50, 90)]
    low, middle, high = sigma.sort().values[places].tolist()
    found = {"fixing/sigma.p10": low, "fixing/sigma.p50": middle, "fixing/sigma.p90": high}
    return found | {"fixing/spread": high / max(low, FLOOR)}
