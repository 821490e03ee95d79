from tuneparts.cli._reading import difference


def test_runs_are_told_apart_by_the_one_field_that_differs() -> None:
    sizes = {"s/1": {"name": "m", "num_train": 500}, "s/2": {"name": "m", "num_train": None}}
    assert difference(sizes) == ("num_train", [500, "all"])


def test_otherwise_by_their_names() -> None:
    same = {"s/1": {"name": "m"}, "s/2": {"name": "m"}}
    assert difference(same) == ("run", ["s/1", "s/2"])
    two = {"s/1": {"name": "m", "num_train": 1}, "s/2": {"name": "n", "num_train": 2}}
    assert difference(two) == ("run", ["s/1", "s/2"])
    twice = {"s/1": {"n": 1}, "s/2": {"n": 2}, "s/3": {"n": 1}}
    assert difference(twice) == ("run", ["s/1", "s/2", "s/3"])
    assert difference({"a/1": {"n": 1}, "b/1": {"n": 2}}) == ("run", ["a/1", "b/1"])
    assert difference({"a/1": {"n": 1}}) == ("run", ["a/1"])
