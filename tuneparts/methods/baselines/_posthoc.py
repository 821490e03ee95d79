"""Standard training whose models are ranked by Laplace's marginal likelihood afterwards.

The input-selection baseline of Mlodozeniec et al. (2023, I.4): one model per choice of inputs,
compared by log p(D) of a Laplace approximation at the trained weights. The curvature comes from
laplace-torch (Daxberger et al. 2021); nothing is learnt from it.
"""

import copy
import warnings
from importlib import import_module
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from tuneparts.core import _torchvision, seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.baselines._curvature import check_memory
from tuneparts.methods.baselines.config import PosthocLaplace
from tuneparts.methods.baselines.standard import StandardLearner
from tuneparts.training.learner import Context
from tuneparts.training.loop import UnderHypers


class PosthocLearner(StandardLearner, values=("_best",)):
    config: PosthocLaplace

    def __init__(self, config: PosthocLaplace, context: Context) -> None:
        super().__init__(config, context)
        self._best: dict[str, Any] | None = None
        if drawn := self.hypers.drawn():
            raise ConfigError(
                f"hypers = {', '.join(drawn)}: laplace-torch needs predictions that draw nothing. "
                "Remove them, or use the method `laplace`."
            )
        if config.hessian != "kron":  # whose factors need no Jacobians
            num_classes, size = context.task.num_classes, config.batch_size
            check_memory(self.net, size, num_classes, num_copies=3, max_gb=config.max_gb)

    def evidence(self) -> float:
        _torchvision.load()  # before laplace-torch, whose metrics import it plainly
        batches = self.train_data.iterate(self.config.batch_size)
        data = TensorDataset(*map(torch.cat, zip(*batches, strict=True)))
        was_training = self.net.training
        model = UnderHypers(self.net, self.hypers, self.context.seed).eval()
        # Loaders and estimators of the library draw from the global generator.
        with seeding.isolated(self.context.seed, "laplace"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it scripts functions, which torch deprecates
            laplace = import_module("laplace")
            how = {"subset_of_weights": "all", "hessian_structure": self.config.hessian}
            posterior: Any = laplace.Laplace(model, "classification", **how)
            posterior.fit(DataLoader(data, batch_size=self.config.batch_size))
            if self.config.prior == "optimised":
                posterior.optimize_prior_precision(
                    method="marglik", n_steps=100, lr=0.1, prior_structure="layerwise"
                )
                found = posterior.log_marginal_likelihood()
            else:
                delta = self.config.optimiser.weight_decay * len(self.train_data)
                found = posterior.log_marginal_likelihood(prior_precision=torch.tensor(delta))
        self.net.zero_grad(set_to_none=True)
        self.net.train(was_training)
        return float(found)

    def evaluate(self) -> dict[str, float]:
        if not self.is_lml_due(self.config.lml_every):
            return super().evaluate()
        total = self.evidence()
        if self.config.select_by_lml:
            if self._best is None or total > self._best["total"]:
                net = copy.deepcopy(dict(self.net.state_dict()))
                self._best = {"total": total, "net": net}
            if self.finished:
                self.net.load_state_dict(self._best["net"])
                total = float(self._best["total"])
        return super().evaluate() | self.lml(total)
