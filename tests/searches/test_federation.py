"""The arms of a federated comparison ask the same clients for the same rounds."""

import pytest

from tuneparts import Scale
from tuneparts.data.chunks import Chunks
from tuneparts.methods.federated._client import Schedule
from tuneparts.search.load import load

NAMES = ("federated_mnist", "federated_cifar")
SHARED = ("net", "batch_size", "optimiser", "clients", "clients_per_round", "server", "rounds")


@pytest.mark.parametrize("scale", list(Scale))
@pytest.mark.parametrize("name", NAMES)
def test_arms_differ_in_hypers_and_division_only(name: str, scale: Scale) -> None:
    search = load(name, scale=scale)
    assert [arm.name for arm in search.arms] == [
        "federated",
        "fedavg",
        "random",
        "oracle",
        "retrained",
    ]
    for field in (*SHARED, "rounds_per_report", "train_on"):
        assert len({str(getattr(arm.config, field)) for arm in search.arms}) == 1, field
    assert search.arm("fedavg").config.hypers.affine is None
    assert {arm.config.steps for arm in search.arms[1:]} == {search.steps}


@pytest.mark.parametrize("name", NAMES)
def test_steps_suffice_for_all_rounds_and_not_for_many_more(name: str) -> None:
    """At `cpu` scale, with real client sizes and the chunks of several seeds."""
    search = load(name, scale="cpu")
    for arm in (search.arm("federated"), search.arm("fedavg")):
        config = arm.config
        division = config.division()
        num = config.clients.num
        size = -(-search.data.num_train // num)
        for seed in search.seeds:
            chunks = Chunks(num, division.proportions, seed=seed)
            chunk_of = {int(i): k for k in range(1, len(chunks) + 1) for i in chunks.chunk(k)}
            schedule = Schedule(
                chunk_of=[chunk_of[client] for client in range(num)],
                batches_of=[-(-size // config.batch_size)] * num,
                filled=list(range(1, len(chunks) + 1)),
                num_asked=config.clients_per_round,
                epochs=config.local_epochs,
                hyper_batches=division.hyper_batches if len(chunks) > 1 else 0,
                seed=seed,
            )
            spent = sum(
                assignment.total
                for number in range(config.rounds)
                for assignment in schedule.assignments(number, 10**9)
            )
            assert 0.9 * config.steps < spent <= config.steps


@pytest.mark.parametrize("is_rotated", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_upright_data_is_the_same_search(name: str, is_rotated: bool) -> None:
    """On digits, which need no folder."""
    changes = ["data.name=digits", "data.pool=1", f"data.rotated={str(is_rotated).lower()}"]
    search = load(name, scale="smoke", changes=changes)
    task = search.data.load()
    for arm in search.arms:
        assert len(arm.config.clients.deal(task.train)) == arm.config.clients.num
