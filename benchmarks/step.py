"""A training step of ours against one written by hand, and how near it is to a matrix product.

Both do the same work: the same net, Adam, four augmentation samples of each of 50 images. The one
by hand is as tutorials write it: layers in the order of the papers' tables, the default layout,
`matrix_exp`, `affine_grid` and `grid_sample`; data is on the device, without a loader. "Tuned" is
that one with the quick settings of torch's manual, `channels_last` and the fused optimiser. The
limit is a matrix product of the same precision.

Legend: B images, S samples of each, N = B * S.
"""

from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

import tuneparts as tp
from benchmarks import measure
from benchmarks.results import Result, Row, result, tell
from tuneparts.data.task import Examples
from tuneparts.nets._resnets import FixupBlock, PreActivationBlock
from tuneparts.training.loop import LoopLearner

_GENERATORS = {
    "translate_x": ((0, 0, 1), (0, 0, 0), (0, 0, 0)),
    "translate_y": ((0, 0, 0), (0, 0, 1), (0, 0, 0)),
    "rotation": ((0, -1, 0), (1, 0, 0), (0, 0, 0)),
    "scale_x": ((1, 0, 0), (0, 0, 0), (0, 0, 0)),
    "scale_y": ((0, 0, 0), (0, 1, 0), (0, 0, 0)),
    "shear": ((0, 1, 0), (1, 0, 0), (0, 0, 0)),
}
_RANGES = dict.fromkeys(_GENERATORS, 0.05) | {"rotation": 0.5}
_SAMPLES = 4
_SIDE = 1024
"""Of the matrices whose product is the limit."""
_LEAST_SECONDS = 0.03
"""Steps are timed in groups that take about so long."""
_CASES: dict[str, tuple[tp.nets.NetConfig, tuple[int, int, int], int]] = {
    "fixup_resnet8": (tp.nets.FixupResNet(depth=8), (3, 32, 32), 11),
    "wrn_16_2": (tp.nets.WideResNet(depth=16, width=2), (3, 32, 32), 7),
    "mlp": (tp.nets.Mlp(), (1, 28, 28), 31),
    "digits_cnn": (tp.nets.DigitsCnn(), (1, 8, 8), 31),
    "mnist_cnn": (tp.nets.MnistCnn(), (1, 28, 28), 15),
}
"""Net, shape of an input and rounds."""


def run(*, quick: bool) -> Result:
    """Ratios of our step to the hand-written ones, and its speed as a part of the product's."""
    found: dict[str, float] = {}
    rows: list[Row] = []
    with measure.one_thread():
        for name, (net, in_shape, rounds) in _CASES.items():
            steps = ways(net, in_shape, batch_size=2 if quick else 50)
            row: Row = {"what": f"ours_over_plain.{name}"}
            row |= _columns(steps, 2 if quick else rounds)
            row |= {"batch": 2 if quick else 50, "samples": _SAMPLES}
            tell(row)
            rows.append(row)
            found[f"ours_over_tuned.{name}"] = row["ratio to tuned"]
            found[f"ours_over_plain.{name}"] = row["ratio"]
            found[f"of_product.{name}"] = row["ours GFLOP/s"] / row["product GFLOP/s"]
    return result("step", found, rows)


def _columns(steps: dict[str, Callable[[], object]], rounds: int) -> Row:
    with FlopCounterMode(display=False) as counter:
        steps["ours"]()
    flops = int(counter.get_total_flops())
    matrix = torch.rand(_SIDE, _SIDE)
    steps = {**steps, "product": lambda: matrix @ matrix}
    groups = {}
    for side, step in steps.items():
        fastest = min(_seconds(step, 1) for _ in range(3))  # two warm up
        groups[side] = partial(_seconds, step, max(1, round(_LEAST_SECONDS / fastest)))
    seconds = measure.interleave(groups, rounds=rounds)
    medians = {side: median(own) for side, own in seconds.items()}
    return {
        **measure.ratio_columns(seconds, "plain"),
        "ratio to tuned": measure.ratios(seconds["ours"], seconds["tuned"])["median"],
        "tuned ms": 1000 * medians["tuned"],
        "GFLOP": flops / 1e9,
        **{f"{side} GFLOP/s": flops / medians[side] / 1e9 for side in ("plain", "ours")},
        "product GFLOP/s": 2 * _SIDE**3 / medians["product"] / 1e9,
    }


def _seconds(step: Callable[[], object], times: int) -> float:
    return measure.cpu_seconds(lambda: [step() for _ in range(times)]) / times


def ways(
    net: tp.nets.NetConfig, in_shape: tuple[int, int, int], *, batch_size: int
) -> dict[str, Callable[[], object]]:
    """Make the same training step three times: ours, by hand, and by hand with quick settings."""
    context = measure.noise_context(20 * batch_size, in_shape, mean=0.0, std=1.0)
    config = tp.Standard(
        net=net,
        hypers={"affine": {"kind": "lila", **_RANGES}, "samples": _SAMPLES},
        optimiser={"kind": "adam"},
        batch_size=batch_size,
        steps=10**6,
    )
    learner = config.build(context)
    assert isinstance(learner, LoopLearner)
    steps: dict[str, Callable[[], object]] = {"ours": learner.step}
    for side in ("plain", "tuned"):
        by_hand = plain_net(net.build(in_shape, 10))
        steps[side] = _plain_step(by_hand, context.task.train, batch_size, is_tuned=side == "tuned")
    return steps


def _plain_step(
    net: nn.Module, examples: Examples, batch_size: int, *, is_tuned: bool
) -> Callable[[], Tensor]:
    """Make a training step with Adam by hand, as a function that returns its loss."""
    images, labels = torch.from_numpy(examples.inputs), torch.from_numpy(examples.labels)
    layout = torch.channels_last if is_tuned else torch.contiguous_format
    net = net.to(memory_format=layout)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, fused=is_tuned or None)
    generator = torch.Generator().manual_seed(0)
    basis_6 = torch.tensor(list(_GENERATORS.values()), dtype=torch.float32)
    largest_6 = torch.tensor(list(_RANGES.values()))
    order: Iterator[Tensor] = iter(())

    def step() -> Tensor:
        nonlocal order
        indices = next(order, None)
        if indices is None:
            drawn = torch.randperm(len(images), generator=generator)
            order = iter(drawn.view(-1, batch_size))
            indices = next(order)
        x, y = images[indices].float().div_(255), labels[indices]
        x = x.repeat_interleave(_SAMPLES, dim=0).contiguous(memory_format=layout)
        u_N6 = torch.rand(len(x), 6, generator=generator) * 2 - 1
        motions = torch.matrix_exp(torch.einsum("nk,kij->nij", u_N6 * largest_6, basis_6))
        grid = functional.affine_grid(motions[:, :2], list(x.shape), align_corners=True)
        x = functional.grid_sample(x, grid, align_corners=True)
        logits = net(x).view(batch_size, _SAMPLES, -1).mean(dim=1)
        loss = functional.cross_entropy(logits, y)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return loss.detach()

    return step


def plain_net(net: nn.Module) -> nn.Sequential:
    """Write a net of ours as papers write it, around the same weights.

    ReLU stands before pooling, nothing is computed in place, and there are no slots for dropout.
    """
    layers: list[nn.Module] = []
    for layer in net.children():
        if isinstance(layer, nn.ReLU):
            is_pooled = bool(layers) and isinstance(layers[-1], nn.MaxPool2d)
            layers.insert(len(layers) - is_pooled, nn.ReLU())
        elif isinstance(layer, FixupBlock):
            layers.append(_Fixup(layer))
        elif isinstance(layer, PreActivationBlock):
            layers.append(_PreActivation(layer))
        elif not isinstance(layer, nn.Dropout):
            layers.append(layer)
    return nn.Sequential(*layers)


class _Plain(nn.Module):
    def __init__(self, block: Any) -> None:
        super().__init__()
        self.block = block


class _Fixup(_Plain):
    def forward(self, x: Tensor) -> Tensor:
        block = self.block
        shifted = block.bias1a(x)
        out = functional.relu(block.bias1b(block.conv1(shifted)))
        out = block.bias2b(block.scale(block.conv2(block.bias2a(out))))
        return functional.relu(out + (x if block.shortcut is None else block.shortcut(shifted)))


class _PreActivation(_Plain):
    def forward(self, x: Tensor) -> Tensor:
        block = self.block
        active = functional.relu(block.norm1(x))
        out: Tensor = block.conv2(functional.relu(block.norm2(block.conv1(active))))
        return out + (x if block.shortcut is None else block.shortcut(active))
