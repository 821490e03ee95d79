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
from tuneparts.pwfn.config import PwfnConfig
from tuneparts.pwfn.learner import PwfnLearner
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context, Learner
from tuneparts.training.progress import Report, run_through
from tuneparts.training.scores import outputs_of
from tuneparts.training.threads import threads_for

_EXPOSURE = 1.0
"""How far deviations are pulled by default, about as far as the authors' on ImageNet (0.95); their
alpha alone would do nothing on small data."""


@dataclass(frozen=True)
class Compressed:
    """A plain net like the given one, whose weights have few distinct values, and what it cost.

    Scores are of the given net (`before`) and of this one (`after`); `entropy` is in bits per
    covered weight; bytes are of the file and of the same tensors in float; `covered` is the share
    of parameters that are coded, and `left_out` says why the others are not.
    """

    net: nn.Module
    before: Mapping[str, float]
    after: Mapping[str, float]
    num_values: int
    entropy: float
    num_bytes: int
    num_float_bytes: int
    covered: float
    left_out: Mapping[str, str]
    history: list[Mapping[str, float]] = field(repr=False)


def compress(
    net: nn.Module,
    train: tuple[Arrays, Arrays] | Task,
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

    Args:
        net: from inputs (B, ...) to logits (B, K), trained or not; it is not changed.
        train: inputs (N, ...), scaled as the net wants them, and labels (N,), 0 to K - 1; or a task
            with all data, whose test data are scored if it has any.
        val: the same for scores; training data are scored if None.
        target: `classes`, `binary`, `values`, a loss function, or a `Target`.
        file: where to write the compressed net, for `load`. Until then the state stands beside it
            (`FILE.partial`), and the same call goes on from there.
        seed: of the batches, the augmentation and the draws of weights.
        device: where to train; the net's own if None.
        report: called with the metrics of each interval; a terminal shows a bar if None.
        fields: those of `PwfnConfig`, such as `passes`, `quantiser`, `finetune`. Without `pretrain`
            the passes all go to fixing; an untrained net needs some, such as 0.5 of the passes.

    Example:
        >>> x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        >>> net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> small = compress(net, (x, (x[:, 0] > 0).long()), passes=40, batch_size=20, pretrain=0.5)
        >>> weights = torch.cat([p.flatten() for p in small.net.parameters()])
        >>> len(weights.unique()) == small.num_values
        True
    """
    if isinstance(train, Task):
        task = train
    else:
        aim = target_from(target)
        scored = None if val is None else given_examples(*val, aim)
        task = given_task(given_examples(*train, aim), scored, target=aim)
    places = [parameter.data_ptr() for parameter in net.parameters() if parameter.numel()]
    if len(set(places)) < len(places):  # a copy trains and stores them apart
        raise ConfigError(
            f"{type(net).__name__}: two parameters share their memory. Tie them as one, such as "
            "`net.head.weight = net.embed.weight`, or copy one."
        )
    at = torch.device(device or next((p.device for p in net.parameters()), "cpu"))
    net = copied(net).to(at)
    config = _config(deepcopy(net), fields)
    of = next((part for part in (task.test, task.val) if len(part)), task.train)
    before = _scores(net, of, task, at)
    call = f"{digest(task)} {config.model_dump_json()} {seed}".encode()
    key = hashlib.sha256(call + checkpoint.to_bytes(net.state_dict())).hexdigest()
    partial = Path(f"{file}.partial")

    def keep(learner: Learner, rows: Sequence[Mapping[str, float]]) -> None:
        if file is not None:
            checkpoint.save(partial, {"key": key, "learner": learner.state_dict(), "rows": rows})

    threads = threads_for([net], task.in_shape, config.batch_size, at)
    with threads, seeding.isolated(seed, "given net"):
        learner = PwfnLearner(config, Context(task=task, seed=seed, device=at))
        rows = [] if file is None else _kept(partial, key, learner)
        history = run_through(
            learner, what="compress", passes=config.passes, report=report, history=rows, keep=keep
        )
    content = codefile.encode(learner.net, learner.gaussians.names)
    if file is not None:
        atomic.write_bytes(Path(file), content)
        partial.unlink(missing_ok=True)
    small = deepcopy(net).eval()
    small.load_state_dict(codefile.decode(content))
    size = codefile.measure(learner.gaussians.means())
    return Compressed(
        net=small, before=before, after=_scores(small, of, task, at), num_values=size.num_unique,
        entropy=size.entropy, num_bytes=len(content), num_float_bytes=codefile.num_plain_bytes(net),
        covered=len(learner.gaussians.sigma) / sum(p.numel() for p in net.parameters()),
        left_out=learner.left_out, history=history,
    )  # fmt: skip


def _kept(partial: Path, key: str, learner: Learner) -> list[Mapping[str, float]]:
    """Load what the same call left when it was stopped; return what it had reported."""
    try:
        state = checkpoint.load(partial)
    except CheckpointError:  # none, or torn by a crash of the machine
        return []
    if state.get("key") != key:
        return []
    learner.load_state_dict(state["learner"])
    return list(state["rows"])


def _config(net: nn.Module, fields: Mapping[str, Any]) -> PwfnConfig:
    """Make the config of a call, in which deviations move as far as they should."""
    for name in ("pretrained", "hypers", "train_on", "ensemble", "shares_pretraining"):
        if name in fields:
            raise ConfigError(f"`{name}`: not a setting of `compress`. Leave it out.")
    given, whole = GivenNet(lambda: net), {"pretrain": 0.0, **fields}
    config = given_config(PwfnConfig, whole, net=given)
    if config.quantiser.kind in {"uniform", "free"}:
        raise ConfigError(
            f"quantiser `{config.quantiser.kind}`: makes no codebook, and a file holds one. Take "
            "`clusters`, `nearest`, `kmeans` or `wfn`."
        )
    if "sigma" in fields or not config.quantiser.uses_sigma or config.finetune.kind != "sgd":
        return config
    return given_config(PwfnConfig, {**whole, "sigma": {"exposure": _EXPOSURE}}, net=given)


def _scores(net: nn.Module, examples: Examples, task: Task, at: torch.device) -> dict[str, float]:
    on_device = DeviceExamples(examples, mean=task.mean, std=task.std, device=at)
    probe, _ = on_device.take(torch.arange(min(PROBE, len(examples))))
    check_logits(net, probe, task.num_outputs, are_classes=task.num_classes > 0)
    return task.target.scores(*outputs_of(net.eval(), on_device))
