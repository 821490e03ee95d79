from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core.config import parse
from tuneparts.core.errors import ConfigError
from tuneparts.data.task import Task
from tuneparts.methods.superweights._learner import SuperweightsLearner
from tuneparts.methods.superweights.config import SuperWeights, _SharingStage
from tuneparts.training import checkpoint
from tuneparts.training.learner import Context

BASE: dict[str, Any] = {
    "steps": 16,
    "interval": 1,
    "batch_size": 16,
    "members": ("digits_cnn", {"name": "digits_cnn", "channels": (12, 20)}),
    "stages.search": 0.2,
    "stages.analysis": 0.12,
    "stages.untie": 0.2,
    "optimiser.weight_decay": 0.01,
}
WRN = {"members": ({"name": "wide_resnet", "depth": 16}, {"name": "wide_resnet", "depth": 10})}


def learner(toy: Task, seed: int = 0, **changes: Any) -> SuperweightsLearner:
    config = SuperWeights().replaced({**BASE, **changes})
    return SuperweightsLearner(config, Context(toy, seed, torch.device("cpu")))


def ran(run: SuperweightsLearner, until: int | None = None) -> list[dict[str, float]]:
    rows = []
    while not run.finished and run.steps != until:
        rows.append(run.advance())
    return rows


def test_all_stages_take_place(toy: Task) -> None:
    run = learner(toy)
    stages = []
    while not run.finished:
        stages.append(run.stage)
        run.advance()
    assert list(dict.fromkeys(stages)) == list(_SharingStage)


KINDS = ("sgd", "adam")


@pytest.fixture(scope="module")
def uninterrupted(toy: Task) -> dict[str, tuple[list[dict[str, float]], bytes]]:
    found = {}
    for kind in KINDS:
        whole = learner(toy, **{"optimiser.kind": kind})
        found[kind] = ran(whole), checkpoint.to_bytes(whole.state_dict())
    return found


def stops() -> list[int]:
    """Inside every stage, and at each boundary between two."""
    times = SuperWeights().replaced(BASE).timetable
    ends = (0, times.search, times.compare_layers, times.train, times.compare_uses)
    assert all(b - a > 1 for a, b in pairwise((*ends, times.finish)))
    return sorted({*ends[1:], *(end + 1 for end in ends)})


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stop", stops())
def test_resume_is_exact_in_every_stage(uninterrupted, toy: Task, kind: str, stop: int) -> None:
    rows, final = uninterrupted[kind]
    stopped = learner(toy, **{"optimiser.kind": kind})
    ran(stopped, until=stop)
    content = checkpoint.to_bytes(stopped.state_dict())
    resumed = learner(toy, **{"optimiser.kind": kind})
    resumed.load_state_dict(checkpoint.from_bytes(content))
    assert ran(resumed) == rows[stop:]
    assert checkpoint.to_bytes(resumed.state_dict()) == final


def parameters_of(run: SuperweightsLearner) -> list[int]:
    return sorted(id(p) for p in run.model.parameters())


def test_every_parameter_is_optimised_once_in_every_stage(toy: Task) -> None:
    run = learner(toy)
    while not run.finished:
        run.advance()
        groups = run.optimiser.param_groups
        assert sorted(id(p) for g in groups for p in g["params"]) == parameters_of(run)
        plain = {id(p) for g in groups if g["weight_decay"] == 0 for p in g["params"]}
        assert plain == {id(p) for p in run.model.bank.coefficients_RK}


def test_untying_keeps_the_function_and_the_momentum(toy: Task) -> None:
    changes = {"sharing.coefficients": "shared", "sharing.tau": -2.0, "sharing.beta": 0.999}
    run = learner(toy, **changes, **{"optimiser.kind": "sgd", "allocation.relative": 4.0})
    ran(run, until=run.timetable.compare_uses - 1)
    x = run._test.take(torch.arange(16))[0]
    run.model.eval()
    before, tied = run.model(x), run.model.bank.num_vectors
    old = [
        run.optimiser.state[p]["momentum_buffer"].clone() for p in run.model.bank.coefficients_RK
    ]
    old_ties = run.model.bank.ties
    run.model.train()
    run.advance()
    run.model.eval()
    torch.testing.assert_close(run.model(x), before)
    assert run.model.bank.num_vectors > tied
    for slot, alpha in enumerate(run.model.bank.coefficients_RK):
        moved = run.optimiser.state[alpha]["momentum_buffer"]
        for user, row in enumerate(run.model.bank.ties[slot]):
            assert torch.equal(moved[row], old[slot][old_ties[slot][user]])
    # Copies drift apart once they are trained.
    run.model.train()
    ran(run)
    for slot, rows in enumerate(run.model.bank.ties):
        alpha = run.model.bank.coefficients_RK[slot]
        assert len(alpha.unique(dim=0)) == max(rows) + 1


def test_training_starts_from_weights_that_the_search_never_saw(toy: Task) -> None:
    runs = [learner(toy, **{"optimiser.lr": lr, "sharing.tau": -2.0}) for lr in (1e-3, 1e-2)]
    for run in runs:
        ran(run, until=run.timetable.compare_layers)
    ours, theirs = (run.model.bank.templates_KD for run in runs)
    for a, b in zip(ours, theirs, strict=True):
        assert torch.equal(a, b)


def test_a_higher_tau_makes_more_clusters_and_a_low_one_none(toy: Task) -> None:
    runs = {tau: learner(toy, **WRN, **{"sharing.tau": tau}) for tau in (-2.0, 0.1, 0.6)}
    found = {}
    for tau, run in runs.items():
        ran(run, until=run.timetable.compare_layers)
        found[tau] = len(run.model.bank.plan.clusters)
        assert run.model.bank.plan.num_weights <= run.budget
    assert found[-2.0] == len(set(runs[0.1]._bins))
    assert found[-2.0] <= found[0.1] <= found[0.6]
    assert found[-2.0] < found[0.6]


def test_random_clusters_have_the_sizes_of_learnt_ones(toy: Task) -> None:
    changes = {**WRN, "sharing.tau": 0.3, "allocation.relative": 4.0}
    sizes = {}
    for kind in ("gradient", "random"):
        run = learner(toy, **changes, **{"sharing.clusters": kind})
        ran(run, until=run.timetable.compare_layers)
        labels = run.model.bank.plan.labels
        sizes[kind] = sorted(labels.count(label) for label in set(labels)), labels
    assert sizes["gradient"][0] == sizes["random"][0]
    assert sizes["gradient"][1] != sizes["random"][1]


def test_tau_is_lowered_until_the_budget_fits(toy: Task) -> None:
    run = learner(toy, **WRN, **{"sharing.tau": 1.0, "allocation.relative": 0.6})
    row = ran(run)[-1]
    assert row["superweights/tau"] < 1.0
    assert row["size/templates"] <= run.budget


def test_norms_of_the_look_matter(toy: Task) -> None:
    found = set()
    for norms in ("eval", "train"):
        run = learner(toy, **WRN, **{"stages.norms": norms, "steps": 8})
        found.add(ran(run)[-1]["superweights/similarity"])
    assert len(found) == 2


@pytest.mark.parametrize("scope", ["all", "reference"])
def test_clusters_stay_within_their_bins(toy: Task, scope: str) -> None:
    run = learner(toy, **WRN, **{"sharing.scope": scope})
    ran(run, until=run.timetable.compare_layers)
    labels = run.model.bank.plan.labels
    assert len(set(zip(labels, run._bins, strict=True))) == len(set(labels))
    if scope == "reference":
        layers = run.model.bank.plan.layers
        followed = {k for x, k in zip(layers, labels, strict=True) if x.member == 1}
        assert followed <= {k for x, k in zip(layers, labels, strict=True) if x.member == 0}


def test_a_small_budget_is_refused_or_merges_clusters(toy: Task) -> None:
    small = {**WRN, "allocation.relative": 0.25}
    with pytest.raises(ConfigError, match="one template for each"):
        learner(toy, **small)
    merged = learner(toy, **small, **{"allocation.when_short": "merge"})
    assert merged.model.bank.plan.num_weights <= merged.budget


def test_stages_must_leave_time_to_train() -> None:
    with pytest.raises(ConfigError, match="must leave it a step"):
        SuperWeights().replaced({"steps": 4})
    with pytest.raises(ConfigError, match="at least 1 item"):
        parse(SuperWeights, {"members": ()})


def test_an_absolute_budget_counts_and_the_chain_matters(toy: Task) -> None:
    # Of widths 2 and 1.75, shapes are not nested: growing takes more than one envelope.
    members = [{"name": "wide_resnet", "depth": 10, "width": width} for width in (2, 1.75)]
    sizes = []
    for chain in ("growth", "envelope"):
        changes = {"allocation.chain": chain, "allocation.budget": 300_000}
        plan = learner(toy, members=members, **changes).model.bank.plan
        assert 150_000 < plan.num_weights <= 300_000
        sizes.append(sum(size for cluster in plan.clusters for size in cluster.chain.sizes))
    assert sizes[0] > sizes[1]


def test_stages_follow_each_other() -> None:
    times = SuperWeights(steps=200).timetable
    stages = [times.at(steps) for steps in range(200)]
    counts = [stages.count(stage) for stage in _SharingStage]
    assert counts == [20, 2, 10, 2, 166]
    assert stages == sorted(stages, key=list(_SharingStage).index)


@pytest.mark.parametrize(("learns", "unties"), [(True, False), (False, True), (False, False)])
def test_stages_that_do_not_take_place_have_no_steps(learns: bool, unties: bool) -> None:
    sharing = {"sharing.clusters": "gradient" if learns else "depth"}
    sharing |= {} if unties else {"sharing.beta": None}
    times = SuperWeights().replaced({"steps": 100, **sharing}).timetable
    seen = {times.at(steps) for steps in range(100)}
    learning = {_SharingStage.SEARCH, _SharingStage.COMPARE_LAYERS} if learns else set()
    untying = {_SharingStage.TRAIN, _SharingStage.COMPARE_USES} if unties else set()
    assert seen == {*learning, *untying, _SharingStage.FINISH}


@settings(max_examples=30, deadline=None)
@given(st.integers(5, 1000))
def test_the_schedule_starts_again_with_the_weights(steps: int) -> None:
    times = SuperWeights(steps=steps).timetable
    assert times.progress(0) == times.progress(times.compare_layers) == 0
    assert times.progress(steps) == 1


def test_members_interpolate_and_coefficients_stay_tied_without_beta(toy: Task) -> None:
    changes = {"sharing.clusters": "depth", "sharing.coefficients": "shared", "sharing.beta": None}
    run = learner(toy, members=["digits_cnn"] * 2, interpolation_points=3, **changes)
    assert run.timetable.train == run.timetable.compare_uses
    last, plan = ran(run)[-1], run.model.bank.plan
    assert last["superweights/vectors"] == len(plan.slots)
    # Without norms the ends of the line are the members themselves.
    assert last["interpolation/accuracy.0"] == last["anytime/accuracy.0"]
    assert last["interpolation/accuracy.2"] == last["anytime/accuracy.1"]
    found = [last[f"superweights/cluster.{m}_{k}"] for m in range(2) for k in range(3)]
    assert found == list(plan.labels)


def test_a_single_member_needs_no_untying(toy: Task) -> None:
    run = learner(toy, members=("digits_cnn",))
    assert run.timetable.train == run.timetable.compare_uses
    assert "val/disagreement" not in ran(run)[-1]
