from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.task import Task
from tuneparts.methods.ensembles._hne import Tree, cut
from tuneparts.methods.ensembles.config import Hne
from tuneparts.nets import Mlp, MsdNet, WideResNet
from tuneparts.nets.sizes import count_flops, count_parameters

Start = Callable[..., Any]
WRN = {"name": "wide_resnet", "depth": 10, "width": 0.5}


def tree(levels: int, flops: list[int] | None = None) -> Tree:
    blocks = [[nn.Linear(4, 4) for _ in range(2**b)] for b in range(levels + 1)]
    return Tree(blocks, flops or [32] * (levels + 1))


@pytest.mark.parametrize("levels", range(1, 6))
def test_operations_follow_the_formula(levels: int) -> None:
    """Ruiz & Verbeek (2021): (2^(B+1) - 1) C for all, (B + 1) 2^B C for independent members."""
    model, cost = tree(levels), 32
    added = model.flops
    assert sum(added) == (2 ** (levels + 1) - 1) * cost
    independent = (levels + 1) * model.num_members * cost
    assert independent / sum(added) == pytest.approx((levels + 1) / (2 - 2**-levels))
    assert added[0] == (levels + 1) * cost


@pytest.mark.parametrize("num", range(1, 9))
def test_operations_of_the_first_members_are_those_that_are_run(num: int) -> None:
    model = tree(3)
    x = torch.randn(1, 4)
    with FlopCounterMode(display=False) as counter:
        logits = model.first(x, num)
    assert counter.get_total_flops() == sum(model.flops[:num])
    torch.testing.assert_close(logits, model(x)[:num])
    # By hand: the blocks on the paths of the first members, each once.
    paths = {(b, member >> (3 - b)) for member in range(num) for b in range(4)}
    assert sum(model.flops[:num]) == 32 * len(paths)


def test_blocks_of_unequal_cost_count_with_their_own() -> None:
    assert tree(2, [100, 10, 1]).flops == [111, 1, 11, 1]


def slow_loss(logits_MBK: Tensor, y_B: Tensor, alpha: float) -> float:
    """The published loss by loops over members, examples and classes, in float64."""
    members, classes = logits_MBK.double().tolist(), range(logits_MBK.shape[2])
    num, examples = len(members), range(len(y_B))

    def softmax(row: list[float]) -> list[float]:
        powers = [torch.tensor(v, dtype=torch.float64).exp().item() for v in row]
        return [p / sum(powers) for p in powers]

    def mean_of(first: int, i: int) -> list[float]:
        return [sum(members[n][i][k] for n in range(first)) / first for k in classes]

    def log(value: float) -> float:
        return torch.tensor(value, dtype=torch.float64).log().item()

    total = 0.0
    for i in examples:
        for n in range(num):
            total -= (1 - alpha) * log(softmax(members[n][i])[int(y_B[i])])
        taught, first = softmax(mean_of(num, i)), 1
        while first < num:
            student = softmax(mean_of(first, i))
            total -= alpha * sum(t * log(s) for t, s in zip(taught, student, strict=True))
            first *= 2
    return total / len(examples)


@pytest.mark.parametrize(("levels", "alpha"), [(1, 0.5), (2, 0.3), (2, 0.0)])
def test_the_loss_is_the_published_one(start: Start, levels: int, alpha: float) -> None:
    learner = start(Hne, net={"name": "mlp", "widths": [8, 8]}, levels=levels, alpha=alpha)
    learner.model.double()
    x, y = learner.next_batch()
    with torch.no_grad():
        found = learner.objective(learner.losses(x.double(), y)).item()
        expected = slow_loss(learner.model(x.double()), y, alpha)
    assert found == pytest.approx(expected, rel=1e-12)


def test_the_full_ensemble_is_not_moved_by_what_it_teaches(start: Start) -> None:
    learner = start(Hne, net="mlp", levels=1)
    x, y = learner.next_batch()
    terms = learner.losses(x, y)
    assert len(terms) == 3
    left, right = (list(block.parameters()) for block in learner.model.blocks[1])
    gradients = torch.autograd.grad(terms[-1], [*left, *right])
    assert all(gradient.any() for gradient in gradients[: len(left)])
    assert not any(gradient.any() for gradient in gradients[len(left) :])


def test_a_member_is_the_plain_net_of_its_path(start: Start, toy: Task) -> None:
    learner = start(Hne, net=WRN, levels=2)
    model = learner.model.eval()
    x = learner.next_batch()[0]
    logits = model(x)
    assert logits.shape == (4, 8, toy.num_classes)
    for member in range(4):
        torch.testing.assert_close(model.plain(member)(x), logits[member])
    single = parse(WideResNet, WRN).build(toy.in_shape, toy.num_classes)
    parameters = [count_parameters(level[0]) for level in model.blocks]
    assert sum(parameters) == count_parameters(single)
    assert count_parameters(model) == sum(2**b * size for b, size in enumerate(parameters))
    assert model.flops[0] == count_flops(single, toy.in_shape)


def test_siblings_start_differently(start: Start) -> None:
    model = start(Hne, net=WRN, levels=2).model
    for level in list(model.blocks)[1:]:
        weights = [next(p for p in block.parameters() if p.dim() > 1) for block in level]
        assert all(not torch.equal(weights[0], other) for other in weights[1:])


def test_a_prediction_may_stop_after_any_member(start: Start) -> None:
    learner = start(Hne, levels=2)
    learner.advance()
    row = learner.advance()
    names = ["0", "0_1", "0_1_2", "0_1_2_3"]
    assert {n for n in row if n.startswith("anytime/accuracy.")} == {
        f"anytime/accuracy.{name}" for name in names
    }
    costs = [row[f"anytime/flops.{name}"] for name in names]
    assert costs == sorted(set(costs))
    assert costs[-1] == row["size/flops"]
    assert row["anytime/nll.0_1_2_3"] == row["test/nll"]


def test_a_net_is_cut_where_blocks_cost_alike() -> None:
    net = WideResNet(depth=16, width=2).build((3, 32, 32), 10)
    starts, flops = cut(net, 3, (3, 32, 32))
    whole = count_flops(net, (3, 32, 32))
    assert starts[0] == 0
    assert sum(flops) == whole
    assert max(flops) < 0.5 * whole


def test_what_cannot_be_cut_is_refused() -> None:
    with pytest.raises(ConfigError, match="fewer levels"):
        cut(Mlp(widths=(8,)).build((8,), 3), 4, (8,))
    with pytest.raises(ConfigError, match=r"an nn\.Sequential, but"):
        cut(MsdNet(exits=1).build((3, 8, 8), 3), 2, (3, 8, 8))
