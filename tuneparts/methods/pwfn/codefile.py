"""Your own net with few distinct weights, its file, and weights from any kind of file.

A compressed net is a NumPy archive (npz) under LZMA. `codebook` has the distinct values of the
coded weights, the most frequent first, and `codes` their indices, in as few bits as fill bytes.
Other tensors stand in one array for each type. `layout` (JSON) has for each name of the net's state
the array and shape, or the name of the same tensor. Nothing is ever unpickled.
"""

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tuneparts.core import _torchvision, atomic, seeding, settings
from tuneparts.core.config import parse
from tuneparts.core.errors import CheckpointError, ConfigError, DataMissingError
from tuneparts.data.device_examples import DeviceExamples
from tuneparts.data.own import Arrays, given_task
from tuneparts.data.task import Examples, Task, digest
from tuneparts.methods.pwfn.config import Pwfn
from tuneparts.nets import GivenNet
from tuneparts.nets.survey import PROBE, check_logits, copied
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context
from tuneparts.training.loop import outputs_of
from tuneparts.training.process import threads_for
from tuneparts.training.progress import Report, run_through

TORCHVISION = "torchvision:"
_NESTED = ("learner", "net", "state_dict", "model_state_dict", "model")
"""Keys under which programs keep a net's state."""


class _Compressibility(NamedTuple):
    """Distinct values (zero included), bits a weight with and without zeros, share of zeros."""

    unique_weights: int
    entropy: float
    entropy_nonzero: float
    sparsity: float


def _measure(values_N: Tensor) -> _Compressibility:
    values, counts = torch.unique(values_N.detach() + 0.0, return_counts=True)
    is_zero = values == 0
    shares = [kept.double() / kept.sum() for kept in (counts, counts[~is_zero])]
    entropy, nonzero = (float(abs((share * share.log2()).sum())) for share in shares)
    zeros = counts[is_zero].sum().item() / len(values_N)
    return _Compressibility(len(values), entropy, nonzero, zeros)


def _num_plain_bytes(net: nn.Module) -> int:
    once = {id(value): value for value in net.state_dict(keep_vars=True).values()}
    return sum(value.numel() * value.itemsize for value in once.values())


def _encode(net: nn.Module, names: Collection[str]) -> bytes:
    """Encode a net's state as the content of a file; `names` are of the parameters to code."""
    coded = {id(net.get_parameter(name)) for name in names}
    first: dict[int, str] = {}
    layout: list[tuple[str, str, Any]] = []
    pieces: dict[str, list[Tensor]] = {}
    for name, value in net.state_dict(keep_vars=True).items():
        if first.setdefault(id(value), name) != name:
            layout.append((name, "same", first[id(value)]))
            continue
        plain = value.detach().cpu()
        if plain.dtype is torch.bfloat16:  # NumPy has none; float32 holds the same values
            plain = plain.float()
        kind = "codes" if id(value) in coded else str(plain.dtype).removeprefix("torch.")
        layout.append((name, kind, list(plain.shape)))
        pieces.setdefault(kind, []).append(plain.flatten())
    arrays = {kind: torch.cat(parts).numpy() for kind, parts in pieces.items()}
    values_K, index_N, counts_K = np.unique(
        arrays["codes"] + 0.0, return_inverse=True, return_counts=True
    )
    order_K, bits = np.argsort(-counts_K, kind="stable"), _bits(len(values_K))
    codes_N = np.argsort(order_K)[index_N].astype(f"<u{max(1, bits // 8)}")
    if bits < 8:
        codes_N = np.packbits(np.unpackbits(codes_N[:, None], axis=1)[:, 8 - bits :])
    arrays |= {"codes": codes_N, "codebook": values_K[order_K]}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_LZMA) as archive:
        for kind, array in {**arrays, "layout": np.array(json.dumps(layout))}.items():
            with archive.open(f"{kind}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return content.getvalue()


def _decode(content: bytes) -> dict[str, Tensor]:
    rest = dict(np.load(io.BytesIO(content), allow_pickle=False))
    index, bits = rest["codes"], _bits(len(rest["codebook"]))
    if bits < 8:
        index = np.packbits(np.unpackbits(index).reshape(-1, bits), axis=1)[:, 0] >> (8 - bits)
    rest["codes"] = rest["codebook"][index]
    state: dict[str, Tensor] = {}
    for name, kind, where in json.loads(rest["layout"].item()):
        if kind == "same":
            state[str(name)] = state[where]
        else:
            first, rest[kind] = np.split(rest[kind], [math.prod(where)])
            state[str(name)] = torch.tensor(first).view(where)
    return state


def _bits(num_values: int) -> int:
    """Bits of an index: whole indices fill whole bytes, whose frequencies LZMA can then use."""
    return next(bits for bits in (1, 2, 4, 8, 16, 32) if num_values <= 2**bits)


def load(file: Path | str, net: nn.Module) -> nn.Module:
    """Load weights into a net of the same architecture, and return the net.

    Args:
        file: what `compress` wrote, a checkpoint of a trial or of a learner, a file with a
            `state_dict` (by itself or under a usual key), or `torchvision:NAME` for weights that
            torchvision has downloaded before.
        net: unchanged if the weights do not fit or the file is damaged.
    """
    state = _state(_downloaded(str(file)) if str(file).startswith(TORCHVISION) else Path(file))
    own, given = ({k: v.shape for k, v in one.items()} for one in (net.state_dict(), state))
    wrong = sorted({name for name, _ in own.items() ^ given.items()})
    if wrong:
        raise CheckpointError(
            f"{file}: {len(wrong)} tensors differ from the net's in name or shape: "
            f"{', '.join(wrong[:5])}. Build the net that they are of."
        )
    net.load_state_dict(state)
    return net


def torchvision_net(source: str) -> nn.Module:
    """Build `torchvision:NAME` with the weights that are on this machine."""
    models, name = _torchvision.load().models, source.removeprefix(TORCHVISION)
    if name not in models.list_models():
        raise ConfigError(f"`{source}`: torchvision has no such net. Choose another name.")
    return load(source, models.get_model(name, weights=None))


def _downloaded(source: str) -> Path:
    """Find the file of downloaded weights; those that torchvision prefers first."""
    weights = _torchvision.load().models.get_model_weights(source.removeprefix(TORCHVISION))
    folders, data_dir = [Path(torch.hub.get_dir()) / "checkpoints"], settings.current().data_dir
    folders += [] if data_dir is None else [data_dir, data_dir / "weights"]
    for one in (weights.DEFAULT, *weights):
        for folder in folders:
            if (path := folder / str(one.url).rpartition("/")[2]).is_file():
                return path
    raise DataMissingError(
        f"{source}: no weights in {', '.join(map(str, folders))}. Download {weights.DEFAULT.url} "
        "into one of them."
    )


def _state(path: Path) -> dict[str, Tensor]:
    try:
        content = path.read_bytes()
        if content.startswith(checkpoint.MAGIC):
            found: Any = checkpoint.from_bytes(content)
        elif b"codebook.npy" in content:
            found = _decode(content)
        else:
            found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # zipfile, LZMA, NumPy, JSON and torch each have their own
        raise CheckpointError(
            f"{path}: cannot be read as the weights of a net ({type(error).__name__}). Give a file "
            "of `compress`, a checkpoint, or a `state_dict` written by `torch.save`."
        ) from error
    while isinstance(found, Mapping) and not all(isinstance(v, Tensor) for v in found.values()):
        found = next((found[key] for key in _NESTED if isinstance(found.get(key), Mapping)), None)
    if not found or not isinstance(found, Mapping):
        raise CheckpointError(
            f"{path}: holds no tensors by name, nor under any of {', '.join(_NESTED)}. Of a trial "
            "whose method keeps them otherwise: `tuneparts compress RUN --arm ARM --out FILE`."
        )
    inside = all(name.startswith("module.") for name in found)  # of a net inside DataParallel
    return {name.removeprefix("module.") if inside else name: v for name, v in found.items()}


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
        file: where to write the compressed net, for `load`. Until then the state is next to it
            (`FILE.partial`), and the same call goes on from there.
        seed: of the batches, the augmentation and the draws of weights.
        device: where to train; the net's own if None.
        report: called with the metrics of each interval; a terminal shows a bar if None.
        fields: those of `Pwfn`, such as `steps`, `quantiser`, `finetune`. Without `pretrain`
            the steps all go to fixing; an untrained net needs some, such as 0.5 of the steps.

    Example:
        >>> x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        >>> net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
        >>> small = compress(net, (x, (x[:, 0] > 0).long()), steps=40, batch_size=20, pretrain=0.5)
        >>> weights = torch.cat([p.flatten() for p in small.net.parameters()])
        >>> len(weights.unique()) == small.num_values
        True
    """
    from tuneparts.methods.pwfn._learner import PwfnLearner  # which measures nets by this module

    task = train if isinstance(train, Task) else given_task(train, val, target=target)
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
    before, partial = _scores(net, of, task, at), None if file is None else Path(f"{file}.partial")
    call = f"{digest(task)} {config.model_dump_json()} {seed}".encode()
    key = hashlib.sha256(call + checkpoint.to_bytes(net.state_dict())).hexdigest()
    threads = threads_for([net], task.in_shape, config.batch_size, at)
    with threads, seeding.isolated(seed, "given net"):
        learner = PwfnLearner(config, Context(task=task, seed=seed, device=at))
        history = run_through(
            learner, what="compress", steps=config.steps, report=report, partial=partial, key=key
        )
    content = _encode(learner.net, learner.gaussians.names)
    if file is not None and partial is not None:
        atomic.write_bytes(Path(file), content)
        partial.unlink(missing_ok=True)
    net.load_state_dict(_decode(content))
    size = _measure(learner.gaussians.means())
    return Compressed(
        net=net, before=before, after=_scores(net, of, task, at), num_values=size.unique_weights,
        entropy=size.entropy, num_bytes=len(content), num_float_bytes=_num_plain_bytes(net),
        covered=len(learner.gaussians.sigma) / sum(p.numel() for p in net.parameters()),
        left_out=learner.left_out, history=history,
    )  # fmt: skip


def _config(net: nn.Module, fields: Mapping[str, Any]) -> Pwfn:
    for name in ("pretrained", "hypers", "train_on", "ensemble", "shares_pretraining"):
        if name in fields:
            raise ConfigError(f"`{name}`: not a setting of `compress`. Leave it out.")
    fields = {"pretrain": 0.0, **fields, "net": GivenNet(lambda: net)}
    config = parse(Pwfn, fields)
    if config.quantiser.kind in {"uniform", "free"}:
        raise ConfigError(
            f"quantiser `{config.quantiser.kind}`: makes no codebook, and a file holds one. Take "
            "`clusters`, `nearest`, `kmeans` or `wfn`."
        )
    if config.quantiser.uses_sigma and config.finetune.kind == "sgd":
        # About as far as on ImageNet (0.95); the authors' alpha would do nothing on small data.
        config = parse(Pwfn, {"sigma": {"exposure": 1.0}, **fields})
    return config


def _scores(net: nn.Module, examples: Examples, task: Task, at: torch.device) -> dict[str, float]:
    on_device = DeviceExamples(examples, mean=task.mean, std=task.std, device=at)
    probe, _ = on_device.take(torch.arange(min(PROBE, len(examples))))
    check_logits(net, probe, task.num_outputs, are_classes=task.num_classes > 0)
    return task.target.scores(*outputs_of(net.eval(), on_device))
