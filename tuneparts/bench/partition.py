"""Bench of a partitioned step against a standard one: time and memory, on one thread.

Both sides are the learners themselves, on the same net, batch, optimiser and augmentation. Time is
CPU time of this process, so that other work on the machine counts less; memory is the largest
sum of bytes of all live tensors, from building the learner on, which unlike resident memory
neither hides nor keeps what the allocator does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from tuneparts.baselines.standard import StandardConfig
from tuneparts.bench import machine
from tuneparts.bench.gauges import cpu_seconds, noise_context, one_thread, peak_bytes
from tuneparts.models import FixupResNet, MnistCnn, NetConfig
from tuneparts.partition import PartitionedConfig
from tuneparts.partition.learner import PartitionedLearner
from tuneparts.training.learner import Context, Learner

_AFFINE = {"kind": "lila", "rotation": 0.5}
_SAMPLES = (20, 1)
_JOINT_SHARE = 0.2
"""Share of the batch that moves the hypers in a joint step."""
_PROBE = 8
"""Batch by which the cost of an example is estimated."""


@dataclass(frozen=True)
class _Case:
    """One net with the settings that the paper trains it with."""

    net: NetConfig
    in_shape: tuple[int, int, int]
    batch_size: int
    optimiser: Mapping[str, Any]
    defaults: str


_CASES = {
    "mnist_cnn": _Case(MnistCnn(), (1, 28, 28), 200, {"kind": "adam"}, "zero"),
    "fixup_resnet8": _Case(
        FixupResNet(depth=8), (3, 32, 32), 250, {"kind": "sgd", "lr": 0.1}, "initial"
    ),
    "fixup_resnet14": _Case(
        FixupResNet(depth=14), (3, 32, 32), 250, {"kind": "sgd", "lr": 0.1}, "initial"
    ),
}


def run(*, quick: bool = False) -> dict[str, Any]:
    """Ratios of a weight, hyper, mixed and joint step, and of peak memory, to a standard step."""
    limit, rounds = (0.2, 3) if quick else (2.0, 9)
    ratios: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    with one_thread():
        for name, case in _CASES.items():
            for samples in _SAMPLES:
                batch_size, seconds = _timed(case, samples, limit=limit, rounds=rounds)
                for step in [step for step in seconds if step != "standard"]:
                    is_once = step in ("mixed_step", "joint_step")
                    key = f"{step}.{name}" if is_once else f"{step}.{name}.S{samples}"
                    row = _row(key, seconds, step) | {"batch": batch_size}
                    if batch_size < case.batch_size:
                        row["note"] = f"batch below {case.batch_size}: steps above {limit} s"
                    ratios[key] = row["ratio"]
                    rows.append(row)
            row = _memory_row(name, case, batch_size=8 if quick else case.batch_size)
            ratios[row["what"]] = row["ratio"]
            rows.append(row)
    return {"bench": "partition", "ratios": ratios, "rows": rows, "machine": machine.describe()}


def _timed(
    case: _Case, samples: int, *, limit: float, rounds: int
) -> tuple[int, dict[str, list[float]]]:
    """The largest batch whose steps stay below the limit, and CPU seconds of each kind of step."""
    slowest = max(_warm(_ways(case, samples, _PROBE)).values())
    batch_size = max(1, min(case.batch_size, int(_PROBE * limit / slowest)))
    ways = _ways(case, samples, batch_size)
    _warm(ways)
    timed = {name: partial(cpu_seconds, way) for name, way in ways.items()}
    return batch_size, machine.interleave(timed, rounds=rounds)


def _warm(ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of a second step: the first allocates state and chooses kernels."""
    return {name: (cpu_seconds(way), cpu_seconds(way))[1] for name, way in ways.items()}


def _ways(case: _Case, samples: int, batch_size: int) -> dict[str, Callable[[], object]]:
    standard = _standard(case, samples, batch_size)
    partitioned = _partitioned(case, samples, batch_size)
    ways: dict[str, Callable[[], object]] = {
        "standard": standard.step,
        "weight_step": partitioned.weight_step,
        "hyper_step": partitioned.hyper_step,
    }
    if samples == 1:  # where masks weigh most against the net
        mixed = _partitioned(case, samples, batch_size, scheme="node", mixed=True)
        ways["mixed_step"] = mixed.weight_step
        joint = _partitioned(
            case, samples, batch_size, scheme="node", mixed=True, hyper_share=_JOINT_SHARE
        )
        ways["joint_step"] = joint.joint_step
    return ways


def _row(key: str, seconds: Mapping[str, list[float]], step: str) -> dict[str, Any]:
    pairs = zip(seconds[step], seconds["standard"], strict=True)
    found = machine.spread([ours / standard for ours, standard in pairs])
    return {
        "what": key,
        "ratio": found["median"],
        "ratio, fastest": found["fastest"],
        "ratio, slowest": found["slowest"],
        "standard ms": 1000 * machine.spread(seconds["standard"])["median"],
        "ours ms": 1000 * machine.spread(seconds[step])["median"],
    }


def _memory_row(name: str, case: _Case, *, batch_size: int) -> dict[str, Any]:
    """Peak of two whole iterations with S = 1, where weights weigh most, and zero defaults."""

    def standard() -> None:
        learner = _standard(case, 1, batch_size)
        for _ in range(2):
            learner.step()

    def partitioned() -> None:
        learner = _partitioned(case, 1, batch_size, defaults="zero")
        for _ in range(6):  # every partition's step takes memory of its own
            learner.step()

    theirs, ours = peak_bytes(standard), peak_bytes(partitioned)
    return {
        "what": f"memory.{name}",
        "ratio": ours / theirs,
        "standard MB": theirs / 1e6,
        "ours MB": ours / 1e6,
        "batch": batch_size,
    }


def _standard(case: _Case, samples: int, batch_size: int) -> Any:
    config = StandardConfig(
        net=case.net,
        hypers={"affine": _AFFINE, "samples": samples},
        optimiser=case.optimiser,
        batch_size=batch_size,
        passes=10**6,
    )
    return config.build(_context(case))


def _partitioned(case: _Case, samples: int, batch_size: int, **changes: Any) -> PartitionedLearner:
    is_node = changes.get("scheme") == "node"
    fields = {"defaults": "zero" if is_node else case.defaults} | changes
    config = PartitionedConfig(
        net=case.net,
        hypers={"affine": _AFFINE, "samples": samples},
        optimiser=case.optimiser,
        batch_size=batch_size,
        passes=10**6,
        **fields,
    )
    learner: Learner = config.build(_context(case))
    assert isinstance(learner, PartitionedLearner)
    return learner


def _context(case: _Case) -> Context:
    return noise_context(max(300, case.batch_size), case.in_shape, mean=0.0, std=1.0)
