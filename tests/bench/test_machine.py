import json

from tuneparts.bench import machine


def test_the_description_is_json_and_names_the_versions() -> None:
    found = machine.describe()
    assert json.loads(json.dumps(found)) == found
    assert found["cores"] >= 1
    assert found["mlflow"] is not None


def test_ways_take_turns() -> None:
    turns: list[str] = []

    def way(name: str) -> int:
        turns.append(name)
        return len(turns)

    results = machine.interleave({"a": lambda: way("a"), "b": lambda: way("b")}, rounds=3)
    assert turns == ["a", "b"] * 3
    assert results == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_spread() -> None:
    assert machine.spread([3.0, 1.0, 10.0]) == {"median": 3.0, "fastest": 1.0, "slowest": 10.0}
