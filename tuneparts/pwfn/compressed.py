"""Compression of one's own net with one's own arrays, without a search around it."""

import hashlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tuneparts import atomic, seeding
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.digest import digest
from tuneparts.data.given import Arrays, given_examples, given_task
from tuneparts.data.target import from_anything as target_from
from tuneparts.data.task import Examples, Task
from tuneparts.errors import CheckpointError, ConfigError
from tuneparts.models.given import GivenNet, given_config
from tuneparts.models.survey import PROBE, check_logits, copied
from tuneparts.pwfn import codefile
from tuneparts.pwfn.aliases import refuse_aliases
from tuneparts.pwfn.config import PwfnConfig
from tuneparts.pwfn.learner import PwfnLearner
from tuneparts.pwfn.quantisers import Free, Uniform
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context, Learner
from tuneparts.training.progress import Report, run_through
from tuneparts.training.scores import outputs_of
from tuneparts.training.threads import threads_for

EXPOSURE = 1.0
"""How far deviations are pulled if nothing else is asked for: about as far as the authors' were on
ImageNet (0.95), whatever the number of passes. Their alpha alone would do nothing on small data."""
_NOT_FIELDS = {
    "pretrained": "the net starts with the weights that it has",
    "hypers": "they act around a net and would not be part of the compressed one",
    "train_on": "validation data are given apart, or not at all",
    "ensemble": "a compressed net is one net",
    "shares_pretraining": "there are no other trials",
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
        file: where to write the compressed net, for `load`. Until then the state after each
            interval stands beside it (`FILE.partial`), and the same call goes on from there.
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
    aim = target_from(target)
    examples = given_examples(*train, aim)
    scored = None if val is None else given_examples(*val, aim)
    task = given_task(examples, scored, target=aim)
    return compress_on(task, net, file=file, seed=seed, device=device, report=report, **fields)


def compress_on(
    task: Task,
    net: nn.Module,
    *,
    file: Path | str | None = None,
    seed: int = 0,
    device: torch.device | str | None = None,
    report: Report | None = None,
    **fields: Any,
) -> Compressed:
    """Like `compress`, with the data of a task; scores are of its test data if it has any."""
    _refuse_fields(fields)
    refuse_aliases(net)  # of the net itself: in a copy they no longer share memory
    at = torch.device(device or _device_of(net))
    net = copied(net).to(at)
    own = deepcopy(net)
    config = _config(own, fields)
    of = next((part for part in (task.test, task.val) if len(part)), task.train)
    before = _scores(net, of, task, at)
    threads = threads_for([net], task.in_shape, config.batch_size, at)
    with threads, seeding.isolated(seed, "given net"):
        learner = PwfnLearner(config, Context(task=task, seed=seed, device=at))
        kept = _Kept.beside(file, task, net, config, seed)
        history = run_through(
            learner, what="compress", passes=config.passes, report=report,
            history=kept.restored(learner), keep=kept.keep,
        )  # fmt: skip
    content = codefile.encode(learner.net, learner.coverage.names)
    if file is not None:
        atomic.write_bytes(Path(file), content)
    kept.remove()
    small = deepcopy(net)
    codefile.decode(content, small)
    size = codefile.measure(learner.gaussians.means())
    return Compressed(
        net=small.eval(),
        before=before,
        after=_scores(small, of, task, at),
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


def _config(net: nn.Module, fields: Mapping[str, Any]) -> PwfnConfig:
    """Make the config of a call, in which deviations move as far as they should."""
    given, whole = GivenNet(lambda: net), {"pretrain": 0.0, **fields}
    config = given_config(PwfnConfig, whole, net=given)
    if isinstance(config.quantiser, Uniform | Free):
        raise ConfigError(
            "a file holds one codebook for all weights, but the quantiser "
            f"`{config.quantiser.kind}` makes none. Take `clusters`, `nearest`, `kmeans` or `wfn`."
        )
    if "sigma" in fields or not config.quantiser.uses_sigma or config.finetune.kind != "sgd":
        return config
    return given_config(PwfnConfig, {**whole, "sigma": {"exposure": EXPOSURE}}, net=given)


def _device_of(net: nn.Module) -> torch.device:
    return next((p.device for p in net.parameters()), torch.device("cpu"))


def _scores(net: nn.Module, examples: Examples, task: Task, at: torch.device) -> dict[str, float]:
    inputs = examples.inputs[: min(PROBE, len(examples))]
    on_device = DeviceExamples(examples, mean=task.mean, std=task.std, device=at)
    probe, _ = on_device.take(torch.arange(len(inputs)))
    check_logits(net, probe, task.num_outputs, are_classes=task.num_classes > 0)
    return task.target.scores(*outputs_of(net.eval(), on_device))


@dataclass(frozen=True)
class _Kept:
    """The state of a compression beside its file, so that the same call can go on after a crash."""

    path: Path | None
    key: str

    @staticmethod
    def beside(
        file: Path | str | None, task: Task, net: nn.Module, config: PwfnConfig, seed: int
    ) -> "_Kept":
        if file is None:
            return _Kept(None, "")
        found = hashlib.sha256(f"{digest(task)} {config.model_dump_json()} {seed}".encode())
        for name, value in net.state_dict().items():
            found.update(name.encode())
            if isinstance(value, torch.Tensor):
                found.update(checkpoint.to_bytes({"": value.cpu()}))
        return _Kept(Path(f"{file}.partial"), found.hexdigest())

    def restored(self, learner: PwfnLearner) -> list[Mapping[str, float]]:
        """Load the state of the same call into a learner; return what it reported so far."""
        if self.path is None or not self.path.exists():
            return []
        try:
            state = checkpoint.load(self.path)
        except CheckpointError:
            return []  # torn by a crash of the machine: nothing is lost but time
        if state.get("key") != self.key:
            return []
        learner.load_state_dict(state["learner"])
        return list(state["rows"])

    def keep(self, learner: Learner, rows: Sequence[Mapping[str, float]]) -> None:
        """Write the state after an interval."""
        if self.path is not None:
            state = {"key": self.key, "learner": learner.state_dict(), "rows": list(rows)}
            checkpoint.save(self.path, state)

    def remove(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)
