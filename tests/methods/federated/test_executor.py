"""Clients in turn and in tasks: the same bits, and what happens to those that fail."""

import dataclasses
import pickle
import time

import pytest
import torch

from tests.methods.federated.conftest import broadcast_of, rows_of, same
from tuneparts.core.errors import RoundError
from tuneparts.methods.federated._exchange import Dropped, Update
from tuneparts.methods.federated.learner import START_SECONDS

TASKS = {"clients_per_task": 2, "num_tasks": 2}


class Pickling:
    """Tasks in this process, through pickles as between processes."""

    def __init__(self) -> None:
        self.calls = []

    def share(self, value):
        return pickle.dumps(value)

    def run(self, function, shared, jobs, **needs):
        self.calls.append((len(jobs), needs))
        results = []
        for job in jobs:
            values = [pickle.loads(value) for value in shared]
            results.append(pickle.loads(pickle.dumps(function(*values, job))))
        return results


class Dying(Pickling):
    """The first task of each round dies."""

    def run(self, function, shared, jobs, **needs):
        rest = super().run(function, shared, jobs[1:], **needs)
        return [RuntimeError("the worker is gone"), *rest]


def in_tasks(start, runner, **fields):
    learner = start(tasks=TASKS, **fields)
    context = dataclasses.replace(learner.context, tasks=runner)
    return learner.config.build(context)


@pytest.mark.parametrize("method", ["federated", "fedavg"])
def test_tasks_give_the_bits_of_clients_in_turn(start, method):
    runner = Pickling()
    fields = {"method": method, "steps": 60, "interval": 20}
    tasks = in_tasks(start, runner, client_timeout=100.0, **fields)
    turn = start(**fields)
    assert rows_of(tasks) == rows_of(turn)
    state, expected = tasks.state_dict(), turn.state_dict()
    assert same(dict(state), dict(expected))
    num_jobs, needs = runner.calls[0]
    assert num_jobs == 3  # five clients, two to a task
    timeout = START_SECONDS + 2 * 100.0
    assert needs == {"cpus": 1, "gpus": 0, "at_once": 2, "timeout": timeout}


def test_without_a_place_for_tasks_clients_are_played_in_turn(start):
    fields = {"steps": 30, "interval": 10}
    assert rows_of(start(tasks=TASKS, **fields)) == rows_of(start(**fields))


def test_a_task_that_dies_drops_its_clients_and_the_round_goes_on(start):
    learner = in_tasks(start, Dying(), steps=10**6, rounds=3, rounds_per_report=3)
    row = learner.advance()
    assert row["federated/dropped"] == 2 * 3
    assert row["federated/clients"] == 3 * 3
    assert learner.finished


def failing(learner, broken: set[int], monkeypatch) -> None:
    work = learner.client.work

    def maybe(assignment):
        if assignment.client in broken:
            raise OSError("the radio is off")
        return work(assignment)

    monkeypatch.setattr(learner.client, "work", maybe)


def test_a_client_that_fails_is_as_if_it_had_not_answered(start, monkeypatch):
    """The server and the bill see the others only; its download and its steps are spent."""
    learner, reference = start(), start()
    assignments = learner.schedule.assignments(0, 10**6)
    broken = {assignments[0].client}
    failing(learner, broken, monkeypatch)
    spent = learner.step().cost
    assert spent == sum(assignment.total for assignment in assignments)
    monkeypatch.setattr(type(reference.schedule), "assignments", lambda *_: assignments[1:])
    reference.step()
    assert same(dict(learner.parts.state_dict()), dict(reference.parts.state_dict()))
    assert same(dict(learner.hypers.state_dict()), dict(reference.hypers.state_dict()))
    assert learner._traffic.up == reference._traffic.up
    assert learner._traffic.down * 4 == reference._traffic.down * 5
    assert learner.evaluate()["federated/dropped"] == 1


def test_a_failing_client_leaves_the_servers_values_behind(start, monkeypatch):
    """Even one that breaks in the middle of its steps."""
    learner = start(batch_size=2)
    weights = learner.server.weights()
    calls = []

    def breaks(*args, **kwargs):
        calls.append(args)
        if len(calls) % 3 == 0:
            raise ValueError("half-way")
        return take(*args, **kwargs)

    take = learner.train_data.take
    monkeypatch.setattr(learner.train_data, "take", breaks)
    with pytest.raises(RoundError, match="half-way"):
        learner.step()
    assert len(calls) > 3
    assert same(learner.server.weights(), weights)
    state = learner.parts.view(3).tensors
    monkeypatch.undo()
    assert all(map(torch.equal, state.values(), start(batch_size=2).parts.view(3).tensors.values()))


def test_too_few_answers_end_the_run_with_the_reason(start, monkeypatch):
    learner = start(min_clients=4)
    clients = [assignment.client for assignment in learner.schedule.assignments(0, 10**6)]
    failing(learner, set(clients[:2]), monkeypatch)
    with pytest.raises(
        RoundError,
        match=r"answers of 4 clients, but in round 0 3 of 5 .* radio is off.*min_clients",
    ):
        learner.step()
    enough = start(min_clients=3)
    failing(enough, set(clients[:2]), monkeypatch)
    enough.step()


def test_a_late_client_is_dropped(start, monkeypatch):
    learner = start()
    broadcast = broadcast_of(learner)
    assignments = learner.schedule.assignments(0, 10**6)
    clock = iter([0.0, 1.0, 10.0, 15.0, 20.0, 20.5, 30.0, 31.0, 40.0, 41.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    answers = learner.client.play(broadcast, assignments, timeout=2.0)
    assert [type(answer) for answer in answers] == [Update, Dropped, Update, Update, Update]
    assert answers[1] == Dropped(assignments[1].client, "late: 5.0 s, allowed 2 s")
