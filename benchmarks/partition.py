"""A partitioned step against a standard one: time and memory, on one thread.

Both sides are the learners themselves, on the same net, batch, optimiser and augmentation. Memory
is the largest sum of bytes of all live tensors, from building the learner on, which unlike
resident memory neither hides nor keeps what the allocator does.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tuneparts as tp
from benchmarks.measure import cpu_turns, noise_context, one_thread, peak_bytes, ratio_columns
from benchmarks.results import Result, Row, result, tell
from tuneparts.training.config import SupervisedMethod

_NODE = {"scheme": "node", "mixed": True, "defaults": "zero"}
_JOINT_SHARE = 0.2
"""Share of the batch that moves the hyperparameters in a joint step."""
_PROBE = 8
"""Batch by which the cost of an example is estimated."""


class _Case(NamedTuple):
    net: tp.nets.NetConfig
    in_shape: tuple[int, int, int]
    batch_size: int
    optimiser: Mapping[str, Any]
    defaults: str


_SGD = {"kind": "sgd", "lr": 0.1}
_CASES = {  # with the settings that the paper trains them with
    "mnist_cnn": _Case(tp.nets.MnistCnn(), (1, 28, 28), 200, {"kind": "adam"}, "zero"),
    "fixup_resnet8": _Case(tp.nets.FixupResNet(depth=8), (3, 32, 32), 250, _SGD, "initial"),
    "fixup_resnet14": _Case(tp.nets.FixupResNet(depth=14), (3, 32, 32), 250, _SGD, "initial"),
}


def run(*, quick: bool) -> Result:
    """Ratios of a joint, mixed, weight and hyper step, and of peak memory, to a standard step."""
    limit, rounds = (0.03, 2) if quick else (2.0, 9)
    rows: list[Row] = []
    with one_thread():
        for name, case in _CASES.items():
            new = [
                *_time_rows(name, case, 1, limit=limit, rounds=rounds),
                *_time_rows(name, case, 20, limit=limit, rounds=rounds),
                _memory_row(name, case, batch_size=8 if quick else case.batch_size),
            ]
            rows += new
            for row in new:
                tell(row)
    return result("partition", {row["what"]: row["ratio"] for row in rows}, rows)


def _time_rows(name: str, case: _Case, samples: int, *, limit: float, rounds: int) -> list[Row]:
    """Compare steps at the largest batch whose steps stay below the limit in seconds."""
    probed = cpu_turns(_steps(case, samples, _PROBE), rounds=1)
    slowest = max(seconds for (seconds,) in probed.values())
    batch_size = max(1, min(case.batch_size, int(_PROBE * limit / slowest)))
    seconds = cpu_turns(_steps(case, samples, batch_size), rounds=rounds)
    standard = seconds.pop("standard")
    rows = []
    for step, own in seconds.items():
        is_once = step in ("mixed_step", "joint_step")
        row: Row = {"what": f"{step}.{name}" if is_once else f"{step}.{name}.S{samples}"}
        row |= ratio_columns({"standard": standard, "ours": own}, "standard")
        row["batch"] = batch_size
        if batch_size < case.batch_size:
            row["note"] = f"batch below {case.batch_size}: steps above {limit} s"
        rows.append(row)
    return rows


def _steps(case: _Case, samples: int, batch_size: int) -> dict[str, Callable[[], object]]:
    def learner(config: Callable[..., SupervisedMethod], **fields: Any) -> Any:
        return _learner(config, case, samples, batch_size, **fields)

    published = learner(tp.Partitioned.published, defaults=case.defaults)
    steps: dict[str, Callable[[], object]] = {"standard": learner(tp.Standard).step}
    if samples == 1:  # where masks weigh most against the net
        joint = learner(tp.Partitioned.published, **_NODE, hyper_share=_JOINT_SHARE)
        steps["joint_step"] = joint.joint_step
        steps["mixed_step"] = learner(tp.Partitioned.published, **_NODE).weight_step
    return steps | {"weight_step": published.weight_step, "hyper_step": published.hyper_step}


def _memory_row(name: str, case: _Case, *, batch_size: int) -> Row:
    """Peak of two whole iterations with S = 1, where weights weigh most, and zero defaults."""

    def work(config: Callable[..., SupervisedMethod], num_steps: int, **fields: Any) -> None:
        learner = _learner(config, case, 1, batch_size, **fields)
        for _ in range(num_steps):
            learner.step()

    standard = peak_bytes(lambda: work(tp.Standard, 2))
    # Six steps: every partition's step takes memory of its own.
    ours = peak_bytes(lambda: work(tp.Partitioned.published, 6, defaults="zero"))
    return {
        "what": f"memory.{name}",
        "ratio": ours / standard,
        "standard MB": standard / 1e6,
        "ours MB": ours / 1e6,
        "batch": batch_size,
    }


def _learner(
    config: Callable[..., SupervisedMethod],
    case: _Case,
    samples: int,
    batch_size: int,
    **fields: Any,
) -> Any:
    context = noise_context(max(300, case.batch_size), case.in_shape, mean=0.0, std=1.0)
    made = config(
        net=case.net,
        hypers={"affine": {"kind": "lila", "rotation": 0.5}, "samples": samples},
        optimiser=case.optimiser,
        batch_size=batch_size,
        steps=10**6,
        **fields,
    )
    return made.build(context)
