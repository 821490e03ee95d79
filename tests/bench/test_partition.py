import json

import pytest
import torch

from benchmarks import measure, partition


@pytest.mark.slow
def test_all_ratios_are_there():
    threads = torch.get_num_threads()
    result = partition.run(quick=True)
    nets = ("mnist_cnn", "fixup_resnet8", "fixup_resnet14")
    expected = {
        f"{step}.{net}.S{s}"
        for step in ("weight_step", "hyper_step")
        for net in nets
        for s in (1, 20)
    }
    expected |= {f"{what}.{net}" for what in ("mixed_step", "joint_step", "memory") for net in nets}
    assert set(result["ratios"]) == expected
    assert result["bench"] == "partition"
    assert len(result["rows"]) == len(expected)
    for row in result["rows"]:
        assert row["ratio"] == result["ratios"][row["what"]] > 0
    json.dumps(result)
    assert torch.get_num_threads() == threads


def test_the_peak_counts_what_is_alive_at_once():
    kept = []

    def work():
        kept.append(torch.zeros(1000))  # 4,000 bytes that stay
        for _ in range(5):
            torch.zeros(500)  # 2,000 bytes that do not add up
        kept[0].view(10, 100).t()  # views have no bytes of their own
        kept[0].add_(1)

    assert measure.peak_bytes(work) == 6000


def test_the_peak_counts_what_a_backward_pass_saves():
    weight = torch.ones(100, 100, requires_grad=True)

    def work():
        h = torch.ones(100, 100)
        for _ in range(3):
            h = (h @ weight).relu()
        h.sum().backward()

    # Inputs and outputs of the products and activations: at least six of 40,000 bytes.
    assert 7 * 40_000 <= measure.peak_bytes(work) <= 10 * 40_000
