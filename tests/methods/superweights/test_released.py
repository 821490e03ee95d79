"""The rules of the authors' code, against a slow copy of what it does with names and a queue."""

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from tuneparts.data.task import Task
from tuneparts.methods.superweights import _clusters, _ties
from tuneparts.methods.superweights import _similarity as similarity
from tuneparts.methods.superweights._allocation import make_plan
from tuneparts.methods.superweights._clusters import Layer
from tuneparts.methods.superweights._learner import SuperweightsLearner
from tuneparts.methods.superweights._similarity import numbered, relabelled, split
from tuneparts.methods.superweights.config import SuperWeights
from tuneparts.training.learner import Context


def symmetric(num: int, seed: int) -> np.ndarray:
    matrix = np.random.default_rng(seed).uniform(-1, 1, (num, num))
    return np.triu(matrix) + np.triu(matrix, 1).T


def walked(similarity: np.ndarray, threshold: float) -> list[int]:
    """Layers in the order of the backward pass, both directions of each pair in one queue."""
    names = [f"layer_{i}" for i in reversed(range(len(similarity)))]
    groups = {name: number for number, name in enumerate(names)}
    queue = [
        (similarity[int(one[6:]), int(other[6:])], one, other)
        for one in names
        for other in names
        if one != other
    ]
    queue.sort(key=lambda entry: entry[0])
    while queue:
        value, one, other = queue.pop()
        if value <= threshold:
            break
        groups[other] = groups[one]
    return numbered([groups[f"layer_{i}"] for i in range(len(similarity))])


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("threshold", [-0.5, 0.1, 0.6])
def test_relabelling_is_the_walk_of_the_released_code(seed: int, threshold: float) -> None:
    similarity = symmetric(7, seed)
    assert relabelled(similarity, threshold) == walked(similarity, threshold)


def test_nan_and_the_threshold_itself_are_not_similar() -> None:
    similarity = np.array([[1.0, np.nan, 0.1], [np.nan, 1.0, 0.1], [0.1, 0.1, 1.0]])
    assert relabelled(similarity, 0.1) == [0, 1, 2]


def layer(member: int) -> Layer:
    return Layer(member, "x", "linear", 2, 2, ())


def followed(
    layers: list[Layer], bins: list[int], similarities: dict[int, np.ndarray], depths: list[int]
) -> dict[int, int]:
    """The loops of the released code: depths from the deepest, members of each, bins, layers."""
    places = {
        (member, label): [
            p for p, x in enumerate(layers) if x.member == member and bins[p] == label
        ]
        for member in range(len(depths))
        for label in set(bins)
    }
    within = {
        p: number
        for label in set(bins)
        for number, p in enumerate(q for q in range(len(bins)) if bins[q] == label)
    }
    found: dict[int, int] = {}
    large = 0
    for depth in sorted(set(depths), reverse=True):
        joined = depth == depths[0]
        for member in range(1, len(depths)):
            if depths[member] != depth:
                continue
            for label in set(bins):
                for number, p in enumerate(places[member, label]):
                    if joined:
                        found[p] = places[large, label][number]
                        continue
                    largest = None
                    for other in places[0, label]:
                        value = similarities[label][within[p], within[other]]
                        if largest is None or largest[0] < value:
                            largest = (value, other)
                    found[p] = largest[1]
            if not joined:
                joined, large = True, member
    return found


@pytest.mark.parametrize("seed", range(10))
def test_members_follow_as_in_the_released_code(seed: int) -> None:
    depths = [6, 6, 4, 4, 2]
    layers = [layer(member) for member, depth in enumerate(depths) for _ in range(depth)]
    bins = [2 * i // depth for depth in depths for i in range(depth)]
    similarities = {label: symmetric(bins.count(label), seed + label) for label in (0, 1)}
    leaders = _clusters.released_leaders(layers, bins, similarities)
    assert leaders == followed(layers, bins, similarities, depths)
    labels = split(bins, similarities, 0.1, following=leaders, grouping=relabelled)
    assert all(labels[p] == labels[leader] for p, leader in leaders.items())
    for label in (0, 1):
        own = [p for p in range(6) if bins[p] == label]
        first = [i for i, p in enumerate(p for p in range(len(bins)) if bins[p] == label) if p < 6]
        expected = walked(similarities[label][np.ix_(first, first)], 0.1)
        assert numbered([labels[p] for p in own]) == expected
    assert not set(labels[:3]) & set(labels[3:6])


def test_a_bin_without_the_first_member_is_split_by_the_next() -> None:
    layers = [layer(0), layer(1), layer(1)]
    similarities = {0: np.ones((1, 1)), 1: np.array([[1.0, -0.5], [-0.5, 1.0]])}
    assert _clusters.released_leaders(layers, [0, 1, 1], similarities) == {}
    assert split([0, 1, 1], similarities, 0.1, grouping=relabelled) == [0, 1, 2]


def test_coefficients_are_tied_along_the_chain_of_leaders() -> None:
    layers = [layer(member) for member in range(3)]
    plan = make_plan(layers, [0, 0, 0], budget=8)
    assert _ties.mapped(plan, {1: 0, 2: 1}) == [[0, 0, 0]]
    assert _ties.mapped(plan, {2: 1}) == [[0, 1, 1]]


def test_a_run_follows_the_released_rules_from_one_batch(
    toy: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes: dict[str, Any] = {
        "steps": 14,
        "interval": 14,
        "batch_size": 16,
        "members": ({"name": "wide_resnet", "depth": 10},) * 2,
        "sharing.scope": "released",
        "stages.analysis": 0.2,
        "allocation.relative": 3.0,
    }
    config = SuperWeights().replaced(changes)
    assert config.timetable.compare_layers == config.timetable.search + 1
    assert config.timetable.compare_uses - config.timetable.train == 3
    run = SuperweightsLearner(config, Context(toy, 0, torch.device("cpu")))
    spied = Mock(side_effect=similarity.split)
    monkeypatch.setattr(similarity, "split", spied)
    row = run.advance()
    assert run.finished
    assert "superweights/split_half" not in row
    call = [one for one in spied.call_args_list if "following" in one.kwargs][-1]
    layers, (bins, similarities, tau) = run.model.bank.plan.layers, call.args
    assert call.kwargs["following"] == _clusters.released_leaders(layers, bins, similarities)
    labels = split(*call.args, following=call.kwargs["following"], grouping=relabelled)
    assert run.model.bank.plan.labels == tuple(labels)
    num = len(layers) // 2
    assert labels[:num] == labels[num:]  # the second member follows the first
    assert tau == row["superweights/tau"]
    assert set(similarities) == set(bins) == set(_clusters.depth_bins(layers, 4))
