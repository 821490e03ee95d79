from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tuneparts.methods.ensembles.config import MsdNetEnsemble

Start = Callable[..., Any]
SIZES = {"exits": 3, "base": 1, "step": 1, "channels": 4, "growth": 2, "exit_channels": 8}


def test_the_loss_is_the_sum_over_exits(start: Start) -> None:
    learner = start(MsdNetEnsemble, sizes=SIZES)
    learner.model.double()
    x, y = learner.next_batch()
    exits = learner.model.net.exits(x.double())
    expected = sum(-logits.log_softmax(1)[range(8), y].mean() for logits in exits)
    torch.testing.assert_close(learner.objective(learner.losses(x.double(), y)), expected)


def test_every_exit_has_its_score_and_the_last_one_counts(start: Start) -> None:
    learner = start(MsdNetEnsemble, sizes=SIZES)
    learner.advance()
    row = learner.advance()
    names = {name for name in row if name.startswith("anytime/accuracy.")}
    assert names == {f"anytime/accuracy.{exit_}" for exit_ in range(3)}
    assert row["anytime/accuracy.2"] == row["test/accuracy"]
    assert row["anytime/nll.2"] == row["test/nll"]
    assert row["anytime/val_nll.2"] == row["val/nll"]
    costs = [row[f"anytime/flops.{exit_}"] for exit_ in range(3)]
    assert costs == sorted(set(costs))
    assert costs[-1] == row["size/flops"]
    learner.model.eval()
    data = learner._test
    with torch.no_grad():
        parts = [(next(learner.model.net.exits(x)), y) for x, y in data.iterate(16)]
    nll = F.cross_entropy(torch.cat([p for p, _ in parts]), torch.cat([y for _, y in parts]))
    assert row["anytime/nll.0"] == pytest.approx(float(nll), rel=1e-5)


def test_an_earlier_exit_does_not_need_what_comes_after_it(start: Start) -> None:
    learner = start(MsdNetEnsemble, sizes=SIZES)
    net = learner.model.net
    x, y = learner.next_batch()
    loss = F.cross_entropy(next(net.exits(x)), y)
    reached = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
    names = {n for (n, _), g in zip(net.named_parameters(), reached, strict=True) if g is not None}
    assert not any(name.startswith(("blocks.1", "blocks.2", "classifiers.1")) for name in names)
    assert any(name.startswith("classifiers.0") for name in names)
