"""Who holds which data: partitions of equal sizes, as skewed as asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuneparts.core import seeding
from tuneparts.core.errors import ConfigError
from tuneparts.data._variants import angles
from tuneparts.data.config import Data
from tuneparts.data.task import Examples
from tuneparts.methods.federated.config import ClientsConfig, _split


def examples(num: int = 200, num_classes: int = 10, degrees: bool = False) -> Examples:
    rng = np.random.default_rng(0)
    return Examples(
        np.zeros((num, 1, 4, 4), np.uint8),
        rng.integers(0, num_classes, num),
        rng.uniform(-180, 180, num) if degrees else None,
    )


def largest_share(groups: np.ndarray, clients: list[np.ndarray]) -> float:
    """Mean over clients of the share of the commonest group."""
    return float(np.mean([np.bincount(groups[own]).max() / len(own) for own in clients]))


@settings(max_examples=40, deadline=None)
@given(
    num=st.integers(1, 120),
    num_groups=st.integers(1, 6),
    num_clients=st.integers(1, 12),
    alpha=st.sampled_from([1e-3, 0.1, 1.0, 100.0]),
    seed=st.integers(0, 5),
)
def test_clients_partition_the_data_in_equal_sizes(num, num_groups, num_clients, alpha, seed):
    num = max(num, num_clients)
    groups = np.random.default_rng(seed).integers(0, num_groups, num)
    generator = seeding.numpy_generator(seed, "test")
    clients = _split(groups, num_clients=num_clients, alpha=alpha, generator=generator)
    assert len(clients) == num_clients
    assert sorted(np.concatenate(clients).tolist()) == list(range(num))
    sizes = {len(own) for own in clients}
    assert max(sizes) - min(sizes) <= 1
    for own in clients:
        assert own.tolist() == sorted(own.tolist())


@pytest.mark.parametrize(
    ("fields", "bounds"),
    [
        ({"alpha": 0.1}, (0.8, 1.0)),
        ({"alpha": 1.0}, (0.3, 0.8)),
        ({"alpha": 1000.0}, (0.0, 0.3)),
        ({"alpha": 0.01, "skew": "none"}, (0.0, 0.25)),
        ({"alpha": 0.1, "skew": "rotation"}, (0.0, 0.35)),
    ],
)
def test_labels_are_as_skewed_as_asked_for(fields, bounds):
    data = examples(1000, degrees=True)
    clients = ClientsConfig(**{"num": 20, "skew": "labels"} | fields).deal(data)
    assert bounds[0] < largest_share(data.labels, clients) < bounds[1]


@pytest.mark.parametrize(
    ("num", "num_bins", "alpha", "least"), [(20, 10, 0.1, 0.8), (4, 2, 0.01, 0.9)]
)
def test_rotation_bins_are_skewed(num, num_bins, alpha, least):
    data = examples(1000, degrees=True)
    bins = np.floor((data.degrees + 180) / (360 / num_bins)).astype(int)
    clients = ClientsConfig(num=num, skew="rotation", alpha=alpha, num_bins=num_bins).deal(data)
    assert largest_share(bins, clients) > least


def test_the_mixture_of_a_client_has_the_law_of_drawing_one_by_one():
    """Frequencies of what the first client gets, against the literal recipe."""
    groups = np.repeat([0, 1, 2], [2, 5, 13])

    def literal(generator):
        mixture = generator.dirichlet(2.0 * np.array([2, 5, 13]) / 20)
        left, got = [2, 5, 13], [0, 0, 0]
        for _ in range(10):
            weights = [m if rest else 0.0 for m, rest in zip(mixture, left, strict=True)]
            group = generator.choice(3, p=np.array(weights) / sum(weights))
            left[group] -= 1
            got[group] += 1
        return got

    num = 400
    ours = []
    for seed in range(num):
        own = _split(groups, num_clients=2, alpha=2.0, generator=np.random.default_rng(seed))[0]
        ours.append(np.bincount(groups[own], minlength=3))
    theirs = [literal(np.random.default_rng(num + seed)) for seed in range(num)]
    error = np.sqrt(np.var(ours, axis=0) / num + np.var(theirs, axis=0) / num)
    assert (np.abs(np.mean(ours, axis=0) - np.mean(theirs, axis=0)) < 4 * error).all()


def test_what_clients_differ_in_follows_the_data_unless_told():
    upright, turned = examples(400), examples(400, degrees=True)
    fields = {"num": 8, "alpha": 0.2, "rotation_alpha": 5.0}
    auto, labels = ClientsConfig(**fields), ClientsConfig(skew="labels", **fields)
    rotation = ClientsConfig(skew="rotation", num=8, alpha=5.0)
    assert all(map(np.array_equal, auto.deal(upright), labels.deal(upright)))
    assert all(map(np.array_equal, auto.deal(turned), rotation.deal(turned)))
    assert not all(map(np.array_equal, auto.deal(turned), labels.deal(turned)))


def test_the_split_depends_on_its_own_seed_only():
    data = examples()
    one, again, other = (ClientsConfig(seed=seed).deal(data) for seed in (1, 1, 2))
    assert all(map(np.array_equal, one, again))
    assert not all(map(np.array_equal, one, other))


def test_what_cannot_be_dealt_is_refused():
    with pytest.raises(ConfigError, match="3 for 10 clients"):
        ClientsConfig().deal(examples(3))
    with pytest.raises(ConfigError, match="Set `rotated`"):
        ClientsConfig(skew="rotation").deal(examples())


def test_rotated_data_knows_its_angles():
    task = Data(name="digits", rotated=True, num_train=50, num_val=10, num_test=10).load()
    known = angles(5000, "train")
    assert np.isin(task.train.degrees, known).all()
    joined = task.train.joined(task.val)
    assert joined.degrees.tolist() == [*task.train.degrees, *task.val.degrees]
    assert joined.subset(np.array([3, 55])).degrees.tolist() == [
        task.train.degrees[3],
        task.val.degrees[5],
    ]
    assert Data(name="digits", num_train=50, num_val=10).load().train.degrees is None
