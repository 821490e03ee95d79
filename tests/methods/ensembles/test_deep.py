import torch

from tuneparts.data.task import Task
from tuneparts.methods.baselines.config import StandardConfig
from tuneparts.methods.ensembles.config import DeepEnsembleConfig
from tuneparts.methods.ensembles.deep import DeepEnsembleLearner
from tuneparts.models.sizes import count_parameters
from tuneparts.training.learner import Context

SIZES = {"passes": 6, "interval": 3, "batch_size": 16}


def learner(toy: Task, **changes: object) -> DeepEnsembleLearner:
    config = DeepEnsembleConfig().replaced({**SIZES, **changes})
    return DeepEnsembleLearner(config, Context(toy, 0, torch.device("cpu")))


def test_each_member_trains_as_if_it_were_alone(toy: Task) -> None:
    both = learner(toy, members=("digits_cnn", "digits_cnn"))
    alone = StandardConfig().replaced({**SIZES, "net": "digits_cnn"})
    for member in range(2):
        single = alone.build(Context(toy, 0, torch.device("cpu")))
        single.net.load_state_dict(both.model.nets[member].state_dict())
        trained = learner(toy, members=("digits_cnn", "digits_cnn"))
        while not trained.finished:
            trained.advance()
            single.advance()
        for ours, theirs in zip(
            trained.model.nets[member].parameters(), single.net.parameters(), strict=True
        ):
            torch.testing.assert_close(ours, theirs)


def test_members_start_differently(toy: Task) -> None:
    nets = learner(toy).model.nets
    assert not torch.equal(nets[0].conv1.weight, nets[1].conv1.weight)


def test_a_parameter_budget_makes_a_thin_ensemble(toy: Task) -> None:
    thin = learner(toy, parameter_budget=13_000)
    assert 11_000 < count_parameters(thin.model) <= 13_000
    assert len(thin.model.nets) == 4


def test_the_last_report_has_every_operating_point(toy: Task) -> None:
    run = learner(toy, members=("digits_cnn", "mlp"), interpolation_points=0)
    rows = [run.advance() for _ in range(2)]
    assert not [name for name in rows[0] if name.startswith("anytime/")]
    points = {name for name in rows[1] if name.startswith("anytime/accuracy.")}
    assert points == {f"anytime/accuracy.{name}" for name in ("0", "1", "0_1")}
    assert rows[1]["anytime/accuracy.0_1"] == rows[1]["test/accuracy"]
    assert rows[1]["anytime/flops.0_1"] == rows[1]["size/flops"]


def test_members_with_batches_of_their_own_train_as_if_they_were_alone(toy: Task) -> None:
    pair = {"members": ("digits_cnn", "digits_cnn"), "batches": "own"}
    both, again = learner(toy, **pair), learner(toy, **pair)
    orders = [stream.next() for stream in again._own.values()]
    assert not torch.equal(*orders)
    both.advance()
    again = learner(toy, **pair)
    again.load_state_dict(both.state_dict())
    for one in (both, again):
        one.advance()
    for ours, theirs in zip(both.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    # Each order is that of a stream by the member's number: another member changes nothing.
    alone = learner(toy, members=("digits_cnn",), batches="own")
    while not alone.finished:
        alone.advance()
    while not both.finished:
        both.advance()
    for ours, theirs in zip(
        both.model.nets[0].parameters(), alone.model.nets[0].parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
