from pathlib import Path

import pytest

from tuneparts.search.checkpoints import CheckpointStore
from tuneparts.search.events import TrialId
from tuneparts.search.segment import Segment
from tuneparts.search.storage import ArtifactStore, Folder

TRIAL = TrialId("pwfn", 3, 1)


@pytest.fixture
def artifacts(tmp_path: Path) -> ArtifactStore:
    return ArtifactStore(Folder(str(tmp_path)))


def test_what_is_put_is_found(artifacts: ArtifactStore) -> None:
    assert artifacts.find(str(TRIAL), "weights") is None
    artifacts.put(TRIAL, {"weights": {"mu": [0.5]}, "other": {"x": [1.0]}})
    artifacts.put(TRIAL, {"weights": {"mu": [0.25]}})
    assert artifacts.find(str(TRIAL), "weights") == "mu\n0.25\n"
    assert artifacts.find(str(TRIAL), "other") == "x\n1\n"
    assert artifacts.find(str(TRIAL), "heights") is None
    assert artifacts.find("pwfn/seed3/00002", "weights") is None


def test_states_and_tables_do_not_disturb_each_other(
    artifacts: ArtifactStore, tmp_path: Path
) -> None:
    checkpoints = CheckpointStore(Folder(str(tmp_path)))
    later = Segment(trial=TRIAL, config={}, until=10, round=2)
    artifacts.put(TRIAL, {"weights": {"mu": [0.5]}})
    for steps in (2, 4, 6):
        checkpoints.put(later, steps, {"steps": steps}, last=steps == 6)
    found = checkpoints.find(later)
    assert found is not None
    assert found.state == {"steps": 6}
    assert artifacts.find(str(TRIAL), "weights") == "mu\n0.5\n"
