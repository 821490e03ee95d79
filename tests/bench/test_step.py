import json

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import step
from tuneparts.nets import DigitsCnn, FixupResNet, Mlp, MnistCnn, WideResNet

NETS = [DigitsCnn(), MnistCnn(), FixupResNet(depth=8), WideResNet(depth=16, width=2), Mlp()]


@pytest.mark.parametrize("config", NETS, ids=lambda config: config.name)
def test_the_net_by_hand_is_the_same_net(config):
    torch.manual_seed(0)
    shape = (3, 16, 16)
    ours = config.build(shape, 10)
    for weight in ours.parameters():
        nn.init.normal_(weight, std=0.1)  # FixUp's zeros would hide most of it
    by_hand = step.plain_net(ours)
    assert set(by_hand.parameters()) == set(ours.parameters())
    x = torch.rand(4, *shape)
    assert torch.allclose(ours(x), by_hand(x), rtol=1e-4, atol=1e-5)


def test_the_step_by_hand_does_the_same_work_as_ours():
    ways = step.ways(DigitsCnn(), (1, 8, 8), batch_size=5)
    assert set(ways) == {"ours", "plain", "tuned"}
    operations = {}
    for side, way in ways.items():
        way()
        with FlopCounterMode(display=False) as counter:
            way()
        counts = counter.get_flop_counts()["Global"]
        # What draws and places the samples differs; convolutions and their gradients do not.
        operations[side] = [n for op, n in sorted(counts.items(), key=str) if "conv" in str(op)]
    assert operations["ours"] == operations["plain"] == operations["tuned"] != []


@pytest.mark.slow
def test_all_ratios_are_there():
    threads = torch.get_num_threads()
    result = step.run(quick=True)
    nets = ("digits_cnn", "mnist_cnn", "fixup_resnet8", "wrn_16_2", "mlp")
    expected = {
        f"{what}.{net}"
        for what in ("ours_over_plain", "ours_over_tuned", "of_product")
        for net in nets
    }
    assert set(result["ratios"]) == expected
    assert {row["what"] for row in result["rows"]} == {f"ours_over_plain.{net}" for net in nets}
    assert all(ratio > 0 for ratio in result["ratios"].values())
    json.dumps(result)
    assert torch.get_num_threads() == threads
