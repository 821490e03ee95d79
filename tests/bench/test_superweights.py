import json

import pytest
import torch

from benchmarks import superweights


@pytest.mark.slow
def test_all_ratios_are_there() -> None:
    threads = torch.get_num_threads()
    result = superweights.run(quick=True)
    assert set(result["ratios"]) == {"step.wrn_16_2", "step.wrn_28_2"}
    assert result["bench"] == "superweights"
    assert all(value > 0 for value in result["ratios"].values())
    json.dumps(result)
    assert torch.get_num_threads() == threads


def test_composing_counts_the_bytes_of_every_weight() -> None:
    row = superweights._compose_row(1, 300_000, rounds=1)
    # The convolutions of four WRN-28-1, in single precision.
    assert row["composed bytes"] == 4 * 4 * (
        432 + 8 * 2304 + 4608 + 7 * 9216 + 18432 + 7 * 36864 + 512 + 2048
    )
    assert row["template bytes"] <= 4 * 300_000
    assert row["ms"] > 0
