import numpy as np

from tuneparts.methods.superweights import _ties
from tuneparts.methods.superweights._allocation import SharingPlan, make_plan
from tuneparts.methods.superweights._clusters import Layer


def plan_of(*members: int, labels: list[int] | None = None) -> SharingPlan:
    """Linear layers of sizes 2, 3, 2, 3, ... for members as given."""
    layers = [Layer(m, f"l{i}", "linear", 2 + i % 2, 2, ()) for i, m in enumerate(members)]
    return make_plan(layers, labels or [0] * len(layers), budget=1000)


def test_private_and_shared_are_the_extremes() -> None:
    plan = plan_of(0, 0, 1, 1)
    # Slot 0 is used by all four layers, slot 1 by the two larger ones.
    assert _ties.private(plan) == [[0, 1, 2, 3], [0, 1]]
    assert _ties.shared(plan) == [[0, 0, 0, 0], [0, 0]]


def test_partners_share_the_slots_that_both_use() -> None:
    plan = plan_of(0, 0, 1, 1)
    users = plan.clusters[0].users(0)
    assert users == (0, 2, 1, 3)
    # The larger layer 3 is tied to the smaller layer 0: in slot 0 only.
    assert _ties.mapped(plan, {2: 0, 3: 0}) == [[0, 0, 1, 0], [0, 1]]
    assert _ties.mapped(plan, {3: 1}) == [[0, 1, 2, 2], [0, 0]]


def test_partners_in_other_clusters_do_not_count() -> None:
    plan = plan_of(0, 0, 1, 1, labels=[0, 0, 1, 1])
    assert _ties.mapped(plan, {2: 0, 3: 1}) == _ties.private(plan)


def test_splitting_separates_within_tied_sets_only() -> None:
    similar = np.full((4, 4), 0.95)
    similar[0, 1] = similar[1, 0] = similar[0, 2] = similar[2, 0] = -0.5
    similar[0, 3] = similar[3, 0] = -0.5
    new, origins = _ties.split([[0, 0, 1, 1]], [similar], 0.9)
    assert new == [[0, 1, 2, 2]]
    assert origins == [[0, 0, 1]]


def test_splitting_refines_at_any_threshold() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        rows = _ties.numbered(rng.integers(0, 3, 6).tolist())
        matrix = rng.uniform(-1, 1, (6, 6))
        (new,), (origin,) = _ties.split([rows], [(matrix + matrix.T) / 2], rng.uniform(-1, 1))
        assert [origin[row] for row in new] == rows
        assert sorted(set(new)) == list(range(len(origin)))


def test_a_layer_is_tied_to_the_most_similar_layer_of_the_first_member() -> None:
    plan = plan_of(0, 0, 0, 1)
    similar = np.array(
        [[1, 0, 0, 0.1], [0, 1, 0, 0.7], [0, 0, 1, 0.4], [0.1, 0.7, 0.4, 1]], dtype=float
    )
    assert _ties.partners_by_similarity(plan, [0] * 4, {0: similar}) == {3: 1}
    similar[3, 1] = float("nan")
    assert _ties.partners_by_similarity(plan, [0] * 4, {0: similar}) == {3: 2}


def test_only_layers_that_ended_in_the_same_cluster_can_lead() -> None:
    plan = plan_of(0, 0, 1, 1, labels=[0, 1, 0, 2])
    similar = np.full((4, 4), 0.5)
    similar[2, 1] = 0.9
    assert _ties.partners_by_similarity(plan, [0] * 4, {0: similar}) == {2: 0}


def test_without_gradients_the_place_decides() -> None:
    assert _ties.partners_by_place(plan_of(0, 0, 1, 1)) == {2: 0, 3: 1}
    # Four layers of the first member, two of the second: at a quarter and at three quarters.
    assert _ties.partners_by_place(plan_of(0, 0, 0, 0, 1, 1)) == {4: 1, 5: 3}
