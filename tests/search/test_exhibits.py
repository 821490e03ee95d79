from pathlib import Path

import pytest

from tuneparts.journal import TrialId
from tuneparts.search.exhibits import Exhibits
from tuneparts.search.segment import Segment
from tuneparts.search.shelf import Shelf
from tuneparts.search.storage import Folder

TRIAL = TrialId("pwfn", 3, 1)


@pytest.fixture
def exhibits(tmp_path: Path) -> Exhibits:
    return Exhibits(Folder(str(tmp_path)))


def test_what_is_put_is_found(exhibits: Exhibits) -> None:
    exhibits.put(TRIAL, {"weights": {"mu": [0.5]}, "other": {"x": [1.0]}})
    exhibits.put(TRIAL, {"weights": {"mu": [0.25]}})
    assert exhibits.find(str(TRIAL), "weights") == "mu\n0.25\n"
    assert exhibits.find(str(TRIAL), "other") == "x\n1\n"


def test_what_is_not_there_is_none(exhibits: Exhibits) -> None:
    assert exhibits.find(str(TRIAL), "weights") is None
    exhibits.put(TRIAL, {"weights": {"mu": [0.5]}})
    assert exhibits.find(str(TRIAL), "heights") is None
    assert exhibits.find("pwfn/seed3/00002", "weights") is None


def test_states_and_tables_do_not_disturb_each_other(exhibits: Exhibits, tmp_path: Path) -> None:
    shelf = Shelf(Folder(str(tmp_path)))
    later = Segment(trial=TRIAL, config={}, until=10, round=2)
    exhibits.put(TRIAL, {"weights": {"mu": [0.5]}})
    for passes in (2, 4, 6):
        shelf.put(later, passes, {"passes": passes}, last=passes == 6)
    found = shelf.find(later)
    assert found is not None
    assert found.state == {"passes": 6}
    assert exhibits.find(str(TRIAL), "weights") == "mu\n0.5\n"
