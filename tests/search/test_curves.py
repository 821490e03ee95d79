"""Curves of a run as a table, and back."""

import pytest

from tests.search.test_retry import fails, run
from tuneparts.errors import DataError
from tuneparts.search import curves
from tuneparts.search.spec import Asha, RandomSearch


def test_a_table_has_the_trials_that_finished_and_what_differs(
    null_search, null_arm, tmp_path
) -> None:
    search = null_search(
        null_arm("random", algorithm=RandomSearch(num_trials=4)),
        null_arm("asha", algorithm=Asha(num_trials=4, min_passes=2, reduction=2)),
    )
    path = tmp_path / "journal.jsonl"
    journal = run(search, path, fails(1))
    table = curves.record(path, "val/accuracy", arm="random")
    assert list(table) == ["x", "val/accuracy@8"]
    table.to_csv(tmp_path / "table.csv", index=False)
    found = curves.read(tmp_path / "table.csv")
    assert (found.metric, found.passes, len(found.scores)) == ("val/accuracy", (8,), 3)
    expected = [
        r.config["x"] for t, r in sorted(journal.trials.items()) if t.arm == "random" and r.rows
    ]
    assert [found.at(i, 8) for i in range(3)] == pytest.approx(expected)
    assert list(found.configs["x"]) == pytest.approx(expected)


def test_a_table_without_curves_is_refused(null_search, null_arm, tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    run(null_search(null_arm("random", algorithm=RandomSearch(num_trials=2))), path)
    with pytest.raises(DataError, match=r"none in .* has `val/nll`"):
        curves.record(path, "val/nll")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"columns `METRIC@PASSES` of one metric, but .* has none"):
        curves.read(tmp_path / "other.csv")
