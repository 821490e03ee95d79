from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from tuneparts.data.task import Task
from tuneparts.methods.ensembles.config import Mimo

Start = Callable[..., Any]


def test_the_same_image_goes_to_every_input(start: Start, toy: Task) -> None:
    model = start(Mimo).model.eval()
    x = torch.randn(5, *toy.in_shape, generator=torch.Generator().manual_seed(0))
    logits = model(x)
    assert logits.shape == (3, 5, toy.num_classes)
    joint = model.net(torch.cat([x, x, x], dim=1))
    for m in range(3):
        columns = slice(m * toy.num_classes, (m + 1) * toy.num_classes)
        assert torch.equal(logits[m], joint[:, columns])


def test_each_head_is_scored_on_its_own_input(start: Start) -> None:
    run = start(Mimo, num_members=2, batch_repetitions=2)
    x, y = run.next_batch()
    state = run._orders.get_state()
    losses = run.losses(x, y)
    again = torch.Generator()
    again.set_state(state)
    index = torch.arange(8).repeat(2)
    orders = [index[torch.randperm(16, generator=again)] for _ in range(2)]
    joint = run.model.net(torch.cat([x[orders[0]], x[orders[1]]], dim=1)).view(16, 2, -1)
    for m in range(2):
        torch.testing.assert_close(losses[m], F.cross_entropy(joint[:, m], y[orders[m]]))
    assert not torch.equal(orders[0], orders[1])


def test_repetitions_keep_every_example(start: Start) -> None:
    run = start(Mimo, num_members=1, batch_repetitions=3)
    x, y = run.next_batch()
    run.model.eval()
    torch.testing.assert_close(run.losses(x, y)[0], F.cross_entropy(run.model(x)[0], y))


def test_one_cost_for_all_members_and_one_point(start: Start) -> None:
    run = start(Mimo)
    while not run.finished:
        row = run.advance()
    assert len(run.model.flops) == 1
    points = [name for name in row if name.startswith("anytime/accuracy.")]
    assert points == ["anytime/accuracy.0_1_2"]
    assert row["anytime/accuracy.0_1_2"] == row["test/accuracy"]
    assert row["anytime/flops.0_1_2"] == row["size/flops"]
