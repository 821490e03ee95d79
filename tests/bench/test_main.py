"""What `python -m benchmarks` teaches and prints, and what all benchmarks share."""

import json
from importlib import import_module

import pytest

from benchmarks import measure, results, step
from benchmarks.__main__ import NAMES, main


def test_without_a_name_all_are_listed(capsys) -> None:
    main([])
    said = capsys.readouterr().out
    assert all(f"  {name} " in said for name in NAMES)
    assert all(hasattr(import_module(f"benchmarks.{name}"), "run") for name in NAMES)


def test_an_unknown_name_is_answered_with_the_known_ones(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["stpe"])
    said = capsys.readouterr().err
    assert all(name in said for name in NAMES)


@pytest.mark.parametrize("words", [["--json"], []])
def test_standard_output_has_the_result_and_nothing_else(monkeypatch, capsys, words) -> None:
    def run(*, quick: bool) -> results.Result:
        assert quick
        print("on the way")
        return results.result("step", {"a": 2.0}, [{"what": "a", "ms": 1.0}])

    monkeypatch.setattr(step, "run", run)
    main(["step", "--quick", *words])
    printed = capsys.readouterr()
    assert "on the way" in printed.err
    assert "on the way" not in printed.out
    if words:
        found = json.loads(printed.out)
        assert (found["ratios"], found["rows"]) == ({"a": 2.0}, [{"what": "a", "ms": 1.0}])
        assert found["machine"]["mlflow"]
    else:
        assert "2.000" in printed.out


def test_ways_take_turns() -> None:
    turns: list[str] = []

    def way(name: str) -> int:
        turns.append(name)
        return len(turns)

    found = measure.interleave({"a": lambda: way("a"), "b": lambda: way("b")}, rounds=3)
    assert turns == ["a", "b"] * 3
    assert found == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_ratios_are_of_turns() -> None:
    seconds = {"ours": [3.0, 1.0, 10.0], "plain": [1.0, 1.0, 2.0]}
    assert measure.ratio_columns(seconds, "plain") == {
        "ratio": 3.0, "ratio, fastest": 1.0, "ratio, slowest": 5.0, "plain ms": 1e3, "ours ms": 3e3
    }  # fmt: skip
