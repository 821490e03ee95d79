import json
import os

import pytest

from benchmarks import data


@pytest.mark.slow
def test_all_ratios_are_there() -> None:
    before = dict(os.environ)
    result = data.run(quick=True)
    assert set(result["ratios"]) == {"folder_over_ours.always", "folder_over_ours.once"}
    assert all(value > 0 for value in result["ratios"].values())
    assert [row["readers MB"] > 0 for row in result["rows"]] == [True] * 3
    json.dumps(result)
    assert dict(os.environ) == before
