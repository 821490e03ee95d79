import copy

import pytest
import torch
from torch import nn

from tuneparts.core import _torchvision, seeding
from tuneparts.core.errors import ConfigError
from tuneparts.methods.pwfn import compress, load

SETTINGS = {"steps": 40, "interval": 20, "batch_size": 20, "pretrain": 0.5}


def _net(seed=0):
    with seeding.isolated(seed, "init"):
        return nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.2), nn.ReLU(), nn.Linear(16, 3)
        )


def _data(num=60, seed=0):
    x = torch.randn(num, 6, generator=torch.Generator().manual_seed(seed))
    return x, x[:, :3].argmax(dim=1)


def test_the_net_is_plain_has_few_values_and_the_given_one_is_untouched():
    net = _net()
    before = copy.deepcopy(net.state_dict())
    modes = [m.training for m in net.modules()]
    small = compress(net, _data(), **SETTINGS)
    assert all(torch.equal(v, before[k]) for k, v in net.state_dict().items())
    assert modes == [m.training for m in net.modules()]
    assert [type(m) for m in small.net.modules()] == [type(m) for m in net.modules()]
    coded = torch.cat([p.flatten() for i in (0, 4) for p in small.net[i].parameters()])
    assert len(coded.unique()) == small.num_values < len(coded) / 2
    assert small.covered == len(coded) / sum(p.numel() for p in net.parameters())
    reason = "is of a BatchNorm1d (16)"
    assert small.left_out == {"1.weight": reason, "1.bias": reason}
    assert not torch.equal(small.net[1].weight, net[1].weight)
    assert 0 < small.entropy < 16
    assert small.num_float_bytes == 4 * sum(v.numel() for v in before.values()) + 4


def test_a_net_in_evaluation_mode_is_trained_as_one_in_training_mode():
    usual, given = (compress(_net().train(mode), _data(), **SETTINGS) for mode in (True, False))
    assert given.history == usual.history
    assert torch.equal(given.net[1].running_mean, usual.net[1].running_mean)


def test_scores_are_those_of_the_plain_nets_on_validation_data():
    net, val = _net(), _data(30, seed=1)
    small = compress(net, _data(), val, **SETTINGS)
    for scores, of in ((small.before, net), (small.after, small.net)):
        logits = of.eval()(val[0])
        assert scores["accuracy"] == pytest.approx((logits.argmax(1) == val[1]).double().mean())
        assert scores["nll"] == pytest.approx(nn.functional.cross_entropy(logits, val[1]).item())
    assert small.history[-1]["val/nll"] == pytest.approx(small.after["nll"], rel=1e-5)
    assert small.after["nll"] < small.before["nll"]


def test_the_file_loads_bit_for_bit(tmp_path):
    file = tmp_path / "new" / "net.npz"
    small = compress(_net(), _data(), file=file, **SETTINGS)
    assert file.stat().st_size == small.num_bytes
    other = _net(seed=1)
    assert load(str(file), other) is other
    for name, value in small.net.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


def test_same_seed_same_net_arrays_or_tensors_and_the_global_generator_is_untouched():
    x, y = _data()
    state = torch.get_rng_state()
    seen = []
    first = compress(_net(), (x, y), report=seen.append, **SETTINGS)
    again = compress(_net(), (x.numpy(), y.numpy()), **SETTINGS)
    other = compress(_net(), (x, y), seed=1, **SETTINGS)
    assert torch.equal(torch.get_rng_state(), state)
    assert first.history == seen == again.history != other.history


def test_a_call_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    fields = {**SETTINGS, "interval": 10}
    whole = compress(_net(), _data(), **fields)

    def stop(row):
        if row["cost/steps"] == 30:
            raise KeyboardInterrupt

    file = tmp_path / "net.npz"
    partial = tmp_path / "net.npz.partial"
    partial.write_bytes(b"torn")
    for net in (_net(1), _net()):  # what a call with another net left is not continued
        with pytest.raises(KeyboardInterrupt):
            compress(net, _data(), file=file, report=stop, **fields)
    assert not file.exists()
    seen = []
    resumed = compress(_net(), _data(), file=file, report=seen.append, **fields)
    assert [row["cost/steps"] for row in seen] == [30, 40]
    assert resumed.history == whole.history
    assert file.stat().st_size == whole.num_bytes
    assert [path.name for path in tmp_path.iterdir()] == ["net.npz"]


def test_deviations_move_as_far_as_they_should_by_default():
    small = compress(_net(), _data(), **SETTINGS)
    assert small.history[-1]["fixing/exposure"] == pytest.approx(1.0)
    plain = {**SETTINGS, "pretrain": 0.0}
    assert compress(_net(), _data(), **plain).history[0]["fixing/fraction"] > 0
    given = compress(_net(), _data(), **SETTINGS, sigma={"alpha": 0.0})
    assert given.history[-1]["fixing/exposure"] == 0
    compress(_net(), _data(), **SETTINGS, quantiser={"kind": "nearest"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"pretrained": "x.pt"}, "`pretrained`: not a setting"),
        ({"quantiser": {"kind": "free"}}, "`free`: makes no codebook"),
        ({"quantiser": {"kind": "uniform"}, "fractions": (1.0,)}, "makes no codebook"),
        ({"pases": 4}, "Did you mean `steps`"),
        ({"fractions": (0.5, 0.4)}, "fractions rise"),
    ],
)
def test_fields_that_cannot_be_meant_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        compress(_net(), _data(), **fields)


X, Y = _data()


@pytest.mark.parametrize(
    ("net", "data", "message"),
    [
        (_net(), [(X, Y[:-1])], "one label"),
        (_net(), [(X[:0], Y[:0])], "one label"),
        (_net(), [(X, Y), (X[:, :5], Y)], "inputs of all parts have one shape"),
        (_net(), [(X[:, :5], Y)], r"shape \(8, 5\), but its forward raised"),
        (_net(), [(X, Y + 1)], "has 3 for 4 classes"),
        (_net().double(), [(X, Y)], "Float and Double"),
        (nn.Sequential(nn.Linear(6, 3), nn.Unflatten(1, (3, 1))), [(X, Y)], "must make logits"),
    ],
)
def test_data_that_do_not_fit_are_refused(net, data, message):
    with pytest.raises(ConfigError, match=message):
        compress(net, *data)


def test_two_parameters_with_one_memory_are_refused():
    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3))
    net[1].weight.data = net[0].weight.data
    with pytest.raises(ConfigError, match="two parameters share their memory"):
        compress(net, _data(), **SETTINGS)
    net[1].weight = net[0].weight
    small = compress(net, _data(), **SETTINGS)
    assert small.net[1].weight is small.net[0].weight


def _transformer():
    with seeding.isolated(0, "init"):
        return _torchvision.load().models.VisionTransformer(
            image_size=8, patch_size=4, num_layers=1, num_heads=2, hidden_dim=8, mlp_dim=16,
            num_classes=3,
        )  # fmt: skip


def test_a_vision_transformer_of_torchvision_goes_in_and_comes_back_from_its_file(tmp_path):
    x = torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    y = (x.mean(dim=(2, 3))).argmax(dim=1)
    file = tmp_path / "transformer.npz"
    net = _transformer().to(memory_format=torch.channels_last)
    small = compress(net, (x, y), file=file, **SETTINGS)
    assert not net.conv_proj.weight.is_contiguous()
    assert [p.stride() for p in small.net.parameters()] == [p.stride() for p in net.parameters()]
    attention = "encoder.layers.encoder_layer_0.self_attention.in_proj_weight"
    values = small.net.get_parameter(attention).unique()
    assert len(values) <= small.num_values < small.net.get_parameter(attention).numel()
    assert {"class_token", "encoder.pos_embedding"} <= small.left_out.keys()
    assert attention not in small.left_out
    again = load(file, _transformer()).eval()
    assert torch.equal(again(x), small.net(x))
