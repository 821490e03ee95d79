"""Every fault of `make faults`: nothing lost, nothing doubled, the same table."""

from collections.abc import Iterator

import pytest

from tests.harness import faults

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def stage() -> Iterator[faults.Stage]:
    with faults._stage(quick=True) as made:
        yield made


@pytest.mark.parametrize("name", list(faults.FAULTS))
def test_the_answer_does_not_change(stage: faults.Stage, name: str) -> None:
    row = faults.strike(stage, name)
    if not row["times"]:
        pytest.skip(row["note"])
    assert row["lost"] == 0
    assert row["doubled"] == 0
    assert row["table equal"]
    assert row["recovered in"] >= 0
