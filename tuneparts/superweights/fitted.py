"""An ensemble of one's own nets from one budget of weights, without a search around it."""

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tuneparts import seeding
from tuneparts.data.given import Arrays, given_examples, given_inputs, given_task
from tuneparts.data.target import from_anything as target_from
from tuneparts.data.task import Task
from tuneparts.errors import ConfigError
from tuneparts.models.given import GivenNet, given_config
from tuneparts.models.heads import head_layers
from tuneparts.models.reweighted import reweighted
from tuneparts.models.sizes import count_flops, count_parameters
from tuneparts.models.survey import PROBE, check_logits, copied, takeable
from tuneparts.superweights.allocation import ShortBudgetError
from tuneparts.superweights.clusters import Layer, layers_of
from tuneparts.superweights.learner import SuperweightsConfig, SuperweightsLearner
from tuneparts.superweights.picture import sharing_figure, sharing_table
from tuneparts.superweights.private import left_for_templates, named, unshared_weights
from tuneparts.training.learner import Context
from tuneparts.training.members.anytime import Anytime
from tuneparts.training.progress import Report, run_through
from tuneparts.training.threads import threads_for

if TYPE_CHECKING:  # imported where a table or a figure is made
    import pandas as pd
    import plotly.graph_objects as go

Nets = Sequence[nn.Module] | Callable[[], nn.Module]
"""The members, or a function that builds one."""


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
    """Of `private`, the weights of layers that cannot share, which the budget counts; norms,
    biases and heads are private too, and outside the budget."""


@dataclass(frozen=True)
class FittedEnsemble:
    """Nets that were trained with shared weights, each an ordinary net now."""

    members: tuple[nn.Module, ...]
    """In evaluation mode; the order is that of the nets that were given."""
    sizes: Sizes
    private: tuple[Mapping[str, str], ...]
    """For each member the layers, and parameters outside layers, that share nothing: reasons."""
    history: list[Mapping[str, float]] = field(repr=False)
    """What each interval reported."""
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

        With a limit the members are asked in their order for as long as there is room; the first
        one always is. `anytime` chooses the members by validation data instead.

        Args:
            inputs: as in `fit`.
            members: most members, at least 1.
            flops: most operations for one example.
            milliseconds: most time of this call; a member that was as slow as the slowest so far
                would have to end within it.
        """
        if members is not None and members < 1:
            raise ConfigError(
                f"at least one member must predict, but `members` is {members}. Leave it out to "
                f"ask all {len(self.members)}."
            )
        x = self._given(inputs)
        start, slowest = time.perf_counter(), 0.0
        outputs: list[Tensor] = []
        spent = 0
        for net, cost in zip(self.members[:members], self.flops, strict=False):
            begun = time.perf_counter()
            is_late = milliseconds is not None and begun - start + slowest > milliseconds / 1000
            if outputs and (is_late or (flops is not None and spent + cost > flops)):
                break
            outputs.append(net(x).cpu() if milliseconds is not None else net(x))
            spent += cost
            slowest = max(slowest, time.perf_counter() - begun)
        return self.learner.target.combined(torch.stack(outputs))

    def anytime(self, inputs: Arrays, labels: Arrays) -> Anytime:
        """The subsets of members that are worth their cost, judged on validation data.

        Args:
            inputs: examples that were not trained on.
            labels: their labels.
        """
        target = self.learner.target
        y = torch.as_tensor(given_examples(inputs, labels, target).labels, device=self.device)
        return Anytime(self.members, target, self.flops, self._given(inputs), y)

    def plan(self) -> "pd.DataFrame":
        """Who shares what: a row for each layer of each member.

        Layers with one `cluster` draw from the same `templates`; those with the same
        `coefficients` have the very same weight where their shapes meet. Layers that share nothing
        have a `reason` instead. `shape` and `weights` are those of the layer by itself, without
        its biases.
        """
        return sharing_table(self.learner.model.bank, self.private, self.members)

    def plot(self) -> "go.Figure":
        """The plan as a figure: members down, layers across, a colour for each cluster."""
        return sharing_figure(self.plan())

    def export(self, folder: str | Path) -> list[Path]:
        """Write the weights of each member, for `load_state_dict` of the net that was given."""
        home = Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        paths = [home / f"member_{number}.pt" for number in range(len(self.members))]
        for path, net in zip(paths, self.members, strict=True):
            torch.save(net.state_dict(), path)
        return paths

    def member(self, number: int) -> nn.Module:
        """A copy of one member, to train on or to keep by itself."""
        return deepcopy(self.members[number])

    @property
    def flops(self) -> list[int]:
        """Operations of each member for one example."""
        return self.learner.model.member_flops()

    @property
    def device(self) -> torch.device:
        """Where the members are."""
        return next(self.members[0].parameters()).device

    def _given(self, inputs: Arrays) -> Tensor:
        return torch.as_tensor(given_inputs(inputs), device=self.device)


def fit(
    nets: Nets,
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

    Shared weights start anew from the templates, whatever the nets held. Heads, norms, biases and
    layers that cannot share stay private, start as they are, and are named in the result.

    The budget bounds the weights of all templates, and of layers that cannot share, such as an LSTM
    or an embedding, in all members together; they are in `sizes.templates` and `sizes.unshared`.
    Norms, biases, heads and the coefficients of templates are outside the budget, as in the paper,
    and so are layers that are frozen.

    Args:
        nets: modules of one or several architectures, from inputs (B, ...) to logits (B, K), which
            are not changed; or a function that builds one, called once per member.
        inputs: float images (N, C, H, W) or vectors (N, D), scaled as the nets want them.
        labels: whole numbers (N,), 0 to K - 1; for other targets what these predict.
        target: `classes`, `binary`, `values`, a loss function, or a `Target`.
        budget: weights of templates and of layers that cannot share. If None, templates have as
            many weights as the largest member's shared layers, whatever else there is;
            `allocation={"budget": ...}` bounds templates alone.
        members: number of members, for a function.
        seed: of templates, the function's initialisation, batches and augmentation.
        device: where to train; that of the first net if None.
        report: called with the metrics of each interval; a terminal shows a bar if None.
        fields: those of `SuperweightsConfig`, such as `passes`, `sharing`, `optimiser`.

    Example:
        >>> x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> def build():
        ...     return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> ensemble = fit(build, x, y, members=3, budget=64, passes=30, batch_size=20)
        >>> ensemble.sizes.templates, ensemble.sizes.plain
        (64, 342)
        >>> ensemble.predict(x).shape
        torch.Size([40, 2])

        Embeddings cannot share. The 2 x 40 weights of two members leave 64 for templates:

        >>> tokens = torch.arange(120).view(40, 3) % 10
        >>> def read():
        ...     return nn.Sequential(
        ...         nn.Embedding(10, 4), nn.Flatten(), nn.Linear(12, 5), nn.Linear(5, 2)
        ...     )
        >>> ensemble = fit(read, tokens, y, members=2, budget=144, passes=30, batch_size=20)
        >>> ensemble.sizes.unshared, ensemble.sizes.templates
        (80, 60)
    """
    own, home = _nets(nets, members, seed)
    aim = target_from(target)
    task = given_task(given_examples(inputs, labels, aim), target=aim)
    surveys = [_survey(net, number, task) for number, net in enumerate(own)]
    unshared = [found.unshared for found in surveys]
    config = given_config(
        SuperweightsConfig,
        _with_budget(fields, budget, unshared),
        members=tuple(GivenNet(partial(deepcopy, net)) for net in own),
    )
    at = torch.device(device or home)
    threads = threads_for(own, task.in_shape, config.batch_size, at)
    with threads, seeding.isolated(seed, "given nets"):
        context = Context(task=task, seed=seed, device=at)
        try:
            learner = _GivenLearner(config, context, [found.layers for found in surveys])
        except ShortBudgetError as error:
            raise _with_unshared(error, budget, unshared) from None
        history = run_through(learner, what="superweights", passes=config.passes, report=report)
    trained = tuple(_with_state(net, learner.model.plain(m)) for m, net in enumerate(own))
    shared = count_parameters(learner.model.bank)
    sizes = Sizes(
        templates=learner.model.bank.plan.num_weights,
        shared=shared,
        private=count_parameters(learner.model) - shared,
        plain=sum(count_parameters(net) for net in own),
        unshared=sum(sum(sizes.values()) for sizes in unshared),
    )
    private = tuple(found.left_out for found in surveys)
    return FittedEnsemble(trained, sizes, private, history, learner)


def _with_state(net: nn.Module, trained: nn.Module) -> nn.Module:
    """Copy a net as it was given, its parameters in their order, with weights that were trained."""
    copy = deepcopy(net).to(next(trained.parameters()).device)
    copy.load_state_dict(trained.state_dict())
    return copy.eval()


class _GivenLearner(SuperweightsLearner):
    """Shares the layers that were found to be shareable, in the order in which nets call them."""

    def __init__(
        self, config: SuperweightsConfig, context: Context, shared: Sequence[Sequence[str]]
    ) -> None:
        self._shared = shared
        super().__init__(config, context)

    def shared_layers(self, net: nn.Module, member: int) -> list[Layer]:
        return layers_of(net, member, self._shared[member])


def _nets(nets: Nets, members: int | None, seed: int) -> tuple[list[nn.Module], torch.device]:
    """Copy or build the members on the CPU; also the device that the first one came from."""
    if isinstance(nets, nn.Module):
        raise ConfigError(
            "an ensemble is made of several nets, or of a function that builds one, but got one "
            f"{type(nets).__name__}. Pass a list of nets."
        )
    if callable(nets):
        if members is None or members < 1:
            raise ConfigError(
                f"a function must be called for at least one member, but `members` is {members}. "
                "Say how many."
            )
        given = []
        for number in range(members):
            with seeding.isolated(seed, "init", "given", number):
                given.append(nets())
    else:
        given = list(nets)
        if not given or members not in {None, len(given)}:
            raise ConfigError(
                f"each net of a list is one member, but got {len(given)} nets and `members` "
                f"{members}. Leave `members` out, or pass a function."
            )
    for net in given:
        if not isinstance(net, nn.Module):
            raise ConfigError(f"members are torch modules, but got a {type(net).__name__}.")
    home = next((p.device for p in given[0].parameters()), torch.device("cpu"))
    return [copied(net).cpu() for net in given], home


@dataclass(frozen=True)
class _Found:
    """What is known of a net before it is a member."""

    layers: tuple[str, ...]
    """Layers that share, in the order of their calls."""
    left_out: dict[str, str]
    """Any other layer, or parameter outside layers: the reason."""
    unshared: dict[str, int]
    """Sizes of the weights that the budget counts, from `unshared_weights`."""


def _survey(net: nn.Module, number: int, task: Task) -> _Found:
    """Find the layers of a member that can share weights: all that can be lent, but heads."""
    x = torch.as_tensor(task.train.inputs[:PROBE])
    check_logits(net, x, task.num_outputs, are_classes=task.num_classes > 0)
    found = takeable(net, x, reweighted, ("weight",))
    frozen = [name for name in found.layers if not _weight(net, name).requires_grad]
    left_out = found.left_out | dict.fromkeys(frozen, "does not require gradients")
    heads = head_layers(net, x)
    reason = "is the head" if len(heads) == 1 else f"is one of {len(heads)} heads"
    left_out |= {name: reason for name in found.layers if name in heads and name not in frozen}
    shared = tuple(name for name in found.layers if name not in {*heads, *frozen})
    if not shared:
        reasons = "; ".join(f"`{name}` {reason}" for name, reason in left_out.items())
        raise ConfigError(
            "a member needs a plain Linear or Conv2d layer that owns its weight before its head, "
            f"but member {number} has none: {reasons or 'it has no parameters'}. Use another net."
        )
    try:
        count_flops(net, task.in_shape, is_whole=task.has_tokens)
    except Exception as error:  # whatever somebody else's forward raises
        raise ConfigError(
            "operations are counted by a pass over shapes alone, without values, but member "
            f"{number} raised {type(error).__name__}: {error}"
        ) from error
    return _Found(shared, left_out, unshared_weights(net, shared, heads))


def _weight(net: nn.Module, layer: str) -> nn.Parameter:
    return net.get_parameter(f"{layer}.weight")


def _with_budget(
    fields: Mapping[str, Any], budget: int | None, unshared: Sequence[Mapping[str, int]]
) -> dict[str, Any]:
    """Put what templates have of the budget into the config; bins are merged when it is short."""
    allocation = fields.get("allocation", {})
    if not isinstance(allocation, Mapping):
        allocation = allocation.model_dump()
    if budget is not None and allocation.get("budget") is not None:
        raise ConfigError(
            "the budget is given once, but is in `allocation` as well. Leave one out."
        )
    if budget is None:
        return {**fields, "allocation": {"when_short": "merge", **allocation}}
    # What is no whole number is refused by the config.
    is_whole = isinstance(budget, Real) and float(budget).is_integer()
    left = left_for_templates(int(budget), unshared) if is_whole else budget
    return {**fields, "allocation": {"when_short": "merge", **allocation, "budget": left}}


def _with_unshared(
    error: ShortBudgetError, budget: int | None, unshared: Sequence[Mapping[str, int]]
) -> ConfigError:
    """Say in an error what else the budget that was given had to hold."""
    total = sum(sum(sizes.values()) for sizes in unshared)
    if budget is None or not total:
        return error
    return ConfigError(
        f"{error} That is what {budget} weights leave after {total} of layers that cannot share: "
        f"{named(unshared)}."
    )
