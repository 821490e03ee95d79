"""Who is asked for what: sampling, work by chunk, and where the budget cuts."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneparts.methods.federated._client import Assignment, Schedule, sampled


def schedule(**changes) -> Schedule:
    fields = {
        "chunk_of": [1, 2, 3, 1, 1, 2],
        "batches_of": [2, 2, 2, 3, 1, 2],
        "filled": [1, 2, 3],
        "num_asked": 6,
        "epochs": 1,
        "hyper_batches": None,
        "seed": 0,
    }
    return Schedule(**{**fields, **changes})


def test_a_client_of_chunk_k_trains_partitions_k_to_c_and_judges_if_k_is_above_one():
    assignments = {
        assignment.client: assignment for assignment in schedule().assignments(0, limit=1000)
    }
    assert assignments[0] == Assignment(0, 0, 1, {1: 2, 2: 2, 3: 2}, 0)
    assert assignments[1] == Assignment(0, 1, 2, {2: 2, 3: 2}, 2)
    assert assignments[2] == Assignment(0, 2, 3, {3: 2}, 2)
    assert assignments[3].steps == {1: 3, 2: 3, 3: 3}


def test_epochs_and_hyper_batches_change_the_work():
    (assignment,) = [o for o in schedule(epochs=2).assignments(0, 1000) if o.client == 1]
    assert assignment.steps == {2: 4, 3: 4}
    assert assignment.hyper_batches == 2
    for most, expected in ((1, 1), (5, 2), (0, 0)):
        (assignment,) = [
            o for o in schedule(hyper_batches=most).assignments(0, 1000) if o.client == 1
        ]
        assert assignment.hyper_batches == expected


def test_an_empty_partition_is_not_trained():
    (assignment,) = [o for o in schedule(filled=[1]).assignments(0, 1000) if o.client == 1]
    assert assignment.steps == {}
    assert assignment.total == 2


@given(limit=st.integers(1, 40))
def test_a_cut_round_spends_exactly_what_is_left(limit):
    whole = schedule().assignments(0, 1000)
    cut = schedule().assignments(0, limit)
    assert sum(o.total for o in cut) == min(limit, sum(o.total for o in whole))
    assert [o.client for o in cut] == [o.client for o in whole][: len(cut)]
    assert cut[:-1] == whole[: len(cut) - 1]
    assert cut[-1].total > 0
    assert all(steps > 0 for o in cut for steps in o.steps.values())


def test_sampling_is_without_replacement_uniform_and_new_each_round():
    rounds = [sampled(8, 3, seed=1, number=number) for number in range(800)]
    assert all(len(set(chosen)) == 3 and chosen == sorted(chosen) for chosen in rounds)
    counts = Counter(client for chosen in rounds for client in chosen)
    assert set(counts) == set(range(8))
    # 300 expected each, with a standard deviation of about 14
    assert all(abs(count - 300) < 4 * 14 for count in counts.values())
    assert rounds[0] == sampled(8, 3, seed=1, number=0)
    assert rounds != [sampled(8, 3, seed=2, number=number) for number in range(800)]


@pytest.mark.parametrize("method", ["federated", "fedavg"])
def test_all_methods_ask_the_same_clients(start, method):
    learner = start(method, seed=3)
    for number in range(5):
        asked = [assignment.client for assignment in learner.schedule.assignments(number, 10**6)]
        assert asked == sampled(10, 5, seed=3, number=number)
