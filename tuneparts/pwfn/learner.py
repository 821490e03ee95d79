"""Training as Gaussians and fixing round by round (Subia-Waud & Dasmahapatra 2023).

The net has Gaussian layers from the first pass on, so that its state has one form in all stages;
pretraining uses their means only. After the last round every weight is fixed and no training
follows.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from tuneparts.augment.fixed import FixedConfig
from tuneparts.data.batches import Batches
from tuneparts.errors import CheckpointError, ConfigError
from tuneparts.pwfn import codefile, compression, conversion, fixing, regulariser, rounds
from tuneparts.pwfn import sigma as deviations
from tuneparts.pwfn.config import PwfnConfig
from tuneparts.pwfn.controls import controlled
from tuneparts.pwfn.ensemble import ensemble_logits
from tuneparts.pwfn.gaussian import sampled
from tuneparts.pwfn.snapshot import columns, snapshot
from tuneparts.training import checkpoint
from tuneparts.training.evaluate import evaluate
from tuneparts.training.exhibits import Columns
from tuneparts.training.learner import Context
from tuneparts.training.loop import Step
from tuneparts.training.optimisers import set_lr
from tuneparts.training.recalibration import recalibrate
from tuneparts.training.state import load_optimiser_state, optimiser_state
from tuneparts.training.supervised import SupervisedLearner


class PwfnLearner(SupervisedLearner):
    """Pretraining, an optional warm-up of deviations, and rounds of training and fixing."""

    config: PwfnConfig

    def __init__(self, config: PwfnConfig, context: Context) -> None:
        super().__init__(config, context)
        in_shape = context.task.in_shape
        if config.augmentation != FixedConfig() and len(in_shape) != 3:
            raise ConfigError(
                f"`augmentation` acts on images (C, H, W), but inputs have shape {in_shape}. "
                "Leave it out."
            )
        if config.pretrained is not None:
            self._load_pretrained(Path(config.pretrained))
        conversion.to_gaussian(self.net)
        self.plan = rounds.cut(
            config.passes,
            pretrain=config.pretrain,
            warmup=config.warmup,
            first_round=config.first_round,
            num_rounds=len(config.fractions),
        )
        self._batches = Batches(
            len(self.train_data), config.batch_size, seed=context.seed, replacement=False
        )
        self._augmentation = self.generator("augment")
        self._noise = self.generator("weight noise")
        self._num_rounds_done = 0
        self._last_fixing: dict[str, float] = {}
        self._is_gaussian = False
        self._start: dict[str, Tensor] = {}
        self._centres_K: Tensor | None = None
        self.optimiser = config.optimiser.build(self.net)
        if not self.plan.pretrain_end:
            self._end_pretraining()

    def step(self) -> Step:
        loss = self._gaussian_step() if self._is_gaussian else self._pretraining_step()
        self._happen(self.passes + 1)
        return Step(passes=1, losses={"train/loss": loss})

    def evaluate(self) -> dict[str, float]:
        size = compression.measure(fixing.means(self.net))
        metrics = super().evaluate() | {
            "size/unique_weights": float(size.num_unique),
            "size/entropy": size.entropy,
            "size/entropy_nonzero": size.entropy_nonzero,
            "size/sparsity": size.sparsity,
            "fixing/rounds": float(self._num_rounds_done),
            "fixing/fraction": fixing.fixed(self.net).double().mean().item(),
            **self._last_fixing,
        }
        finetune = self.config.finetune
        if self.config.quantiser.uses_sigma and finetune.kind == "sgd":
            metrics["fixing/exposure"] = regulariser.exposure(
                lr=finetune.lr,
                momentum=finetune.momentum,
                alpha=self.config.sigma.alpha,
                steps=max(0, self.passes - self.plan.pretrain_end),
            )
        if self.finished:
            metrics["size/coded_bytes"] = float(len(codefile.encode(self.net)))
            if self.config.ensemble:
                metrics |= self._ensemble_scores()
        return metrics

    def exhibits(self) -> Mapping[str, Columns]:
        """Means against deviations where they started and where they ended."""
        if not self._start:
            return {}
        end = snapshot(self.net, self.context.seed)
        return {"deviations": columns({"at the start": self._start, "at the end": end})}

    def training_state(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "optimiser": optimiser_state(self.optimiser),
            "batches": self._batches.state_dict(),
            "augmentation": self._augmentation.get_state(),
            "noise": self._noise.get_state(),
            "is_gaussian": self._is_gaussian,
            "num_rounds_done": self._num_rounds_done,
            "last_fixing": dict(self._last_fixing),
            "start": dict(self._start),
        }

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self._is_gaussian = bool(state["is_gaussian"])
        self._num_rounds_done = int(state["num_rounds_done"])
        self._centres_K = self._fixed_values()
        self._last_fixing = dict(state["last_fixing"])
        self._start = {name: taken.clone() for name, taken in state["start"].items()}
        used = self.config.finetune if self._is_gaussian else self.config.optimiser
        self.optimiser = used.build(self.net)
        load_optimiser_state(self.optimiser, state["optimiser"])
        self._batches.load_state_dict(state["batches"])
        self._augmentation.set_state(state["augmentation"])
        self._noise.set_state(state["noise"])

    def _pretraining_step(self) -> Tensor:
        progress = self.passes / self.plan.pretrain_end
        set_lr(self.optimiser, self.config.optimiser.lr_at(progress))
        loss = self._backward()
        self.optimiser.step()
        return loss

    def _gaussian_step(self) -> Tensor:
        config = self.config
        after = self.passes - self.plan.pretrain_end
        progress = after / (config.passes - self.plan.pretrain_end)
        set_lr(self.optimiser, config.finetune.lr_at(progress))
        if config.quantiser.uses_sigma:
            with sampled(self.net, self._noise):
                loss = self._backward()
        else:
            loss = self._backward()
        if self.passes < self.plan.warmup_end:
            self._rest_means()
        self._pull_means(loss)
        fixing.mask_gradients(self.net)
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), config.clip)
        if config.quantiser.uses_sigma:
            regulariser.pull(self.net, config.sigma.alpha, config.sigma.cutoff, config.sigma.form)
        with fixing.held(self.net):
            self.optimiser.step()
        return loss

    def _backward(self) -> Tensor:
        x, y = self.train_data.take(self._batches.next())
        x = self.config.augmentation(x, self._augmentation)
        logits = self.hypers.predict(self.net, x, generator=self._augmentation, training=True)
        loss = F.cross_entropy(logits, y)
        self.optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        return loss.detach()

    def _pull_means(self, loss: Tensor) -> None:
        """Add the gradient of the quantiser's own term of the loss, once there are centres."""
        if self._centres_K is not None:
            free_R = fixing.means(self.net)[~fixing.fixed(self.net)]
            slope_R = self.config.quantiser.pull(free_R, self._centres_K, loss)
            fixing.add_gradients(self.net, slope_R)

    def _rest_means(self) -> None:
        """Without a gradient an optimiser leaves a parameter alone, decay and momentum included."""
        moving = {id(tensor.sigma) for tensor in conversion.tensors(self.net).values()}
        for parameter in self.net.parameters():
            if id(parameter) not in moving:
                parameter.grad = None

    def _happen(self, passes: int) -> None:
        """What is due after this many passes: the end of pretraining, of one or several rounds."""
        if not self._is_gaussian and passes >= self.plan.pretrain_end:
            self._end_pretraining()
        while self._is_gaussian and self._num_rounds_done < len(self.plan.ends):
            if passes < self.plan.ends[self._num_rounds_done]:
                break
            self._fix()

    def _end_pretraining(self) -> None:
        if self.config.quantiser.uses_sigma:
            deviations.initialise(self.net, self.config.sigma.start)
            self._start = snapshot(self.net, self.context.seed)
        self._is_gaussian = True
        self.optimiser = self.config.finetune.build(self.net)

    def _fix(self) -> None:
        config, number = self.config, self._num_rounds_done
        before = self._val_accuracy()
        mu_N, sigma_N = fixing.means(self.net), fixing.sigmas(self.net)
        fixed_N = fixing.fixed(self.net)
        free_sigma = sigma_N[~fixed_N]
        order = self.generator(f"permute sigma {number}")
        result = config.quantiser.fix(
            mu_N,
            controlled(sigma_N, fixed_N, config.sigma.control, order),
            fixed_N,
            num_fixed=rounds.quota(len(mu_N), config.fractions[number]),
            rounds_left=len(config.fractions) - number - 1,
        )
        sigma_N = torch.where(result.fixed_N, result.sigma_N, sigma_N)
        fixing.write(self.net, result.mu_N, sigma_N, result.fixed_N)
        self._num_rounds_done += 1
        self._centres_K = self._fixed_values()
        self.optimiser = config.finetune.build(self.net)
        if config.recalibrate:
            self._recalibrate()
        self._last_fixing = _sigma_quantiles(free_sigma) if config.quantiser.uses_sigma else {}
        if before is not None:
            after = self._val_accuracy()
            assert after is not None
            self._last_fixing |= {"fixing/accuracy_before": before, "fixing/accuracy_after": after}

    def _fixed_values(self) -> Tensor | None:
        """What the quantiser draws free weights to; None where it draws none to anything."""
        if not self.config.quantiser.pulls or not self._num_rounds_done:
            return None
        values: Tensor = torch.unique(fixing.means(self.net)[fixing.fixed(self.net)])
        return values

    def _recalibrate(self) -> None:
        stream = Batches(
            len(self.train_data),
            self.config.batch_size,
            seed=self.context.seed,
            stream=("recalibrate", self._num_rounds_done),
            replacement=False,
        )
        augmentation = self.generator(f"recalibrate {self._num_rounds_done}")
        recalibrate(
            self.net,
            (self.train_data.take(stream.next())[0] for _ in range(self.config.recalibrate)),
            lambda x: self.hypers.predict(
                self.net,
                self.config.augmentation(x, augmentation),
                generator=augmentation,
                training=True,
            ),
        )

    def _val_accuracy(self) -> float | None:
        if self._val is None or not len(self._val):
            return None
        return self.score(self._val, "val")["val/accuracy"]

    def _ensemble_scores(self) -> dict[str, float]:
        noise, augmentation = self.generator("ensemble"), self.generator("evaluate ensemble")
        self.net.eval()
        scores = evaluate(
            lambda x: ensemble_logits(
                self.net,
                lambda: self.predict(x, augmentation),
                num_samples=self.config.ensemble,
                generator=noise,
            ),
            self._test,
            "test",
        )
        self.net.train()
        return {
            "test/ensemble_accuracy": scores["test/accuracy"],
            "test/ensemble_nll": scores["test/nll"],
        }

    def _load_pretrained(self, path: Path) -> None:
        state = checkpoint.load(path)
        try:
            self.net.load_state_dict(state["net"])
        except (KeyError, RuntimeError, TypeError) as error:
            raise CheckpointError(
                f"`pretrained` is a checkpoint of a `standard` learner of the same net, but {path} "
                f"does not fit: {error}"
            ) from error


def _sigma_quantiles(sigma: Tensor) -> dict[str, float]:
    """10th, 50th and 90th percentile of the deviations that were still free."""
    if not len(sigma):
        return {}
    sorted_ = sigma.sort().values
    return {
        f"fixing/sigma.p{percent}": sorted_[round(percent / 100 * (len(sorted_) - 1))].item()
        for percent in (10, 50, 90)
    }
