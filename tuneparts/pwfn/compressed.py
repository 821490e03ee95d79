"""Compression of one's own net with one's own arrays, without a search around it."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tuneparts import atomic, seeding
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.given import Arrays, given_examples, given_task
from tuneparts.data.target import Target
from tuneparts.data.target import from_anything as target_from
from tuneparts.data.task import Examples
from tuneparts.errors import ConfigError
from tuneparts.models.given import GivenNet, given_config
from tuneparts.models.survey import PROBE, check_logits, copied
from tuneparts.pwfn import codefile
from tuneparts.pwfn.learner import PwfnConfig, PwfnLearner
from tuneparts.training.learner import Context
from tuneparts.training.progress import Report, run_through
from tuneparts.training.scores import outputs_of

_NOT_FIELDS = {
    "pretrained": "the net starts with the weights that it has",
    "hypers": "they act around a net and would not be part of the compressed one",
    "train_on": "validation data are given apart, or not at all",
    "ensemble": "it is scored on test data, and there are none",
}
"""Fields of `PwfnConfig` that a call cannot have, with the reason."""


@dataclass(frozen=True)
class Compressed:
    """A net whose weights have few distinct values, and what that cost."""

    net: nn.Module
    """An ordinary net like the one that was given, in evaluation mode."""
    before: Mapping[str, float]
    """Scores of the net that was given: those of the target."""
    after: Mapping[str, float]
    """The same of the compressed net."""
    num_values: int
    """Distinct values of the covered weights."""
    entropy: float
    """Bits per covered weight."""
    num_bytes: int
    """Of the file, whether written or not: coded weights, and everything else as it is."""
    num_float_bytes: int
    """Of the same tensors without coding."""
    covered: float
    """Share of the net's parameters that are coded; the others stay in float, trained as well."""
    left_out: Mapping[str, str]
    """Parameters that stay in float: name to the reason and how many numbers they are."""
    history: list[Mapping[str, float]] = field(repr=False)
    """What each interval reported."""


def compress(
    net: nn.Module,
    train: tuple[Arrays, Arrays],
    val: tuple[Arrays, Arrays] | None = None,
    *,
    target: Any = "classes",
    file: Path | str | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    report: Report | None = None,
    **fields: Any,
) -> Compressed:
    """Train a net on so that its weights take few values, and code them.

    Linear layers, convolutions, embeddings, attention and recurrent layers are covered, and tied
    weights stay tied. Norms and a net's own parameters train along, stay in float, and are named in
    the result. What cannot be compressed is refused before training.

    Args:
        net: from inputs (B, ...) to logits (B, K), trained or not; it is not changed.
        train: inputs (N, ...), scaled as the net wants them, and labels (N,), 0 to K - 1.
        val: the same for scores; training data are scored if None.
        target: `classes`, `binary`, `values`, a loss function, or a `Target`.
        file: where to write the compressed net, for `load`.
        seed: of the batches, the augmentation and the draws of weights.
        device: where to train; the net's own if None.
        report: called with the metrics of each interval; a terminal shows a bar if None.
        fields: those of `PwfnConfig`, such as `passes`, `quantiser`, `finetune`. Without `pretrain`
            the passes all go to fixing; an untrained net needs some, such as 0.5 of the passes.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        >>> y = (x[:, 0] > 0).long()
        >>> net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> small = compress(net, (x, y), passes=40, batch_size=20, pretrain=0.5)
        >>> small.covered, small.left_out
        (1.0, {})
        >>> len(torch.cat([p.flatten() for p in small.net.parameters()]).unique()) == (
        ...     small.num_values
        ... )
        True
    """
    _refuse_fields(fields)
    aim = target_from(target)
    examples = given_examples(*train, aim)
    scored = None if val is None else given_examples(*val, aim)
    task = given_task(examples, scored, target=aim)
    at = torch.device(device or _device_of(net))
    net = copied(net).to(at)
    probe = torch.as_tensor(examples.inputs[:PROBE], device=at)
    check_logits(net, probe, task.num_outputs, are_classes=task.num_classes > 0)
    own = deepcopy(net)
    config = given_config(PwfnConfig, {"pretrain": 0.0, **fields}, net=GivenNet(lambda: own))
    with seeding.isolated(seed, "given net"):
        learner = PwfnLearner(config, Context(task=task, seed=seed, device=at))
        history = run_through(learner, what="compress", passes=config.passes, report=report)
    content = codefile.encode(learner.net, learner.coverage.names)
    if file is not None:
        atomic.write_bytes(Path(file), content)
    small = deepcopy(net)
    codefile.decode(content, small)
    of = examples if scored is None else scored
    size = codefile.measure(learner.gaussians.means())
    return Compressed(
        net=small.eval(),
        before=_scores(net, of, task.target, at),
        after=_scores(small, of, task.target, at),
        num_values=size.num_unique,
        entropy=size.entropy,
        num_bytes=len(content),
        num_float_bytes=codefile.num_plain_bytes(net),
        covered=len(learner.gaussians.sigma) / sum(p.numel() for p in net.parameters()),
        left_out=learner.coverage.left_out,
        history=history,
    )


def load(file: Path | str, net: nn.Module) -> nn.Module:
    """Load a file that `compress` wrote into a net of the same architecture, and return the net.

    Args:
        file: the path that `compress` was given.
        net: its weights and buffers are replaced; unchanged if the file is refused.
    """
    codefile.read(Path(file), net)
    return net


def _refuse_fields(fields: Mapping[str, Any]) -> None:
    for name in fields:
        if name in _NOT_FIELDS:
            raise ConfigError(f"`compress` takes no `{name}`: {_NOT_FIELDS[name]}. Leave it out.")


def _device_of(net: nn.Module) -> torch.device:
    return next((p.device for p in net.parameters()), torch.device("cpu"))


def _scores(
    net: nn.Module, examples: Examples, target: Target, device: torch.device
) -> dict[str, float]:
    on_device = DeviceExamples(examples, mean=(0.0,), std=(1.0,), device=device)
    return target.scores(*outputs_of(net.eval(), on_device))
