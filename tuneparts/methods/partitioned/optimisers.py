"""SGD and Adam with a state and a step count of their own per partition.

An ordinary optimiser is wrong for partitions (Mlodozeniec et al. 2023, I.1): where the gradient is
zero it would still decay momentum, move by Adam's moments, and shrink weights. Here torch's own
update rules run on the entries that one partition owns, and no other entry is touched.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from tuneparts.methods.partitioned.subnetwork import Partitioned
from tuneparts.models.layers import scalar_names
from tuneparts.training.config import OptimiserConfig
from tuneparts.training.state import Stateful

DecayScaling = Literal["reciprocal", "sqrt", "off"]
_POWERS: Mapping[DecayScaling, float] = {"reciprocal": 1.0, "sqrt": 0.5, "off": 0.0}


def decay_factors(chunk_sizes: Sequence[int], scaling: DecayScaling) -> tuple[float, ...]:
    """Weight decay of each partition relative to the config's: (N / |D_1:k|) ** p.

    The prior's precision counts against the examples that a partition is trained on, so earlier
    partitions decay more; p is 1 for "reciprocal", 1/2 for "sqrt" and 0 for "off".
    """
    total = sum(chunk_sizes)
    seen = [sum(chunk_sizes[:k]) for k in range(1, len(chunk_sizes) + 1)]
    return tuple((total / n) ** _POWERS[scaling] for n in seen)


class PartitionedOptimiser(Stateful, values=("num_steps", "_moments")):
    """Steps one partition at a time.

    Args:
        parts: whose weights are stepped.
        config: kind, momentum, decay, and the rate factor of FixUp's scalars.
        decay_factors: per partition, multiplies the weight decay.
    """

    def __init__(
        self, parts: Partitioned, config: OptimiserConfig, *, decay_factors: Sequence[float]
    ) -> None:
        self._parts = parts
        self._config = config
        self._decay_factors = tuple(decay_factors)
        self._scalars = frozenset(scalar_names(parts.net))
        self.num_steps = dict.fromkeys(range(1, parts.num_partitions + 1), 0)
        """Weight steps of each partition so far."""
        self._moments: dict[int, dict[str, list[Tensor]]] = {k: {} for k in self.num_steps}

    @torch.no_grad()
    def step(self, k: int, grads: Sequence[Tensor | None], *, lr: float) -> None:
        """Move what partition k owns.

        Args:
            k: the partition.
            grads: one per share of it, in the shape of the whole parameter; None where the loss
                does not depend on it.
            lr: the schedule's rate at this moment of the whole run.
        """
        shares, owned = [], []
        for share, grad in zip(self._parts.shares(k), grads, strict=True):
            if grad is not None:
                shares.append(share)
                owned.append(share.gather(grad))
        values = [share.gather(share.flat_n) for share in shares]
        self.update(k, [share.name for share in shares], values, owned, lr=lr)
        for share, value in zip(shares, values, strict=True):
            share.scatter(value)

    def update(
        self,
        k: int,
        names: Sequence[str],
        values: Sequence[Tensor],
        grads: Sequence[Tensor],
        *,
        lr: float,
    ) -> None:
        """Move what was gathered of partition k, in place, and count the step.

        Args:
            k: the partition.
            names: of parameters.
            values: what the partition owns of each (m,).
            grads: of the values.
            lr: as of `step`.
        """
        for is_scalar in (False, True):
            chosen = [i for i, name in enumerate(names) if (name in self._scalars) is is_scalar]
            if chosen:
                factor = self._config.scalar_lr_factor if is_scalar else 1.0
                self._move(
                    k,
                    [names[i] for i in chosen],
                    [values[i] for i in chosen],
                    [grads[i] for i in chosen],
                    lr=lr * factor,
                )
        self.num_steps[k] += 1

    def _move(
        self, k: int, names: list[str], values: list[Tensor], grads: list[Tensor], *, lr: float
    ) -> None:
        decay = self._config.weight_decay * self._decay_factors[k - 1]
        moments = self._moments[k]
        if self._config.kind == "adam":
            for name, value in zip(names, values, strict=True):
                if name not in moments:
                    moments[name] = [torch.zeros_like(value), torch.zeros_like(value)]
            adam(
                values,
                grads,
                [moments[name][0] for name in names],
                [moments[name][1] for name in names],
                [],
                list(values[0].new_full((len(names),), float(self.num_steps[k])).unbind()),
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=lr,
                weight_decay=decay,
                eps=1e-8,
                maximize=False,
                fused=True,
            )
        else:
            buffers: list[Tensor | None] = [
                moments[name][0] if name in moments else None for name in names
            ]
            sgd(
                values,
                grads,
                buffers,
                weight_decay=decay,
                momentum=self._config.momentum,
                lr=lr,
                dampening=0.0,
                nesterov=self._config.nesterov,
                maximize=False,
            )
            for name, buffer in zip(names, buffers, strict=True):
                if buffer is not None:
                    moments[name] = [buffer]

    @property
    def state_device(self) -> torch.device:
        return next(self._parts.net.parameters()).device
