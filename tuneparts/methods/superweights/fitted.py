"""An ensemble of your own nets from one budget of weights, without a search around it."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tuneparts.core import seeding
from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.own import Arrays, given_inputs, given_task
from tuneparts.data.task import Task
from tuneparts.methods.superweights._allocation import ShortBudgetError
from tuneparts.methods.superweights._learner import SuperweightsLearner
from tuneparts.methods.superweights.config import SuperWeights
from tuneparts.nets import GivenNet
from tuneparts.nets.layers import NORMS, names_of
from tuneparts.nets.sizes import count_flops, count_parameters
from tuneparts.nets.surgery import reweighted
from tuneparts.nets.survey import PROBE, check_logits, copied, outputs, takeable
from tuneparts.training.learner import Context
from tuneparts.training.process import threads_for
from tuneparts.training.progress import Report, run_through


def _unshared_weights(net: nn.Module, others: Collection[str]) -> dict[str, int]:
    """Sizes of the weights that a budget counts next to templates, by the parameter's name.

    These are the trainable matrices and kernels outside norms and these other layers, those that
    share and heads. A weight under several names counts once.
    """
    outside = {*names_of(net, NORMS), *(f"{layer}.weight" for layer in others)}
    found: dict[int, tuple[str, int]] = {}
    for layer, module in net.named_modules():  # a layer under two names comes once
        for key, p in module.named_parameters(layer, recurse=False):
            if key not in outside and p.requires_grad and p.dim() > 1:
                found.setdefault(id(p), (key, p.numel()))
    return dict(found.values())


def _with_unshared(message: str, budget: int, unshared: Sequence[Mapping[str, int]]) -> str:
    sizes = [(n, f"`{k}` of member {m}") for m, one in enumerate(unshared) for k, n in one.items()]
    largest = ", ".join(f"{name} ({n})" for n, name in sorted(sizes, key=lambda size: -size[0])[:3])
    return (
        f"{message} The budget of {budget} also counts {sum(n for n, _ in sizes)} weights of "
        f"layers that cannot share: {largest}. Raise it, or bound templates alone by "
        "`allocation={'budget': ...}`."
    )


@dataclass(frozen=True)
class Sizes:
    """Numbers of trainable weights."""

    templates: int
    """Of all templates. The budget bounds these and `unshared` together."""
    shared: int
    """Templates, and the coefficients that combine them."""
    private: int
    """What each member has alone: norms, biases, heads, and layers that cannot share."""
    plain: int
    """Of the same members without sharing."""
    unshared: int = 0
    """Of `private`, the weights of layers that cannot share."""


@dataclass(frozen=True)
class FittedEnsemble:
    """Nets that were trained with shared weights, each an ordinary net now."""

    members: tuple[nn.Module, ...]
    """In evaluation mode; the order is that of the nets that were given."""
    sizes: Sizes
    private: tuple[Mapping[str, str], ...]
    """For each member the layers, and parameters outside layers, that share nothing: reasons."""
    history: list[Mapping[str, float]] = field(repr=False)
    learner: SuperweightsLearner = field(repr=False)

    @torch.no_grad()
    def predict(
        self,
        inputs: Arrays,
        *,
        members: int | None = None,
        flops: float | None = None,
        milliseconds: float | None = None,
    ) -> Tensor:
        """Log of the members' mean probabilities, or their mean for real values: (B, K).

        With a limit, members predict in their order while there is room; the first one always does.

        Args:
            inputs: as in `fit`.
            members: most members, at least 1.
            flops: most operations for one example.
            milliseconds: most time of this call; a member that was as slow as the slowest so far
                would have to end within it.
        """
        if members is not None and members < 1:
            raise ConfigError(f"`members` is {members}: must be at least 1. Leave it out for all.")
        x = torch.as_tensor(given_inputs(inputs), device=next(self.members[0].parameters()).device)
        start, slowest, spent = time.perf_counter(), 0.0, 0
        predicted: list[Tensor] = []
        for net, cost in zip(self.members[:members], self.flops, strict=False):
            begun = time.perf_counter()
            is_late = milliseconds is not None and begun - start + slowest > milliseconds / 1000
            if predicted and (is_late or (flops is not None and spent + cost > flops)):
                break
            predicted.append(net(x).cpu() if milliseconds is not None else net(x))
            spent += cost
            slowest = max(slowest, time.perf_counter() - begun)
        return self.learner.target.combined(torch.stack(predicted))

    def export(self, folder: str | Path) -> list[Path]:
        """Write the weights of each member, for `load_state_dict` of the net that was given."""
        Path(folder).mkdir(parents=True, exist_ok=True)
        paths = [Path(folder) / f"member_{number}.pt" for number in range(len(self.members))]
        for path, net in zip(paths, self.members, strict=True):
            torch.save(net.state_dict(), path)
        return paths

    @property
    def flops(self) -> list[int]:
        return self.learner.model.flops


def fit(
    nets: Sequence[nn.Module] | Callable[[], nn.Module],
    inputs: Arrays,
    labels: Arrays,
    *,
    target: Any = "classes",
    budget: int | None = None,
    members: int | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    report: Report | None = None,
    **fields: Any,
) -> FittedEnsemble:
    """Train an ensemble whose convolution and linear weights are shared templates.

    Shared weights start anew, whatever the nets held. Norms, biases, the head (of the layers with
    a unit for each output the one that is called last) and layers that cannot share, such as an
    embedding, stay private, start as they are, and are named in the result.

    Args:
        nets: modules of one or several architectures, from inputs (B, ...) to logits (B, K), which
            are not changed; or a function that builds one, called once per member.
        inputs: float images (N, C, H, W) or vectors (N, D), scaled as the nets want them.
        labels: whole numbers (N,), 0 to K - 1; for other targets what these predict.
        target: `classes`, `binary`, `values`, a loss function, or a `Target`.
        budget: weights of templates, and of layers that cannot share, in all members together.
            Norms, biases, heads, coefficients and what is frozen are outside it, as in the paper.
            If None, templates have as many weights as the largest member's shared layers;
            `allocation={"budget": ...}` bounds templates alone.
        members: number of members, for a function.
        seed: of templates, the function's initialisation, batches and augmentation.
        device: where to train; that of the first net if None.
        report: called with the metrics of each interval; a terminal shows a bar if None.
        fields: those of `SuperWeights`, such as `steps`, `sharing`, `optimiser`.

    Example:
        >>> x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> def build():
        ...     return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> ensemble = fit(build, x, y, members=3, budget=64, steps=30, batch_size=20)
        >>> ensemble.sizes.templates, ensemble.predict(x).shape
        (64, torch.Size([40, 2]))
    """
    own, home = _nets(nets, members, seed)
    task = given_task((inputs, labels), target=target)
    found = [_shareable(net, number, task) for number, net in enumerate(own)]
    unshared = [sizes for *_, sizes in found]
    total = sum(sum(sizes.values()) for sizes in unshared)
    allocation = {"when_short": "merge", **dict(fields.pop("allocation", {}))}
    if budget is not None:
        if allocation.get("budget") is not None:
            raise ConfigError("`budget`: is given in `allocation` as well. Leave one out.")
        is_positive = isinstance(budget, Real) and budget > 0  # else it is refused by the config
        if is_positive and budget <= total:
            raise ConfigError(_with_unshared("Templates have no room.", budget, unshared))
        allocation["budget"] = budget - total if is_positive else budget
    given = tuple(GivenNet(partial(deepcopy, net)) for net in own)
    config = parse(SuperWeights, {**fields, "allocation": allocation, "members": given})
    at = torch.device(device or home)
    threads = threads_for(own, task.in_shape, config.batch_size, at)
    with threads, seeding.isolated(seed, "given nets"):
        context = Context(task=task, seed=seed, device=at)
        try:
            learner = SuperweightsLearner(config, context, [shared for shared, *_ in found])
        except ShortBudgetError as error:
            if budget is None or not total:
                raise
            raise ConfigError(_with_unshared(str(error), budget, unshared)) from None
        history = run_through(learner, what="superweights", steps=config.steps, report=report)
    for member, net in enumerate(own):  # which have their parameters in the order that was given
        net.to(at).eval().load_state_dict(learner.model.plain(member).state_dict())
    shared = count_parameters(learner.model.bank)
    sizes = Sizes(
        templates=learner.model.bank.plan.num_weights,
        shared=shared,
        private=count_parameters(learner.model) - shared,
        plain=sum(count_parameters(net) for net in own),
        unshared=total,
    )
    return FittedEnsemble(tuple(own), sizes, tuple(why for _, why, _ in found), history, learner)


def _nets(nets: Any, members: int | None, seed: int) -> tuple[list[nn.Module], torch.device]:
    """Copy or build the members on the CPU; also the device that the first one came from."""
    given: list[nn.Module] = list(nets) if isinstance(nets, Sequence) else []
    if callable(nets) and not isinstance(nets, nn.Module):
        for number in range(members or 0):
            with seeding.isolated(seed, "init", "given", number):
                given.append(nets())
    are_nets = given and all(isinstance(net, nn.Module) for net in given)
    if not are_nets or members not in {None, len(given)}:
        raise ConfigError(
            f"`members` is {members}, of {len(given)} nets: give a list of torch modules, or a "
            "function that builds one and how many members there are."
        )
    home = next((p.device for p in given[0].parameters()), torch.device("cpu"))
    return [copied(net).cpu() for net in given], home


def _shareable(
    net: nn.Module, number: int, task: Task
) -> tuple[list[str], dict[str, str], dict[str, int]]:
    """Find the layers that share, as they are called; why others do not; what the budget counts."""
    x = torch.as_tensor(task.train.inputs[:PROBE])
    check_logits(net, x, task.num_outputs, are_classes=task.num_classes > 0)
    width = outputs(copied(net), x, training=False).shape[1]
    found = takeable(net, x, reweighted, ("weight",))
    weights = {name: net.get_parameter(f"{name}.weight") for name in found.layers}
    head = [name for name, weight in weights.items() if len(weight) == width][-1:]
    frozen = [name for name, weight in weights.items() if not weight.requires_grad]
    left_out = found.left_out | dict.fromkeys(head, "is the head")
    left_out |= dict.fromkeys(frozen, "does not require gradients")
    shared = [name for name in found.layers if name not in left_out]
    if not shared:
        reasons = "; ".join(f"`{name}` {reason}" for name, reason in left_out.items())
        raise ConfigError(
            "a member needs a plain Linear or Conv2d layer that owns its weight before its head, "
            f"but member {number} has none: {reasons or 'it has no parameters'}. Use another net."
        )
    count_flops(net, task.in_shape, is_whole=task.has_tokens)  # fails now, not after an interval
    return shared, left_out, _unshared_weights(net, [*shared, *head])
